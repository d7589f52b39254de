//! An operations set that logs and checks requests, and can interfere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::{
    Activity, AddrRange, Ask, Block, Cleared, Cost, Liveness, Look, Mapping, Nanos, OpsError,
    PAGE_SIZE, PageMask, Pressure, Seen, Space, Survey, TargetId,
};
use isotherm_sim::Ops;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: Nanos,
    pub target: TargetId,
    pub ranges: Vec<AddrRange>,
    pub clears: bool,
    pub cost: Cost,
    /// pages that are armed by the clear, as ranges
    pub armed: Vec<AddrRange>,
}

/// All requests, in their order.
pub type Log = Rc<RefCell<Vec<Event>>>;

type Ran = Box<dyn Fn(Nanos) -> Duration>;
type Meddling = Box<dyn FnMut(&mut Ops, Nanos, bool)>;

/// [`Ops`] with a log. It checks that requests obey the rules of [`Survey`].
pub struct Tapped {
    pub ops: Ops,
    pub log: Log,
    pub ran: Option<Ran>,
    /// whether it reports CPU time, so that the target may count as at rest
    pub tells_activity: bool,
    pub pressure: Option<Box<dyn Fn(Nanos) -> Pressure>>,
    /// called before each read, and, with `true`, after each clear
    pub meddle: Option<Meddling>,
    mappings: BTreeMap<TargetId, Vec<AddrRange>>,
    /// computing time of each reading of a target, reported when nothing is requested
    pub dear: Duration,
    reckoned: Duration,
    /// whether a read that begins at a time ends before its first block
    pub ends_early: Option<Box<dyn Fn(Nanos) -> bool>>,
    ended_early: bool,
    /// the pages of each block in swap at a time, see [`Survey::swapped`]
    pub swapped: Option<Box<dyn Fn(Nanos) -> Option<PageMask>>>,
    /// whether a range may extend beyond the end of a mapping
    pub lax: bool,
}

impl Tapped {
    pub fn new(ops: &Ops) -> Self {
        Tapped {
            ops: ops.clone(),
            log: Log::default(),
            ran: None,
            tells_activity: false,
            pressure: None,
            meddle: None,
            mappings: BTreeMap::new(),
            dear: Duration::ZERO,
            reckoned: Duration::ZERO,
            ends_early: None,
            ended_early: false,
            swapped: None,
            lax: true,
        }
    }

    fn now(&self) -> Nanos {
        self.ops.machine().now()
    }

    fn check(&self, target: TargetId, ranges: &[AddrRange]) {
        assert!(ranges.windows(2).all(|w| w[0].end <= w[1].start), "{ranges:?}");
        for r in ranges {
            assert!(r.start % PAGE_SIZE == 0 && r.end % PAGE_SIZE == 0 && !r.is_empty(), "{r:?}");
            let within = |m: &AddrRange| m.intersect(r) == Some(*r);
            assert!(self.lax || self.mappings[&target].iter().any(within), "{r:?} in one mapping");
        }
    }

    fn meddle(&mut self, cleared: bool) {
        let now = self.now();
        if let Some(meddle) = &mut self.meddle {
            meddle(&mut self.ops, now, cleared);
        }
    }
}

impl Space for Tapped {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let alive = self.ops.mappings(target, out)?;
        self.mappings.insert(target, out.iter().map(|m| m.range).collect());
        Ok(alive)
    }
    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        match &self.ran {
            Some(ran) => Some(ran(self.now())),
            None => self.ops.ran(target),
        }
    }
    fn activity(&mut self, target: TargetId) -> Option<Activity> {
        let ran = self.ran(target).filter(|_| self.tells_activity)?;
        Some(Activity { ran, acts: 0 })
    }
}

impl Look for Tapped {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        self.ops.look(asks, out)
    }
    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

impl Survey for Tapped {
    fn survey(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError> {
        self.check(target, ranges);
        self.meddle(false);
        let mut cost = Survey::survey(&mut self.ops, target, ranges, out)?;
        match ranges.is_empty() {
            true => cost.cpu += std::mem::take(&mut self.reckoned),
            false => self.reckoned += self.dear,
        }
        self.ended_early = self.ends_early.as_ref().is_some_and(|ends| ends(self.now()));
        if self.ended_early {
            out.clear();
        }
        let (at, ranges, armed) = (self.now(), ranges.to_vec(), Vec::new());
        self.log.borrow_mut().push(Event { at, target, ranges, clears: false, cost, armed });
        Ok(cost)
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn clear(
        &mut self,
        target: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError> {
        self.check(target, runs);
        let cost = self.ops.clear(target, runs, out)?;
        let armed = out.iter().flat_map(|c| {
            let page = |i: usize| {
                AddrRange::new(c.start + i as u64 * PAGE_SIZE, c.start + (i as u64 + 1) * PAGE_SIZE)
            };
            c.armed.iter().map(page).collect::<Vec<_>>()
        });
        let armed = isotherm_core::join_touching(armed);
        let (at, ranges) = (self.now(), runs.to_vec());
        self.log.borrow_mut().push(Event { at, target, ranges, clears: true, cost, armed });
        self.meddle(true);
        Ok(cost)
    }

    fn swapped(&mut self, target: TargetId, block: u64) -> Result<Option<PageMask>, OpsError> {
        match &self.swapped {
            Some(swapped) => Ok(swapped(self.now())),
            None => self.ops.swapped(target, block),
        }
    }

    fn pressure(&mut self, _: TargetId) -> Option<Pressure> {
        let now = self.now();
        self.pressure.as_ref().map(|pressure| pressure(now))
    }
}
