//! Follows many processes that come and go, for as long as requested. Nothing is left behind, and nothing
//! grows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::alone::{Alone, has_swap};
use crate::kill_on_drop::KillOnDrop;
use crate::load::Load;
use crate::reclaim::Service;
use crate::run::{Recorder, TIMEOUT, copy_program, needs_root, until};

/// Limit of isotherm's own memory, besides [`EACH_REGION`]. The code of a debug build alone is nearly as
/// large, but is in the page cache.
const OWN: u64 = 20 << 20;
const EACH_REGION: u64 = 1 << 10;
/// The history for clients of the control socket, which fills up.
const HISTORY: u64 = 8 << 20;
/// Memory that an allocator may keep.
const SLACK: u64 = 1 << 20;

/// The resources of one isotherm process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    pidfds: usize,
    /// BPF programs, maps and links
    bpf: usize,
    threads: u64,
    /// anonymous memory, in bytes
    own: u64,
}

impl Held {
    fn of(pid: u32) -> Self {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let fds = fs::read_dir(dir.join("fd")).unwrap().flatten();
        let links = fds.map(|fd| fs::read_link(fd.path()).unwrap_or_default());
        let links: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
        let with = |word: &str| links.iter().filter(|link| link.contains(word)).count();
        let status = fs::read_to_string(dir.join("status")).unwrap();
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Held {
            descriptors: links.len(),
            pidfds: with("pidfd"),
            bpf: with("bpf"),
            threads: number("Threads:"),
            own: number("RssAnon:") << 10,
        }
    }

    /// Without memory, which no process returns to the byte.
    fn without_memory(self) -> Self {
        Held { own: 0, ..self }
    }
}

/// An isotherm process that follows, and its resources.
struct Followed {
    name: &'static str,
    pid: u32,
    before: Held,
    /// maximum memory, in the first half and in the second
    most: [u64; 2],
}

impl Followed {
    fn new(name: &'static str, pid: u32) -> Self {
        Followed { name, pid, before: Held::of(pid), most: [0; 2] }
    }

    fn look(&mut self, half: usize, bound: u64) {
        let held = Held::of(self.pid);
        self.most[half] = self.most[half].max(held.own);
        assert!(held.own <= bound, "{}: {held:?} is more than {bound} bytes", self.name);
        // It may be reading a list of open files: this needs the link to the process, and its run.
        let bpf = self.before.bpf..=self.before.bpf + 2;
        assert!(bpf.contains(&held.bpf), "{}: {held:?}, {:?} before", self.name, self.before);
        assert_eq!(held.threads, self.before.threads, "{}", self.name);
    }

    /// For the time when all but the initial processes have ended.
    fn is_as_before(&self) -> bool {
        Held::of(self.pid).without_memory() == self.before.without_memory()
    }

    fn has_not_grown(&self) {
        let [first, second] = self.most;
        assert!(second <= first + HISTORY + SLACK, "{}: {first} bytes became {second}", self.name);
        eprintln!("{}: {:.1} MiB at most", self.name, second as f64 / f64::from(1 << 20));
    }
}

/// The processes that come and go, all with one name.
struct Crowd {
    /// a copy of the test binary, which can be a load
    load: PathBuf,
    /// a copy of `sleep`
    sleep: PathBuf,
    alive: Vec<(Instant, Load)>,
    short: Vec<Child>,
    come: u64,
}

impl Crowd {
    fn new(dir: &Path, name: &str) -> Self {
        let copy = |program: &Path, sub: &str| {
            fs::create_dir(dir.join(sub)).unwrap();
            let to = dir.join(sub).join(name);
            copy_program(program, &to);
            to
        };
        let load = copy(&std::env::current_exe().unwrap(), "load");
        let sleep = copy(Path::new("/bin/sleep"), "sleep");
        Crowd { load, sleep, alive: Vec::new(), short: Vec::new(), come: 0 }
    }

    fn sleeper(&self, seconds: &str) -> Child {
        Command::new(&self.sleep).arg(seconds).stdin(Stdio::null()).spawn().unwrap()
    }

    /// Some come, some become other programs, have children, or change their mappings; some end.
    fn turn(&mut self, turn: u64) {
        for seconds in ["0", "0.02", "0.1", "0.3"] {
            self.short.push(self.sleeper(seconds));
        }
        self.short.retain_mut(|child| child.try_wait().unwrap().is_none());
        self.alive.retain(|(until, _)| *until > Instant::now());
        self.come += 4;
        if self.alive.len() >= 4 {
            return;
        }
        let mut load = Load::by(&self.load, 8 + turn % 3 * 4, 1);
        match turn % 4 {
            0 => drop(load.fork()),
            1 => load.churn(),
            2 => load.exec(8, 1),
            _ => {}
        }
        self.come += 1;
        self.alive.push((Instant::now() + Duration::from_millis(500 + turn % 5 * 300), load));
    }

    fn end(&mut self) {
        self.alive.clear();
        for child in &mut self.short {
            let _ = child.wait();
        }
    }
}

/// A name that no other process on this machine has.
fn name(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

#[test]
fn short_lived_processes_leave_nothing() {
    needs_root!();
    let asked = std::env::var("ISOTHERM_SOAK_SECONDS").ok().map(|s| s.parse::<u64>().unwrap());
    // Only one test at a time has swap, and tests that run beside this one must not wait for it. The
    // machine's own swap suffices as well.
    let alone = asked.filter(|_| !has_swap()).and_then(|_| Alone::with_swap(512));
    // Starting that many processes may take long.
    let time = Duration::from_secs(asked.unwrap_or(20));
    let enough = 20 * time.as_secs();
    let patience = 2 * TIMEOUT + 10 * time;
    let dir = TempDir::new().unwrap();
    let name = name("soak");
    let mut crowd = Crowd::new(dir.path(), &name);
    let stays = Load::by(&crowd.load, 16, 1);
    let who = ["--comm", &name, "--metrics", "m.prom", "--metrics-every", "1s"];
    let dry = if asked.is_some() && has_swap() { &[][..] } else { &["--dry-run"] };
    let mut service = Service::working(&[&who[..], dry].concat());
    // With the default monitor.
    let record = ["--monitor", "exposure", "--max-size", "16M", "--rotate", "3"];
    let mut recorder = Recorder::recording(&[&who[..], &record].concat());
    std::thread::sleep(Duration::from_millis(500));
    let mut followed = [
        Followed::new("isotherm reclaim", service.child.id()),
        Followed::new("isotherm record", recorder.pid()),
    ];
    let begin = Instant::now();
    for turn in 0.. {
        crowd.turn(turn);
        let (took, come) = (begin.elapsed(), crowd.come);
        let half = usize::from(took > time / 2 && come > enough / 2);
        // The maximum number of regions.
        followed.iter_mut().for_each(|one| one.look(half, OWN + HISTORY + 1000 * EACH_REGION));
        if took > time && come > enough {
            break;
        }
        assert!(took < patience, "{come} of {enough} processes have come in {took:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    crowd.end();
    let (come, time) = (crowd.come, begin.elapsed());
    for one in &followed {
        until(one.name, || one.is_as_before());
        one.has_not_grown();
    }
    assert_eq!(service.status()["targets"].as_array().unwrap().len(), 1, "one has stayed");
    eprintln!("{come} processes came and went in {time:?}");
    assert_eq!(service.end(Signal::TERM), Some(0));
    let record = recorder.stop();
    let known = record.pids().len();
    assert!(known > 10, "{known} were seen");
    drop((stays, alone));
}

/// CPU time of `pid`, in seconds.
fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[11..13].iter().map(|n| n.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

#[test]
fn many_at_once_are_within_bounds() {
    const MANY: usize = 450;
    needs_root!();
    let dir = TempDir::new().unwrap();
    let name = name("many");
    let crowd = Crowd::new(dir.path(), &name);
    let _stays = KillOnDrop(crowd.sleeper("1000"));
    let mut recorder = Recorder::counted(&["--comm", &name, "--monitor", "exposure"]);
    let mut one = Followed::new("isotherm record", recorder.pid());
    let before = cpu(recorder.pid());
    let many: Vec<KillOnDrop> = (0..MANY).map(|_| KillOnDrop(crowd.sleeper("1000"))).collect();
    // Three descriptors each.
    until("all", || Held::of(recorder.pid()).pidfds > MANY);
    let begin = Instant::now();
    let reported = || {
        let status = recorder.status();
        let of = status["targets"].as_array().unwrap().iter();
        // The group of a process is known once it has been read.
        of.filter(|t| t["cgroup"].as_str().is_some_and(|path| !path.is_empty())).count()
    };
    until("word of each", || {
        // Each process has its own regions, however many are allowed.
        one.look(0, OWN + HISTORY + MANY as u64 * 8 * EACH_REGION);
        std::thread::sleep(Duration::from_millis(200));
        begin.elapsed() > Duration::from_secs(10) && reported() > MANY
    });
    // The names that the status knows are in the record by then.
    recorder.until_more(2);
    let (spent, time) = (cpu(recorder.pid()) - before, begin.elapsed());
    assert!(spent < time.as_secs_f64(), "{spent} s of a CPU for {time:?} of watching");
    drop(many);
    until("descriptors", || one.is_as_before());
    let record = recorder.stop();
    assert_eq!(record.pids().len(), MANY + 1);
    let mut reported: Vec<u32> = record.attributions.iter().map(|a| a.target.0).collect();
    reported.sort_unstable();
    reported.dedup();
    assert_eq!(reported.len(), MANY + 1, "each was told of");
    eprintln!(
        "{MANY} at once: {spent:.1} s of a CPU in {time:?}, {:.1} MiB",
        one.most[0] as f64 / f64::from(1 << 20)
    );
}
