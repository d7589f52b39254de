//! Actions on real processes.
//!
//! A batch goes in three steps. What is young is cleared, for actions on what is not touched; for as long as
//! is asked for, nothing is done; then all is read again, a few MiB at a time, what was touched is cut
//! out, and the rest is acted on at once. What has come of it is read from the page tables.

mod absent;
mod deed;
mod filter;
mod migrate;
mod others;
mod pieces;
mod prepare;
mod room;
mod support;
mod tally;
mod wait;
mod walk;

use std::collections::BTreeSet;

use isotherm_core::{Act, Action, Applied, OpsError, PAGE_SIZE, Support, TargetId, Work};

use self::prepare::Prepared;
use crate::ops::vaddr::Vaddr;
use crate::sys::thread_cpu;

impl Act for Vaddr {
    fn supports(&self, action: &Action) -> Support {
        support::support(&self.root, self.clearing, action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let begin = thread_cpu();
        let sound = works.iter().take_while(|w| self.check(w).is_ok()).count();
        let (sound, rest) = works.split_at(sound);
        let done = self.apply_all(sound, out);
        // It is no look's.
        self.cpu.leave_out(thread_cpu().saturating_sub(begin));
        done.and_then(|()| rest.first().map_or(Ok(()), |w| self.check(w)))
    }
}

impl Vaddr {
    fn check(&self, work: &Work<'_>) -> Result<(), OpsError> {
        let known = self.targets.find(work.target).map(drop);
        known.ok_or(OpsError::NoTarget(work.target))?;
        support::never(self.clearing, work.action).map_err(OpsError::Failed)?;
        let range = work.range;
        if [range.start, range.end].iter().all(|a| a.is_multiple_of(PAGE_SIZE)) {
            return Ok(());
        }
        Err(OpsError::Failed(format!("{range:?} does not begin and end with a page")))
    }

    fn apply_all(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        self.refresh(works)?;
        let prepared: Vec<Prepared> =
            works.iter().map(|work| prepare::prepare(self, work)).collect::<Result<_, _>>()?;
        let waits = || works.iter().zip(&prepared).filter(|(_, p)| p.waits).map(|(w, _)| w);
        if let Some(longest) = waits().map(|w| w.recheck).max() {
            let targets: BTreeSet<TargetId> = waits().map(|w| w.target).collect();
            let pid = |t: &TargetId| Some(self.targets.find(*t)?.pid);
            let pids: Vec<i32> = targets.iter().filter_map(pid).collect();
            wait::wait(&self.root, &pids, longest);
        }
        for (work, prepared) in works.iter().zip(&prepared) {
            out.push(walk::perform(self, work, prepared)?);
        }
        Ok(())
    }

    /// Mappings may have come, gone or been locked since they were read. Of who has ended there is
    /// nothing to refresh.
    fn refresh(&mut self, works: &[Work<'_>]) -> Result<(), OpsError> {
        let Vaddr { walker, targets, .. } = self;
        let mut seen = BTreeSet::<TargetId>::new();
        for work in works.iter().filter(|w| seen.insert(w.target)) {
            match targets.get(work.target)?.refresh(walker) {
                Err(e) if !e.is_gone() => return Err(OpsError::Failed(e.to_string())),
                _ => {}
            }
        }
        Ok(())
    }
}
