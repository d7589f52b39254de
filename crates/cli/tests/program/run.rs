//! Runs the program, and reads its records back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use isotherm_core::{Attribution, Snapshot};
use isotherm_record::{End, Event, Facts, ReadError, Reader, TargetFact};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing takes as long as that, on however slow or busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Copies a program by another process: if this one did, the child of another test might hold the copy open for
/// writing just then, and it could not be run.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(copied.success(), "{copied}");
}

/// Whether this test can run here: it takes root. Where all tests must run, lacking it is a failure.
pub fn root_or_skip(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(root || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{test} takes root");
    if !root {
        eprintln!("skipped {test}: it takes root to read page tables of another process");
    }
    root
}

/// Who is started in the background of a script ignores SIGINT, and so would all that the tests start.
fn heed_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: it only sets what the kernel does by default.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    });
}

/// The program with arguments.
pub fn isotherm<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    heed_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    command.args(args).stdin(Stdio::null());
    command
}

/// What has come of a run.
pub struct Done {
    pub status: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Done {
    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap()
    }
}

/// Runs it to its end, in `dir`.
pub fn run_in(dir: &Path, args: &[&str]) -> Done {
    finish(isotherm(args).current_dir(dir))
}

/// Runs a command to its end; standard output goes to a file, as a pipe that nobody reads fills.
pub fn finish(command: &mut Command) -> Done {
    finish_after(command, |_| ())
}

/// The same; `meanwhile` may end it.
pub fn finish_after(command: &mut Command, meanwhile: impl FnOnce(&Child)) -> Done {
    let dir = TempDir::new().unwrap();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    meanwhile(&child);
    let status = wait(&mut child);
    Done {
        status: status.code().unwrap(),
        out: fs::read(out).unwrap(),
        err: fs::read_to_string(err).unwrap(),
    }
}

/// Waits for the end of a process.
pub fn wait(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a count stays the same for so long.
pub fn until_still(what: &str, time: Duration, mut count: impl FnMut() -> usize) {
    until(what, || {
        let before = count();
        std::thread::sleep(time);
        count() == before
    });
}

/// What `status` says of whom the socket is of; `None` if there is nobody yet.
pub fn status_at(socket: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    Some(answer["status"].take())
}

/// Waits for so many more snapshots in the record of whom the socket is of.
pub fn until_more_at(socket: &Path, snapshots: u64) {
    let written = || status_at(socket).map(|s| s["record"]["snapshots"].as_u64().unwrap());
    until("whom to ask", || written().is_some());
    let before = written().unwrap();
    until("more snapshots", || written().unwrap() >= before + snapshots);
}

/// `isotherm record`, ten snapshots a second, into a directory of its own; killed when dropped.
pub struct Recorder {
    child: Child,
    dir: TempDir,
}

impl Recorder {
    /// With further options; those with --aggr take the other intervals as they are.
    pub fn start(options: &[&str]) -> Self {
        Recorder::start_by(isotherm(["record"]), options)
    }

    /// By a command that is complete but for the options of `record`.
    pub fn start_by(mut command: Command, options: &[&str]) -> Self {
        heed_signals();
        let dir = TempDir::new().unwrap();
        let err = File::create(dir.path().join("err")).unwrap();
        // Of the regions monitor, and quicker than its defaults, unless something else is asked.
        if !options.iter().any(|o| ["--aggr", "--monitor"].contains(o)) {
            command.args(QUICK);
        }
        if !options.contains(&"-o") {
            command.args(["-o", "a.rec"]);
        }
        command.args(options);
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(err);
        let child = command.spawn().unwrap();
        Recorder { child, dir }
    }

    /// Started, and the first snapshot made.
    pub fn recording(options: &[&str]) -> Self {
        let recorder = Recorder::start(options);
        recorder.until_recording();
        recorder
    }

    /// The same, with a control socket: how far it is can be asked.
    pub fn counted(options: &[&str]) -> Self {
        Recorder::recording(&[options, &["--control", "c"]].concat())
    }

    /// Of one that is [`Recorder::counted`].
    pub fn status(&self) -> Value {
        status_at(&self.dir().join("c")).unwrap()
    }

    /// Of one that is [`Recorder::counted`], so many more snapshots.
    pub fn until_more(&self, snapshots: u64) {
        until_more_at(&self.dir().join("c"), snapshots);
    }

    /// Of one that is [`Recorder::counted`]: who is watched, sorted.
    pub fn watched(&self) -> Vec<u32> {
        let status = self.status();
        let pids = status["targets"].as_array().unwrap().iter();
        let mut pids: Vec<u32> =
            pids.map(|t| t["pid"].as_u64().unwrap().try_into().unwrap()).collect();
        pids.sort_unstable();
        pids
    }

    pub fn until_recording(&self) {
        until("the first snapshot", || self.err().contains(" regions "));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn record(&self) -> PathBuf {
        self.dir.path().join("a.rec")
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit status, once it ends.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// As Ctrl-C does it.
    pub fn stop(&mut self) -> Record {
        self.signal(Signal::INT);
        assert_eq!(self.wait().code(), Some(0), "{}", self.err());
        Record::read(&self.record())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ten snapshots a second.
pub const QUICK: [&str; 6] = ["--sample", "10ms", "--aggr", "100ms", "--update", "200ms"];

/// A record read back.
pub struct Record {
    pub facts: Facts,
    pub targets: Vec<TargetFact>,
    pub snapshots: Vec<Arc<Snapshot>>,
    pub attributions: Vec<Attribution>,
    pub end: Option<End>,
    /// whether it breaks off
    pub torn: bool,
}

impl Record {
    pub fn read(path: &Path) -> Self {
        let mut record = Record {
            facts: Facts::new("", isotherm_core::Attrs::default(), isotherm_core::Nanos(0)),
            targets: Vec::new(),
            snapshots: Vec::new(),
            attributions: Vec::new(),
            end: None,
            torn: false,
        };
        for event in Reader::open(path).unwrap() {
            match event {
                Ok(Event::Facts(facts)) => record.facts = facts,
                Ok(Event::Target(target)) => record.targets.push(target),
                Ok(Event::Mappings { .. }) => {}
                Ok(Event::Snapshot(snapshot)) => record.snapshots.push(snapshot),
                Ok(Event::Attribution(a)) => record.attributions.push(a),
                Ok(Event::End(end)) => record.end = Some(end),
                Err(ReadError::Torn { .. }) => record.torn = true,
                Err(e) => panic!("{e}"),
            }
        }
        record
    }

    /// Of each target: who has become another program has several names, and is one of them.
    pub fn pids(&self) -> Vec<u32> {
        let mut ids = std::collections::BTreeSet::new();
        self.targets.iter().filter(|t| ids.insert(t.id)).filter_map(|t| t.pid).collect()
    }

    /// Snapshots that have the process.
    pub fn snapshots_of(&self, pid: u32) -> usize {
        let id = self.targets.iter().find(|t| t.pid == Some(pid)).unwrap().id;
        let has =
            |s: &&Arc<Snapshot>| s.targets.iter().any(|t| t.id == id && !t.regions.is_empty());
        self.snapshots.iter().filter(has).count()
    }

    /// Their numbers go on without gaps, and each interval begins where the one before ended.
    pub fn assert_without_gaps(&self) {
        for pair in self.snapshots.windows(2) {
            assert_eq!(pair[0].seq + 1, pair[1].seq);
            assert_eq!(pair[0].end, pair[1].start, "after snapshot {}", pair[0].seq);
        }
    }
}
