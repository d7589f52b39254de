//! What the system tells of a target besides its regions: whose it is, and what is not in memory.

use std::sync::Arc;

use crate::call::TargetId;
use crate::time::Nanos;

/// Of one target at one moment. What is resident, hot or cold follows from snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// whose
    pub target: TargetId,
    /// when it was read, on the clock of the snapshots
    pub at: Nanos,
    /// the name of the program, at most 15 bytes
    pub comm: Arc<str>,
    /// Path of its control group below the mount: `/system.slice/ssh.service`; `/` is the root of all.
    /// Empty where there are none.
    pub cgroup: Arc<str>,
    /// bytes of anonymous memory that are in swap, whoever put them there
    pub swapped: u64,
    /// pages that it had to wait for, read from swap or from files, since it started
    pub major_faults: u64,
}

impl Attribution {
    /// Its control group and those above it, the root of all last.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(&*self.cgroup), |path| above(path))
    }
}

/// The group above the one at `path`.
fn above(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path == "/" => None,
        0 => Some("/"),
        end => path.get(..end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_lie_in_groups() {
        let of = |path: &str| {
            let a = Attribution {
                target: TargetId(0),
                at: Nanos(0),
                comm: "".into(),
                cgroup: path.into(),
                swapped: 0,
                major_faults: 0,
            };
            a.groups().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            of("/system.slice/a/b"),
            ["/system.slice/a/b", "/system.slice/a", "/system.slice", "/"]
        );
        assert_eq!(of("/"), ["/"]);
        assert_eq!(of(""), [""]);
    }
}
