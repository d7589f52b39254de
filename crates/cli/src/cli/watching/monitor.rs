//! The choice of a monitor, and the options of single kinds of monitors.

use std::time::Duration;

use clap::Args;
use isotherm::units;
use isotherm_core::{Attrs, AttrsError, MonitorKind};

use crate::cli::UsageError;

/// The default monitor where all pages can be read at once.
const BEST: MonitorKind = MonitorKind::Exposure;

/// Options of the monitors that read all memory.
#[derive(Debug, Default, Args)]
pub struct FullReadOptions {
    /// Limit of the cost of watching, as a share of one CPU: own CPU time, plus the time that the
    /// targets lose [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = units::budget)]
    budget: Option<u32>,
    /// Maximum number of TLB shootdowns per second that watching may cause [default: as many as the
    /// budget allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ipis: Option<u32>,
    /// Time from one clear of a page to the next; isotherm reads all memory four times in it. auto
    /// is as short as the budget allows, and at least 1s [default: auto]
    #[arg(long, value_name = "auto|TIME", value_parser = units::interval)]
    interval: Option<Duration>,
    /// Report windows instead of regions; isotherm joins neighbouring windows only if they do not
    /// differ
    #[arg(long)]
    windows: bool,
}

/// Options of the region sampler.
#[derive(Debug, Default, Args)]
pub struct RegionOptions {
    /// Time between clearing and reading accessed bits [default: 20ms; 100ms for page_idle and
    /// smaps; 5ms for damon]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    sample: Option<Duration>,
    /// Time from one snapshot to the next [default: 400ms; 1s for files,
    /// clear_refs, page_idle and smaps; 100ms for damon]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    aggr: Option<Duration>,
    /// Cut regions at multiples of this size [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    min_region: Option<u64>,
    /// Split a region into this many parts in each aggregation interval [default: 4]
    #[arg(long, value_name = "N")]
    split: Option<u32>,
    /// Minimum number of sampling intervals from one clear to the next, in a region that is
    /// settled, which means that its heat is certain. 1 is the kernel's rule. Each clear costs the
    /// target a TLB shootdown [default: 8]
    #[arg(long, value_name = "N")]
    clear_every: Option<u32>,
    /// Also split regions in which all looks agreed, as the kernel does
    #[arg(long)]
    split_uniform: bool,
    /// Split into one more part after a split has shown no difference, as the kernel does
    #[arg(long)]
    extra_split: bool,
}

/// The name of the first option that is given.
fn first(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find(|(_, given)| *given).map(|(name, _)| *name)
}

impl FullReadOptions {
    /// The name of the first of these options that is given.
    pub fn given(&self) -> Option<&'static str> {
        self.given_of_budget().or_else(|| first(&[("--windows", self.windows)]))
    }

    /// The name of the first given option that the page scan does not have.
    fn given_of_budget(&self) -> Option<&'static str> {
        first(&[
            ("--budget", self.budget.is_some()),
            ("--ipis", self.ipis.is_some()),
            ("--interval", self.interval.is_some()),
        ])
    }

    /// `attrs`, changed by the given options.
    pub fn over(&self, attrs: Attrs) -> Attrs {
        Attrs {
            budget_ppm: self.budget.unwrap_or(attrs.budget_ppm),
            max_clears: self.ipis.unwrap_or(attrs.max_clears),
            interval: self.interval.unwrap_or(attrs.interval),
            windows: self.windows,
            ..attrs
        }
    }
}

impl RegionOptions {
    /// The name of the first of these options that is given.
    pub fn given(&self) -> Option<&'static str> {
        first(&[("--sample", self.sample.is_some()), ("--aggr", self.aggr.is_some())])
            .or_else(|| self.given_beside_intervals())
    }

    /// The name of the first given option that is not an interval. The kernel's monitor also has
    /// intervals.
    pub fn given_beside_intervals(&self) -> Option<&'static str> {
        first(&[
            ("--min-region", self.min_region.is_some()),
            ("--split", self.split.is_some()),
            ("--clear-every", self.clear_every.is_some()),
            ("--split-uniform", self.split_uniform),
            ("--extra-split", self.extra_split),
        ])
    }

    /// `attrs`, changed by the given options.
    pub fn over(&self, attrs: Attrs) -> Attrs {
        Attrs {
            sample: self.sample.unwrap_or(attrs.sample),
            aggr: self.aggr.unwrap_or(attrs.aggr),
            min_region_size: self.min_region.unwrap_or(attrs.min_region_size),
            split_parts: self.split.unwrap_or(attrs.split_parts),
            clear_every: self.clear_every.unwrap_or(attrs.clear_every),
            split_uniform: self.split_uniform,
            extra_split: self.extra_split,
            ..attrs
        }
    }
}

/// The requested monitor, or the one that the given options belong to.
pub fn kind(
    asked: Option<MonitorKind>,
    of_all: &FullReadOptions,
    of_regions: &RegionOptions,
    reads_all: bool,
) -> Result<MonitorKind, UsageError> {
    let kind = match (asked, of_all.given(), of_regions.given()) {
        (None, Some(all), Some(regions)) => {
            return Err(UsageError::new(format!(
                "{all} belongs to the exposure monitor and {regions} to the regions monitor: leave out one \
                 of them"
            )));
        }
        (Some(kind), ..) => kind,
        (None, Some(_), None) => MonitorKind::Exposure,
        (None, None, Some(_)) => MonitorKind::Regions,
        (None, None, None) if reads_all => BEST,
        (None, None, None) => MonitorKind::Regions,
    };
    let (others, whose) = match kind {
        MonitorKind::Regions => (of_all.given(), MonitorKind::Exposure),
        MonitorKind::Exposure => (of_regions.given(), MonitorKind::Regions),
        MonitorKind::Pages => match of_all.given_of_budget() {
            None => (of_regions.given_beside_intervals(), MonitorKind::Regions),
            budget => (budget, MonitorKind::Exposure),
        },
    };
    match others {
        Some(name) => Err(UsageError::new(format!(
            "{name} belongs to the {} monitor, not to {}: leave it out, or choose --monitor {0}",
            whose.name(),
            kind.name(),
        ))),
        None if kind != MonitorKind::Regions && !reads_all => {
            Err(AttrsError::NoSurvey(kind.name()).into())
        }
        None => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: FullReadOptions =
        FullReadOptions { budget: None, ipis: Some(3), interval: None, windows: false };

    fn regions() -> RegionOptions {
        RegionOptions { split: Some(2), ..RegionOptions::default() }
    }

    #[test]
    fn options_choose_the_monitor() {
        let chosen = |all, regions, reads_all| kind(None, &all, &regions, reads_all).unwrap();
        assert_eq!(chosen(ALL, RegionOptions::default(), true), MonitorKind::Exposure);
        assert_eq!(chosen(FullReadOptions::default(), regions(), true), MonitorKind::Regions);
        assert_eq!(chosen(FullReadOptions::default(), RegionOptions::default(), true), BEST);
        assert_eq!(
            chosen(FullReadOptions::default(), RegionOptions::default(), false),
            MonitorKind::Regions
        );
    }

    #[test]
    fn ways_without_survey_use_the_regions_monitor() {
        let all = FullReadOptions::default();
        for asked in [MonitorKind::Exposure, MonitorKind::Pages] {
            let why =
                kind(Some(asked), &all, &RegionOptions::default(), false).unwrap_err().to_string();
            assert!(why.contains("choose --monitor regions"), "{why}");
        }
        assert!(kind(None, &ALL, &RegionOptions::default(), false).is_err());
    }

    #[test]
    fn the_page_scan_has_intervals_and_no_budget() {
        let pages = |all, regions| kind(Some(MonitorKind::Pages), &all, &regions, true);
        let sample =
            RegionOptions { sample: Some(Duration::from_millis(5)), ..RegionOptions::default() };
        let windows = FullReadOptions { windows: true, ..FullReadOptions::default() };
        assert_eq!(pages(windows, sample).ok(), Some(MonitorKind::Pages));
        let text = pages(ALL, RegionOptions::default()).unwrap_err().to_string();
        assert!(text.starts_with("--ipis belongs to the exposure monitor"), "{text}");
    }

    #[test]
    fn a_mix_is_refused() {
        let wrong =
            |asked, all, regions| kind(asked, &all, &regions, true).unwrap_err().to_string();
        assert!(wrong(None, ALL, regions()).contains("--ipis"));
        assert!(wrong(None, ALL, regions()).contains("--split"));
        for asked in [MonitorKind::Exposure, MonitorKind::Pages] {
            let text = wrong(Some(asked), FullReadOptions::default(), regions());
            assert!(text.starts_with("--split belongs to the regions monitor"), "{text}");
        }
        let text = wrong(Some(MonitorKind::Regions), ALL, RegionOptions::default());
        assert!(text.contains("choose --monitor exposure"), "{text}");
    }
}
