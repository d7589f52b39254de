//! Attributes of the monitor that may change while it watches.

use std::time::Duration;

use isotherm_core::Attrs;
use serde::{Deserialize, Serialize};

/// Those that are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attributes {
    /// what watching may cost: a share of one CPU
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// TLB shootdowns a second; 0: as many as the budget allows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipis: Option<u32>,
    /// from one clear of a page to the next; 0: as short as the budget allows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_regions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_regions: Option<u32>,
}

impl Attributes {
    /// All there are of a monitor.
    pub fn of(attrs: &Attrs) -> Self {
        let budget = attrs.budget();
        Attributes {
            budget: budget.map(|ppm| f64::from(ppm) / 1e6),
            ipis: budget.map(|_| attrs.max_clears),
            interval_seconds: budget.map(|_| attrs.interval.as_secs_f64()),
            min_regions: Some(attrs.min_regions),
            max_regions: Some(attrs.max_regions),
        }
    }

    /// `attrs` with these, or why that makes no sense.
    pub fn over(&self, attrs: Attrs) -> Result<Attrs, String> {
        let of_exposure =
            self.budget.is_some() || self.ipis.is_some() || self.interval_seconds.is_some();
        if of_exposure && attrs.budget().is_none() {
            return Err(format!(
                "budget, ipis and interval are of the exposure monitor, and the {} monitor is at work: it \
                 takes regions",
                attrs.monitor.name()
            ));
        }
        let interval = match self.interval_seconds {
            Some(s) => Duration::try_from_secs_f64(s).map_err(|e| format!("an interval: {e}"))?,
            None => attrs.interval,
        };
        let new = Attrs {
            budget_ppm: self.budget.map_or(attrs.budget_ppm, |share| (share * 1e6).round() as u32),
            max_clears: self.ipis.unwrap_or(attrs.max_clears),
            interval,
            min_regions: self.min_regions.unwrap_or(attrs.min_regions),
            max_regions: self.max_regions.unwrap_or(attrs.max_regions),
            ..attrs
        };
        new.checked().map_err(|e| e.to_string())
    }

    /// Those of `new`, and what it does not name.
    pub fn take(&mut self, new: &Attributes) {
        *self = Attributes {
            budget: new.budget.or(self.budget),
            ipis: new.ipis.or(self.ipis),
            interval_seconds: new.interval_seconds.or(self.interval_seconds),
            min_regions: new.min_regions.or(self.min_regions),
            max_regions: new.max_regions.or(self.max_regions),
        };
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::MonitorKind;

    use super::*;

    #[test]
    fn what_is_named_changes_and_the_rest_stays() {
        let half = Attributes { budget: Some(0.005), ..Attributes::default() };
        let attrs = half.over(Attrs::default()).unwrap();
        assert_eq!(attrs, Attrs { budget_ppm: 5_000, ..Attrs::default() });
        let slower = Attributes { interval_seconds: Some(2.5), ..Attributes::default() };
        let attrs = slower.over(attrs).unwrap();
        assert_eq!((attrs.budget_ppm, attrs.interval), (5_000, Duration::from_millis(2500)));
        let mut both = half;
        both.take(&slower);
        assert_eq!(both.over(Attrs::default()), Ok(attrs));
        assert_eq!(Attributes::of(&attrs).over(Attrs::default()), Ok(attrs));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let regions = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
        let one = |a: Attributes, attrs| a.over(attrs).unwrap_err();
        let none = Attributes::default();
        assert!(
            one(Attributes { budget: Some(0.1), ..none }, regions).contains("it takes regions")
        );
        for share in [0.0, -1.0, 1e-6, 1.5, 1e300] {
            let wrong = Attributes { budget: Some(share), ..none };
            assert!(one(wrong, Attrs::default()).contains("budget"), "{share}");
        }
        for seconds in [-1.0, 1e-3, 1e300] {
            let wrong = Attributes { interval_seconds: Some(seconds), ..none };
            assert!(one(wrong, Attrs::default()).contains("interval"), "{seconds}");
        }
        let few = Attributes { max_regions: Some(1), ..none };
        assert!(one(few, regions).contains("regions"));
    }
}
