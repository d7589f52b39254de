//! A command and all its descendants, including orphans, whose parents have ended.

use std::path::Path;

use isotherm_linux::proc;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

/// Maximum number of processes that are searched.
pub const MAX_FAMILY: usize = 1024;

/// All processes that this process and its descendants start from now on.
pub struct ProcessTree<'a> {
    root: &'a Path,
    own: Pid,
    /// children that this process had before
    others: Vec<i32>,
}

impl<'a> ProcessTree<'a> {
    /// Makes this process a subreaper: it, and not init, becomes the parent of orphans among its descendants.
    pub fn begin(root: &'a Path) -> rustix::io::Result<Self> {
        let own = getpid();
        set_child_subreaper(Some(own))?;
        Ok(ProcessTree { root, own, others: proc::children(root, own.as_raw_nonzero().get()) })
    }

    /// The pids of the family, at most [`MAX_FAMILY`] of them. Ended children are reaped and left out, except for
    /// `command`, which the caller reaps.
    pub fn pids(&self, command: i32) -> Vec<i32> {
        let own = self.own.as_raw_nonzero().get();
        let mut all = proc::children(self.root, own);
        all.retain(|pid| !self.others.contains(pid) && (*pid == command || !has_ended(*pid)));
        with_descendants(self.root, all)
    }
}

/// These processes and all their descendants, at most [`MAX_FAMILY`] of them.
pub fn with_descendants(root: &Path, mut all: Vec<i32>) -> Vec<i32> {
    let mut next = 0;
    while let Some(&parent) = all.get(next).filter(|_| all.len() < MAX_FAMILY) {
        all.extend(proc::children(root, parent));
        next += 1;
    }
    all.truncate(MAX_FAMILY);
    all
}

fn has_ended(pid: i32) -> bool {
    let wait = |pid| waitpid(Some(pid), WaitOptions::NOHANG);
    Pid::from_raw(pid).is_none_or(|pid| !matches!(wait(pid), Ok(None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn orphans_belong_to_it_as_long_as_they_live() {
        let root = Path::new("/");
        let mut before = Command::new("sleep").arg("60").spawn().unwrap();
        let family = ProcessTree::begin(root).unwrap();
        // The shell in between ends at once, and prints the pid of its child.
        let script = "sh -c 'sleep 60 >&2 & echo $!'; exec sleep 60 >&2";
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let orphan: i32 = output.trim().parse().unwrap();
        let pid = child.id().cast_signed();
        let all = family.pids(pid);
        assert!(all.contains(&pid) && all.contains(&orphan), "{all:?}");
        assert!(!all.contains(&before.id().cast_signed()), "it was there before");

        let killed = Command::new("kill").args(["-9", &orphan.to_string()]).status().unwrap();
        assert!(killed.success());
        while family.pids(pid).contains(&orphan) {
            std::thread::yield_now();
        }
        assert!(!Path::new(&format!("/proc/{orphan}")).exists(), "nothing is left of it");
        for child in [&mut child, &mut before] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
