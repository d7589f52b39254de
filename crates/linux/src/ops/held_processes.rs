//! Processes that are held, and looked at by others.

use std::ops::Deref;
use std::path::Path;

use isotherm_core::TargetId;

use super::held::{AttachError, Held};
use super::processes::Hold;
use super::targets::Targets;

/// Holds processes, and nothing more: for a source that looks by itself.
#[derive(Debug, Default)]
pub struct HeldProcesses(Targets<Kept>);

#[derive(Debug)]
struct Kept(Held);

impl Deref for Kept {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.0
    }
}

impl HeldProcesses {
    /// The pid of a target that is held.
    #[must_use]
    pub fn pid(&self, target: TargetId) -> Option<i32> {
        self.0.find(target).map(|held| held.pid)
    }
}

impl Hold for HeldProcesses {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        Ok(self.0.add(Kept(Held::take(Path::new("/"), pid)?)))
    }

    fn is_alive(&self, target: TargetId) -> bool {
        self.0.is_alive(target)
    }

    fn detach(&mut self, target: TargetId) {
        self.0.remove(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_has_no_pid() {
        let mut held = HeldProcesses::default();
        let me = i32::try_from(std::process::id()).unwrap();
        let target = held.attach(me).unwrap();
        assert_eq!((held.pid(target), held.is_alive(target)), (Some(me), true));
        held.detach(target);
        assert_eq!((held.pid(target), held.is_alive(target)), (None, false));
        assert!(matches!(held.attach(i32::MAX), Err(AttachError::NoProcess(_))));
    }
}
