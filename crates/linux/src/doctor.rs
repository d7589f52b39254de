//! Checks what works on this machine, always by trying it, never from the kernel's configuration.

mod physical;

use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::Serialize;

use crate::damon::{self, Availability};
use crate::proc::{Pagemap, ProcError, open_maps, stat};
use crate::sys::{MemoryAdvice, OwnPages, missing_capabilities, process_madvise};
use crate::walker::{WalkError, Walker, Want, bpf_help, own_pid};
use crate::ways::{Way, WayError};
use crate::x86::Level;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckResult {
    /// works
    Works,
    /// works with limits, or is worth knowing
    Limited,
    /// does not work, so that nothing can be recorded
    Fails,
}

impl CheckResult {
    /// The word for a column of seven characters.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            CheckResult::Works => "ok",
            CheckResult::Limited => "note",
            CheckResult::Fails => "FAILS",
        }
    }
}

/// One check with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// the feature that was tried
    pub what: &'static str,
    /// the result
    pub state: CheckResult,
    /// description, with the reason if it does not work; may have several lines
    pub detail: String,
    /// what the user can do
    pub advice: Option<String>,
    /// messages of the kernel, line by line, if there is more than a reason
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

impl Finding {
    fn new(what: &'static str, state: CheckResult, detail: impl Into<String>) -> Self {
        Finding { what, state, detail: detail.into(), advice: None, log: Vec::new() }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Finding { advice: Some(advice.into()), ..self }
    }
}

/// The results of all checks: `docs/abi/testing/doctor.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// version of this format
    pub schema_version: u32,
    /// one per check
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Whether recording works.
    #[must_use]
    pub fn recording_works(&self) -> bool {
        self.findings.iter().all(|f| f.state != CheckResult::Fails)
    }
}

/// Runs all checks; `root` is `/`, or a directory tree for tests.
#[must_use]
pub fn examine(root: &Path) -> Findings {
    let mut findings = vec![capabilities()];
    findings.extend(ways());
    if let Ok(mut walker) = Walker::fastest() {
        findings.push(clearing(&mut walker));
        findings.push(huge_pages(&mut walker));
    }
    findings.push(shared_pages(root));
    findings.push(other_users(root));
    findings.push(kernel_damon(root));
    findings.extend(others_who_clear(root));
    findings.extend(physical::findings(root));
    Findings { schema_version: 1, findings }
}

/// Checks each way of looking. A way that does not work is only a note if another one works.
fn ways() -> Vec<Finding> {
    let opened = Way::ALL.map(|way| (way, way.open().map(drop)));
    let any = opened.iter().any(|(_, opened)| opened.is_ok());
    let finding = |(way, opened): (Way, Result<(), WayError>)| match opened {
        Ok(()) => Finding::new(
            "way to look",
            CheckResult::Works,
            format!(
                "{}\n{}\nresolution: {}\nnot seen: {}",
                way.name(),
                way.how(),
                way.resolution(),
                way.blind_spots()
            ),
        ),
        Err(e) => {
            let (why, help, log) = match e {
                WayError::Walk(WalkError::Load { reason, help, log }) => (reason, help, log),
                WayError::Walk(e @ (WalkError::Namespace | WalkError::NoFunction)) => {
                    (e.to_string(), NOT_NEEDED.into(), Vec::new())
                }
                WayError::Walk(other) => (other.to_string(), bpf_help(), Vec::new()),
                other => (other.to_string(), NOT_NEEDED.into(), Vec::new()),
            };
            let state = if any { CheckResult::Limited } else { CheckResult::Fails };
            let why = format!("{}\n{why}", way.name());
            Finding { log, ..Finding::new("way to look", state, why).advise(help) }
        }
    };
    opened.into_iter().map(finding).collect()
}

const NOT_NEEDED: &str = "It is not needed where another one works";

fn capabilities() -> Finding {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Finding::new(
            "capabilities",
            CheckResult::Works,
            "this process has all required capabilities",
        );
    }
    Finding::new("capabilities", CheckResult::Limited, format!("missing: {}", missing.join(", ")))
        .advise(
            "run as root, or see docs/reference/permissions.md for the minimum that is required",
        )
}

/// Clears a young page of isotherm's own, and checks that it becomes old and can become young again.
fn clearing(walker: &mut Walker) -> Finding {
    let what = "clearing accessed bits by process_madvise";
    match try_clearing(walker) {
        Ok(true) => Finding::new(what, CheckResult::Works, "a young page of our own became old"),
        Ok(false) => Finding::new(what, CheckResult::Fails, "a page of our own stays young")
            .advise("this kernel cannot be used; please report it with `uname -a`"),
        Err(e) => Finding::new(what, CheckResult::Fails, e.to_string())
            .advise("this requires Linux 5.10 and CAP_SYS_NICE: run as root"),
    }
}

fn try_clearing(walker: &mut Walker) -> std::io::Result<bool> {
    let mut own = OwnPages::map(65)?;
    (0..65).for_each(|page| own.write(page, 1)); // new pages cannot be cleared before 31 more came
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
    process_madvise(pidfd.as_fd(), &[own.range(0, 1)], MemoryAdvice::Cold)?;
    let before = is_young(walker, &own);
    own.write(0, 2);
    Ok(before == Some(false) && is_young(walker, &own) == Some(true))
}

fn is_young(walker: &mut Walker, own: &OwnPages) -> Option<bool> {
    let batch = walker.read(own_pid(), std::iter::once((own.range(0, 1), Want::Entries))).ok()?;
    batch.answers().next().map(|a| a.entry(0).is_young())
}

fn huge_pages(walker: &mut Walker) -> Finding {
    let what = "huge pages";
    let try_one = || {
        let size = crate::x86::HUGE_SIZE;
        let mut own = OwnPages::map_aligned(size, size).ok()?;
        own.advise(0..512, rustix::mm::Advice::LinuxHugepage).ok()?;
        own.write(0, 1);
        let batch =
            walker.read(own_pid(), std::iter::once((own.range(0, 1), Want::Entries))).ok()?;
        batch.answers().next().map(|a| a.level == Level::Pmd)
    };
    let detail = if { try_one }() == Some(true) {
        "one accessed bit per 2 MiB: isotherm knows the rate of a huge page only as a whole"
    } else {
        "none can be allocated now, so this sets no limit"
    };
    Finding::new(what, CheckResult::Works, detail)
}

fn shared_pages(root: &Path) -> Finding {
    let what = "detecting pages that are mapped more than once";
    let exclusive = || -> Result<bool, String> {
        let mut own = OwnPages::map(1).map_err(|e| e.to_string())?;
        own.write(0, 1);
        let mut pagemap = Pagemap::open(root, own_pid()).map_err(|e| e.to_string())?;
        let entry = pagemap.read(own.range(0, 1)).next();
        Ok(entry.is_some_and(|e| e.is_present() && e.is_exclusive()))
    };
    match exclusive() {
        Ok(true) => Finding::new(what, CheckResult::Works, "pagemap detects them where BPF cannot"),
        Ok(false) => Finding::new(
            what,
            CheckResult::Fails,
            "pagemap reports a private page of our own \
                                                       as shared",
        ),
        Err(e) => Finding::new(what, CheckResult::Fails, e).advise("mount /proc"),
    }
}

/// Maximal number of foreign processes to try: a process that has just ended, or that has a protection of its
/// own, is little evidence about others.
const FOREIGN_TRIED: usize = 8;

/// Tries some processes of other users.
fn other_users(root: &Path) -> Finding {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::geteuid().as_raw();
    let pids =
        std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten().filter_map(|e| {
            let pid: i32 = e.file_name().to_str()?.parse().ok()?;
            let stat = stat(root, pid).ok()?;
            (e.metadata().ok()?.uid() != me && !stat.kernel_thread).then_some(pid)
        });
    // The file that the BPF walker opens.
    let tried = pids.map(|pid| open_maps(root, pid).map(drop));
    foreign(tried.filter(|tried| !tried.as_ref().is_err_and(ProcError::is_gone)))
}

fn foreign(tried: impl Iterator<Item = Result<(), ProcError>>) -> Finding {
    let what = "processes of other users";
    let (mut opened, mut refused) = (0, None);
    for result in tried.take(FOREIGN_TRIED) {
        match result {
            Ok(()) => opened += 1,
            Err(e) => refused = Some(e),
        }
    }
    let works = |detail: String| Finding::new(what, CheckResult::Works, detail);
    match refused {
        None if opened == 0 => works("there are none to try".into()),
        None => works(format!("{opened} tried, all can be opened")),
        Some(e) => Finding::new(what, CheckResult::Limited, e.to_string()).advise(match opened {
            0 => "this requires CAP_SYS_PTRACE (and, except with BPF, CAP_DAC_READ_SEARCH); your \
                  own processes work"
                .into(),
            n => format!("{n} others can be opened: this process has a protection of its own"),
        }),
    }
}

/// Whether isotherm could use a kdamond. A kdamond that a killed isotherm has left is removed.
fn kernel_damon(root: &Path) -> Finding {
    let what = "the kernel's DAMON";
    let left = match damon::sweep(root) {
        Ok(None) => String::new(),
        Ok(Some(pid)) => {
            format!("\nremoved the kdamond that isotherm {pid} left when it was killed")
        }
        Err(e) => format!("\ncannot remove the kdamond that a killed isotherm left: {e}"),
    };
    let names: Vec<&str> = damon::operations(root).iter().map(|o| o.name()).collect();
    let operations = match &*names {
        [] => "operations unknown: /proc/kallsyms shows none".to_owned(),
        names => format!("operations: {}", names.join(", ")),
    };
    match damon::availability(root) {
        Availability::Free => {
            Finding::new(what, CheckResult::Works, format!("free; {operations}{left}"))
        }
        Availability::Held(holder) => {
            let detail = format!("belongs to {holder}; {operations}{left}");
            Finding::new(what, CheckResult::Limited, detail).advise("isotherm leaves it alone")
        }
        Availability::Absent(why) => {
            Finding::new(what, CheckResult::Limited, format!("{why}{left}"))
                .advise("only --look damon requires it")
        }
    }
}

/// Finds other users that clear accessed bits: because of them, memory that looks old need not be idle.
fn others_who_clear(root: &Path) -> Vec<Finding> {
    let what = "others that clear accessed bits";
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut found = Vec::new();
    let kdamonds = root.join("sys/kernel/mm/damon/admin/kdamonds");
    let running = std::fs::read_dir(kdamonds).into_iter().flatten().flatten().filter(|k| {
        std::fs::read_to_string(k.path().join("state")).is_ok_and(|s| s.trim() == "on")
    });
    let running = running.count();
    if running > 0 {
        found.push(format!("{running} kdamond(s) of the kernel's DAMON"));
    }
    for module in ["damon_stat", "damon_reclaim", "damon_lru_sort"] {
        if read(&format!("sys/module/{module}/parameters/enabled")).trim() == "Y" {
            found.push(format!("the kernel's {}", module.to_uppercase()));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let text =
        format!("{}: isotherm leaves them alone, and may miss a few accesses", found.join(", "));
    vec![Finding::new(what, CheckResult::Limited, text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_kdamond_is_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds/0");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("state"), "off\n").unwrap();
        assert_eq!(others_who_clear(root.path()), []);
        std::fs::write(dir.join("state"), "on\n").unwrap();
        let found = others_who_clear(root.path());
        assert!(found[0].detail.starts_with("1 kdamond(s)"), "{found:?}");
    }

    #[test]
    fn one_foreign_process_does_not_speak_for_all() {
        let refused = || {
            let source = std::io::ErrorKind::PermissionDenied.into();
            Err(ProcError::Read { path: "/proc/7/maps".into(), source })
        };
        let of = |tried: Vec<Result<(), ProcError>>| {
            let found = foreign(tried.into_iter());
            (found.state, format!("{} {}", found.detail, found.advice.unwrap_or_default()))
        };
        assert_eq!(of(vec![]).0, CheckResult::Works);
        assert_eq!(of(vec![Ok(()), Ok(())]).0, CheckResult::Works);
        let (state, text) = of(vec![refused(), refused()]);
        assert!(state == CheckResult::Limited && text.contains("CAP_SYS_PTRACE"), "{text}");
        let (state, text) = of(vec![refused(), Ok(()), Ok(())]);
        assert!(state == CheckResult::Limited && text.contains("2 others can be opened"), "{text}");
    }
}
