//! Schemes: what was seen decides what is done to which memory, within a budget.
//!
//! A [`Scheme`] is a [`Pattern`] of size, rate and age, an [`Action`], a [`Quota`], [`Watermarks`] and
//! [`Filter`]s. An [`Engine`] of them takes snapshots, and acts through [`crate::Act`].
//! `docs/reference/schemes.md` tells of it all.

mod absent;
mod acted;
mod candidates;
mod engine;
mod error;
mod filter;
mod goal;
mod metrics;
mod parse;
mod pattern;
mod priority;
mod queue;
mod quota;
mod running;
mod stats;
#[cfg(test)]
mod testing;
mod watermarks;

use std::sync::Arc;
use std::time::Duration;

pub use engine::Engine;
pub use error::SchemeError;
pub use filter::{Filter, FilterKind};
pub use goal::{Goal, feed_loop};
pub use metrics::{Figures, Metrics, Process, Scope};
pub use parse::{ParseError, Wrong, parse, parse_action, parse_age, parse_rate};
pub use pattern::{Pattern, hz_of_percent, mean_hz};
pub use priority::{Histogram, Weights, score};
pub use quota::Quota;
pub use stats::{Count, Event, Outcome, Stats, Why};
pub use watermarks::{Mark, Watermarks};

use crate::act::{Action, Destinations, PageFilter, PageKind};
use crate::range::PAGE_SIZE;
use crate::survey::BLOCK_SIZE;

/// Regions like this → this action, so much of it, the best first, only while the machine is like
/// this.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheme {
    /// tells it from others
    pub name: Arc<str>,
    /// which regions
    pub pattern: Pattern,
    /// what is done to them
    pub action: Action,
    /// how often; zero: at each step
    pub apply_interval: Duration,
    /// how much
    pub quota: Quota,
    /// when at all
    pub watermarks: Option<Watermarks>,
    /// which parts of regions
    pub filters: Vec<Filter>,
    /// which pages, where filters have not decided
    pub page_filters: Vec<PageFilter>,
    /// What is touched within this time before an action for cold memory is let alone: see
    /// [`crate::Work::recheck`]. None: the monitor's sampling interval.
    pub recheck: Option<Duration>,
}

const MAX_FILTERS: usize = 64;
const LONGEST_RECHECK: Duration = Duration::from_secs(1);
/// That is what two bytes a page hold, whatever they are counted from.
const LONGEST_WITHIN: Duration = Duration::from_secs(8 * 3600);

/// That a page was touched is known when its bit is cleared, and told in whole seconds.
const LATE: Duration = Duration::from_secs(2);

impl Scheme {
    /// All that matches, without a bound.
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
        }
    }

    /// The least bytes that its action can be done to.
    fn unit(&self) -> u64 {
        match self.action {
            Action::HugePage | Action::NoHugePage => BLOCK_SIZE,
            _ => PAGE_SIZE,
        }
    }

    /// When memory that has changed is worth a look by its pages, where those that were touched lately are
    /// held back: before that, all of them count as touched. Zero: at once.
    fn settled(&self) -> Duration {
        let of_pages = self.page_filters.iter().filter_map(|f| match f.kind {
            PageKind::Touched { within } if f.matching != f.allow => Some(within + LATE),
            _ => None,
        });
        of_pages.max().unwrap_or_default().min(*self.pattern.age.end())
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), SchemeError> {
        self.checked()
            .map_err(|why| SchemeError::Scheme { name: self.name.to_string(), why: Box::new(why) })
    }

    fn checked(&self) -> Result<(), SchemeError> {
        self.pattern.check()?;
        self.quota.check(self.unit())?;
        self.watermarks.as_ref().map_or(Ok(()), Watermarks::check)?;
        if self.filters.len() + self.page_filters.len() > MAX_FILTERS {
            return Err(SchemeError::TooMany { what: "filters", limit: MAX_FILTERS });
        }
        self.filters.iter().try_for_each(|f| f.kind.check())?;
        self.page_filters.iter().try_for_each(check_page_filter)?;
        if let Some(recheck) = self.recheck.filter(|&r| r > LONGEST_RECHECK) {
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
        PageKind::Touched { within } if within > LONGEST_WITHIN => Err(SchemeError::Within(within)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "scheme_tests.rs"]
mod tests;
