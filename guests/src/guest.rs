//! One guest: its inputs, and the evaluation of its outputs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::apt;
use crate::cache::Kernel;
use crate::inside::Inside;
use crate::lab::Lab;
use crate::qemu::{self, Boot};
use crate::scenario::Scenario;
use crate::table::{ScenarioRow, Verdict};
use crate::topology::Topology;
use crate::watch::EmulatorWatch;

/// Number of lines of the console and of the script that are shown if a guest fails.
const SHOWN: usize = 40;
/// Maximum length of a guest's output, in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// Begins of what the kernel says if something in it is wrong, after the time of its message. A stall of a CPU is not among
/// them: the emulator may stand still.
const KERNEL_FAULTS: [&str; 8] = [
    "WARNING: ",
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "general protection fault",
    "refcount_t: ",
    "Bad page ",
    "Out of memory: Killed process ",
];

/// Boots one guest, and evaluates its output, which stays in `dir`.
pub fn run(
    lab: &Lab,
    scenario: &Scenario,
    kernel: &Kernel,
    dir: &Path,
    say: impl Fn(&str),
) -> Result<ScenarioRow> {
    let tree = scenario.systemd.then(|| lab.cache.tree(&lab.kernels.tree, &say)).transpose()?;
    let inside = Inside {
        lab,
        kernel,
        topology: &scenario.topology,
        variables: scenario.variables(&kernel.series),
        scenario: Some(&scenario.dir),
        tree: tree.as_deref(),
    };
    let boot = Boot {
        kernel,
        initramfs: &inside.write(dir)?,
        topology: &scenario.topology,
        kernel_args: &scenario.kernel_args,
    };
    let begin = Instant::now();
    let watch = || EmulatorWatch::new(scenario.timeout, scenario.silence);
    let mut ended = boot.run(dir, watch());
    let again = !has_begun(dir);
    if again {
        say(&format!("{} died as it booted, again:\n{}", kernel.release, last(dir, qemu::CONSOLE)));
        ended = boot.run(dir, watch());
    }
    let took = begin.elapsed();
    let (mut seen, mut wrong) = judge(scenario, &kernel.series, dir);
    seen.extend(again.then(|| "the kernel died as it booted; booted twice".to_owned()));
    wrong.extend(ended.err().map(|e| e.to_string()));
    if !wrong.is_empty() {
        for name in [qemu::CONSOLE, qemu::ERRORS, qemu::TEXT] {
            say(&format!("{} on {}: {name}:\n{}", scenario.name, kernel.release, last(dir, name)));
        }
    }
    let verdict = if wrong.is_empty() { Verdict::Ok } else { Verdict::Failed(wrong) };
    let kernel = kernel.release.clone();
    Ok(ScenarioRow { scenario: scenario.name.clone(), kernel, verdict, took, seen })
}

/// Whether the guest has started its script. Under the emulator, about one boot in a hundred ends earlier with
/// a crash of the kernel, which is not a failure of isotherm.
fn has_begun(dir: &Path) -> bool {
    fs::metadata(dir.join(qemu::TEXT)).is_ok_and(|text| text.len() > 0)
}

/// Boots a guest with a shell on this terminal.
pub fn shell(lab: &Lab, kernel: &Kernel, topology: &Topology) -> Result<()> {
    let variables = format!("export SERIES={}\n", kernel.series);
    let inside = Inside { lab, kernel, topology, variables, scenario: None, tree: None };
    let dir = tempfile::tempdir()?;
    let initramfs = &inside.write(dir.path())?;
    Boot { kernel, initramfs, topology, kernel_args: &[] }.interact()
}

/// The results of the guest, and those that differ from the expectation.
fn judge(scenario: &Scenario, series: &str, dir: &Path) -> (Vec<String>, Vec<String>) {
    let out = dir.join("out");
    let brought = bring_out(dir, &out);
    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_default();
    let lines = |name: &str| text(name).lines().map(str::to_owned).collect::<Vec<_>>();
    let (mut seen, mut wrong) = (lines("seen"), lines("failed"));
    match text("status").trim() {
        "0" => {}
        "" => wrong.push("the guest broke off: see its console".to_owned()),
        status if wrong.is_empty() => wrong.push(format!("its script ended with {status}")),
        _ => {}
    }
    wrong.extend(brought.err().map(|e| format!("{e:#}").replace('\n', " ")));
    wrong.extend(kernel_faults(&text("kernel.log")));
    if !wrong.is_empty() {
        return (seen, wrong);
    }
    for score in scenario.score.iter().filter(|s| s.is_of(series)) {
        match score.judge(&out) {
            Ok((summary, missed)) => {
                seen.push(summary);
                wrong.extend(missed);
            }
            Err(e) => wrong.push(format!("{}: {e:#}", score.record)),
        }
    }
    (seen, wrong)
}

/// The messages of the kernel that report a fault in it.
fn kernel_faults(log: &str) -> Vec<String> {
    let message =
        |line: &str| line.split_once("] ").map_or(line, |(_, message)| message).to_owned();
    let is_fault = |message: &String| KERNEL_FAULTS.iter().any(|begin| message.starts_with(begin));
    log.lines().map(message).filter(is_fault).map(|m| format!("the kernel says: {m}")).collect()
}

/// Unpacks the files that the guest has written.
fn bring_out(dir: &Path, out: &Path) -> Result<()> {
    fs::create_dir(out)?;
    let tar = dir.join(qemu::FILES_TAR);
    apt::output(Command::new("tar").arg("-x").arg("-f").arg(tar).arg("-C").arg(out)).map(drop)
}

/// The last lines of a file.
fn last(dir: &Path, name: &str) -> String {
    let bytes = fs::read(dir.join(name)).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(MAX_OUTPUT)..];
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a guest that leaves these files in its /out.
    fn judged(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let scenario = Scenario::all().unwrap().into_iter().find(|s| s.name == "nodes").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        for (name, content) in files {
            fs::write(inside.join(name), content).unwrap();
        }
        let tar = dir.path().join(qemu::FILES_TAR);
        apt::output(Command::new("tar").arg("-cf").arg(tar).arg("-C").arg(inside).arg("."))
            .unwrap();
        judge(&scenario, "6.12", dir.path())
    }

    #[test]
    fn a_script_that_ends_well_has_succeeded() {
        let (seen, wrong) = judged(&[("status", "0\n"), ("seen", "one\ntwo\n")]);
        assert_eq!((seen.len(), wrong), (2, vec![]));
    }

    #[test]
    fn a_reason_is_reported() {
        let (_, wrong) = judged(&[("status", "1\n"), ("failed", "no record\n")]);
        assert_eq!(wrong, ["no record"]);
        let (_, wrong) = judged(&[("status", "139\n")]);
        assert_eq!(wrong, ["its script ended with 139"]);
    }

    /// Guests passed while their kernel warned.
    #[test]
    fn a_fault_of_the_kernel_is_a_failure() {
        let log = "[    0.000000] Linux version 6.12\n\
                   [    1.100000] rcu: INFO: rcu_preempt self-detected stall on CPU\n\
                   [    2.250000] WARNING: CPU: 1 PID: 77 at mm/page_counter.c:60 page_counter_cancel+0x3c\n";
        let (_, wrong) = judged(&[("status", "0\n"), ("kernel.log", log)]);
        let warning = "WARNING: CPU: 1 PID: 77 at mm/page_counter.c:60 page_counter_cancel+0x3c";
        assert_eq!(wrong, [format!("the kernel says: {warning}")]);
    }

    #[test]
    fn a_guest_that_breaks_off_has_failed() {
        let (_, wrong) = judged(&[("seen", "one\n")]);
        assert_eq!(wrong, ["the guest broke off: see its console"]);
        let scenario = Scenario::all().unwrap().swap_remove(0);
        let empty = tempfile::tempdir().unwrap();
        assert!(!judge(&scenario, "6.12", empty.path()).1.is_empty());
    }
}
