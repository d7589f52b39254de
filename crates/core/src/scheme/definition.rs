//! The definition of a scheme, and its checks.

use std::sync::Arc;
use std::time::Duration;

use super::acted::{PAUSE, leaves_no_trace};
use super::aim::Aim;
use super::error::SchemeError;
use super::filter::Filter;
use super::pattern::Pattern;
use super::quota::Quota;
use super::watermarks::Watermarks;
use crate::act::{Action, Destinations, PageFilter, PageKind};
use crate::range::PAGE_SIZE;
use crate::survey::BLOCK_SIZE;
use crate::tuning::MAX_WITHIN;

/// A rule: apply an action to regions that match a pattern, within a quota, in order of priority, while
/// watermarks permit it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheme {
    /// unique name
    pub name: Arc<str>,
    /// the regions to act on
    pub pattern: Pattern,
    /// the action
    pub action: Action,
    /// minimum time between two applications; zero: at each step
    pub apply_interval: Duration,
    /// limits of the action, and priorities
    pub quota: Quota,
    /// when the scheme is active; always without watermarks
    pub watermarks: Option<Watermarks>,
    /// which parts of regions
    pub filters: Vec<Filter>,
    /// which pages, in the parts that no filter has allowed
    pub page_filters: Vec<PageFilter>,
    /// Second look: an action for cold memory skips pages that are touched within this time before it, see
    /// [`crate::Work::recheck`]. `None`: the monitor's sampling interval.
    pub recheck: Option<Duration>,
    /// The scheme chooses an age by this objective, for each control group. Pages that were touched within this age
    /// are rejected, and without an age, all pages.
    pub aim: Option<Aim>,
}

const MAX_FILTERS: usize = 64;
const MAX_RECHECK_PAUSE: Duration = Duration::from_secs(1);

/// If each page has an age of its own, some page reaches the requested age at any time. So the scheme looks at
/// memory again after a thirtieth of this age. It waits at least half a second, and at least 200 times the time of a
/// look, so that looks use at most 0.5 % of a CPU.
const PART_OF_PAGE_AGE: u32 = 30;
const MIN_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time between two looks if hot parts of files are locked, for a minute each.
const MAX_PAUSE_OF_LOCKS: Duration = Duration::from_secs(30);
const PAUSE_PER_LOOK: u32 = 200;

impl Scheme {
    /// A scheme without a quota: it acts on all matching memory.
    #[must_use]
    pub fn new(name: &str, pattern: Pattern, action: Action) -> Self {
        Scheme {
            name: Arc::from(name),
            pattern,
            action,
            apply_interval: Duration::ZERO,
            quota: Quota::default(),
            watermarks: None,
            filters: Vec::new(),
            page_filters: Vec::new(),
            recheck: None,
            aim: None,
        }
    }

    /// The least number of bytes that the action can affect.
    pub(super) fn unit(&self) -> u64 {
        match self.action {
            Action::HugePage | Action::NoHugePage => BLOCK_SIZE,
            _ => PAGE_SIZE,
        }
    }

    /// The time within which page filters reject touched pages, if they do: then each page has an age of its own.
    pub(super) fn page_age(&self) -> Option<Duration> {
        let of_pages = self.page_filters.iter().filter_map(|f| match f.kind {
            PageKind::Touched { within } if f.matching != f.allow => Some(within),
            _ => None,
        });
        Some(of_pages.max()?.min(*self.pattern.age.end()))
    }

    /// The time after which memory is looked at again, if a look at all of it takes `look`, and page filters
    /// reject pages touched within `page_age`.
    pub(super) fn pause(&self, page_age: Option<Duration>, look: Duration) -> Duration {
        let longest = PAUSE.max(*self.pattern.age.start()).max(page_age.unwrap_or_default());
        let longest = match self.action {
            Action::LruPrio => longest.min(MAX_PAUSE_OF_LOCKS),
            _ => longest,
        };
        match page_age {
            Some(age) if !leaves_no_trace(&self.action) => (age / PART_OF_PAGE_AGE)
                .max(MIN_PAUSE)
                .max(look.saturating_mul(PAUSE_PER_LOOK))
                .min(longest),
            _ => longest,
        }
    }

    /// Checks whether the scheme is valid.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), SchemeError> {
        self.checked()
            .map_err(|why| SchemeError::Scheme { name: self.name.to_string(), why: Box::new(why) })
    }

    fn checked(&self) -> Result<(), SchemeError> {
        self.pattern.check()?;
        self.quota.check(self.unit())?;
        self.aim.map_or(Ok(()), Aim::check)?;
        self.watermarks.as_ref().map_or(Ok(()), Watermarks::check)?;
        if self.filters.len() + self.page_filters.len() > MAX_FILTERS {
            return Err(SchemeError::TooMany { what: "filters", limit: MAX_FILTERS });
        }
        self.filters.iter().try_for_each(|f| f.kind.check())?;
        self.page_filters.iter().try_for_each(check_page_filter)?;
        if let Some(recheck) = self.recheck.filter(|&r| r > MAX_RECHECK_PAUSE) {
            return Err(SchemeError::Recheck(recheck));
        }
        match &self.action {
            Action::MigrateHot(to) | Action::MigrateCold(to) if !is_somewhere(to) => {
                Err(SchemeError::Destinations(self.action.name()))
            }
            _ => Ok(()),
        }
    }
}

fn is_somewhere(to: &Destinations) -> bool {
    !to.0.is_empty() && to.0.iter().all(|d| d.weight > 0)
}

fn check_page_filter(filter: &PageFilter) -> Result<(), SchemeError> {
    match filter.kind {
        PageKind::HugePage { min, max } if min > max => Err(SchemeError::Folio { min, max }),
        PageKind::Touched { within } if within > MAX_WITHIN => Err(SchemeError::Within(within)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "scheme_tests.rs"]
mod tests;
