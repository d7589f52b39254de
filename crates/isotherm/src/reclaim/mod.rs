//! Reclaim of untouched memory: the scheme that `isotherm reclaim` makes from its options.

mod options;

use std::time::Duration;

use isotherm_core::scheme::{
    Aim, Filter, FilterKind, Goal, Pattern, Quota, Scheme, SchemeError, WatermarkMetric,
    Watermarks, Weights,
};
use isotherm_core::{Action, AddrRange, MappingKind, PAGE_SIZE, PageFilter, PageKind, align_down};

use crate::schemes::WATERMARKS_INTERVAL;
use crate::usage::UsageError;

pub use options::{
    GoalOption, NONE, SizeQuota, TimeQuota, WatermarkOption, aim, goal, pages, quota_size,
    time_quota, watermarks,
};

/// The name of the scheme that is made from options.
pub const SCHEME_NAME: &str = "reclaim";

/// The options that determine the scheme.
#[derive(Debug, Clone)]
pub struct ReclaimScheme {
    /// page out memory that was not touched for this long
    pub min_age: Duration,
    /// decide page by page
    pub pages: bool,
    /// the objective, by which the scheme chooses the ages itself
    pub aim: Option<Aim>,
    /// time for paging out in each window
    pub quota: TimeQuota,
    /// maximum number of bytes in each window; `None`: no limit
    pub quota_size: Option<u64>,
    /// the watermarks high, mid and low, in shares of 10,000; `None`: always act
    pub watermarks: Option<[u32; 3]>,
    /// time between two checks of the watermarks; `None`: 5 s; 500 ms with kernel DAMON
    pub watermarks_interval: Option<Duration>,
    /// addresses to act on; empty: all
    pub ranges: Vec<AddrRange>,
    /// Whether there are files in addition to processes: then the cheapest memory is reclaimed first, instead of
    /// the oldest.
    pub files_too: bool,
    /// whether to leave out anonymous memory
    pub skip_anon: bool,
    /// goals of the quota
    pub goals: Vec<Goal>,
}

impl ReclaimScheme {
    /// The scheme of the options. The defaults are those of the kernel's DAMON_RECLAIM
    /// (`Documentation/admin-guide/mm/damon/reclaim.rst`): the oldest untouched memory goes first.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        let mut scheme = untouched(self.min_age, self.pages || self.aim.is_some());
        scheme.aim = self.aim;
        if self.aim.is_some() {
            // It chooses the ages itself.
            scheme.page_filters.clear();
        }
        let held_back = |kind| Filter { kind, matching: true, allow: false };
        let outside = outside(&self.ranges).into_iter().map(FilterKind::Addresses).map(held_back);
        let anon = [MappingKind::Anonymous, MappingKind::Heap, MappingKind::Stack];
        let anon =
            anon.map(FilterKind::Mapping).map(held_back).into_iter().filter(|_| self.skip_anon);
        scheme.filters = outside.chain(anon).collect();
        scheme.quota = Quota {
            time: self.quota.time,
            bytes: self.quota_size,
            reset: self.quota.window,
            goals: self.goals.clone(),
            weights: match self.files_too {
                true => Weights { cost: 1, ..Weights::default() },
                false => Weights { age: 1, ..Weights::default() },
            },
        };
        scheme.watermarks = self.watermarks.map(|[high, mid, low]| Watermarks {
            metric: WatermarkMetric::Free,
            interval: self.watermarks_interval.unwrap_or(WATERMARKS_INTERVAL),
            high,
            mid,
            low,
        });
        scheme
    }

    /// The scheme of the options, after a check.
    ///
    /// # Errors
    /// If a value is out of range; the error names its option.
    pub fn checked(&self) -> Result<Scheme, UsageError> {
        let scheme = self.scheme();
        match scheme.check() {
            Ok(()) => Ok(scheme),
            // `--pages` is also a filter, of pages that were touched within `--min-age`.
            Err(SchemeError::Scheme { why, .. }) => {
                let option = match *why {
                    SchemeError::Within(_) => "--min-age",
                    _ => option_of(why.key()),
                };
                Err(UsageError::new(format!("{option}: {why}")))
            }
            Err(e) => Err(UsageError::new(e.to_string())),
        }
    }
}

/// A scheme that pages out what was not touched for `min_age`: regions, or each page.
#[must_use]
pub fn untouched(min_age: Duration, pages: bool) -> Scheme {
    let every = Pattern { size: PAGE_SIZE..=u64::MAX, ..Pattern::default() };
    let untouched = Pattern { hz: 0.0..=0.0, age: min_age..=Duration::MAX, ..every.clone() };
    let pattern = if pages { every } else { untouched };
    let mut scheme = Scheme::new(SCHEME_NAME, pattern, Action::PageOut);
    if pages {
        // Each page has its own age, independent of its neighbours.
        let kind = PageKind::Touched { within: min_age };
        scheme.page_filters = vec![PageFilter { kind, matching: true, allow: false }];
    }
    scheme
}

/// The addresses outside of all `ranges`; empty if there are no ranges.
fn outside(ranges: &[AddrRange]) -> Vec<AddrRange> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|r| r.start);
    let (mut from, mut gaps) = (0, Vec::new());
    for r in sorted {
        if from < r.start {
            gaps.push(AddrRange::new(from, r.start));
        }
        from = from.max(r.end);
    }
    let end = align_down(u64::MAX, PAGE_SIZE);
    gaps.extend((from < end).then(|| AddrRange::new(from, end)));
    gaps
}

/// The option that sets a key of the scheme `reclaim`.
fn option_of(key: &str) -> &'static str {
    match key {
        "quota.time" | "quota.reset" => "--quota",
        "quota.bytes" => "--quota-size",
        "quota.goals" | "goals" => "--goal",
        "watermarks.interval" => "--watermarks-interval",
        key if key.starts_with("watermarks") => "--watermarks",
        "filters" => "--range",
        "aim" => "--aim",
        _ => "--min-age",
    }
}
