//! The kernel's counters of control groups, per minute.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use isotherm_linux::cgroup::Cgroup;

/// The counters of one group over one minute. `None`: the kernel does not count it, or did not for the whole minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCounters {
    /// pages that returned soon after reclaim
    pub refaults: Option<u64>,
    /// faults that waited for a disk
    pub major_faults: Option<u64>,
    /// time in which some task waited for memory, in us
    pub psi_some_us: Option<u64>,
    /// time in which all tasks waited for memory, in us
    pub psi_full_us: Option<u64>,
    /// the lowest hard limit of the group and of those above it, in bytes
    pub limit_bytes: Option<u64>,
}

/// The last values of each group.
#[derive(Debug, Default)]
pub struct CounterTracker(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    group: Option<Cgroup>,
    /// number of its directory: a service that starts again gets a new group at the same path
    inode: Option<u64>,
    last: GroupCounters,
}

impl CounterTracker {
    /// The counts of these groups since the last call. Groups that are not among them are forgotten.
    pub fn read<'a>(
        &mut self,
        root: &Path,
        paths: impl Iterator<Item = &'a str>,
    ) -> Vec<GroupCounters> {
        let mut before = std::mem::take(&mut self.0);
        let mut all = Vec::new();
        for path in paths {
            let known = before.remove(path).filter(|known| known.group.is_some());
            let (group, old, last) = known.map_or_else(
                || (Cgroup::of_path(root, path), None, GroupCounters::default()),
                |known| (known.group, known.inode, known.last),
            );
            let inode = group.as_ref().and_then(|group| fs::metadata(group.dir()).ok());
            let inode = inode.map(|is| is.ino());
            let now = group.as_ref().map(totals).unwrap_or_default();
            let last = if inode == old { last } else { GroupCounters::default() };
            all.push(now.since(&last));
            self.0.insert(path.to_owned(), Known { group, inode, last: now });
        }
        all
    }
}

impl GroupCounters {
    fn since(&self, last: &GroupCounters) -> GroupCounters {
        let since = |now: Option<u64>, last: Option<u64>| now?.checked_sub(last?);
        GroupCounters {
            refaults: since(self.refaults, last.refaults),
            major_faults: since(self.major_faults, last.major_faults),
            psi_some_us: since(self.psi_some_us, last.psi_some_us),
            psi_full_us: since(self.psi_full_us, last.psi_full_us),
            limit_bytes: self.limit_bytes,
        }
    }
}

/// The counts since the group was created.
fn totals(group: &Cgroup) -> GroupCounters {
    let stat = group.memory_stat().ok();
    let pressure = group.memory_pressure().ok();
    let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    GroupCounters {
        refaults: stat.map(|s| s.refault_anon.saturating_add(s.refault_file)),
        major_faults: stat.map(|s| s.major_faults),
        psi_some_us: pressure.map(|p| us(p.some.total)),
        psi_full_us: pressure.map(|p| us(p.full.total)),
        limit_bytes: group.hard_limit(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn counts_are_those_of_the_minute() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "proc/self/mountinfo", "26 23 0:24 / /cg rw - cgroup2 cgroup2 rw\n");
        for (path, max) in [("cg/a", "8192"), ("cg/a/b", "max")] {
            for (name, text) in [
                ("cgroup.procs", ""),
                ("cgroup.controllers", "memory"),
                ("memory.current", "1"),
                ("memory.max", max),
            ] {
                put(root, &format!("{path}/{name}"), text);
            }
        }
        let stat = |faults: u32| {
            format!(
                "anon 5\nworkingset_refault_anon 7\nworkingset_refault_file 1\npgmajfault {faults}\n"
            )
        };
        put(root, "cg/a/b/memory.stat", &stat(3));
        let pressure = |us: u32| {
            let line = |kind: &str, us: u32| {
                format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n")
            };
            line("some", 2 * us) + &line("full", us)
        };
        put(root, "cg/a/b/memory.pressure", &pressure(10));
        let mut counters = CounterTracker::default();
        let mut read = || counters.read(root, ["/a/b", "/gone", "/"].into_iter());
        let limit_bytes = Some(8192);
        let first = read();
        assert_eq!(first[0], GroupCounters { limit_bytes, ..GroupCounters::default() });
        assert_eq!(first[1..], [GroupCounters::default(); 2]);
        put(root, "cg/a/b/memory.stat", &stat(8));
        put(root, "cg/a/b/memory.pressure", &pressure(25));
        let expected = GroupCounters {
            refaults: Some(0),
            major_faults: Some(5),
            psi_some_us: Some(30),
            psi_full_us: Some(15),
            limit_bytes,
        };
        assert_eq!(read()[0], expected);
        // The service has started again. Its new group counts from 0, and is beyond the old one already.
        let group = root.join("cg/a/b");
        fs::rename(&group, root.join("old")).unwrap();
        for entry in fs::read_dir(root.join("old")).unwrap() {
            let file = entry.unwrap();
            put(
                &group,
                file.file_name().to_str().unwrap(),
                &fs::read_to_string(file.path()).unwrap(),
            );
        }
        put(root, "cg/a/b/memory.stat", &stat(9));
        assert_eq!(read()[0], first[0]);
        put(root, "cg/a/b/memory.stat", &stat(11));
        assert_eq!(read()[0].major_faults, Some(2));
    }
}
