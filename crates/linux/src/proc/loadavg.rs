//! The last pid that the kernel assigned, from `/proc/loadavg`: a cheap sign that no process was started.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Detects whether a process or thread may have been started in our pid namespace, or in one below it.
#[derive(Debug, Default)]
pub struct Births {
    /// `None`: the file cannot be read, so a process may have been started at any time.
    file: Option<File>,
    last: Option<u64>,
    /// The kernel assigns a pid before the process appears as a child. So a change counts once more at the
    /// next call.
    again: bool,
}

impl Births {
    /// Starts to observe. The first call of [`Births::may_have_been`] returns true.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let file = File::open(root.join("proc/loadavg")).ok();
        Births { file, ..Births::default() }
    }

    /// Whether a process or thread may have been started since the last call. A pid that was requested by
    /// number (`clone3` with `set_tid`) is not detected.
    pub fn may_have_been(&mut self) -> bool {
        let now = self.file.as_ref().and_then(last_pid);
        let changed = now.is_none() || now != self.last;
        self.last = now;
        changed | std::mem::replace(&mut self.again, changed)
    }
}

/// `0.01 0.02 0.05 1/123 4567`
fn last_pid(file: &File) -> Option<u64> {
    let mut text = [0; 128];
    let len = file.read_at(&mut text, 0).ok()?;
    str::from_utf8(text.get(..len)?).ok()?.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn a_new_pid_is_a_birth_and_is_looked_for_twice() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/loadavg", "0.01 0.02 0.05 1/123 4567\n");
        let mut births = Births::new(root.path());
        let mut asked = || births.may_have_been();
        assert_eq!([asked(), asked(), asked(), asked()], [true, true, false, false]);
        put(root.path(), "proc/loadavg", "0.99 0.02 0.05 1/123 4567\n");
        assert!(!births.may_have_been(), "the load alone");
        put(root.path(), "proc/loadavg", "0.99 0.02 0.05 1/123 4568\n");
        let mut asked = || births.may_have_been();
        assert_eq!([asked(), asked(), asked()], [true, true, false]);
    }

    #[test]
    fn without_the_file_anybody_may_have_been_started() {
        let root = tempfile::tempdir().unwrap();
        let mut births = Births::new(root.path());
        assert!((0..4).all(|_| births.may_have_been()));
    }

    #[test]
    fn a_process_of_ours_is_seen() {
        let mut births = Births::new("/".as_ref());
        births.may_have_been();
        std::process::Command::new("true").status().unwrap();
        assert!(births.may_have_been());
    }
}
