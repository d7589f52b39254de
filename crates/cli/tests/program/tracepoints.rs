//! Events that bpftrace can follow while the program runs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{Recorder, has_or_skip, root_or_skip, until, wait};
use crate::schemes::Run;

/// A running bpftrace on the program, which writes lines; ended when dropped.
struct Trace {
    child: Child,
    dir: TempDir,
}

impl Trace {
    /// Runs `action` at each `probe`. `None` if bpftrace is not installed, which is a failure if all tests
    /// must run.
    fn start(test: &str, probe: &str, action: &str) -> Option<Self> {
        if !root_or_skip(test) {
            return None;
        }
        let dir = TempDir::new().unwrap();
        let (out, err) = (dir.path().join("out"), dir.path().join("err"));
        let program =
            format!("usdt:{}:isotherm:{probe} {{ {action} }}", env!("CARGO_BIN_EXE_isotherm"));
        let mut command = Command::new("bpftrace");
        command.args(["-B", "line", "-e", &program]).stdin(Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let started = command.spawn();
        has_or_skip(started.is_ok(), test, format_args!("bpftrace: {started:?}"));
        Some(Trace { child: started.ok()?, dir })
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// The traced events: one line each, of numbers and words.
    fn lines(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.out()).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("= "));
        lines.map(|line| line.split(' ').skip(1).map(str::to_owned).collect()).collect()
    }

    fn finish(mut self) -> Vec<Vec<String>> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        wait(&mut self.child);
        self.lines()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_region_of_each_snapshot_is_reported() {
    const ACTION: &str = r#"printf("= %d %lu %lu %lu %lu\n", arg0, arg1, arg2, arg4, arg5)"#;
    const NAME: &str = "each_region_of_each_snapshot_is_reported";
    let Some(trace) = Trace::start(NAME, "aggregated", ACTION) else { return };
    let load = Load::start(32, 8);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::recording(&["--pid", &pid]);
    let of_load = |lines: Vec<Vec<String>>| -> Vec<Vec<String>> {
        lines.into_iter().filter(|line| line[0] == pid).collect()
    };
    until("tracing", || of_load(trace.lines()).len() > 200);
    let record = recorder.stop();
    let of = |t: &isotherm_core::TargetView| -> Vec<Vec<String>> {
        let line = |r: &isotherm_core::RegionView| {
            let age = r.age.as_millis().try_into().unwrap();
            let numbers = [r.range.start, r.range.end, r.touched_bp.into(), age];
            [pid.clone()].into_iter().chain(numbers.map(|n: u64| n.to_string())).collect()
        };
        t.regions.iter().map(line).collect()
    };
    let reported: Vec<Vec<String>> =
        record.snapshots.iter().flat_map(|s| &s.targets).flat_map(of).collect();
    // The tracer prints what it has received, and drops the rest at its end.
    until("the last region", || of_load(trace.lines()).last() == reported.last());
    let traced = of_load(trace.finish());
    // Tracing may have begun in the middle of a snapshot.
    assert!(reported.ends_with(&traced), "{} traced, {} told", traced.len(), reported.len());
    let most = record.snapshots.iter().map(|s| s.nr_regions()).max().unwrap();
    assert!(traced.len() > most, "more than one snapshot was traced");
}

#[test]
fn tracepoints_precede_actions() {
    const ACTION: &str =
        r#"printf("= %s %d 0x%lx 0x%lx %lu\n", str(arg0), arg1, arg2, arg3, arg5)"#;
    const NAME: &str = "tracepoints_precede_actions";
    let Some(trace) = Trace::start(NAME, "before_apply", ACTION) else { return };
    let load = Load::start(32, 8);
    let pid = load.pid().to_string();
    let scheme = "[[scheme]]\nname = \"counts-cold\"\naction = \"stat\"\nage = { min = \"1s\" }\n";
    let mut run = Run::new(scheme, load.pid()).with(&["--log", "log"]);
    let mut child = run.start();
    until("what is done", || trace.lines().iter().any(|line| line[1] == pid));
    std::thread::sleep(std::time::Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    let logged: BTreeSet<(String, String)> = run
        .log()
        .iter()
        .map(|line| (line["start"].as_str().unwrap().into(), line["end"].as_str().unwrap().into()))
        .collect();
    let traced = trace.finish();
    let of_us: Vec<&Vec<String>> = traced.iter().filter(|line| line[1] == pid).collect();
    assert!(of_us.iter().all(|line| line[0] == "counts-cold"), "{of_us:?}");
    assert!(of_us.iter().all(|line| line[4].parse::<u64>().unwrap() >= 1000), "{of_us:?}");
    let found = of_us.iter().filter(|l| logged.contains(&(l[2].clone(), l[3].clone()))).count();
    assert!(found > 0 && found + 64 >= of_us.len(), "{found} of {}: {logged:?}", of_us.len());
}
