//! System calls that fail, by the fault injection of `strace`.
//!
//! One call, or that call and all later ones, return an error that the kernel could return. The program must end with
//! a message, or continue without the call. It must neither panic nor hang, nor lose an earlier record.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::arguments::RECORD;
use crate::random::Random;
use crate::run::{Finished, run};
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::target::{Behaviour, TargetProcess};
use crate::{Experiment, Trial, processes};

/// A command that does not end by itself gets SIGINT after this time.
const SIGINT_AFTER: Duration = Duration::from_secs(20);

/// The calls that fail, with errors that each can return. `close` is missing, since nothing can be done about it.
/// So are `mmap` and `brk` for memory of the program: a Rust program aborts if it gets none.
const CALLS: [(&str, &[&str]); 40] = [
    ("openat", &["ENOMEM", "EMFILE", "EACCES", "EINTR", "EIO", "ENOENT"]),
    ("read", &["EINTR", "EIO", "ENOMEM", "ESRCH"]),
    ("pread64", &["EINTR", "EIO", "ENOMEM", "ESRCH"]),
    ("write", &["EINTR", "EAGAIN", "ENOSPC", "EIO", "EPERM"]),
    ("pwrite64", &["EINTR", "ENOSPC", "EIO"]),
    ("bpf", &["EPERM", "ENOMEM", "EAGAIN", "EINTR"]),
    ("process_madvise", &["EINTR", "EAGAIN", "ENOMEM", "ESRCH", "EPERM"]),
    ("madvise", &["EAGAIN", "ENOMEM", "EINVAL"]),
    ("ppoll", &["EINTR", "ENOMEM"]),
    ("poll", &["EINTR", "ENOMEM"]),
    ("epoll_create1", &["EMFILE", "ENOMEM"]),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"]),
    ("epoll_pwait", &["EINTR"]),
    ("pidfd_open", &["EMFILE", "ENOMEM", "ESRCH"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("clone3", &["EAGAIN", "ENOMEM"]),
    ("socket", &["EMFILE", "ENOMEM"]),
    ("socketpair", &["EMFILE", "ENOMEM"]),
    ("bind", &["EACCES", "ENOMEM", "EADDRINUSE"]),
    ("listen", &["EADDRINUSE"]),
    ("sendto", &["EINTR", "ENOMEM", "EPIPE"]),
    ("statx", &["ENOMEM", "EACCES", "EIO"]),
    ("newfstatat", &["ENOMEM", "EACCES", "EIO"]),
    ("fstat", &["ENOMEM", "EIO"]),
    ("getdents64", &["ENOMEM", "EIO", "ENOENT"]),
    ("rename", &["EIO", "ENOSPC", "EPERM"]),
    ("renameat", &["EIO", "ENOSPC", "EPERM"]),
    ("unlink", &["EIO", "EPERM"]),
    ("ftruncate", &["EINTR", "EIO", "EPERM"]),
    ("fsync", &["EIO", "ENOSPC", "EINTR"]),
    ("fdatasync", &["EIO", "ENOSPC", "EINTR"]),
    ("flock", &["EINTR", "EAGAIN", "ENOLCK"]),
    ("fcntl", &["EMFILE", "EINTR"]),
    ("memfd_create", &["EMFILE", "ENOMEM"]),
    ("capset", &["EPERM"]),
    ("perf_event_open", &["EPERM", "EMFILE", "ENOMEM"]),
    ("ioctl", &["EPERM", "EINTR", "EIO"]),
    ("sched_setaffinity", &["EPERM", "EINVAL"]),
    ("wait4", &["EINTR"]),
    ("lseek", &["EINVAL"]),
];
/// The file that strace writes.
const TRACE: &str = "/tmp/work/trace";
/// Calls that are repeated after these errors would be repeated without end.
const TRANSIENT: [&str; 2] = ["EINTR", "EAGAIN"];

/// The commands whose calls fail. `PID` is that of the target.
const COMMANDS: [&[&str]; 8] = [
    &["record", "--pid", "PID", "-o", "a.rec", "--duration", "700ms", "--control", "c"],
    &[
        "record",
        "--pid",
        "PID",
        "-o",
        "a.rec",
        "--duration",
        "700ms",
        "--aggr",
        "50ms",
        "--sample",
        "5ms",
    ],
    &[
        "record",
        "--pid",
        "PID",
        "-o",
        "a.rec",
        "--duration",
        "700ms",
        "--stacks",
        "--metrics",
        "m.prom",
    ],
    &["reclaim", "--pid", "PID", "--duration", "700ms", "--min-age", "100ms", "--control", "c"],
    &["run", "--pid", "PID", "--duration", "700ms", "--log", "log", "--scheme-line", COLD],
    &["files", "--json"],
    &["report", "summary", "-i", "a.rec"],
    &["system", "doctor", "--json"],
];
const COLD: &str = "4K max null null null null cold";

pub struct Calls {
    target: TargetProcess,
    folder: PathBuf,
    /// the number of calls of each command, by name
    counts: Vec<BTreeMap<String, usize>>,
}

impl Calls {
    pub fn new() -> Result<Self> {
        let folder = Path::new(WORK_DIR).join("cwd");
        let mut calls =
            Calls { target: TargetProcess::start(Behaviour::Touch)?, folder, counts: Vec::new() };
        for of in 0..COMMANDS.len() {
            calls.counts.push(calls.count(of)?);
        }
        Ok(calls)
    }

    /// The program under `strace`, which is not its parent.
    fn traced(&self, of: usize, options: &[&str]) -> Command {
        let pid = self.target.pid().to_string();
        let args = COMMANDS[of].iter().map(|word| if *word == "PID" { &pid } else { *word });
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "--seccomp-bpf", "-o", TRACE]).args(options);
        command.arg(PROGRAM).args(args).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// A folder with an earlier record.
    fn prepare(&self) -> Result<()> {
        fs::create_dir(&self.folder)?;
        Ok(fs::write(self.folder.join("a.rec"), RECORD)?)
    }

    fn count(&self, of: usize) -> Result<BTreeMap<String, usize>> {
        self.prepare()?;
        let ended = run(
            &mut self.traced(of, &["-c", "-U", "calls,name"]),
            Path::new(WORK_DIR),
            SIGINT_AFTER,
        )?;
        ensure!(ended.status.is_some(), "{:?} does not end", COMMANDS[of]);
        ensure!(self.others_end()?.is_empty(), "strace does not end");
        fs::remove_dir_all(&self.folder)?;
        let table = fs::read_to_string(TRACE).context("strace has written nothing")?;
        let row = |line: &str| {
            let (count, name) = line.trim().split_once(char::is_whitespace)?;
            Some((name.trim().to_owned(), count.parse().ok()?))
        };
        Ok(table.lines().filter_map(row).filter(|(name, _)| name != "total").collect())
    }

    /// Processes other than the target that do not end by themselves.
    fn others_end(&self) -> Result<Vec<String>> {
        processes::left_but(&[self.target.pid()])
    }

    /// A fault in the folder: of the record, or of the earlier one.
    fn check(&self) -> Result<Option<String>> {
        let is_earlier = |name| fs::read(self.folder.join(name)).is_ok_and(|bytes| bytes == RECORD);
        if is_earlier("a.rec") {
            return Ok(None);
        }
        if !is_earlier("a.rec.old") {
            return Ok(Some(format!("the earlier record is lost: {:?}", self.names())));
        }
        if !self.folder.join("a.rec").exists() {
            return Ok(None);
        }
        let mut check = Command::new(PROGRAM);
        check.args(["record", "--check", "a.rec"]).current_dir(&self.folder);
        let ended = run(&mut check, Path::new(WORK_DIR), SIGINT_AFTER)?;
        let reported = ["is sound", "breaks off", "is cut short"];
        let well =
            ended.fault().is_none() && reported.iter().any(|part| ended.text().contains(part));
        Ok((!well).then(|| format!("the record is damaged: {}", ended.text())))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Experiment for Calls {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        let of = random.below(COMMANDS.len());
        let counts = &self.counts[of];
        let calls: Vec<_> = CALLS.iter().filter(|(name, _)| counts.contains_key(*name)).collect();
        let (name, errors) = random.pick(&calls);
        let error = random.pick(errors);
        // The first calls of a kind differ most from each other.
        let count = counts[*name];
        let among = if random.one_in(2) { count.min(20) } else { count };
        let first = 1 + random.below(among);
        let all = if !TRANSIENT.contains(error) && random.one_in(2) { "+" } else { "" };
        let inject = format!("inject={name}:error={error}:when={first}{all}");
        let trace = format!("trace={name}");

        self.prepare()?;
        let mut command = self.traced(of, &["-e", &trace, "-e", &inject]);
        let ended = run(&mut command, Path::new(WORK_DIR), SIGINT_AFTER)?;
        let left = self.others_end()?;
        let log = fs::read(TRACE).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let injected = log.lines().find(|line| line.contains("(INJECTED)"));
        // A debug build has shared libraries, which the loader reads before the program starts.
        let not_started = ended.err.contains("while loading shared libraries");
        // Where writing to standard error fails, there is no message.
        let cannot_print = log.lines().any(|l| l.contains("write(2, ") && l.contains("(INJECTED)"));
        let silent = ended.failed() && ended.text().is_empty() && !cannot_print;
        let silent = silent.then(|| "it failed without a message".to_owned());
        let fault = match fault(&ended, &left).or(silent).filter(|_| !not_started) {
            None => self.check()?,
            fault => fault,
        };
        fs::remove_dir_all(&self.folder)?;
        let class = match injected {
            None => "not reached".to_owned(),
            Some(_) if not_started => "not started".to_owned(),
            Some(_) => ended.class(),
        };
        let fault = fault.map(|fault| {
            let of = COMMANDS[of].join(" ");
            format!("{of}: {inject}: {fault}\n    {}", injected.unwrap_or("not injected"))
        });
        Ok(Trial { class, fault })
    }
}

fn fault(ended: &Finished, left: &[String]) -> Option<String> {
    ended
        .fault()
        .or_else(|| ended.interrupted.then(|| format!("it did not end within {SIGINT_AFTER:?}")))
        .or_else(|| (!left.is_empty()).then(|| format!("left processes: {}", left.join(", "))))
}
