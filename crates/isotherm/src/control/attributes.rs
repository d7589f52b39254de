//! Attributes of the monitor that may change while the service runs.

use std::time::Duration;

use isotherm_core::{Attrs, MonitorKind};
use serde::{Deserialize, Serialize};

/// The attributes that a request names; `None` leaves an attribute as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attributes {
    /// limit on the cost of watching: a fraction of one CPU
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// limit on TLB shootdowns per second; 0: as many as the budget allows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipis: Option<u32>,
    /// time from one clear of a page to the next, in seconds; 0: as short as the budget allows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    /// sampling interval of the regions and pages monitors, in seconds: from a clear to the look
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// aggregation interval of these two monitors, in seconds: from one snapshot to the next
    pub aggr_seconds: Option<f64>,
    /// update interval, in seconds: from one reading of the mappings to the next
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// minimum number of regions
    pub min_regions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// maximum number of regions
    pub max_regions: Option<u32>,
}

impl Attributes {
    /// All attributes that the monitor of `attrs` has; `None` for those that it does not have.
    pub fn of(attrs: &Attrs) -> Self {
        let budget = attrs.budget();
        Attributes {
            budget: budget.map(|ppm| f64::from(ppm) / 1e6),
            ipis: budget.map(|_| attrs.max_clears),
            interval_seconds: budget.map(|_| attrs.interval.as_secs_f64()),
            sample_seconds: samples(attrs).then_some(attrs.sample.as_secs_f64()),
            aggr_seconds: samples(attrs).then_some(attrs.aggr.as_secs_f64()),
            update_seconds: Some(attrs.update.as_secs_f64()),
            min_regions: Some(attrs.min_regions),
            max_regions: Some(attrs.max_regions),
        }
    }

    /// Returns `attrs` with these attributes replaced, or the reason why the result would be invalid.
    pub fn over(&self, attrs: Attrs) -> Result<Attrs, String> {
        let of_exposure =
            self.budget.is_some() || self.ipis.is_some() || self.interval_seconds.is_some();
        if of_exposure && attrs.budget().is_none() {
            return Err(format!(
                "budget, ipis and interval belong to the exposure monitor, and the {} monitor is \
                 running: it accepts sample, aggr, update and regions",
                attrs.monitor.name()
            ));
        }
        if (self.sample_seconds.is_some() || self.aggr_seconds.is_some()) && !samples(&attrs) {
            return Err(format!(
                "sample and aggr belong to the monitors regions and pages, and the {} monitor is \
                 running: it accepts budget, ipis, interval, update and regions",
                attrs.monitor.name()
            ));
        }
        let time = |seconds: Option<f64>, name: &str, old| match seconds {
            Some(s) => {
                Duration::try_from_secs_f64(s).map_err(|e| format!("{name} of {s} seconds: {e}"))
            }
            None => Ok(old),
        };
        let new = Attrs {
            budget_ppm: self.budget.map_or(attrs.budget_ppm, |share| (share * 1e6).round() as u32),
            max_clears: self.ipis.unwrap_or(attrs.max_clears),
            interval: time(self.interval_seconds, "an interval", attrs.interval)?,
            sample: time(self.sample_seconds, "a sampling interval", attrs.sample)?,
            aggr: time(self.aggr_seconds, "an aggregation interval", attrs.aggr)?,
            update: time(self.update_seconds, "an update interval", attrs.update)?,
            min_regions: self.min_regions.unwrap_or(attrs.min_regions),
            max_regions: self.max_regions.unwrap_or(attrs.max_regions),
            ..attrs
        };
        new.checked().map_err(|e| e.to_string())
    }

    /// Replaces the attributes that `new` names, and keeps the others.
    pub fn take(&mut self, new: &Attributes) {
        *self = Attributes {
            budget: new.budget.or(self.budget),
            ipis: new.ipis.or(self.ipis),
            interval_seconds: new.interval_seconds.or(self.interval_seconds),
            sample_seconds: new.sample_seconds.or(self.sample_seconds),
            aggr_seconds: new.aggr_seconds.or(self.aggr_seconds),
            update_seconds: new.update_seconds.or(self.update_seconds),
            min_regions: new.min_regions.or(self.min_regions),
            max_regions: new.max_regions.or(self.max_regions),
        };
    }
}

/// Whether the monitor uses sampling and aggregation intervals.
fn samples(attrs: &Attrs) -> bool {
    attrs.monitor != MonitorKind::Exposure
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_named_attributes_change() {
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
        let regions = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
        let finer = Attributes {
            sample_seconds: Some(0.005),
            aggr_seconds: Some(0.1),
            update_seconds: Some(2.5),
            ..Attributes::default()
        };
        let ms = Duration::from_millis;
        let wanted = Attrs { sample: ms(5), aggr: ms(100), update: ms(2500), ..regions };
        assert_eq!(finer.over(regions), Ok(wanted));
        assert_eq!(Attributes::of(&wanted).over(regions), Ok(wanted));
        both.take(&finer);
        assert_eq!((both.budget, both.sample_seconds), (Some(0.005), Some(0.005)));
    }

    #[test]
    fn invalid_values_are_reported() {
        let regions = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
        let one = |a: Attributes, attrs| a.over(attrs).unwrap_err();
        let none = Attributes::default();
        assert!(
            one(Attributes { budget: Some(0.1), ..none }, regions).contains("it accepts sample")
        );
        for share in [0.0, -1.0, 1e-6, 1.5, 1e300] {
            let wrong = Attributes { budget: Some(share), ..none };
            assert!(one(wrong, Attrs::default()).contains("budget"), "{share}");
        }
        for seconds in [-1.0, 1e-3, 1e300] {
            let wrong = Attributes { interval_seconds: Some(seconds), ..none };
            assert!(one(wrong, Attrs::default()).contains("interval"), "{seconds}");
        }
        let sampled = Attributes { sample_seconds: Some(0.01), ..none };
        assert!(one(sampled, Attrs::default()).contains("it accepts budget"));
        for seconds in [-1.0, 1e-6, 0.3, 1e300] {
            let wrong = Attributes { sample_seconds: Some(seconds), ..none };
            assert!(one(wrong, regions).contains("sampling interval"), "{seconds}");
        }
        let few = Attributes { max_regions: Some(1), ..none };
        assert!(one(few, regions).contains("regions"));
    }
}
