//! One bound, and whether it holds.

use std::fmt;

/// One bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// the figure and its bound, as text
    pub what: String,
    /// the measured value; `None` if it was not measured
    pub found: Option<f64>,
    /// the bound; `None` if the value is only reported
    bound: Option<Bound>,
    /// the uncertainty, or another remark, as text
    how: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Verdict {
    /// A figure that is reported without a bound.
    pub fn of(what: impl Into<String>, found: Option<f64>) -> Self {
        Verdict { what: what.into(), found, bound: None, how: None }
    }

    /// A lower bound.
    pub fn at_least(self, bound: f64) -> Self {
        Verdict { bound: Some(Bound::AtLeast(bound)), ..self }
    }

    /// An upper bound.
    pub fn at_most(self, bound: f64) -> Self {
        Verdict { bound: Some(Bound::AtMost(bound)), ..self }
    }

    /// Adds a remark, such as the uncertainty.
    pub fn with(self, how: Option<String>) -> Self {
        Verdict { how, ..self }
    }

    /// Whether it holds; `None` if it was not measured, or has no bound.
    pub fn holds(&self) -> Option<bool> {
        Some(match self.bound? {
            Bound::AtLeast(least) => self.found? >= least,
            Bound::AtMost(most) => self.found? <= most,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Some(Bound::AtLeast(least)) => format!(", at least {least}"),
            Some(Bound::AtMost(most)) => format!(", at most {most}"),
            None => String::new(),
        };
        write!(f, "{}{bound}: ", self.what)?;
        let Some(found) = self.found else { return f.write_str("not measured") };
        let how = self.how.as_ref().map_or_else(String::new, |how| format!(" ({how})"));
        let verdict = match self.holds() {
            None => "",
            Some(true) => ", held",
            Some(false) => ", BROKEN",
        };
        write!(f, "{found:.2}{how}{verdict}")
    }
}
