//! The current user of kernel DAMON.

use std::fmt::{self, Display};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::claim::{self, ClaimState};
use super::sysfs::{self, Command, Element, Kdamond, Operations, SysfsError};
use crate::proc::is_first_namespace;

/// Whether isotherm can use a kdamond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// yes: DAMON has no user, or only a kdamond that a killed isotherm has left
    Free,
    /// no: DAMON has another user
    Held(DamonOwner),
    /// no: the kernel lacks DAMON, or isotherm may not use it
    Absent(String),
}

/// The user of DAMON.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamonOwner {
    /// another isotherm, by its pid
    Isotherm(i32),
    /// the creator of these kdamonds
    Kdamonds(Vec<Foreign>),
    /// a kernel module, such as `DAMON_STAT`
    Module(String),
}

/// A kdamond of another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// its number in sysfs
    pub number: u64,
    /// pid of its thread, if it runs
    pub pid: Option<i32>,
}

impl Display for DamonOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DamonOwner::Isotherm(pid) => write!(f, "another isotherm (pid {pid})"),
            DamonOwner::Module(name) => {
                write!(
                    f,
                    "{name} (ended by N in /sys/module/{}/parameters/enabled)",
                    name.to_lowercase()
                )
            }
            DamonOwner::Kdamonds(all) => {
                write!(f, "another program, which has set up ")?;
                for (i, k) in all.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    match k.pid {
                        Some(pid) => write!(f, "{comma}kdamond {} (running, pid {pid})", k.number)?,
                        None => write!(f, "{comma}kdamond {} (not running)", k.number)?,
                    }
                }
                write!(f, " in /sys/kernel/mm/damon/admin/kdamonds")
            }
        }
    }
}

/// Maximal number of kdamonds that are read.
const MAX_KDAMONDS: u64 = 64;

/// Determines the user of DAMON; changes nothing.
#[must_use]
pub fn availability(root: &Path) -> Availability {
    let dir = sysfs::kdamonds(root);
    if let Some(module) = modules(root) {
        return Availability::Held(DamonOwner::Module(module));
    }
    let count = match sysfs::read::<u64>(&dir.join(Kdamond::COUNT)) {
        Ok(count) => count.min(MAX_KDAMONDS),
        Err(e) => return Availability::Absent(why_absent(&e)),
    };
    if !is_first_namespace(root) {
        return Availability::Absent(
            "it reports pids of the initial pid namespace, and isotherm runs in another one: run \
             isotherm outside of the container"
                .into(),
        );
    }
    match claim::standing(root) {
        ClaimState::Living(pid) => return Availability::Held(DamonOwner::Isotherm(pid)),
        ClaimState::Leftover => return Availability::Free,
        ClaimState::None => {}
    }
    if count == 0 {
        return Availability::Free;
    }
    let foreign = |number: u64| Foreign { number, pid: running(&dir.join(number.to_string())) };
    Availability::Held(DamonOwner::Kdamonds((0..count).map(foreign).collect()))
}

/// The pid of a kdamond's thread, if it runs.
pub(super) fn running(kdamond: &Path) -> Option<i32> {
    let on = sysfs::read::<Command>(&kdamond.join("state")).ok()? == Command::On;
    sysfs::read::<i32>(&kdamond.join("pid")).ok().filter(|&pid| on && pid > 0)
}

/// A module that uses DAMON: `DAMON_STAT`, `DAMON_RECLAIM`, `DAMON_LRU_SORT` or a later one.
fn modules(root: &Path) -> Option<String> {
    let all = fs::read_dir(root.join("sys/module")).ok()?.flatten();
    let names = all.filter_map(|m| m.file_name().into_string().ok());
    let mut damon: Vec<String> = names.filter(|name| name.starts_with("damon_")).collect();
    damon.sort();
    let enabled = |name: &String| {
        let path = root.join("sys/module").join(name).join("parameters/enabled");
        sysfs::read::<bool>(&path).unwrap_or(false)
    };
    damon.into_iter().find(enabled).map(|name| name.to_uppercase())
}

fn why_absent(e: &SysfsError) -> String {
    match e {
        SysfsError::Missing { .. } => {
            "there is no /sys/kernel/mm/damon/admin: it requires Linux 5.18 or later, built with \
             CONFIG_DAMON_SYSFS"
                .into()
        }
        SysfsError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "isotherm may not read its files in sysfs: run as root".into()
        }
        other => other.to_string(),
    }
}

/// The operations sets of the kernel, according to its symbols: asking DAMON itself would require a kdamond.
#[must_use]
pub fn operations(root: &Path) -> Vec<Operations> {
    let Ok(file) = fs::File::open(root.join("proc/kallsyms")) else { return Vec::new() };
    let (mut vaddr, mut paddr) = (false, false);
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        let name = line.split(' ').nth(2).unwrap_or_default();
        vaddr |= name.starts_with("damon_va_prepare_access_checks");
        paddr |= name.starts_with("damon_pa_prepare_access_checks");
        if vaddr && paddr {
            break;
        }
    }
    let has = |operations: &Operations| match operations {
        Operations::Paddr => paddr,
        Operations::Vaddr | Operations::Fvaddr => vaddr,
    };
    Operations::ALL.iter().copied().filter(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn free_held_absent() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let Availability::Absent(why) = availability(root) else { panic!("nothing there") };
        assert!(why.contains("CONFIG_DAMON_SYSFS"), "{why}");
        let dir = "sys/kernel/mm/damon/admin/kdamonds";
        file(root, &format!("{dir}/nr_kdamonds"), "0\n");
        file(root, "sys/module/damon_reclaim/parameters/enabled", "N\n");
        assert_eq!(availability(root), Availability::Free);
        file(root, &format!("{dir}/nr_kdamonds"), "2\n");
        for (n, state, pid) in [(0, "on", "607"), (1, "off", "-1")] {
            file(root, &format!("{dir}/{n}/state"), state);
            file(root, &format!("{dir}/{n}/pid"), pid);
        }
        let Availability::Held(holder) = availability(root) else { panic!("it is held") };
        assert_eq!(
            holder.to_string(),
            "another program, which has set up kdamond 0 (running, pid 607), kdamond 1 (not \
             running) in /sys/kernel/mm/damon/admin/kdamonds"
        );
        file(root, "sys/module/damon_stat/parameters/enabled", "Y\n");
        assert_eq!(availability(root), Availability::Held(DamonOwner::Module("DAMON_STAT".into())));
    }

    #[test]
    fn absent_in_a_container() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        file(root, "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
        assert_eq!(availability(root), Availability::Free);
        file(root, "proc/self/ns/pid", "");
        let Availability::Absent(why) = availability(root) else { panic!("of another namespace") };
        assert!(why.contains("pid namespace"), "{why}");
    }

    #[test]
    fn operations_by_symbols() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(operations(root.path()), []);
        file(root.path(), "proc/kallsyms", "0 t damon_va_prepare_access_checks\n0 T other\n");
        assert_eq!(operations(root.path()), [Operations::Vaddr, Operations::Fvaddr]);
        file(root.path(), "proc/kallsyms", "0 t damon_pa_prepare_access_checks.cold\n");
        assert_eq!(operations(root.path()), [Operations::Paddr]);
    }
}
