//! Quantities over another quantity, to be drawn as lines: plain data from any source.

use serde::Serialize;

/// A picture of lines, in one plot or in several, one below the other.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Lines {
    /// title
    pub title: String,
    /// explanation, in one line
    pub note: String,
    /// quantity of the horizontal axis, with its unit
    pub x: String,
    /// quantity of the vertical axis, with its unit
    pub y: String,
    /// labelled positions on the horizontal axis; empty: ticks of a time in seconds
    pub marks: Vec<(f64, String)>,
    /// from top to bottom
    pub plots: Vec<Plot>,
    /// basis of the data, in one line
    pub basis: String,
}

/// Lines that are drawn together.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Plot {
    /// name of the plot
    pub name: String,
    /// lines; the first one is drawn last, on top
    pub lines: Vec<ChartLine>,
}

/// A line. A line of one point is a dot with its name next to it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ChartLine {
    /// name
    pub name: String,
    /// points in ascending order of x
    pub points: Vec<(f64, f64)>,
}

impl Lines {
    /// The minimum and maximum x.
    pub(crate) fn span(&self) -> (f64, f64) {
        let xs = || self.points().map(|p| p.0);
        let (from, to) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
        if from < to { (from, to) } else { (0.0, to.max(1.0)) }
    }

    /// The maximum value.
    pub(crate) fn top(&self) -> f64 {
        self.points().map(|p| p.1).fold(0.0, f64::max)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let lines = self.plots.iter().flat_map(|p| &p.lines);
        let sound = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        lines.flat_map(|l| &l.points).filter(sound).copied()
    }
}

impl ChartLine {
    /// The value at `x`, interpolated between its neighbours; `None` outside of the line.
    pub(crate) fn at(&self, x: f64) -> Option<f64> {
        let after = self.points.partition_point(|p| p.0 < x);
        let &(x2, y2) = self.points.get(after)?;
        if x2 <= x {
            return Some(y2);
        }
        let &(x1, y1) = self.points.get(after.checked_sub(1)?)?;
        Some(y1 + (y2 - y1) * (x - x1) / (x2 - x1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points() {
        let line = ChartLine { name: String::new(), points: vec![(1.0, 10.0), (3.0, 20.0)] };
        assert_eq!(line.at(0.9), None);
        assert_eq!(line.at(1.0), Some(10.0));
        assert_eq!(line.at(2.0), Some(15.0));
        assert_eq!(line.at(3.0), Some(20.0));
        assert_eq!(line.at(3.1), None);
    }
}
