//! Facts about a target that the system reports: its program, its control group, and its memory in swap.

use std::sync::Arc;

use crate::call::TargetId;
use crate::time::Nanos;

/// The attribution of one target at one time. Residency and heat are in snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// the target
    pub target: TargetId,
    /// time of the read, on the clock of the snapshots
    pub at: Nanos,
    /// name of the program, at most 15 bytes
    pub comm: Arc<str>,
    /// Path of the control group below the mount point: `/system.slice/ssh.service`; `/` is the root group.
    /// Empty without control groups.
    pub cgroup: Arc<str>,
    /// bytes of anonymous memory in swap, no matter what moved them there
    pub swapped: u64,
    /// major faults since the start: pages read from swap or files while the target waited
    pub major_faults: u64,
}

impl Attribution {
    /// The control group and its ancestors, ending with the root group.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        groups_above(&self.cgroup)
    }
}

/// The group at `path` and its ancestors, ending with the root group.
pub fn groups_above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| parent_group(path))
}

fn parent_group(path: &str) -> Option<&str> {
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
