//! A control group with a memory limit, created for a bench and removed at its end.

use std::fs::{create_dir, read_to_string, remove_dir, write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_linux::cgroup::{Cgroup, Limit, Version};

/// The group, of version 2 or of version 1's memory controller. It is removed on drop; its processes must have
/// ended by then.
#[derive(Debug)]
pub struct Limited {
    group: Cgroup,
    /// the previous group of this process
    home: PathBuf,
}

impl Limited {
    /// Creates a group whose memory is limited to `bytes`.
    pub fn start(bytes: u64) -> Result<Self> {
        Limited::named("0", bytes)
    }

    /// The same, for one group of several.
    pub fn named(name: &str, bytes: u64) -> Result<Self> {
        let home = home()?;
        let name = format!("isotherm-bench-{}-{name}", std::process::id());
        let dir = home.join(name);
        create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let made = Cgroup::find(Path::new("/"), &dir).map(|group| Limited { group, home });
        let limited = made.inspect_err(|_| {
            let _ = remove_dir(&dir);
        })?;
        limited.group.set_memory_max(Limit::Bytes(bytes)).context(
            "the group has no memory controller: switch it on in cgroup.subtree_control above it",
        )?;
        Ok(limited)
    }

    /// Which interface it has.
    pub fn version(&self) -> Version {
        self.group.version()
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.group.dir()
    }

    /// Its control files.
    pub fn group(&self) -> &Cgroup {
        &self.group
    }

    /// Lowers or raises the limit, in steps down of at most `step` bytes: one far below the use is refused.
    pub fn move_to(&self, limit: u64, step: u64) -> Result<()> {
        let mut at = self.group.memory_current()?;
        while at > limit {
            at = limit.max(at.saturating_sub(step.max(1)));
            // The kernel may find too little to reclaim at first.
            for _ in 0..20 {
                if self.group.set_memory_max(Limit::Bytes(at)).is_ok() {
                    break;
                }
                sleep(Duration::from_millis(100));
            }
        }
        Ok(self.group.set_memory_max(Limit::Bytes(limit))?)
    }

    /// How often the group reached its limit, so that an allocation had to reclaim.
    pub fn times_reached(&self) -> Result<u64> {
        let [file, key] = match self.version() {
            Version::V1 => ["memory.failcnt", ""],
            Version::V2 => ["memory.events", "max "],
        };
        let path = self.group.dir().join(file);
        let text = read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        let count = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        count.with_context(|| format!("{} has no count", path.display()))
    }

    /// Runs `what` in the group. Processes that it starts stay in the group.
    pub fn within<T>(&self, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let own = std::process::id().to_string();
        write(self.group.dir().join("cgroup.procs"), &own).context("cannot enter the group")?;
        let done = what();
        write(self.home.join("cgroup.procs"), &own).context("cannot leave the group")?;
        done
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Killed processes may take a moment to leave.
        for _ in 0..50 {
            if remove_dir(self.group.dir()).is_ok() {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        eprintln!("the group of this bench is still there: rmdir {}", self.group.dir().display());
    }
}

/// The directory of the group that this process is in, where memory is controlled.
fn home() -> Result<PathBuf> {
    let own = read_to_string("/proc/self/cgroup")?;
    let path =
        |line: &str| line.rsplit(':').next().unwrap_or("/").trim_start_matches('/').to_owned();
    let lines = || own.lines();
    let v1 =
        lines().find(|l| l.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "memory")));
    let mounts = read_to_string("/proc/self/mountinfo")?;
    let mount = |is: &dyn Fn(&str) -> bool| {
        let line = mounts.lines().find(|l| l.split_once(" - ").is_some_and(|(_, fs)| is(fs)))?;
        line.split(' ').nth(4).map(PathBuf::from)
    };
    let found = match v1 {
        Some(line) => mount(&|fs| {
            fs.starts_with("cgroup ")
                && fs.rsplit(' ').next().is_some_and(|o| o.split(',').any(|o| o == "memory"))
        })
        .map(|at| at.join(path(line))),
        None => {
            let line = lines().find(|l| l.starts_with("0::")).unwrap_or("0::/");
            mount(&|fs| fs.starts_with("cgroup2 ")).map(|at| at.join(path(line)))
        }
    };
    found.context("there is no memory controller: mount cgroups")
}
