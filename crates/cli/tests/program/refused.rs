//! Processes that isotherm cannot watch: the messages, and that a failed attempt destroys no data.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::load::Load;
use crate::run::{Done, Record, copy_program, finish, isotherm, needs_root, until};
use crate::synthetic;

const NOBODY: u32 = 65534;

/// A directory of the user `nobody` with a valid record, and the program where `nobody` can run it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(env!("CARGO_BIN_EXE_isotherm"), dir.path().join("isotherm"));
        let output = dir.path().join("out");
        fs::create_dir(&output).unwrap();
        synthetic::write(&output.join("a.rec"), 3);
        for path in [&output, &output.join("a.rec")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Place { dir }
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// A command of the user `nobody` with only these capabilities.
    fn by_nobody(&self, capabilities: &[&str]) -> Command {
        let kept: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args([
            format!("--bounding-set=-all{kept}"),
            format!("--inh-caps=-all{kept}"),
            format!("--ambient-caps=-all{kept}"),
        ]);
        command.arg(self.dir.path().join("isotherm")).stdin(Stdio::null());
        command
    }

    /// The files in the directory, by name.
    fn files(&self) -> BTreeMap<OsString, Vec<u8>> {
        let entries = fs::read_dir(self.output()).unwrap().map(Result::unwrap);
        entries.map(|e| (e.file_name(), fs::read(e.path()).unwrap())).collect()
    }

    /// Runs `command` with the arguments of a recording over the good one; what was there, and nothing
    /// else, must be there afterwards, unless it succeeds.
    fn record(&self, mut command: Command, what: &[&str]) -> Done {
        let before = self.files();
        command.args(["record", "-o", "a.rec", "--duration", "2s"]).args(what);
        let done = finish(command.current_dir(self.output()));
        assert!(!done.err.contains("panicked"), "{}", done.err);
        if done.status != 0 {
            assert!(self.files() == before, "{what:?}: {}", done.err);
        }
        done
    }

    fn assert_refused(&self, command: Command, what: &[&str], said: &[&str]) {
        let done = self.record(command, what);
        assert_eq!(done.status, 1, "{what:?}: {}", done.err);
        for part in said {
            assert!(done.err.contains(part), "{what:?}: {part} is not in: {}", done.err);
        }
    }

    /// The doctor names the cause. Either `record` does so too, with what would help, or it records
    /// in another way and says why.
    fn assert_reported(
        &self,
        command: impl Fn() -> Command,
        what: &[&str],
        cause: &str,
        help: &str,
    ) {
        let doctor = finish(command().args(["system", "doctor"]));
        let text = doctor.text();
        assert!(text.contains(cause), "{cause} is not in: {text}");
        let done = self.record(command(), what);
        if done.status == 1 {
            assert!(done.err.contains(cause) && done.err.contains(help), "{}", done.err);
            return;
        }
        assert_eq!(done.status, 0, "{}", done.err);
        let facts = Record::read(&self.output().join("a.rec")).facts;
        let reported = [done.err, facts.look, facts.note].join(" ");
        assert!(reported.contains(cause), "{cause} is not in: {reported}");
    }
}

/// Ended, and not waited for.
struct Zombie(Child);

impl Zombie {
    fn new() -> Self {
        let child = Command::new("true").spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        until("its end", || fs::read_to_string(&stat).unwrap().contains(") Z "));
        Zombie(child)
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

#[test]
fn unwatchable_processes_do_not_replace_a_record() {
    needs_root!();
    let place = Place::new();
    let nobody = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let zombie = Zombie::new();
    let load = Load::start(16, 4);
    let (zombie, load) = (zombie.0.id().to_string(), load.pid().to_string());
    let no_thread = |t: &String| *t != load;
    let tasks = fs::read_dir(format!("/proc/{load}/task")).unwrap();
    let mut tasks = tasks.map(|t| t.unwrap().file_name().into_string().unwrap());
    let thread = tasks.find(no_thread).unwrap();
    for (pid, said) in [
        ("0", "no process 0"),
        ("-1", "no process -1"),
        ("-2147483648", "no process -2147483648"),
        ("2147483647", "no process 2147483647"),
        (nobody.trim(), "no process"),
        ("2", "thread of the kernel"),
        (&zombie, "has just ended"),
        (&thread, "give the pid of its process"),
    ] {
        let pid = format!("--pid={pid}");
        place.assert_refused(isotherm::<&str>([]), &[&pid], &[said]);
        // A process that can be watched is not watched either if another one cannot.
        place.assert_refused(isotherm::<&str>([]), &["--pid", &load, &pid], &[said]);
    }
    for pid in ["--pid=2147483648", "--pid=99999999999999999999", "--pid=1.5", "--pid="] {
        let done = place.record(isotherm::<&str>([]), &[pid]);
        assert!(done.status == 2 && done.err.contains("--pid"), "{pid}: {}", done.err);
    }
}

#[test]
fn processes_of_other_users_take_capabilities_that_are_named() {
    needs_root!();
    let place = Place::new();
    let load = Load::start(16, 4);
    let pid = format!("--pid={}", load.pid());
    let said = ["may not inspect process", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "run as root"];
    for capabilities in [&[][..], &["sys_ptrace"]] {
        place.assert_refused(place.by_nobody(capabilities), &[&pid, "--look", "smaps"], &said);
    }
    let all = ["bpf", "perfmon", "sys_nice", "sys_ptrace"];
    let done = place.record(place.by_nobody(&all), &[&pid]);
    assert_eq!(done.status, 0, "{}", done.err);
}

/// With hidepid, /proc shows nothing of others.
#[test]
fn a_hidden_process_is_said_to_be_there() {
    needs_root!();
    let place = Place::new();
    let load = Load::start(16, 4);
    let hidden = || {
        let inside = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 \
                      --clear-groups \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", inside, "sh"]).arg(place.dir.path().join("isotherm"));
        command.stdin(Stdio::null());
        command
    };
    let pid = format!("--pid={}", load.pid());
    let said = ["exists, but /proc does not show it", "hidepid", "Run as root"];
    place.assert_refused(hidden(), &[&pid, "--look", "smaps"], &said);
    place.assert_refused(
        hidden(),
        &["--pid=2147483647", "--look", "smaps"],
        &["there is no process"],
    );
}

#[test]
fn missing_features_are_reported_or_replaced() {
    needs_root!();
    let place = Place::new();
    // A process of the same user, without any capability, and without each required one.
    let own = ["--", "sleep", "1"];
    place.assert_reported(|| place.by_nobody(&[]), &own, "CAP_BPF", "run as root");
    for (lacking, rest) in [
        ("CAP_BPF", ["perfmon", "sys_nice"]),
        ("CAP_PERFMON", ["bpf", "sys_nice"]),
        ("CAP_SYS_NICE", ["bpf", "perfmon"]),
    ] {
        place.assert_reported(|| place.by_nobody(&rest), &own, lacking, "run as root");
    }
}

/// A target that runs as root since its exec ended the recording of all.
#[test]
fn a_process_that_becomes_unwatchable_ends_nothing() {
    needs_root!();
    let place = Place::new();
    let elevated = place.dir.path().join("elevated");
    fs::copy("/bin/sleep", &elevated).unwrap();
    fs::set_permissions(&elevated, fs::Permissions::from_mode(0o4755)).unwrap();
    let script = format!("sleep 5 & sleep 1; exec {} 3", elevated.display());
    let mut command = place.by_nobody(&[]);
    command.args(["record", "-o", "b.rec", "--look", "smaps", "--aggr", "500ms"]);
    command.args(["--duration", "4s", "--", "sh", "-c", &script]);
    let done = finish(command.current_dir(place.output()));
    assert_eq!(done.status, 0, "{}", done.err);
    let last = Record::read(&place.output().join("b.rec")).snapshots.pop().unwrap();
    assert!(last.targets.len() >= 2, "{}: {last:?}", done.err);
}

#[test]
fn a_kernel_without_btf_is_reported_or_replaced() {
    needs_root!();
    let place = Place::new();
    let hidden = || {
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "sh",
            "-c",
            "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"",
            "sh",
        ]);
        command.arg(env!("CARGO_BIN_EXE_isotherm")).stdin(Stdio::null());
        command
    };
    assert!(Path::new("/sys/kernel/btf/vmlinux").exists());
    let load = Load::start(16, 4);
    let pid = format!("--pid={}", load.pid());
    place.assert_reported(hidden, &[&pid], "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF");
}
