//! Actions on real processes.
//!
//! A batch has three steps. For actions on cold memory, isotherm clears the young pages. It waits for as long
//! as the caller requests. Then it reads all pages again, a few MiB at a time, leaves out the touched ones,
//! acts on the others at once, and reads the result from the page tables.
//!
//! `prepare` has the first step and `wait` the second. In the third, `walk` iterates: `cursor` reads,
//! `eligible` applies the rules for all actions, `actions` has one type for each action, `memory` verifies,
//! and `progress` counts.

mod actions;
mod cursor;
mod demote;
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

use self::demote::demote;
use self::eligible::{Prepared, waits_for_touches};
use self::filter::ask_for_touched;
use self::prepare::{note_young, prepare};
use self::progress::LONGEST_WORK;
pub(crate) use self::progress::PageTimes;
pub use self::support::possible;
use self::wait::wait;
use self::walk::perform;
use crate::ops::epochs::flush_by_advice;
use crate::ops::touched::Touched;
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
        // It is no look's.
        self.cpu.leave_out(thread_cpu().saturating_sub(begin));
        // Of those that it did not come to nothing is said.
        let next = rest.first().filter(|_| out.len() == end);
        done.and_then(|()| next.map_or(Ok(()), |w| self.check(w)))
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

    /// Each work gets a step further, however little its time is: of many little ones the last are left, so
    /// that the time of all is kept. E.g. of 90 that have .5 ms each and take 1 ms, 45 are done.
    fn apply_all(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        self.refresh(works)?;
        let time = works.iter().fold(Duration::ZERO, |sum, w| sum.saturating_add(w.budget.time));
        let mut spent = Duration::ZERO;
        let mut prepared: Vec<(&Work<'_>, Prepared)> = Vec::new();
        for work in works {
            // What is prepared is to be done in what is left, which takes longer.
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
            if out.len() > first && (spent >= time || watch.wall() >= LONGEST_WORK) {
                in_vain += prepared.took;
                continue;
            }
            // What those before took too much is not there for it: all of them are over by one step at most.
            let left = prepared.took + time.saturating_sub(spent);
            let budget = Budget { time: work.budget.time.min(left), ..work.budget };
            work.begin();
            let perform = if *work.action == Action::NoHugePage { demote } else { perform };
            let done = perform(self, &Work { budget, ..(*work).clone() }, prepared)?;
            let took = done.took.saturating_sub(prepared.took);
            spent += took;
            self.page_times.note(work.action, &done, took);
            out.push(done);
        }
        // Who has come to nothing would seem to have stopped for want of time.
        if let Some(last) = out.iter_mut().skip(first).rfind(|a| a.tried + a.passed > 0) {
            last.took += in_vain;
        }
        Ok(())
    }

    /// Waits for touches, once for all works that ask for it.
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

    /// Mappings may have come, gone or been locked since they were read. Of who has ended there is
    /// nothing to refresh.
    ///
    /// Where touches are waited for, TLBs are flushed, at the price of a few bits: others clear bits
    /// without that (kswapd, clear_refs), and what a TLB holds is accessed without a trace.
    fn refresh(&mut self, works: &[Work<'_>]) -> Result<(), OpsError> {
        let Vaddr { walker, targets, .. } = self;
        let mut seen = BTreeSet::<TargetId>::new();
        for work in works.iter().filter(|w| seen.insert(w.target)) {
            let process = targets.get(work.target)?;
            let asks = |w: &Work<'_>| w.target == work.target && ask_for_touched(w.filters);
            if process.touched.is_none() && works.iter().any(asks) {
                process.touched = Some(Touched::since(monotonic()));
            }
            let waits = |w: &Work<'_>| w.target == work.target && waits_for_touches(w);
            match process.refresh(walker) {
                Ok(true) if works.iter().any(waits) => drop(flush_by_advice(walker, process)?),
                // Where it is not known what may be touched, nothing is, until it is read again.
                Err(e) if e.is_transient() => {
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
