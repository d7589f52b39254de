//! Actions on real processes.
//!
//! A batch has three steps. For actions on cold memory, isotherm clears the young pages. It waits for as long as
//! the caller requests. Then it reads all pages again, a few MiB at a time, and leaves out the touched ones. It
//! acts on the others at once, and reads the result from the page tables.
//!
//! `prepare` has the first step and `wait` the second. In the third, `walk` iterates: `cursor` reads,
//! `eligible` applies the rules for all actions, `actions` has one type for each action, `memory` verifies,
//! and `progress` counts.

mod actions;
mod cursor;
mod eligible;
mod filter;
mod memory;
mod operation;
mod others;
mod pieces;
mod prepare;
mod progress;
mod support;
mod swap_space;
mod wait;
mod walk;

use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_core::{Act, Action, Applied, Budget, OpsError, PAGE_SIZE, Support, TargetId, Work};

use self::eligible::{Prepared, waits_for_touches};
use self::filter::ask_for_touched;
use self::prepare::{note_young, prepare};
use self::progress::MAX_WORK;
pub(crate) use self::progress::PageTimes;
pub use self::support::possible;
use self::wait::wait;
use self::walk::perform;
use crate::cgroup::Cgroup;
use crate::ops::epochs::flush_by_advice;
use crate::ops::touched::TouchHistory;
use crate::ops::vaddr::Vaddr;
use crate::sys::{Stopwatch, monotonic, thread_cpu};

impl Act for Vaddr {
    fn supports(&self, action: &Action) -> Support {
        support::support(&self.root, self.clearing, action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let begin = thread_cpu();
        let sound = works.iter().take_while(|w| self.check(w).is_ok()).count();
        let (sound, rest) = works.split_at(sound);
        let end = out.len() + sound.len();
        for work in sound {
            self.targets.get(work.target)?.acts += 1;
        }
        let done = self.apply_all(sound, out);
        // This CPU time does not belong to any look.
        self.cpu.leave_out(thread_cpu().saturating_sub(begin));
        // Nothing is reported about works that were not reached.
        let next = rest.first().filter(|_| out.len() == end);
        done.and_then(|()| next.map_or(Ok(()), |w| self.check(w)))
    }

    fn reclaim_cache(&mut self, group: &str, bytes: u64) -> Option<Applied> {
        let begin = thread_cpu();
        let group = Cgroup::find(&self.root, group.as_ref());
        let done = group.and_then(|group| group.reclaim_cache(bytes));
        self.cpu.leave_out(thread_cpu().saturating_sub(begin));
        done.ok()
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

    /// Each work advances by a step, however little time it has. Of many small works the last ones are left
    /// out, so that the total time is kept. Example: of 90 works that have 0.5 ms each and take 1 ms, 45 are
    /// done.
    fn apply_all(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        self.refresh(works)?;
        let time = works.iter().fold(Duration::ZERO, |sum, w| sum.saturating_add(w.budget.time));
        let mut spent = Duration::ZERO;
        let mut prepared: Vec<(&Work<'_>, Prepared)> = Vec::new();
        for work in works {
            // Prepared works must fit in the remaining time, and acting takes longer than preparing.
            if spent > time / 4 {
                break;
            }
            let next = prepare(self, work)?;
            spent += next.took;
            prepared.push((work, next));
        }
        self.wait(&mut prepared)?;
        let (mut in_vain, watch) = (Duration::ZERO, Stopwatch::start());
        let first = out.len();
        for (work, prepared) in &prepared {
            if out.len() > first && (spent >= time || watch.wall() >= MAX_WORK) {
                in_vain += prepared.took;
                continue;
            }
            // A work does not get the time by which earlier ones exceeded theirs. So all together exceed the
            // time by one step at most.
            let left = prepared.took + time.saturating_sub(spent);
            let budget = Budget { time: work.budget.time.min(left), ..work.budget };
            work.begin();
            let done = perform(self, &Work { budget, ..(*work).clone() }, prepared)?;
            let took = done.took.saturating_sub(prepared.took);
            spent += took;
            self.page_times.note(work.action, &done, took);
            out.push(done);
        }
        // Without this, a work that matched no page would be counted as out of time.
        if let Some(last) = out.iter_mut().skip(first).rfind(|a| a.tried + a.passed > 0) {
            last.took += in_vain;
        }
        Ok(())
    }

    /// Waits for touches, once for all works that request it.
    fn wait(&mut self, works: &mut [(&Work<'_>, Prepared)]) -> Result<(), OpsError> {
        let waits = || works.iter().filter(|(_, p)| p.waits).map(|(work, _)| work);
        let Some(longest) = waits().map(|w| w.recheck).max() else { return Ok(()) };
        let targets: BTreeSet<TargetId> = waits().map(|w| w.target).collect();
        let pid = |t: &TargetId| Some(self.targets.find(*t)?.pid);
        let pids: Vec<i32> = targets.iter().filter_map(pid).collect();
        let root = self.root.clone();
        wait(&root, &pids, longest, || {
            let mut waiting = works.iter_mut().filter(|(_, p)| p.waits);
            waiting.try_for_each(|(work, prepared)| note_young(self, work, prepared))
        })
    }

    /// Reads the mappings again, because memory may have been mapped, unmapped or locked since. A target that
    /// has ended has none.
    ///
    /// Before a wait for touches, it flushes the TLBs, which costs a few bits. Others (kswapd, clear_refs)
    /// clear bits without a flush, and accesses through a cached translation leave no trace.
    fn refresh(&mut self, works: &[Work<'_>]) -> Result<(), OpsError> {
        let Vaddr { walker, targets, .. } = self;
        let mut seen = BTreeSet::<TargetId>::new();
        for work in works.iter().filter(|w| seen.insert(w.target)) {
            let process = targets.get(work.target)?;
            let asks = |w: &Work<'_>| w.target == work.target && ask_for_touched(w.filters);
            if process.touched.is_none() && works.iter().any(asks) {
                process.touched = Some(TouchHistory::since(monotonic()));
            }
            let waits = |w: &Work<'_>| w.target == work.target && waits_for_touches(w);
            match process.refresh(walker) {
                Ok(true) if works.iter().any(waits) => drop(flush_by_advice(walker, process)?),
                // If it is unknown which memory may be touched, nothing is touched until the mappings can be
                // read.
                Err(e) if e.is_passing() => {
                    process.postpone(&e);
                    process.forget_mappings();
                }
                Err(e) if !e.is_gone() => return Err(OpsError::Failed(e.to_string())),
                _ => {}
            }
        }
        Ok(())
    }
}
