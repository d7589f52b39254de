//! A heat map as a picture, 1200 pixels wide, for a talk or a paper.

use super::RenderError;
use super::axis::{size_ticks, time_ticks};
use super::color::{self, Palette, Rgb};
use super::picture::{Anchor, Paint, Picture};
use super::style::{
    HEAD, INK, LABEL, LEFT, LINE_COLOR, NAME_PEN, NOTE_PEN, PAPER, PLOT, QUIET, WIDTH, damaged,
    footer, heading, swatch,
};
use crate::heatmap::{Cell, CellSupport, Heatmap, Panel};
use crate::units;

/// Height above the cells of a panel, and between the cells of two panels.
const TITLE: usize = 26;
const GAP: usize = 10;
const GROUP_GAP: usize = 14;
/// Height below the last panel, for the time axis, legend and footer.
const FOOT: usize = 190;
/// A panel with fewer rows than this is drawn with higher rows.
const MIN_ROWS: usize = 40;

const ABSENT: Rgb = [0xe9, 0xec, 0xf0];
const STRIPES: [Rgb; 2] = [[0xd3, 0xd8, 0xdf], [0x87, 0x90, 0x9d]];

/// The heat map as a picture, best with the cells of [`GridSize::picture`].
///
/// [`GridSize::picture`]: crate::GridSize::picture
///
/// # Errors
/// If the built-in font cannot be read.
pub fn heatmap_picture(map: &Heatmap) -> Result<Picture, RenderError> {
    let tops = tops(&map.panels);
    let end = tops.last().zip(map.panels.last()).map_or(HEAD, |(top, p)| top + height(p));
    let mut picture = Picture::new((WIDTH, end + FOOT), PAPER)?;
    let note = format!(
        "How often a page is touched. Hot: {} or more. A pixel is the hottest region in its \
         addresses, averaged over its time.",
        units::hz(map.basis.hot_hz)
    );
    heading(&mut picture, &map.title, "Heat map", &note);
    let several = map.panels.windows(2).any(|w| w[0].target != w[1].target);
    let palette = Palette::new();
    for (panel, top) in map.panels.iter().zip(tops) {
        title(&mut picture, panel, top, several);
        cells(&mut picture, panel, top, &palette);
        addresses(&mut picture, panel, top);
        time_marks(&mut picture, map, (top, top + height(panel)));
    }
    let middle = (HEAD + TITLE + end) as f32 / 2.0;
    picture.upward((30.0, middle), NOTE_PEN, "address, as offset in its area");
    time_axis(&mut picture, map, end);
    legend(&mut picture, map, end + 76);
    footer(&mut picture, &map.basis);
    Ok(picture)
}

fn height(panel: &Panel) -> usize {
    panel.cells.rows().max(MIN_ROWS)
}

/// The first pixel of each panel's cells. There is a gap between targets.
fn tops(panels: &[Panel]) -> Vec<usize> {
    let mut y = HEAD;
    let mut last = panels.first().map(|p| p.target);
    let top = |p: &Panel| {
        if last.replace(p.target) != Some(p.target) {
            y += GROUP_GAP;
        }
        let top = y + TITLE;
        y = top + height(p) + GAP;
        top
    };
    panels.iter().map(top).collect()
}

fn title(picture: &mut Picture, panel: &Panel, top: usize, several: bool) {
    let baseline = (top - 8) as f32;
    let from = format!("from {:#x}", panel.range.start);
    picture.text(((LEFT + PLOT) as f32, baseline), Anchor::Right, NOTE_PEN, &from);
    let name =
        if several { format!("{}: {}", panel.label, panel.name) } else { panel.name.clone() };
    let name = picture.fonts.fit(&name, NAME_PEN.size, NAME_PEN.weight, PLOT as f32 - 500.0);
    let end = picture.text((LEFT as f32, baseline), Anchor::Left, NAME_PEN, &name);
    picture.text((end + 12.0, baseline), Anchor::Left, NOTE_PEN, &size(panel));
}

/// The size of a panel, and how much of it is resident, if the record contains that.
pub(super) fn size(panel: &Panel) -> String {
    let resident = |n| format!(", {} resident on average", units::short_bytes(n));
    units::short_bytes(panel.range.len()) + &panel.resident_bytes.map_or(String::new(), resident)
}

fn cells(picture: &mut Picture, panel: &Panel, top: usize, palette: &Palette) {
    let (rows, columns, height) = (panel.cells.rows(), panel.cells.columns(), height(panel));
    picture.fill((LEFT, top), (PLOT, height), |x, y| {
        let row = (height - 1 - y) * rows / height;
        let column = x * columns / PLOT;
        match panel.cells.get(column, row) {
            Cell::Damaged => damaged(x, y),
            Cell::Unmapped => PAPER,
            Cell::Absent => ABSENT,
            Cell::Unknown => hatch(x, y),
            Cell::Rate(hz) => {
                supported(palette.of_rate(hz), panel.cells.support(column, row), (x, y))
            }
        }
    });
    picture.frame((LEFT, top), (PLOT, height), LINE_COLOR);
}

/// Diagonal stripes.
fn hatch(x: usize, y: usize) -> Rgb {
    STRIPES[usize::from((x + y) % 8 < 3)]
}

/// The colour of a rate by its basis: paler if it is extended, and with stripes that cross those of unknown
/// memory if it is old.
fn supported(color: Rgb, support: CellSupport, (x, y): (usize, usize)) -> Rgb {
    let part = match support {
        CellSupport::NotSaid | CellSupport::Measured => return color,
        CellSupport::Extended => 0.35,
        CellSupport::Old if (x + 3 * y) % 4 < 2 => 0.85,
        CellSupport::Old => 0.25,
    };
    color::mixed(color, PAPER, part)
}

fn addresses(picture: &mut Picture, panel: &Panel, top: usize) {
    let height = height(panel);
    for tick in size_ticks(panel.range.len(), (height / 45).max(2)) {
        let y = top + height - (tick.at * height as f64).round() as usize;
        picture.rect((LEFT - 6, y.min(top + height - 1)), (5, 1), LINE_COLOR);
        // The figures are centred at the tick, but not below the panel, where the next title is.
        let baseline = (y as f32 + 5.0).min((top + height) as f32);
        picture.text((LEFT as f32 - 12.0, baseline), Anchor::Right, LABEL, &tick.label);
    }
}

fn ticks(map: &Heatmap) -> (Vec<(usize, String)>, &'static str) {
    let (ticks, unit) = time_ticks(map.basis.from_ms / 1e3, map.basis.to_ms / 1e3, 12);
    let x = |at: f64| LEFT + ((at * PLOT as f64) as usize).min(PLOT - 1);
    (ticks.into_iter().map(|t| (x(t.at), t.label)).collect(), unit)
}

/// Ticks below a panel, and faint lines over its cells.
fn time_marks(picture: &mut Picture, map: &Heatmap, (top, end): (usize, usize)) {
    for (x, _) in ticks(map).0 {
        picture.rect((x, end + 1), (1, 5), LINE_COLOR);
        picture.rect((x, top), (1, end - top), Paint { color: PAPER, part: 0.14 });
    }
}

fn time_axis(picture: &mut Picture, map: &Heatmap, y: usize) {
    let (ticks, unit) = ticks(map);
    for (x, label) in ticks {
        picture.text((x as f32, (y + 22) as f32), Anchor::Middle, LABEL, &label);
    }
    let middle = (LEFT + PLOT / 2) as f32;
    let name = format!("time since the recording began, {unit}");
    picture.text((middle, (y + 43) as f32), Anchor::Middle, NOTE_PEN, &name);
    let baseline = (y + FOOT - 54) as f32;
    picture.text((LEFT as f32, baseline), Anchor::Left, NOTE_PEN, &omitted(map));
}

/// Describes the omitted areas; empty if there are none.
pub(super) fn omitted(map: &Heatmap) -> String {
    let o = &map.omitted;
    if o.areas == 0 {
        return String::new();
    }
    let (s, are) = if o.areas == 1 { ("", "is") } else { ("s", "are") };
    let with = o.resident_bytes.map_or(String::new(), |n| format!(" with {}", units::bytes(n)));
    format!(
        "{} smaller area{s}{with} ({} hot) {are} not drawn.",
        o.areas,
        units::bytes(o.hot_bytes)
    )
}

/// Swatches and the colour bar in one line; `y` is its upper border.
fn legend(picture: &mut Picture, map: &Heatmap, y: usize) {
    const BAR: usize = 330;
    let x = swatch(picture, (LEFT, y), "not touched", |_, _| color::untouched());
    color_bar(picture, x, y, BAR, map.basis.hot_hz);
    let mut x = x + BAR + 60;
    for (support, name) in [(CellSupport::Extended, "extended"), (CellSupport::Old, "old")] {
        if map.panels.iter().any(|p| p.cells.any(support)) {
            // Colours of hot memory, and of memory that is not touched.
            let colors = [color::of_rate(map.basis.hot_hz), color::untouched()];
            let color = |x, y| supported(colors[x / 13 % 2], support, (x, y));
            x = swatch(picture, (x, y), name, color);
        }
    }
    let x = swatch(picture, (x, y), "unknown", hatch);
    let x = swatch(picture, (x, y), "not resident", |_, _| ABSENT);
    if !map.basis.gaps.is_empty() {
        swatch(picture, (x, y), "damaged", damaged);
    }
}

fn color_bar(picture: &mut Picture, x: usize, y: usize, width: usize, hot_hz: f64) {
    let place = |hz: f64| x + (color::position(hz) * (width - 1) as f64).round() as usize;
    picture.fill((x, y), (width, 14), |dx, _| color::at(dx as f64 / (width - 1) as f64));
    picture.frame((x, y), (width, 14), LINE_COLOR);
    for hz in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        picture.rect((place(hz), y + 15), (1, 4), QUIET);
        let at = (place(hz) as f32, y as f32 + 32.0);
        picture.text(at, Anchor::Middle, LABEL, &units::significant(hz));
    }
    let end = (x + width) as f32 + 18.0;
    picture.text((end, y as f32 + 32.0), Anchor::Left, LABEL, "Hz");
    if (color::LOW_HZ..color::HIGH_HZ).contains(&hot_hz) {
        let at = place(hot_hz);
        picture.rect((at, y - 6), (1, 20), INK);
        picture.text((at as f32 + 6.0, y as f32 - 4.0), Anchor::Left, LABEL, "hot");
    }
}

#[cfg(test)]
#[path = "heatmap_tests.rs"]
mod tests;
