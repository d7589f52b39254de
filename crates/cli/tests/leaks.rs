//! A thousand recordings leave nothing behind. This is a test binary of its own, because descriptors and
//! memory belong to the whole process.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "program/kill_on_drop.rs"]
mod kill_on_drop;
#[path = "../../linux/tests/common/root.rs"]
mod root;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isotherm_core::{
    Ask, Attrs, Cost, Liveness, Look, Mapping, Nanos, OpsError, RegionSampler, Seen, Source, Space,
    Step, TargetId,
};
use isotherm_linux::{Hold, Vaddr};
use isotherm_record::{FileEndReason, Limits, Reader, RecordingHeader, TargetInfo, Writer};
use kill_on_drop::KillOnDrop;

/// An operations set that is used by several monitors: loading it takes longer than a short recording.
struct Lent<'a>(&'a mut Vaddr);

impl Space for Lent<'_> {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        self.0.mappings(target, out)
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.0.ran(target)
    }
}

impl Look for Lent<'_> {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        self.0.look(asks, out)
    }
}

const SNAPSHOTS: u64 = 2;

/// Records `pid` for two snapshots, without waiting for the monitor's clock.
fn record(ops: &mut Vaddr, pid: i32, path: &Path) {
    let ms = Duration::from_millis;
    let attrs = Attrs { sample: ms(1), aggr: ms(4), update: ms(2), ..Attrs::default() };
    let target = ops.attach(pid).unwrap();
    let facts = RecordingHeader::new("0.1.0", attrs, Nanos(0));
    let mut writer = Writer::create(path, &facts, Limits::default()).unwrap();
    let command = String::from("sleeper");
    let _ = writer.target(TargetInfo { id: target, pid: None, command }).unwrap();
    let mut monitor = RegionSampler::new(Lent(ops), attrs, &[target], 1).unwrap();
    let mut now = Nanos(0);
    let mut made = 0;
    while made < SNAPSHOTS {
        match monitor.step(now).unwrap() {
            Step::Wait(until) => now = until,
            Step::Snapshot(s) => {
                let _ = writer.snapshot(&s).unwrap();
                made += 1;
            }
            Step::End(why) => unreachable!("{why:?}"),
        }
    }
    drop(monitor);
    assert_eq!(writer.finish(FileEndReason::Stopped, "").unwrap().snapshots, SNAPSHOTS);
    ops.detach(target);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Calls `f` some times to warm up, then `times` times. After that there must not be more descriptors, nor
/// more memory than an allocator keeps.
fn leaves_nothing(times: u32, mut f: impl FnMut()) {
    (0..times / 10).for_each(|_| f());
    let (fds, kib) = (descriptors(), resident_kib());
    (0..times).for_each(|_| f());
    assert_eq!(descriptors(), fds);
    let after = resident_kib();
    assert!(after <= kib + 4096, "{kib} KiB became {after} KiB");
}

#[test]
fn a_thousand_recordings_leave_nothing_behind() {
    root::needs_root!();
    let sleeper = KillOnDrop(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleeper.0.id().cast_signed();
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let mut ops = Vaddr::new().unwrap();
    // Each moves the previous one to FILE.old.
    leaves_nothing(1000, || record(&mut ops, pid, &path));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    assert!(Reader::open(&path).unwrap().all(|event| event.is_ok()));
    drop(ops);
    // The BPF program, its maps and their memory.
    leaves_nothing(40, || record(&mut Vaddr::new().unwrap(), pid, &path));
}
