//! `isotherm run`.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::run::{Done, QUICK, finish, isotherm, root_or_skip, run_in, until, wait};

const COLD: &str = "4K null  null 5  1s null  pageout";

/// `isotherm run` by these schemes, in a directory of its own.
struct Run {
    dir: TempDir,
    command: Command,
}

impl Run {
    fn new(schemes: &str, pid: i32) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("s.txt"), schemes).unwrap();
        fs::write(dir.path().join("s.toml"), schemes).unwrap();
        let file = if schemes.contains('[') { "s.toml" } else { "s.txt" };
        let mut command = isotherm(["run", "--scheme", file, "--json", "--pid", &pid.to_string()]);
        command.args(QUICK).current_dir(dir.path());
        Run { dir, command }
    }

    fn with(mut self, options: &[&str]) -> Self {
        self.command.args(options);
        self
    }

    fn finish(mut self) -> Done {
        finish(&mut self.command)
    }

    /// Lines of the log so far.
    fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn start(&mut self) -> Child {
        let err = fs::File::create(self.dir.path().join("err")).unwrap();
        self.command.stdout(Stdio::null()).stderr(err).spawn().unwrap()
    }

    fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }
}

/// What the first scheme has done.
fn first(done: &Done) -> Value {
    let last = done.text().lines().last().unwrap();
    let table: Value = serde_json::from_str(last).unwrap();
    table["schemes"][0].clone()
}

fn applied(done: &Done) -> u64 {
    first(done)["applied"]["bytes"].as_u64().unwrap()
}

fn swapped(pid: i32) -> u64 {
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
        (&["--scheme", "none.txt", "--pid", &me], 2, "there is no scheme in it"),
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
fn what_cannot_be_done_is_said_at_the_start() {
    if !root_or_skip("what_cannot_be_done_is_said_at_the_start") {
        return;
    }
    let Some(_alone) = Alone::without_swap() else { return };
    let me = std::process::id().cast_signed();
    let goal =
        |goal: &str| format!("[[scheme]]\naction = \"stat\"\n[scheme.quota]\ngoals = [{goal}]\n");
    for (schemes, said) in [
        (COLD.to_owned(), "there is no swap"),
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
    if !root_or_skip("a_dry_run_tells_and_does_nothing") {
        return;
    }
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    let options = ["--dry-run", "--duration", "4s", "--log", "log"];
    let mut run = Run::new(COLD, load.pid()).with(&options);
    let done = finish(&mut run.command);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!((32 * MIB..=48 * MIB).contains(&applied(&done)), "{}", done.text());
    let line = done.text().lines().next().unwrap();
    let who = format!(" of {} ", load.pid());
    assert!(line.contains("pageout: pageout ") && line.contains(&who), "{line}");
    assert!(run.log().iter().all(|l| l["outcome"] == "would_act"));
    assert_eq!(swapped(load.pid()), 0);
}

#[test]
fn cold_memory_goes_and_hot_stays() {
    if !root_or_skip("cold_memory_goes_and_hot_stays") {
        return;
    }
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(64, 8);
    let before = major_faults(load.pid());
    let mut run = Run::new(COLD, load.pid()).with(&["--log", "log", "--duration", "6s"]);
    let done = finish(&mut run.command);
    assert_eq!(done.status, 0, "{}", done.err);
    let gone = swapped(load.pid());
    assert!((50 * MIB..58 * MIB).contains(&gone), "{gone} of 56 MiB are out: {}", done.text());
    assert!(applied(&done) >= gone, "{}", done.text());
    let faults = major_faults(load.pid()) - before;
    assert!(faults < 64, "{faults} pages of the 2048 hot ones had to come back");
    let log = run.log();
    let sum: u64 = log.iter().map(|l| l["applied"].as_u64().unwrap()).sum();
    assert_eq!(sum, applied(&done), "all that was done is in the log");
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
    if !root_or_skip("a_quota_of_zero_never_acts_and_a_small_one_is_kept") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let load = Load::start(32, 4);
    let with = |bytes: &str| {
        let quota = format!("[scheme.quota]\nbytes = \"{bytes}\"\nreset = \"1h\"\n");
        let scheme =
            "[[scheme]]\naction = \"pageout\"\nrate = { max = 5 }\nage = { min = \"1s\" }\n";
        Run::new(&format!("{scheme}{quota}"), load.pid()).with(&["--duration", "3s"]).finish()
    };
    let none = with("0");
    assert_eq!((none.status, applied(&none)), (0, 0), "{}", none.err);
    assert_eq!(swapped(load.pid()), 0);
    let passed = first(&none)["passed"].to_string();
    assert!(passed.contains("\"quota\""), "{passed}");
    let some = with("1M");
    assert_eq!((some.status, applied(&some)), (0, MIB), "{}", some.text());
    assert!(swapped(load.pid()) <= MIB);
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run() {
    if !root_or_skip("a_log_that_cannot_be_written_ends_the_run") {
        return;
    }
    let load = Load::start(16, 4);
    let everything = "4K null null null null null stat";
    let options = ["--log", "/dev/full", "--duration", "30s"];
    let done = Run::new(everything, load.pid()).with(&options).finish();
    assert_eq!(done.status, 1);
    assert_eq!(done.err.matches("/dev/full cannot be written").count(), 1, "{}", done.err);
    assert!(done.err.contains("make room, or run without --log"), "{}", done.err);
    let nowhere = Run::new(everything, load.pid()).with(&["--log", "/no/such/log"]).finish();
    assert_eq!(nowhere.status, 1);
    assert!(nowhere.err.contains("cannot write the log /no/such/log"), "{}", nowhere.err);
}

#[test]
fn a_target_that_ends_ends_the_run_and_so_does_ctrl_c() {
    if !root_or_skip("a_target_that_ends_ends_the_run_and_so_does_ctrl_c") {
        return;
    }
    let everything = "4K null null null null null stat";
    for killed in [true, false] {
        let mut load = Load::start(16, 4);
        let mut run = Run::new(everything, load.pid()).with(&["--log", "log"]);
        let mut child = run.start();
        until("something done", || !run.log().is_empty());
        let said = if killed {
            load.child().kill().unwrap();
            load.child().wait().unwrap();
            "all targets have ended"
        } else {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            "stopped by SIGINT"
        };
        assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
        assert!(run.err().contains(said), "{}", run.err());
    }
}

#[test]
fn exec_does_not_end_it() {
    if !root_or_skip("exec_does_not_end_it") {
        return;
    }
    let everything = "4K null null null null null stat";
    let mut load = Load::start(16, 4);
    let mut run = Run::new(everything, load.pid()).with(&["--log", "log"]);
    let mut child = run.start();
    until("something done", || !run.log().is_empty());
    load.exec(24, 4);
    let is_new = |l: &Value| {
        let start = l["start"].as_str().unwrap().trim_start_matches("0x");
        load.memory.contains(u64::from_str_radix(start, 16).unwrap())
    };
    let seen = run.log().len();
    until("the new memory", || run.log().iter().skip(seen).any(is_new));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
}

#[test]
fn a_command_is_run_and_its_status_passed_on() {
    if !root_or_skip("a_command_is_run_and_its_status_passed_on") {
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("s.txt"), "4K null null null null null stat").unwrap();
    let args = ["run", "--scheme", "s.txt", "--json", "--", "sh", "-c", "sleep 0.5; exit 3"];
    let done = run_in(dir.path(), &args);
    assert_eq!(done.status, 3, "{}", done.err);
    assert_eq!(first(&done)["action"], "stat");
}

/// By its name as the kernel cuts it, also one that comes later.
#[test]
fn processes_are_found_by_name() {
    if !root_or_skip("processes_are_found_by_name") {
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("s.txt"), "4K null null null null null stat").unwrap();
    let program = dir.path().join("isotherm-test-sleeper");
    fs::copy("/bin/sleep", &program).unwrap();
    let sleeper = || Command::new(&program).arg("60").spawn().unwrap();
    let log = dir.path().join("log");
    let name = "isotherm-test-sleeper";
    let run = |duration| {
        let mut run = isotherm(["run", "--scheme", "s.txt", "--comm", name, "--log", "log"]);
        run.args(["--duration", duration]).args(QUICK).current_dir(dir.path());
        run
    };
    let nobody = finish(&mut run("1s"));
    assert_eq!(nobody.status, 1);
    assert!(nobody.err.contains("no process is called isotherm-test-"), "{}", nobody.err);
    let mut one = sleeper();
    let mut running = run("40s").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has =
        |pid: u32| fs::read_to_string(&log).is_ok_and(|t| t.contains(&format!("\"pid\":{pid},")));
    until("the first", || has(one.id()));
    one.kill().unwrap();
    one.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut two = sleeper();
    until("the second", || has(two.id()));
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert_eq!(wait(&mut running).code(), Some(0));
    two.kill().unwrap();
    two.wait().unwrap();
}
