//! `isotherm exec`.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use isotherm_report::bytes;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::kill_on_drop::KillOnDrop;
use crate::load::status;
use crate::run::{Recorder, has_or_skip, isotherm, needs_root, run_in, until, wait};
use crate::workload::Running;

/// A `cat` that waits for input; killed when dropped.
struct Cat(KillOnDrop);

impl Cat {
    fn start() -> Self {
        Cat::by(&mut Command::new("cat"))
    }

    /// Starts it by a command that becomes it.
    fn by(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let cat = Cat(KillOnDrop(child));
        let name = || status(Path::new(&format!("/proc/{}", cat.0.id())), "Name:");
        until("the heap of cat", || name() == "cat" && cat.heap().is_some());
        cat
    }

    fn heap(&self) -> Option<u64> {
        heap(self.0.id())
    }

    fn locked(&self) -> u64 {
        locked(self.0.id())
    }

    /// Writes to it, and checks that it answers.
    fn answers(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"still").unwrap();
        let mut said = [0; 5];
        self.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"still");
    }
}

/// The length of the heap of a process.
fn heap(pid: u32) -> Option<u64> {
    mapped(pid, "[heap]")
}

/// The length of the memory of this name.
fn mapped(pid: u32, name: &str) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let lines = maps.lines().filter(|line| line.ends_with(name));
    let lengths = lines.filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        Some(end - start)
    });
    // A lock divides it.
    Some(lengths.sum()).filter(|length| *length > 0)
}

/// The memory that a process has locked, in bytes.
fn locked(pid: u32) -> u64 {
    status(Path::new(&format!("/proc/{pid}")), "VmLck:")
        .strip_suffix(" kB")
        .map(|kib| kib.trim().parse::<u64>().unwrap() << 10)
        .unwrap()
}

/// Advice to lock the heap of a program from its second page on, as another run had it at another address.
fn advise(dir: &Path, name: &str, heap: u64) {
    advise_all(dir, name, &[("[heap]", heap, 4096)]);
}

/// Advice to lock several mappings, each from an offset on.
fn advise_all(dir: &Path, name: &str, mappings: &[(&str, u64, u64)]) {
    advise_last(dir, &[name], mappings);
}

/// The same for the last of several processes.
fn advise_last(dir: &Path, names: &[&str], mappings: &[(&str, u64, u64)]) {
    let ranges = (1u64..).zip(mappings).map(|(i, &(mapping, bytes, offset))| {
        json!({
            "action": "lock", "target": names.len() - 1, "mapping": mapping,
            "mapping_range": [format!("{:#x}", i << 40), format!("{:#x}", (i << 40) + bytes)],
            "offset_bytes": offset, "size_bytes": bytes - offset, "rate_hz": 10.0,
        })
    });
    let targets = names.iter().enumerate();
    let targets =
        targets.map(|(i, name)| json!({ "target": i, "label": format!("{name} (pid {})", i + 1) }));
    let advice = json!({
        "schema_version": 1,
        "targets": targets.collect::<Vec<_>>(),
        "ranges": ranges.collect::<Vec<_>>(),
    });
    fs::write(dir.join("advice.json"), advice.to_string()).unwrap();
}

/// Applies the advice of a folder to a process.
fn exec_in(dir: &Path, pid: u32) -> Child {
    let mut exec = isotherm(["exec", "--advice", "advice.json", "--pid", &pid.to_string()]);
    exec.current_dir(dir).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends it, and returns its messages.
fn end(mut exec: Child) -> String {
    kill_process(Pid::from_child(&exec), Signal::TERM).unwrap();
    assert_eq!(wait(&mut exec).code(), Some(0));
    let mut said = String::new();
    exec.stderr.unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_running_process_is_locked_until_isotherm_ends() {
    let (dir, mut cat) = (TempDir::new().unwrap(), Cat::start());
    let heap = cat.heap().unwrap();
    advise(dir.path(), "cat", heap);
    let exec = exec_in(dir.path(), cat.0.id());
    until("the lock", || cat.locked() == heap - 4096);
    cat.answers();
    let said = end(exec);
    assert_eq!(cat.locked(), 0);
    cat.answers();
    assert!(said.contains("locked 128.0 KiB at most"), "{said}");
}

/// The limit of locked memory of a process, and the maximum of that limit.
fn memlock(pid: u32) -> [String; 2] {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    [words.next().unwrap(), words.next().unwrap()]
}

/// The maximum of the process is above that of isotherm, which may raise no maximum.
#[test]
fn a_raised_limit_is_restored_and_its_maximum_stays() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let cat = Cat::by(Command::new("prlimit").args(["--memlock=65536:6291456", "cat"]));
    let id = cat.0.id();
    advise(dir.path(), "cat", cat.heap().unwrap());
    let mut exec = Command::new("setpriv");
    exec.args(["--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "prlimit"]);
    exec.args(["--memlock=65536:4194304", env!("CARGO_BIN_EXE_isotherm"), "exec"]);
    exec.args(["--advice", "advice.json", "--pid", &id.to_string()]).current_dir(dir.path());
    let exec = exec.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the lock", || cat.locked() > 0);
    assert_eq!(memlock(id), ["6291456", "6291456"]);
    end(exec);
    assert_eq!(memlock(id), ["65536", "6291456"]);
}

/// Sets up asynchronous I/O, whose memory the kernel never locks, and waits for input.
const WITH_AIO: &str = "
import ctypes
libc, context = ctypes.CDLL(None), ctypes.c_ulong(0)
if libc.syscall(206, 8, ctypes.byref(context)) == 0:
    input()
";

#[test]
fn memory_that_the_kernel_never_locks_is_requested_once() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", WITH_AIO]).stdin(Stdio::piped());
    let mut python = KillOnDrop(python.spawn().unwrap());
    let (id, name) = (python.id(), "/[aio] (deleted)");
    let proc = format!("/proc/{id}");
    let sleeps = || status(Path::new(&proc), "State:").starts_with('S');
    let mut ended = false;
    until("its asynchronous I/O", || {
        ended = python.try_wait().unwrap().is_some();
        ended || mapped(id, name).is_some() && sleeps()
    });
    if !has_or_skip(!ended, "memory_that_the_kernel_never_locks_is_requested_once", "io_setup") {
        return;
    }
    let (heap, aio) = (heap(id).unwrap(), mapped(id, name).unwrap());
    advise_all(dir.path(), "python3", &[("[heap]", heap, 4096), (name, aio, 0)]);
    let exec = exec_in(dir.path(), id);
    until("the lock of the heap", || locked(id) == heap - 4096);
    let switches = |proc: &str| -> u64 {
        status(Path::new(proc), "voluntary_ctxt_switches:").parse().unwrap()
    };
    let of_exec = || switches(&format!("/proc/{}", exec.id()));
    let looks = |times: u64| {
        let before = of_exec();
        until("further looks", || of_exec() >= before + times);
    };
    // The first stop is over.
    looks(8);
    until("that it sleeps", sleeps);
    let before = switches(&proc);
    looks(8);
    assert_eq!(switches(&proc), before);
    let said = end(exec);
    assert!(said.contains(&format!("locked {} at most", bytes(heap - 4096))), "{said}");
    assert!(said.contains(&format!("the kernel refused {}", bytes(aio))), "{said}");
    assert_eq!(locked(id), 0);
}

/// Locks the first 64 KiB of its heap, and waits for input.
const LOCKS: &str = "
import ctypes
line = next(line for line in open('/proc/self/maps') if line.endswith('[heap]\\n'))
start = int(line.split('-')[0], 16)
if ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(65536)) == 0:
    input()
";

#[test]
fn what_a_program_has_locked_itself_stays_locked() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", LOCKS]).stdin(Stdio::piped());
    let python = KillOnDrop(python.spawn().unwrap());
    let (id, own) = (python.id(), 65536);
    until("its own lock", || locked(id) == own);
    let heap = heap(id).unwrap();
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap();
    advise(dir.path(), name.trim_end(), heap);
    let exec = exec_in(dir.path(), id);
    until("the lock", || locked(id) == heap);
    end(exec);
    assert_eq!(locked(id), own);
}

/// Waits for input in a mode of seccomp in which it can only read and write.
const FILTERED: &str = "
import ctypes
libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(1)
libc.read(0, buffer, 0)
libc.prctl(22, 1, 0, 0, 0)
libc.read(0, buffer, 1)
";

#[test]
fn a_program_with_a_filter_is_not_interrupted() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", FILTERED]).stdin(Stdio::piped());
    let python = KillOnDrop(python.spawn().unwrap());
    let proc = format!("/proc/{}", python.id());
    until("its filter", || status(Path::new(&proc), "Seccomp:") == "1");
    until("that it sleeps", || status(Path::new(&proc), "State:").starts_with('S'));
    advise(dir.path(), "python3", heap(python.id()).unwrap());
    let exec = exec_in(dir.path(), python.id());
    let switches = || status(Path::new(&proc), "voluntary_ctxt_switches:");
    let before = switches();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(switches(), before);
    let said = end(exec);
    assert!(said.contains("seccomp"), "{said}");
}

#[test]
fn a_command_ends_as_it_does_by_itself() {
    let dir = TempDir::new().unwrap();
    advise(dir.path(), "another", 1 << 20);
    let run = |script: &str| {
        run_in(dir.path(), &["exec", "--advice", "advice.json", "--", "sh", "-c", script])
    };
    let done = run("echo here; exit 7");
    assert_eq!((done.status, done.text()), (7, "here\n"));
    assert!(done.err.contains("locked 0 B at most"), "{}", done.err);
    assert_eq!(run("kill -9 $$").status, 128 + 9);
}

/// A pipe in a folder.
fn pipe(dir: &Path, name: &str) -> fs::File {
    let path = dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // With both ends open, nothing waits for the other end.
    fs::File::options().read(true).write(true).open(path).unwrap()
}

/// Found by a review: the parent of a worker had the worker's advice, which did not fit, and the worker had none.
#[test]
fn a_second_process_of_a_name_has_the_advice_of_the_second() {
    let (dir, heap_of_cat) = (TempDir::new().unwrap(), Cat::start().heap().unwrap());
    advise_last(dir.path(), &["cat", "cat"], &[("[heap]", heap_of_cat, 4096)]);
    let (input, mut go) = (pipe(dir.path(), "input"), pipe(dir.path(), "go"));
    let script = "cat <input & echo $! >new; mv new one; read line <go
        cat <input & echo $! >new; mv new two; read line <go; kill $(cat one two)";
    let mut exec = isotherm(["exec", "--advice", "advice.json", "--", "sh", "-c", script]);
    let mut exec = exec.current_dir(dir.path()).stderr(Stdio::null()).spawn().unwrap();
    let pid = |name: &str| {
        let path = dir.path().join(name);
        until("a pid", || path.exists());
        fs::read_to_string(path).unwrap().trim().parse::<u32>().unwrap()
    };
    let one = pid("one");
    until("the first cat", || heap(one) == Some(heap_of_cat));
    writeln!(go).unwrap();
    let two = pid("two");
    until("the lock", || locked(two) == heap_of_cat - 4096);
    assert_eq!(locked(one), 0);
    writeln!(go).unwrap();
    assert_eq!(wait(&mut exec).code(), Some(0));
    drop(input);
}

/// Found by a review: the record has the name of the script, and the process that of its interpreter.
#[test]
fn a_script_has_its_advice() {
    let dir = TempDir::new().unwrap();
    // If this process wrote it, the child of another test might hold it open, and it could not be executed.
    let start = "printf '#!/bin/sh\nread line\n' >tool.sh; chmod 755 tool.sh; exec ./tool.sh";
    let mut script = Command::new("sh");
    script.args(["-c", start]).current_dir(dir.path()).stdin(Stdio::piped());
    let script = KillOnDrop(script.spawn().unwrap());
    until("that it waits", || {
        let of = |field| status(Path::new(&format!("/proc/{}", script.id())), field);
        of("Name:") == "tool.sh" && of("State:").starts_with('S') && heap(script.id()).is_some()
    });
    let heap = heap(script.id()).unwrap();
    advise(dir.path(), "tool.sh", heap);
    let exec = exec_in(dir.path(), script.id());
    until("the lock", || locked(script.id()) == heap - 4096);
    end(exec);
}

/// A command starts cat in the background, and ends before it.
#[test]
fn what_a_command_leaves_behind_is_unlocked() {
    let (dir, heap) = (TempDir::new().unwrap(), Cat::start().heap().unwrap());
    advise(dir.path(), "cat", heap);
    let (input, mut end) = (pipe(dir.path(), "input"), pipe(dir.path(), "end"));
    let script = "cat <input & echo $! >new; mv new pid; read line <end";
    let mut exec = isotherm(["exec", "--advice", "advice.json", "--", "sh", "-c", script]);
    let mut exec = exec.current_dir(dir.path()).stderr(Stdio::null()).spawn().unwrap();
    let pid = dir.path().join("pid");
    until("the start of cat", || pid.exists());
    let pid: u32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    until("the lock", || locked(pid) == heap - 4096);
    writeln!(end).unwrap();
    assert_eq!(wait(&mut exec).code(), Some(0));
    assert_eq!(locked(pid), 0);
    drop(input);
}

#[test]
fn wrong_advice_is_refused_before_the_command_starts() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("advice.json"), "{}").unwrap();
    let run = |args: &[&str]| run_in(dir.path(), &[&["exec"], args].concat());
    for (args, status, said) in [
        (
            &["--advice", "advice.json", "--", "touch", "done"][..],
            1,
            "isotherm report advice --json",
        ),
        (&["--advice", "none.json", "--", "touch", "done"], 1, "none.json"),
        (&["--", "touch", "done"], 2, "--advice"),
        (&["--advice", "advice.json"], 2, "COMMAND"),
        (&["--advice", "advice.json", "--pid", "1", "--", "touch", "done"], 2, "--pid"),
    ] {
        let done = run(args);
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
        assert!(!dir.path().join("done").exists(), "{args:?}");
    }
}

/// The whole way: a run is recorded, and the next one is locked by its advice.
#[test]
fn advice_of_one_run_serves_the_next() {
    needs_root!();
    let mut running = Running::start("hot-warm-cold", &["--duration", "1h"]);
    let mut recorder = Recorder::start(&["--pid", &running.pid(), "--duration", "10s"]);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    running.end();
    let dir = TempDir::new().unwrap();
    let record = recorder.record();
    let record = record.to_str().unwrap();
    // Enough is hot even on a machine that is too busy to touch it as often as it should.
    let report =
        ["report", "advice", "--json", "--hot", "1Hz", "--lock-limit", "16M", "-i", record];
    let advice = run_in(dir.path(), &report);
    assert_eq!(advice.status, 0, "{}", advice.err);
    let size = advice.json()["actions"][0]["size_bytes"].as_u64().unwrap();
    assert!(size >= 8 << 20, "{size}");
    fs::write(dir.path().join("advice.json"), advice.out).unwrap();
    let program = env!("CARGO_BIN_EXE_isotherm");
    let workload = [program, "lab", "workload", "hot-warm-cold", "--duration", "2s"];
    let done =
        run_in(dir.path(), &[&["exec", "--advice", "advice.json", "--"], &workload[..]].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    let locked = done.err.split_once("locked ").unwrap().1.split_once(" MiB").unwrap().0;
    let locked: f64 = locked.parse().unwrap();
    assert!(locked * 1048576.0 >= size as f64 * 0.9, "{size}: {}", done.err);
}
