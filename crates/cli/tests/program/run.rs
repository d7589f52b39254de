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
use isotherm_record::{End, Event, ReadError, Reader, RecordingHeader, TargetInfo};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::kill_on_drop::KillOnDrop;
pub(crate) use crate::root::needs_root;
pub use crate::root::{has_or_skip, root_or_skip};

/// No step takes as long as this, on any slow or busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// Copies a program in another process. If this process did it, the child of another test might have the copy
/// open for writing, and then it could not be run.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(copied.success(), "{copied}");
}

/// A process in the background of a script ignores SIGINT, and so would all processes that the tests start.
fn heed_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: it only sets the kernel's default.
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

/// Commands that watch processes and answer at a socket, and whether they have schemes.
const SERVICES: [(&[&str], bool); 3] = [
    (&["record"], false),
    (&["run", "--scheme-line", "4K max min max min max stat"], true),
    (&["reclaim", "--dry-run", "--watermarks", "none", "--min-age", "1s"], true),
];

/// Starts each of them in `dir`, with the socket `c/sock`, for a process.
pub fn services(dir: &Path, pid: i32) -> impl Iterator<Item = (KillOnDrop, bool)> {
    SERVICES.into_iter().map(move |(args, acts)| {
        let mut command = isotherm(args);
        command.args(["--control", "c/sock", "--pid", &pid.to_string()]).current_dir(dir);
        let child =
            KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("the socket", || status_at(&dir.join("c/sock")).is_some());
        (child, acts)
    })
}

/// The result of a run.
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

/// Runs it in `dir` until it ends.
pub fn run_in(dir: &Path, args: &[&str]) -> Done {
    finish(isotherm(args).current_dir(dir))
}

/// Runs a command until it ends. Standard output goes to a file, because a pipe without a reader fills up.
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
        if begin.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or(|| format!("{what} does not come"), is_so);
}

/// The same; `why` makes the message at the end of the time.
pub fn until_or(why: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < TIMEOUT, "{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a count stays the same for this time.
pub fn until_still(what: &str, time: Duration, mut count: impl FnMut() -> usize) {
    until(what, || {
        let before = count();
        std::thread::sleep(time);
        count() == before
    });
}

/// The `status` of the service on a socket; `None` if there is none yet.
pub fn status_at(socket: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    Some(answer["status"].take())
}

/// Waits for this many more snapshots in the record of the service on a socket.
pub fn until_more_at(socket: &Path, snapshots: u64) {
    let written = || status_at(socket).map(|s| s["record"]["snapshots"].as_u64().unwrap());
    until("whom to ask", || written().is_some());
    let before = written().unwrap();
    until("more snapshots", || written().unwrap() >= before + snapshots);
}

/// The snapshots that a record has by now.
pub fn snapshots(record: &Path) -> impl Iterator<Item = Arc<Snapshot>> {
    let events = Reader::open(record).unwrap().map_while(Result::ok);
    events.filter_map(|event| match event {
        Event::Snapshot(s) => Some(s),
        _ => None,
    })
}

/// `isotherm record`, ten snapshots a second, into a directory of its own; killed when dropped.
pub struct Recorder {
    child: KillOnDrop,
    dir: TempDir,
}

impl Recorder {
    /// With further options. With --aggr, the other intervals keep their defaults.
    pub fn start(options: &[&str]) -> Self {
        Recorder::start_by(isotherm(["record"]), options)
    }

    /// With a command that is complete except for the options of `record`.
    pub fn start_by(mut command: Command, options: &[&str]) -> Self {
        heed_signals();
        let dir = TempDir::new().unwrap();
        let err = File::create(dir.path().join("err")).unwrap();
        // Uses the regions monitor, with shorter intervals than its defaults, unless options say otherwise.
        if !options.iter().any(|o| ["--aggr", "--monitor"].contains(o)) {
            command.args(QUICK);
        }
        if !options.contains(&"-o") {
            command.args(["-o", "a.rec"]);
        }
        command.args(options);
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(err);
        let child = KillOnDrop(command.spawn().unwrap());
        Recorder { child, dir }
    }

    /// Starts it, and waits for the first snapshot.
    pub fn recording(options: &[&str]) -> Self {
        let recorder = Recorder::start(options);
        recorder.until_recording();
        recorder
    }

    /// The same with a control socket, which reports its progress.
    pub fn counted(options: &[&str]) -> Self {
        Recorder::recording(&[options, &["--control", "c"]].concat())
    }

    /// For one from [`Recorder::counted`].
    pub fn status(&self) -> Value {
        status_at(&self.dir().join("c")).unwrap()
    }

    /// For one from [`Recorder::counted`]: waits for this many more snapshots.
    pub fn until_more(&self, snapshots: u64) {
        until_more_at(&self.dir().join("c"), snapshots);
    }

    /// For one from [`Recorder::counted`]: the watched processes, sorted.
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

    /// Stops it as Ctrl-C does.
    pub fn stop(&mut self) -> Record {
        self.signal(Signal::INT);
        assert_eq!(self.wait().code(), Some(0), "{}", self.err());
        Record::read(&self.record())
    }
}

/// Ten snapshots a second.
pub const QUICK: [&str; 6] = ["--sample", "10ms", "--aggr", "100ms", "--update", "200ms"];

/// A record read back.
pub struct Record {
    pub facts: RecordingHeader,
    pub targets: Vec<TargetInfo>,
    pub snapshots: Vec<Arc<Snapshot>>,
    pub attributions: Vec<Attribution>,
    pub end: Option<End>,
    /// whether the record is incomplete
    pub torn: bool,
}

impl Record {
    pub fn read(path: &Path) -> Self {
        let mut record = Record {
            facts: RecordingHeader::new(
                "",
                isotherm_core::Attrs::default(),
                isotherm_core::Nanos(0),
            ),
            targets: Vec::new(),
            snapshots: Vec::new(),
            attributions: Vec::new(),
            end: None,
            torn: false,
        };
        for event in Reader::open(path).unwrap() {
            match event {
                Ok(Event::Header(facts)) => record.facts = facts,
                Ok(Event::Target(target)) => record.targets.push(target),
                Ok(Event::Snapshot(snapshot)) => record.snapshots.push(snapshot),
                Ok(Event::Attribution(a)) => record.attributions.push(a),
                Ok(Event::End(end)) => record.end = Some(end),
                Ok(_) => {}
                Err(ReadError::Torn { .. }) => record.torn = true,
                Err(e) => panic!("{e}"),
            }
        }
        record
    }

    /// The pid of each target. A process that has become another program has several names, and counts once.
    pub fn pids(&self) -> Vec<u32> {
        let mut ids = std::collections::BTreeSet::new();
        self.targets.iter().filter(|t| ids.insert(t.id)).filter_map(|t| t.pid).collect()
    }

    /// The number of snapshots with the process.
    pub fn snapshots_of(&self, pid: u32) -> usize {
        let id = self.targets.iter().find(|t| t.pid == Some(pid)).unwrap().id;
        let has =
            |s: &&Arc<Snapshot>| s.targets.iter().any(|t| t.id == id && !t.regions.is_empty());
        self.snapshots.iter().filter(has).count()
    }

    /// Their numbers have no gaps, and each interval begins at the end of the previous one.
    pub fn assert_without_gaps(&self) {
        for pair in self.snapshots.windows(2) {
            assert_eq!(pair[0].seq + 1, pair[1].seq);
            assert_eq!(pair[0].end, pair[1].start, "after snapshot {}", pair[0].seq);
        }
    }
}
