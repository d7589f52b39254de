//! Handmade snapshots, and an operations set that does nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::act::{Act, Action, Applied, Failure, PageFilter, Support, Work};
use crate::attrs::Attrs;
use crate::call::{Cost, OpsError, TargetId};
use crate::estimator::Rate;
use crate::ops::{Mapping, MappingKind};
use crate::range::{AddrRange, PAGE_SIZE, join_touching};
use crate::snapshot::{RegionView, Snapshot, TargetView};
use crate::support::RateSupport;
use crate::time::Nanos;
use crate::unknown::UnknownPages;

/// `len` pages from page `at` on.
pub fn pages(at: u64, len: u64) -> AddrRange {
    AddrRange::new(at * PAGE_SIZE, (at + len) * PAGE_SIZE)
}

/// A resident region, wholly touched at `hz`; untouched if `hz` is 0.
pub fn view(at: u64, len: u64, hz: f64, age: Duration) -> RegionView {
    let hz = hz as f32;
    let touched_bp = if hz > 0.0 { 10_000 } else { 0 };
    RegionView {
        range: pages(at, len),
        accesses_bp: (f64::from(-(-hz * 0.02).exp_m1()) * 10_000.0).ceil() as u32,
        age,
        rate: Rate { hz, low: hz, high: hz },
        touched_bp,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    }
}

/// A target whose mappings equal its regions.
pub fn target(id: u32, regions: &[RegionView]) -> TargetView {
    let mapping = |r: &RegionView| Mapping {
        range: r.range,
        kind: MappingKind::Anonymous,
        name: Arc::from(""),
        unknown: None,
    };
    TargetView {
        id: TargetId(id),
        ran: None,
        mappings: Arc::new(regions.iter().map(mapping).collect()),
        left_out: 0,
        dirty: None,
        regions: regions.to_vec(),
        ages: None,
    }
}

/// A snapshot at `ms` milliseconds.
pub fn snapshot(ms: u64, targets: Vec<TargetView>) -> Snapshot {
    let end = Nanos(ms * 1_000_000);
    Snapshot {
        seq: 0,
        start: end,
        end,
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets,
    }
}

/// The result of an action on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOutcome {
    Done,
    Failed(Failure),
    Passed,
}

/// Does nothing, and records the requests.
pub struct Desk {
    /// by target and page number
    pub fate: Box<dyn Fn(TargetId, u64) -> PageOutcome>,
    /// time per page that is not skipped
    pub takes: Duration,
    /// fixed time per work
    pub begins: Duration,
    /// a target that is not known
    pub unknown: Option<TargetId>,
    /// the requested works with their results
    pub asked: Vec<(Asked, Applied)>,
    /// the requests to reclaim page cache, by group and bytes
    pub caches: Vec<(String, u64)>,
}

/// A requested [`Work`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub action: Action,
    pub target: TargetId,
    pub range: AddrRange,
    pub filters: Vec<PageFilter>,
    pub recheck: Duration,
}

impl Desk {
    pub fn new() -> Self {
        Desk::with(|_, _| PageOutcome::Done)
    }

    pub fn with(fate: impl Fn(TargetId, u64) -> PageOutcome + 'static) -> Self {
        let (fate, takes, begins) = (Box::new(fate), Duration::ZERO, Duration::ZERO);
        Desk { fate, takes, begins, unknown: None, asked: Vec::new(), caches: Vec::new() }
    }

    /// The ranges requested since the last call, in order, with adjacent ones joined.
    pub fn take(&mut self) -> Vec<AddrRange> {
        join_touching(self.asked.drain(..).map(|(a, _)| a.range))
    }

    fn work(&self, work: &Work<'_>) -> Applied {
        let mut done = Applied { took: self.begins, ..Applied::default() };
        for page in work.range.start / PAGE_SIZE..work.range.end / PAGE_SIZE {
            if !self.takes.is_zero() && done.took >= work.budget.time {
                break;
            }
            match (self.fate)(work.target, page) {
                PageOutcome::Passed => done.passed += PAGE_SIZE,
                _ if done.tried + PAGE_SIZE > work.budget.bytes => break,
                fate => {
                    done.tried += PAGE_SIZE;
                    done.took += self.takes;
                    match fate {
                        PageOutcome::Failed(why) => done.failure = Some(why),
                        _ => done.applied += PAGE_SIZE,
                    }
                }
            }
        }
        done
    }
}

impl Act for Desk {
    fn supports(&self, action: &Action) -> Support {
        match action {
            Action::LruPrio => Support::No("a desk has no lists".into()),
            Action::HugePage => Support::NotNow("the desk is full".into()),
            _ => Support::Yes,
        }
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        for work in works {
            let Work { target, range, filters, recheck, .. } = *work;
            if self.unknown == Some(target) {
                return Err(OpsError::NoTarget(target));
            }
            if let Support::No(why) = self.supports(work.action) {
                return Err(OpsError::Failed(why));
            }
            let done = self.work(work);
            let (action, filters) = (work.action.clone(), filters.to_vec());
            self.asked.push((Asked { action, target, range, filters, recheck }, done));
            out.push(done);
        }
        Ok(())
    }

    fn reclaim_cache(&mut self, group: &str, bytes: u64) -> Option<Applied> {
        self.caches.push((group.to_owned(), bytes));
        Some(Applied { tried: bytes, applied: bytes, ..Applied::default() })
    }
}
