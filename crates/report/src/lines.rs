//! Quantities over another, to be drawn as lines: plain data, from whoever has some.

use serde::Serialize;

/// A picture of lines, in one plot or in several, one below the other.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Lines {
    /// what it shows
    pub title: String,
    /// what that means, in a line
    pub note: String,
    /// what is drawn to the right, with its unit
    pub x: String,
    /// what is drawn upwards, with its unit
    pub y: String,
    /// places on the axis to the right that have a name; those of a time in s if there are none
    pub marks: Vec<(f64, String)>,
    /// from above
    pub plots: Vec<Plot>,
    /// what it rests on, in a line
    pub basis: String,
}

/// Lines that are drawn together.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Plot {
    /// what they have in common
    pub name: String,
    /// the first one is drawn last
    pub lines: Vec<Line>,
}

/// A line; of one point, a dot with its name beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Line {
    /// what it is
    pub name: String,
    /// in ascending order
    pub points: Vec<(f64, f64)>,
}

impl Lines {
    /// The smallest and the greatest place to the right.
    pub(crate) fn span(&self) -> (f64, f64) {
        let xs = || self.points().map(|p| p.0);
        let (from, to) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
        if from < to { (from, to) } else { (0.0, to.max(1.0)) }
    }

    /// The greatest value.
    pub(crate) fn top(&self) -> f64 {
        self.points().map(|p| p.1).fold(0.0, f64::max)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let lines = self.plots.iter().flat_map(|p| &p.lines);
        let sound = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        lines.flat_map(|l| &l.points).filter(sound).copied()
    }
}

impl Line {
    /// The value at `x`, between the points around it; none outside of them.
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
        let line = Line { name: String::new(), points: vec![(1.0, 10.0), (3.0, 20.0)] };
        assert_eq!(line.at(0.9), None);
        assert_eq!(line.at(1.0), Some(10.0));
        assert_eq!(line.at(2.0), Some(15.0));
        assert_eq!(line.at(3.0), Some(20.0));
        assert_eq!(line.at(3.1), None);
    }
}
