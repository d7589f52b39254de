use super::*;
use crate::filter::Options;
use crate::heatmap::{Extent, Grid, GridSize};
use crate::scene::{mapping, region, snapshot, target, unknown};
use isotherm_core::{RateSupport, RegionView, Unknown};

const MIB: u64 = 1 << 20;

fn heatmap(panels: Vec<Vec<RegionView>>, shape: &GridSize) -> Heatmap {
    let targets = (0..)
        .zip(panels)
        .map(|(id, regions)| target(id, vec![mapping(0, 8 * MIB, "[heap]")], regions))
        .collect();
    let snapshot = snapshot(0, 60.0, targets);
    let mut extent = Extent::new(Options::default());
    extent.push(&snapshot);
    let mut grid = Grid::new(extent, shape).unwrap();
    grid.push(&snapshot);
    grid.finish()
}

/// From the top: hot, not touched, hardly resident, unknown.
fn quarters() -> Vec<RegionView> {
    vec![
        unknown(0, 2 * MIB, Unknown::Mlocked),
        RegionView { resident_bp: 1000, ..region(2 * MIB, 4 * MIB, 0.0) },
        region(4 * MIB, 6 * MIB, 0.0),
        region(6 * MIB, 8 * MIB, 50.0),
    ]
}

fn png(map: &Heatmap) -> Vec<u8> {
    heatmap_picture(map).unwrap().png().unwrap()
}

struct Pixels {
    width: usize,
    pixels: Vec<Rgb>,
}

fn decode(file: &[u8]) -> Pixels {
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let pixels = bytes.as_chunks::<3>().0.to_vec();
    assert_eq!(pixels.len(), info.width as usize * info.height as usize);
    Pixels { width: info.width as usize, pixels }
}

impl Pixels {
    /// Part of a line of the plot that has a colour.
    fn share(&self, y: usize, color: Rgb) -> f64 {
        let line = &self.pixels[y * self.width..][LEFT..LEFT + PLOT];
        line.iter().filter(|p| **p == color).count() as f64 / PLOT as f64
    }
}

#[test]
fn each_quarter_has_its_colour() {
    let map = heatmap(vec![quarters()], &GridSize::picture());
    let rows = map.panels[0].cells.rows();
    let picture = decode(&png(&map));
    assert_eq!(picture.width, 1200);
    let y = |eighths: usize| HEAD + TITLE + rows * eighths / 8;
    let hot = Palette::new().of_rate(50.0);
    for (eighths, color) in [(1, hot), (3, color::untouched()), (5, ABSENT)] {
        assert!(picture.share(y(eighths), color) > 0.95, "{eighths}: {color:?}");
    }
    let stripes = STRIPES.map(|c| picture.share(y(7), c));
    assert!(stripes.iter().all(|s| *s > 0.3) && stripes.iter().sum::<f64>() > 0.95, "{stripes:?}");
    assert_eq!(picture.share(y(7), hot), 0.0);
}

/// From the top: measured, extended, old; all equally hot.
#[test]
fn unmeasured_cells_are_paler() {
    let supported = |from, to, measured_bp, extended_bp| RegionView {
        support: Some(RateSupport { measured_bp, extended_bp }),
        ..region(from * MIB, to * MIB, 50.0)
    };
    let regions = vec![
        supported(0, 2, 2_000, 3_000),
        supported(2, 5, 5_000, 5_000),
        supported(5, 8, 5_100, 0),
    ];
    let map = heatmap(vec![regions], &GridSize::picture());
    let rows = map.panels[0].cells.rows();
    let picture = decode(&png(&map));
    let y = |eighths: usize| HEAD + TITLE + rows * eighths / 8;
    let hot = Palette::new().of_rate(50.0);
    assert!(picture.share(y(1), hot) > 0.95);
    let extended = color::mixed(hot, PAPER, 0.35);
    assert!(picture.share(y(4), extended) > 0.95);
    assert_eq!(picture.share(y(7), hot) + picture.share(y(7), extended), 0.0, "stripes");
    let stripes = [0.85, 0.25].map(|part| picture.share(y(7), color::mixed(hot, PAPER, part)));
    assert!(stripes.iter().all(|s| *s > 0.4), "{stripes:?}");
}

#[test]
fn borders_are_where_the_addresses_are() {
    let map = heatmap(vec![quarters()], &GridSize::picture());
    let rows = map.panels[0].cells.rows();
    let picture = decode(&png(&map));
    let hot = Palette::new().of_rate(50.0);
    let border = HEAD + TITLE + rows / 4;
    assert!(picture.share(border - 1, hot) > 0.95 && picture.share(border, hot) == 0.0);
}

#[test]
fn text_is_anti_aliased_ink_on_paper() {
    let picture = decode(&png(&heatmap(vec![quarters()], &GridSize::picture())));
    let heading = &picture.pixels[20 * picture.width..50 * picture.width];
    assert!(heading.contains(&INK));
    let between = heading.iter().filter(|p| **p != INK && **p != PAPER).count();
    assert!(between > 100, "{between}");
}

#[test]
fn every_panel_is_drawn_whole_whatever_the_shape() {
    for shape in [GridSize::picture(), GridSize::terminal(80, 30)] {
        let map = heatmap(vec![quarters(), quarters(), quarters()], &shape);
        let tops = tops(&map.panels);
        let picture = decode(&png(&map));
        for (top, panel) in tops.iter().zip(&map.panels) {
            let untouched = top + height(panel) * 3 / 8;
            assert!(picture.share(untouched, color::untouched()) > 0.95);
            assert!(picture.share(top - 2, color::untouched()) < 0.01);
        }
        assert!(tops.windows(2).all(|w| w[0] + height(&map.panels[0]) + TITLE < w[1]));
    }
}

#[test]
fn omitted_memory_is_stated() {
    let mut map = heatmap(vec![quarters()], &GridSize::picture());
    assert_eq!(omitted(&map), "");
    map.omitted = crate::Omitted { areas: 12, resident_bytes: Some(3_250_586), hot_bytes: 4096 };
    assert_eq!(omitted(&map), "12 smaller areas with 3.1 MiB (4.0 KiB hot) are not drawn.");
    map.omitted.areas = 1;
    assert_eq!(omitted(&map), "1 smaller area with 3.1 MiB (4.0 KiB hot) is not drawn.");
}
