use super::*;
use crate::filter::Options;
use crate::heatmap::{Extent, Grid, GridSize};
use crate::scene::{absent, mapping, region, snapshot, target, unknown};
use isotherm_core::{RateSupport, RegionView, Snapshot, Unknown};

const MIB: u64 = 1 << 20;

fn scene() -> Vec<Snapshot> {
    let base = 0x5500_0000_0000;
    let at = |r: RegionView| {
        let range = isotherm_core::AddrRange::new(r.range.start + base, r.range.end + base);
        RegionView { range, ..r }
    };
    (0..10)
        .map(|i| {
            let regions = [
                region(0, 2 * MIB, 0.0),
                region(2 * MIB, 4 * MIB, if i < 5 { 0.0 } else { 40.0 }),
                unknown(4 * MIB, 6 * MIB, Unknown::Mlocked),
                if i < 3 { absent(6 * MIB, 8 * MIB) } else { region(6 * MIB, 8 * MIB, 0.3) },
            ];
            let maps = vec![mapping(base, base + 8 * MIB, "[heap]")];
            let small = region(0, 4096, 99.0);
            let other = target(1, vec![mapping(0, 4096, "/lib/a.so")], vec![small]);
            snapshot(i, 1.0, vec![target(0, maps, regions.map(at).to_vec()), other])
        })
        .collect()
}

/// The scene, the middle of it extended from 4 s on, and old from 7 s on.
fn weaker() -> Vec<Snapshot> {
    let mut all = scene();
    for (i, s) in all.iter_mut().enumerate() {
        let old = RateSupport { measured_bp: 1_000, extended_bp: 3_000 };
        let extended = RateSupport { measured_bp: 5_000, extended_bp: 4_000 };
        let weak = [(7, old), (4, extended)];
        let weak = weak.into_iter().find(|(from, _)| i >= *from).map(|(_, support)| support);
        for r in &mut s.targets[0].regions[..2] {
            r.support = weak.or(r.support);
        }
    }
    all
}

fn render(style: Style, width: usize, height: usize) -> String {
    render_all(&scene(), style, width, height)
}

fn render_all(snapshots: &[Snapshot], style: Style, width: usize, height: usize) -> String {
    let options = Options { title: "redis-server, 10 s".into(), ..Options::default() };
    let mut extent = Extent::new(options);
    snapshots.iter().for_each(|s| extent.push(s));
    let mut grid = Grid::new(extent, &GridSize::terminal(width, height)).unwrap();
    snapshots.iter().for_each(|s| grid.push(s));
    terminal(&grid.finish(), style)
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').unwrap().1)
}

#[test]
fn plain_text_needs_no_colour() {
    let expected = "\
redis-server, 10 s
[heap] 8 MiB, 7.4 MiB resident on average, from 0x550000000000
                           :::::::::::::::::::::::::::::::::::::
                           :::::::::::::::::::::::::::::::::::::
           ?????????????????????????????????????????????????????
    +4 MiB ?????????????????????????????????????????????????????
           ..........................*##########################
           ..........................*##########################
           .....................................................
        +0 .....................................................
           +---------+----------+---------+----------+---------+
           0 s       2          4         6          8        10
           . not touched   :-=+*#%@ 0.1 to 1000 Hz, hot: * (10 Hz)
           ? unknown   blank: not resident
           1 smaller area with 4.0 KiB (4.0 KiB hot) is not drawn.
           unknown: 2.0 MiB of 7.4 MiB resident (27.0 %)
           looked at: the record does not say how
";
    let text = render(Style::Plain, 64, 18);
    assert_eq!(text, expected);
}

#[test]
fn unmeasured_cells_look_different() {
    let text = render_all(&weaker(), Style::Plain, 64, 18);
    for line in [
        "           ......................____effffffffff6666666666666666",
        "           ......................_______________0000000000000000",
        "           ? unknown   blank: not resident   _abcdefgh extended   012345678 old",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}\n{text}");
    }
    let text = render_all(&weaker(), Style::TrueColor, 80, 24);
    let front = |[r, g, b]: Rgb| format!("\x1b[38;2;{r};{g};{b}m");
    for support in [CellSupport::Extended, CellSupport::Old] {
        assert!(text.contains(&front(faded(color::of_rate(40.0), support))), "{support:?}");
    }
    assert!(!render(Style::TrueColor, 80, 24).contains("extended"), "all of it is");
}

#[test]
fn lines_fit_the_terminal() {
    for style in [Style::TrueColor, Style::Ansi256, Style::Plain] {
        for (width, height) in [(80, 24), (120, 50), (200, 12)] {
            let text = without_escapes(&render_all(&weaker(), style, width, height));
            assert!(text.lines().count() < height, "{width} x {height}\n{text}");
            assert!(text.lines().all(|l| l.chars().count() <= width), "{width} x {height}\n{text}");
        }
    }
}

#[test]
fn colours_are_set_and_put_back() {
    let [r, g, b] = color::of_rate(40.0);
    let text = render(Style::TrueColor, 80, 24);
    assert!(text.contains(&format!("\x1b[38;2;{r};{g};{b}m")));
    let hatched = text.lines().find(|l| l.contains("//////")).unwrap();
    assert!(hatched.contains("\x1b[48;2;135;144;157m"));
    for line in text.lines().filter(|l| l.contains('\x1b')) {
        let last = line.rsplit("\x1b[").next().unwrap();
        assert!(last.starts_with("0m"), "{line:?}");
    }
    assert!(!render(Style::Plain, 80, 24).contains('\x1b'));
    assert!(render(Style::Ansi256, 80, 24).contains("\x1b[38;5;"));
}

#[test]
fn two_cells_share_a_character() {
    let mut p = Painter { style: Style::TrueColor, palette: Palette::new(), now: (None, None) };
    let mut one = |upper, lower| {
        let mut out = String::new();
        let measured = |cell| (cell, CellSupport::Measured);
        p.pair(&mut out, measured(upper), measured(lower));
        without_escapes(&out)
    };
    let rate = Cell::Rate(5.0);
    assert_eq!(one(rate, rate), "▀");
    assert_eq!(one(Cell::Absent, rate), "▄");
    assert_eq!(one(rate, Cell::Unmapped), "▀");
    assert_eq!(one(Cell::Unknown, Cell::Unknown), "/");
    assert_eq!(one(Cell::Absent, Cell::Unmapped), "·");
    assert_eq!(one(Cell::Unmapped, Cell::Unmapped), " ");
}

#[test]
fn the_hotter_of_two_cells_is_written_in_plain_text() {
    let order = [Cell::Absent, Cell::Rate(0.0), Cell::Unknown, Cell::Rate(0.1), Cell::Rate(10.0)];
    let ranks = order.map(|c| plain((c, CellSupport::Measured)).0);
    assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    assert_eq!([0.05, 0.1, 9.9, 10.0, 1e4].map(|hz| RAMP[step(hz)]), [':', ':', '+', '*', '@']);
}

#[test]
fn the_nearest_of_256_colours_is_taken() {
    assert_eq!([[0, 0, 0], [255, 255, 255], [250, 10, 100]].map(ansi256), [16, 231, 197]);
}
