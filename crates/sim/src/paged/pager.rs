//! Acts on the processes of the machine.

use std::time::Duration;

use isotherm_core::{Act, Action, Applied, Failure, OpsError, PAGE_SIZE, Support, Work};
use isotherm_mm::PageOwner;

use super::owners::Owner;
use super::system::PagedMachine;
use super::watcher::page_of;

/// Pages out memory at once. A page returns when it is touched, by a fault that waits for swap.
#[derive(Debug)]
pub struct Pager<'a>(&'a mut PagedMachine);

impl PagedMachine {
    /// An actor on the machine's processes ([`super::target`], [`super::addresses`]).
    #[must_use]
    pub fn pager(&mut self) -> Pager<'_> {
        Pager(self)
    }

    /// Clears the accessed bits of a process. A page that is touched later counts as touched at the second look
    /// of a [`Pager`], because a pager cannot wait for touches itself.
    pub fn clear_accessed(&mut self, process: usize) {
        let entries = self.owners.processes.get_mut(process);
        entries.into_iter().flatten().for_each(|entry| entry.accessed = false);
    }
}

impl Act for Pager<'_> {
    fn supports(&self, action: &Action) -> Support {
        match action {
            Action::PageOut => Support::Yes,
            other => Support::No(format!("processes of this machine cannot {}", other.name())),
        }
    }

    /// Acts page by page. Each page takes the time for writing it to swap.
    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        works.iter().try_for_each(|work| {
            if let Support::No(why) = self.supports(work.action) {
                return Err(OpsError::Failed(why));
            }
            out.push(self.page_out(work)?);
            Ok(())
        })
    }
}

impl Pager<'_> {
    fn page_out(&mut self, work: &Work<'_>) -> Result<Applied, OpsError> {
        let no_target = || OpsError::NoTarget(work.target);
        let process = usize::try_from(work.target.0).map_err(|_| no_target())?;
        let there = self.0.owners.processes.get(process).ok_or_else(no_target)?.len();
        if !work.filters.is_empty() {
            return Err(OpsError::Failed("processes of this machine have no page filters".into()));
        }
        let mut done = Applied::default();
        for page in page_of(work.range.start)..page_of(work.range.end) {
            if page >= there {
                done.tried += PAGE_SIZE;
                done.failure = Some(Failure::Gone);
                continue;
            }
            let entry = self.0.owners.processes[process][page];
            let touched = entry.accessed && !work.recheck.is_zero();
            let Some(frame) = entry.frame().filter(|_| !touched) else {
                done.passed += PAGE_SIZE;
                continue;
            };
            if done.tried + PAGE_SIZE > work.budget.bytes || done.took >= work.budget.time {
                break;
            }
            done.tried += PAGE_SIZE;
            if !self.0.owners.give_up(Owner::Process(process, page).encode(), frame) {
                done.failure = Some(Failure::NoRoom);
                break;
            }
            self.0.memory.free(0, frame);
            done.applied += PAGE_SIZE;
            done.took += Duration::from_nanos(self.0.swap_debt());
        }
        self.0.settle_swap();
        Ok(done)
    }
}
