//! Quantities over time as areas, one in front of the other, with their distributions next to them.

use super::RenderError;
use super::axis::{Tick, count_ticks, size_ticks, time_ticks};
use super::color::{self, Rgb};
use super::picture::{Anchor, Paint, Picture};
use super::style::{
    HEAD, LABEL, LEFT, LINE_COLOR, NOTE_PEN, PAPER, PLOT, QUIET, WIDTH, damaged, footer, heading,
    swatch,
};
use crate::basis::Basis;
use crate::columns::gap_columns;
use crate::course::Course;
use crate::regions::Regions;
use crate::units;
use crate::wss::Wss;

/// Widths in pixels of the plot over time, and of the plot of the distribution at the right border.
const OVER_TIME: usize = 670;
const DISTRIBUTION: usize = 270;
const HEIGHT: usize = 340;
/// Height below the plots, for axes, legend and footer.
const FOOT: usize = 170;
/// Opacity of the range between the extremes in a pixel.
const FAINT: f32 = 0.35;

/// The contents of a chart.
struct Chart<'a> {
    title: &'a str,
    otherwise: &'a str,
    note: String,
    basis: &'a Basis,
    /// in descending order, because each is drawn over the previous ones
    series: Vec<Series<'a>>,
    /// values with a line of their own, and their names
    lines: Vec<(u64, String)>,
    is_bytes: bool,
}

struct Series<'a> {
    name: &'a str,
    color: Rgb,
    course: &'a Course,
}

/// The working set as a picture: over time, and its distribution.
///
/// # Errors
/// If the built-in font cannot be read.
pub fn wss_picture(wss: &Wss) -> Result<Picture, RenderError> {
    let series = |name, color, course| Series { name, color, course };
    Chart {
        title: &wss.title,
        otherwise: "Working set",
        note: "How much memory is in use. Working set: hot and warm. Touched: in regions with an \
               access seen in the snapshot."
            .to_owned(),
        basis: &wss.basis,
        series: vec![
            series("working set", [0xcd, 0xcb, 0xe8], &wss.working_set_bytes),
            series("touched", color::at(0.2), &wss.touched_bytes),
            series("hot", color::at(0.62), &wss.hot_bytes),
        ],
        lines: Vec::new(),
        is_bytes: true,
    }
    .picture()
}

/// The number of regions as a picture: over time, its distribution, and its bounds.
///
/// # Errors
/// If the built-in font cannot be read.
pub fn regions_picture(regions: &Regions) -> Result<Picture, RenderError> {
    let (least, most) = (regions.min_regions, regions.max_regions);
    let line = |n: u32, word| (u64::from(n), format!("{} at {word}", units::count(n.into())));
    Chart {
        title: &regions.title,
        otherwise: "Regions",
        note: "The number of regions. isotherm looks at each once per sampling interval, so this \
               limits the cost."
            .to_owned(),
        basis: &regions.basis,
        series: vec![Series { name: "regions", color: color::at(0.2), course: &regions.regions }],
        lines: vec![line(most, "most"), line(least, "least")],
        is_bytes: false,
    }
    .picture()
}

impl Chart<'_> {
    fn picture(&self) -> Result<Picture, RenderError> {
        let mut picture = Picture::new((WIDTH, HEAD + HEIGHT + FOOT), PAPER)?;
        heading(&mut picture, self.title, self.otherwise, &self.note);
        self.over_time(&mut picture);
        self.distribution(&mut picture);
        self.legend(&mut picture);
        footer(&mut picture, self.basis);
        Ok(picture)
    }

    /// The value at the upper border, slightly above everything that is drawn.
    fn top(&self) -> f64 {
        let values = self.series.iter().map(|s| s.course.max());
        let most = values.chain(self.lines.iter().map(|l| l.0)).max().unwrap_or(0);
        most.max(1) as f64 * 1.06
    }

    fn y(&self, value: f64) -> f32 {
        ((HEAD + HEIGHT) as f64 - value / self.top() * HEIGHT as f64) as f32
    }

    /// The part of a column from the bottom to `value`.
    fn bar(&self, value: f64) -> (f32, f32) {
        (self.y(value), self.y(0.0))
    }

    fn over_time(&self, picture: &mut Picture) {
        for s in &self.series {
            let columns = s.course.columns(self.basis, OVER_TIME);
            let to_mean = columns.iter().map(|c| c.map(|c| self.bar(c.mean))).collect();
            let to_max = columns.iter().map(|c| c.map(|c| (self.y(c.max), self.y(c.mean))));
            picture.columns(LEFT, to_max.collect(), Paint { color: s.color, part: FAINT });
            picture.columns(LEFT, to_mean, s.color);
        }
        for gap in gap_columns(self.basis, OVER_TIME) {
            picture.fill((LEFT + gap.start, HEAD), (gap.len(), HEIGHT), damaged);
        }
        self.plot(picture, LEFT, OVER_TIME);
        for tick in self.value_ticks() {
            let y = self.y(tick.at * self.top());
            picture.rect((LEFT - 6, y as usize), (5, 1), LINE_COLOR);
            let at = (LEFT as f32 - 12.0, y + 5.0);
            picture.text(at, Anchor::Right, LABEL, &tick.label);
        }
        let (ticks, unit) = time_ticks(self.basis.from_ms / 1e3, self.basis.to_ms / 1e3, 9);
        self.below(picture, (LEFT, OVER_TIME), &ticks);
        let name = format!("time since the recording began, {unit}");
        axis_name(picture, LEFT + OVER_TIME / 2, &name);
    }

    fn distribution(&self, picture: &mut Picture) {
        let left = LEFT + PLOT - DISTRIBUTION;
        for s in &self.series {
            let at = |x: usize| s.course.curve.get(((x + 1) * 100).div_ceil(DISTRIBUTION)).copied();
            let bars = (0..DISTRIBUTION).map(|x| at(x).map(|v| self.bar(v as f64)));
            picture.columns(left, bars.collect(), s.color);
        }
        self.plot(picture, left, DISTRIBUTION);
        let tick = |percent: u32| Tick {
            at: f64::from(percent) / 100.0,
            label: if percent == 100 { "100 %".to_owned() } else { percent.to_string() },
        };
        let ticks: Vec<Tick> = [0, 25, 50, 75, 100].map(tick).into();
        self.below(picture, (left, DISTRIBUTION), &ticks);
        axis_name(picture, left + DISTRIBUTION / 2, "part of the time, lowest values first");
    }

    /// The frame of a plot, and the lines in it.
    fn plot(&self, picture: &mut Picture, left: usize, width: usize) {
        for tick in self.value_ticks() {
            let y = self.y(tick.at * self.top()) as usize;
            picture.rect((left, y), (width, 1), Paint { color: QUIET, part: 0.16 });
        }
        for (value, name) in &self.lines {
            let y = self.y(*value as f64);
            picture.rect((left, y as usize), (width, 1), QUIET);
            if left == LEFT {
                let at = ((left + width + 8) as f32, y + 5.0);
                picture.text(at, Anchor::Left, NOTE_PEN, name);
            }
        }
        picture.frame((left, HEAD), (width, HEIGHT), LINE_COLOR);
    }

    fn value_ticks(&self) -> Vec<Tick> {
        let top = self.top() as u64;
        let mut ticks = if self.is_bytes { size_ticks(top, 6) } else { count_ticks(top, 6) };
        for tick in &mut ticks {
            tick.label = tick.label.trim_start_matches('+').to_owned();
        }
        ticks
    }

    fn below(&self, picture: &mut Picture, (left, width): (usize, usize), ticks: &[Tick]) {
        for tick in ticks {
            let x = left + ((tick.at * width as f64) as usize).min(width - 1);
            picture.rect((x, HEAD + HEIGHT + 1), (1, 5), LINE_COLOR);
            let at = (x as f32, (HEAD + HEIGHT + 22) as f32);
            picture.text(at, Anchor::Middle, LABEL, &tick.label);
        }
    }

    fn legend(&self, picture: &mut Picture) {
        let mut x = LEFT;
        let number = |n| if self.is_bytes { units::bytes(n) } else { units::count(n) };
        for s in self.series.iter().rev() {
            let (mean, max) = (number(s.course.mean), number(s.course.max()));
            let name = format!("{}: mean {mean}, most {max}", s.name);
            x = swatch(picture, (x, HEAD + HEIGHT + 74), &name, |_, _| s.color);
        }
    }
}

fn axis_name(picture: &mut Picture, x: usize, name: &str) {
    picture.text((x as f32, (HEAD + HEIGHT + 43) as f32), Anchor::Middle, NOTE_PEN, name);
}

#[cfg(test)]
#[path = "chart_tests.rs"]
mod tests;
