//! `isotherm run`, killed during an action, so that it can restore nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::alone::Alone;
use crate::load::Load;
use crate::run::{finish, isotherm, needs_root, until};
use crate::schemes::{Run, applied, applied_in, swapped};

/// All memory that is not touched during a second look.
const ALL: &str = "4K null null null null null pageout";
const KILLS: u64 = 4;

/// The BPF objects of a process: their kinds and ids.
fn bpf_of(pid: u32) -> BTreeSet<(&'static str, u32)> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = infos.filter_map(|f| fs::read_to_string(f.unwrap().path()).ok());
    let id = |line: &str| {
        let (key, id) = line.split_once(':')?;
        let kind = ["prog_id", "map_id", "link_id"].into_iter().find(|kind| *kind == key)?;
        Some((kind, id.trim().parse().unwrap()))
    };
    texts.flat_map(|text| text.lines().filter_map(id).collect::<Vec<_>>()).collect()
}

/// Whether the kernel still has this object.
fn is_there((kind, id): (&str, u32)) -> bool {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    // BPF_PROG_GET_NEXT_ID and similar commands of `include/uapi/linux/bpf.h`.
    let command = match kind {
        "prog_id" => 11,
        "map_id" => 12,
        _ => 31,
    };
    let mut attr = Attr { start_id: id - 1, ..Attr::default() };
    let size = size_of::<Attr>();
    // SAFETY: the kernel reads and writes `attr`, of this size.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attr, size) };
    done == 0 && attr.next_id == id
}

/// Properties that isotherm might have changed: whether the process runs, its scheduling, its CPUs, and its
/// groups.
fn state(pid: i32) -> (Vec<String>, String, bool) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let stopped = ["T", "t"].contains(&fields[0]);
    // Priority, nice, real-time priority and policy: fields 18, 19, 40 and 41 of the whole line.
    let scheduled = [15, 16, 37, 38].map(|i| fields[i].to_owned()).to_vec();
    let status = read("status");
    let kept = |line: &&str| {
        ["TracerPid", "Cpus_allowed", "Mems_allowed", "Cap", "Seccomp"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let status: Vec<&str> = status.lines().filter(kept).collect();
    (scheduled, status.join("\n") + &read("cgroup") + &read("limits"), stopped)
}

/// Kills it while it pages out, repeatedly. Pages in flight are complete when the call ends.
fn run_and_kill(load: &Load, delay: Duration) -> BTreeSet<(&'static str, u32)> {
    let mut run = Run::new(ALL, load.pid()).with(&["--log", "log"]);
    let mut child: Child = run.start();
    until("something paged out", || run.log().iter().any(|l| l["applied"] != 0));
    let held = bpf_of(child.id());
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    held
}

/// Removes swap even if a test fails.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = isotherm(["system", "swap", "restore"]).output();
    }
}

#[test]
fn a_killed_run_leaves_only_swap_that_is_removed() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    let _restored = Restored;
    let made = finish(&mut isotherm(["system", "swap", "zram", "128M"]));
    if made.err.contains("modprobe zram") && std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none() {
        return eprintln!("skipped: {}", made.err);
    }
    assert_eq!(made.status, 0, "{}", made.err);
    let device = made.text().split_whitespace().nth(2).unwrap().trim_end_matches(',').to_owned();

    let mut load = Load::start(64, 4);
    load.check_words(8000, 200);
    let before = state(load.pid());
    for i in 0..KILLS {
        let held = run_and_kill(&load, Duration::from_millis(7 * i));
        assert!(
            held.iter().any(|(kind, _)| *kind == "prog_id"),
            "no program to look for: {held:?}"
        );
        // The kernel frees them a moment later.
        until("the end of what BPF held", || !held.iter().any(|&object| is_there(object)));
    }
    assert_eq!(state(load.pid()), before);
    assert!(swapped(load.pid()) > 0, "what was paged out is out still");

    let mut next = Run::new(ALL, load.pid()).with(&["--log", "log"]);
    let next = next.finish_when("something paged out", |log| applied_in(log) > 0);
    assert_eq!(next.status, 0, "{}", next.err);
    assert!(applied(&next) > 0, "{}", next.text());

    let gone = finish(&mut isotherm(["system", "swap", "restore"]));
    assert_eq!(gone.status, 0, "{}", gone.err);
    assert!(gone.text().contains(&device) && !Path::new(&device).exists(), "{}", gone.text());
    assert_eq!(swapped(load.pid()), 0, "it is back in memory");
    until("the last word", || load.wrong_words().is_some_and(|wrong| wrong == 0));
    assert_eq!(state(load.pid()), before);
}
