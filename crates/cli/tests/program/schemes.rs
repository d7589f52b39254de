//! `isotherm run`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::run::{Done, QUICK, finish, finish_after, isotherm, needs_root, run_in, until};

const COLD: &str = "4K null  null 5  1s null  pageout";

/// `isotherm run` with these schemes, in a directory of its own.
pub struct Run {
    pub dir: TempDir,
    pub command: Command,
}

impl Run {
    pub fn new(schemes: &str, pid: i32) -> Self {
        Run::of(schemes, &["--pid", &pid.to_string()])
    }

    /// For a selection other than one process.
    pub fn of(schemes: &str, who: &[&str]) -> Self {
        Run::by_default(schemes, who).with(&QUICK)
    }

    /// With the default monitor.
    pub fn by_default(schemes: &str, who: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("s.txt"), schemes).unwrap();
        fs::write(dir.path().join("s.toml"), schemes).unwrap();
        let file = if schemes.contains('[') { "s.toml" } else { "s.txt" };
        let mut command = isotherm(["run", "--scheme", file, "--json"]);
        command.args(who).current_dir(dir.path());
        Run { dir, command }
    }

    pub fn with(mut self, options: &[&str]) -> Self {
        self.command.args(options);
        self
    }

    pub fn finish(mut self) -> Done {
        finish(&mut self.command)
    }

    /// Interrupts it when `enough` holds for its log.
    pub fn finish_when(&mut self, what: &str, mut enough: impl FnMut(&[Value]) -> bool) -> Done {
        let dir = self.dir.path();
        finish_after(&mut self.command, |child| {
            until(what, || enough(&log_in(dir)));
            kill_process(Pid::from_child(child), Signal::INT).unwrap();
        })
    }

    /// Lines of the log so far.
    pub fn log(&self) -> Vec<Value> {
        log_in(self.dir.path())
    }

    pub fn start(&mut self) -> Child {
        let err = fs::File::create(self.dir.path().join("err")).unwrap();
        self.command.stdout(Stdio::null()).stderr(err).spawn().unwrap()
    }

    pub fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }
}

/// Lines of the file `log` so far.
pub fn log_in(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sum of the applied bytes in a log.
pub fn applied_in(log: &[Value]) -> u64 {
    log.iter().map(|line| line["applied"].as_u64().unwrap()).sum()
}

/// The statistics of the first scheme.
pub fn first(done: &Done) -> Value {
    let last = done.text().lines().last().unwrap();
    let table: Value = serde_json::from_str(last).unwrap();
    table["schemes"][0].clone()
}

pub fn applied(done: &Done) -> u64 {
    first(done)["applied"]["bytes"].as_u64().unwrap()
}

pub fn swapped(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmSwap:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn major_faults(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(9).unwrap().parse().unwrap()
}

#[test]
fn wrong_usage_of_schemes() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("good.txt", COLD);
    write("bad.txt", "4K null null 5 soon null pageout");
    write("none.txt", "# nothing\n");
    write("key.toml", "[[scheme]]\naction = \"stat\"\ncolour = 1\n");
    write(
        "marks.toml",
        "[[scheme]]\naction = \"stat\"\n[scheme.watermarks]\nmetric = \"free\"\nhigh = 1\nmid = 2\nlow = 3\n",
    );
    let me = std::process::id().to_string();
    let pid = ["--pid", &me];
    for (args, status, said) in [
        (&["--scheme", "good.txt"][..], 2, "--pid PID, --comm NAME"),
        (&pid, 2, "--scheme"),
        (&["--scheme", "good.txt", "--look", "damon", "--pid", &me], 2, "damon cannot do"),
        (&["--scheme", "good.txt", "--look", "smaps", "--pid", &me], 1, "smaps cannot do that"),
        (&["--scheme", "good.txt", "--sample", "1s", "--pid", &me], 2, "at most half"),
        (&["--scheme", "gone.txt", "--pid", &me], 1, "cannot read the schemes gone.txt"),
        (&["--scheme", "bad.txt", "--pid", &me], 2, "bad.txt: line 1, column 16: `soon` is no age"),
        (&["--scheme", "none.txt", "--pid", &me], 2, "it contains no scheme"),
        (&["--scheme", "key.toml", "--pid", &me], 2, "line 3, column 1"),
        (&["--scheme", "marks.toml", "--pid", &me], 2, "falling order"),
        (&["--scheme", "good.txt", "--all", "--pid", &me], 2, "cannot be used with"),
    ] {
        let done = run_in(dir.path(), &[&["run"], args].concat());
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
        assert!(done.out.is_empty() && !done.err.contains("panicked"), "{args:?}: {}", done.err);
    }
}

#[test]
fn impossible_actions_are_reported_at_the_start() {
    needs_root!();
    let me = std::process::id().cast_signed();
    let goal =
        |goal: &str| format!("[[scheme]]\naction = \"stat\"\n[scheme.quota]\ngoals = [{goal}]\n");
    for (schemes, said) in [
        ("4K null null null null null migrate_cold 77".to_owned(), "no node 77"),
        (goal("{ stalled = { target = \"1ms\", of = \"/no/such\" } }"), "no control group"),
        (goal("{ file = { path = \"/proc/version\", target = 1 } }"), "holds no number"),
    ] {
        let done = Run::new(&schemes, me).finish();
        assert_eq!(done.status, 1, "{schemes}: {}", done.err);
        assert!(done.err.contains(said), "{schemes}: {}", done.err);
        assert!(done.out.is_empty());
    }
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    let mut run = Run::new(COLD, load.pid()).with(&["--dry-run", "--log", "log"]);
    let done = run.finish_when("what is cold", |log| applied_in(log) >= 32 * MIB);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!((32 * MIB..=48 * MIB).contains(&applied(&done)), "{}", done.text());
    let documented = include_str!("../../../../docs/abi/testing/run.md");
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let table: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    for key in keys(&table).iter().chain(&keys(&first(&done))) {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    let line = done.text().lines().next().unwrap();
    let who = format!(" of {} ", load.pid());
    assert!(line.contains("pageout: pageout ") && line.contains(&who), "{line}");
    assert!(run.log().iter().all(|l| l["outcome"] == "would_act"));
    assert_eq!(swapped(load.pid()), 0);
}

#[test]
fn cold_memory_goes_and_hot_stays() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(64, 8);
    let before = major_faults(load.pid());
    let mut run = Run::new(COLD, load.pid()).with(&["--log", "log"]);
    let done = run.finish_when("what is cold", |_| swapped(load.pid()) >= 50 * MIB);
    assert_eq!(done.status, 0, "{}", done.err);
    let gone = swapped(load.pid());
    assert!((50 * MIB..58 * MIB).contains(&gone), "{gone} of 56 MiB are out: {}", done.text());
    assert!(applied(&done) >= gone, "{}", done.text());
    let faults = major_faults(load.pid()) - before;
    assert!(faults < 64, "{faults} pages of the 2048 hot ones had to come back");
    let log = run.log();
    assert_eq!(applied_in(&log), applied(&done), "all that was done is in the log");
    let hot = |l: &&Value| {
        let at = |key: &str| {
            u64::from_str_radix(l[key].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
        };
        at("start") < load.hot.end && load.hot.start < at("end")
    };
    assert!(log.iter().filter(hot).all(|l| l["bytes"].as_u64() > l["applied"].as_u64()));
    let documented = include_str!("../../../../docs/abi/testing/audit-log.md");
    let keys = log[0].as_object().unwrap().keys();
    assert!(keys.clone().count() > 10);
    for key in keys {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    assert!(log.iter().all(|l| l["pid"] == load.pid() && l["outcome"] == "acted"));
}

#[test]
fn a_quota_of_zero_never_acts_and_a_small_one_is_kept() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let load = Load::start(32, 4);
    let with = |bytes: &str, enough: fn(&[Value]) -> bool| {
        let quota = format!("[scheme.quota]\nbytes = \"{bytes}\"\nreset = \"1h\"\n");
        let scheme =
            "[[scheme]]\naction = \"pageout\"\nrate = { max = 5 }\nage = { min = \"1s\" }\n";
        let mut run = Run::new(&format!("{scheme}{quota}"), load.pid());
        run = run.with(&["--log", "log", "--passed"]);
        run.finish_when("the quota", enough)
    };
    let none = with("0", |log| log.iter().any(|l| l["why"] == "quota"));
    assert_eq!((none.status, applied(&none)), (0, 0), "{}", none.err);
    assert_eq!(swapped(load.pid()), 0);
    let passed = first(&none)["passed"].to_string();
    assert!(passed.contains("\"quota\""), "{passed}");
    let some = with("1M", |log| applied_in(log) >= MIB && log.iter().any(|l| l["why"] == "quota"));
    assert_eq!((some.status, applied(&some)), (0, MIB), "{}", some.text());
    assert!(swapped(load.pid()) <= MIB);
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run() {
    needs_root!();
    let load = Load::start(16, 4);
    let everything = "4K null null null null null stat";
    let options = ["--log", "/dev/full", "--duration", "1h"];
    let done = Run::new(everything, load.pid()).with(&options).finish();
    assert_eq!(done.status, 1);
    assert_eq!(done.err.matches("/dev/full cannot be written").count(), 1, "{}", done.err);
    assert!(done.err.contains("make room, or run without --log"), "{}", done.err);
    let nowhere = Run::new(everything, load.pid()).with(&["--log", "/no/such/log"]).finish();
    assert_eq!(nowhere.status, 1);
    assert!(nowhere.err.contains("cannot write the log /no/such/log"), "{}", nowhere.err);
    let link = Run::new(everything, load.pid()).with(&["--log", "/proc/self/exe"]).finish();
    let said = "cannot write the log /proc/self/exe: it is a link";
    assert!(link.status == 1 && link.err.contains(said), "{}", link.err);
}
