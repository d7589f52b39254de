//! The machine as an operations set.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::{
    Act, Action, AddrRange, Applied, Ask, Block, Cleared, Cost, Liveness, Look, Mapping, OpsError,
    PAGE_SIZE, Seen, Space, Support, Survey, TargetId, Work,
};

use crate::machine::{Machine, SimError};

/// An operations set over a [`Machine`], which all clones share: one clone for each monitor, and one for the
/// code that controls the machine.
#[derive(Debug, Clone)]
pub struct Ops {
    machine: Rc<RefCell<Machine>>,
    generations: BTreeMap<TargetId, u32>,
}

impl Ops {
    /// Takes ownership of the machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Ops { machine: Rc::new(RefCell::new(machine)), generations: BTreeMap::new() }
    }

    /// The machine. Drop the reference before a monitor steps.
    ///
    /// # Panics
    /// If the machine is already borrowed.
    #[must_use]
    pub fn machine(&self) -> RefMut<'_, Machine> {
        self.machine.borrow_mut()
    }

    fn held(&self) -> Result<RefMut<'_, Machine>, OpsError> {
        self.machine.try_borrow_mut().map_err(|_| {
            OpsError::Failed(
                "the machine is borrowed: first drop the guard of `Ops::machine`".into(),
            )
        })
    }
}

impl From<SimError> for OpsError {
    fn from(e: SimError) -> Self {
        match e {
            SimError::NoTarget(t) => OpsError::NoTarget(t),
            e => OpsError::Failed(e.to_string()),
        }
    }
}

impl Space for Ops {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let machine = self.held()?;
        let space = machine.space(target)?;
        out.clear();
        out.extend(space.mappings());
        let (gone, generation) = (space.is_gone(), space.generation());
        drop(machine);
        let before = self.generations.insert(target, generation).unwrap_or(generation);
        Ok(match (gone, before == generation) {
            (true, _) => Liveness::Gone,
            (false, true) => Liveness::Alive,
            (false, false) => Liveness::Replaced,
        })
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        let machine = self.held().ok()?;
        let now = machine.now();
        machine.space(target).ok().map(|s| s.ran(now))
    }
}

impl Look for Ops {
    /// Costs no CPU time, because the simulation has none.
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut machine = self.held()?;
        let now = machine.now();
        let mut cost = Cost { looks: asks.len() as u64, ..Cost::default() };
        for ask in asks {
            let (seen, cleared) = machine.space_mut(ask.target)?.look(ask.range, ask.clear, now);
            cost.pages += u64::from(seen.pages);
            cost.clears += u64::from(cleared);
            out.push(seen);
        }
        Ok(cost)
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

/// Cost of reading and clearing on a real machine, for a monitor that plans with it: `docs/concepts/looks.md`.
const READ_A_PAGE: Duration = Duration::from_nanos(2);
const CLEAR_A_PAGE: Duration = Duration::from_nanos(150);
const TOUCH_AGAIN: Duration = Duration::from_nanos(400);
const SHOOTDOWN: Duration = Duration::from_micros(25);

impl Survey for Ops {
    fn survey(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError> {
        let mut machine = self.held()?;
        let now = machine.now();
        let space = machine.space_mut(target)?;
        let mut cost = Cost::default();
        for range in ranges {
            for block in space.blocks(*range, now) {
                cost.pages += u64::from(block.resident.count());
                out.push(block);
            }
        }
        cost.cpu = times(READ_A_PAGE, cost.pages);
        Ok(cost)
    }

    fn clear(
        &mut self,
        target: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError> {
        let mut machine = self.held()?;
        let now = machine.now();
        let space = machine.space_mut(target)?;
        let mut cost = Cost::default();
        let mut pages = 0;
        for run in runs {
            let before = pages;
            for (cleared, young) in space.clear_blocks(*run, now) {
                pages += u64::from(young);
                out.push(cleared);
            }
            cost.clears += u64::from(pages > before);
        }
        cost.cpu = times(CLEAR_A_PAGE, pages) + times(SHOOTDOWN, cost.clears);
        cost.lost = times(TOUCH_AGAIN, pages) + times(SHOOTDOWN, cost.clears);
        Ok(cost)
    }
}

fn times(one: Duration, n: u64) -> Duration {
    one.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX))
}

impl Act for Ops {
    fn supports(&self, action: &Action) -> Support {
        match action {
            Action::PageOut | Action::Cold | Action::WillNeed | Action::Stat => Support::Yes,
            other => Support::No(format!(
                "the simulated machine cannot do {}: it has one node, no lists of reclaim, and huge \
                 pages only where they are mapped so",
                other.name()
            )),
        }
    }

    /// Takes no time. A page that is only partly in a range is skipped.
    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        works.iter().try_for_each(|work| {
            let done = self.work(work)?;
            out.push(done);
            Ok(())
        })
    }
}

impl Ops {
    fn work(&self, work: &Work<'_>) -> Result<Applied, OpsError> {
        let Work { action, target, range, .. } = *work;
        if let Support::No(why) = self.supports(action) {
            return Err(OpsError::Failed(why));
        }
        if !range.start.is_multiple_of(PAGE_SIZE) || !range.end.is_multiple_of(PAGE_SIZE) {
            return Err(SimError::Unaligned(range).into());
        }
        let mut machine = self.held()?;
        let now = machine.now();
        Ok(machine.space_mut(target)?.apply(work, now))
    }
}
