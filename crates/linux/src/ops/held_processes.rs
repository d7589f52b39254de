//! Held processes that another source observes.

use std::ops::Deref;
use std::path::Path;

use isotherm_core::TargetId;

use super::held::{AttachError, HeldProcess};
use super::processes::{Hold, hold_by_targets};
use super::targets::ProcessTable;

/// Only holds processes: for a source that observes them by itself.
#[derive(Debug, Default)]
pub struct HeldProcesses(ProcessTable<HeldOnly>);

#[derive(Debug)]
struct HeldOnly(HeldProcess);

impl Deref for HeldOnly {
    type Target = HeldProcess;
    fn deref(&self) -> &HeldProcess {
        &self.0
    }
}

impl HeldProcesses {
    /// The pid of a held target.
    #[must_use]
    pub fn pid(&self, target: TargetId) -> Option<i32> {
        self.0.find(target).map(|held| held.pid)
    }
}

impl Hold for HeldProcesses {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        Ok(self.0.add(HeldOnly(HeldProcess::take(Path::new("/"), pid)?)))
    }

    hold_by_targets!(0);
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_detached_target_has_no_pid() {
        let mut held = HeldProcesses::default();
        let me = i32::try_from(std::process::id()).unwrap();
        let target = held.attach(me).unwrap();
        assert_eq!((held.pid(target), held.is_alive(target)), (Some(me), true));
        held.detach(target);
        assert_eq!((held.pid(target), held.is_alive(target)), (None, false));
        assert!(matches!(held.attach(i32::MAX), Err(AttachError::NoProcess(_))));
    }

    #[test]
    fn ended_processes_are_reported_at_once() {
        let mut held = HeldProcesses::default();
        let cat = |_| Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut children: Vec<Child> = (0..3).map(cat).collect();
        let pid = |c: &Child| i32::try_from(c.id()).unwrap();
        let targets: Vec<TargetId> =
            children.iter().map(|c| held.attach(pid(c)).unwrap()).collect();
        assert_eq!(held.ended(), []);
        for at in [2, 0] {
            children[at].kill().unwrap();
            children[at].wait().unwrap();
        }
        assert_eq!(held.ended(), [targets[0], targets[2]]);
        assert!(held.is_alive(targets[1]) && !held.is_alive(targets[2]));
        children[1].kill().unwrap();
        children[1].wait().unwrap();
    }
}
