//! `isotherm top`, in a real terminal: that of tmux.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{Record, has_or_skip, needs_root, run_in, services, until, until_or, wait};

/// ssh requires the full path of its server.
const SSHD: &str = "/usr/sbin/sshd";

/// Whether these programs are installed.
fn installed_or_skip(test: &str, programs: &[&str]) -> bool {
    let is_here = |p: &&str| Command::new(p).arg("-V").output().is_ok();
    let missing: Vec<_> = programs.iter().filter(|p| !is_here(p)).collect();
    has_or_skip(missing.is_empty(), test, format_args!("{missing:?}"))
}

/// A terminal of 80 x 24 with a shell, in a server of its own.
struct Tmux {
    dir: TempDir,
}

impl Tmux {
    fn start() -> Self {
        let tmux = Tmux { dir: TempDir::new().unwrap() };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "exec sh"]);
        tmux.keys(&["PS1='end:$?$ '", "Enter"]);
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let socket = self.dir.path().join("tmux");
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env_remove("NO_COLOR").env("SHELL", "/bin/sh");
        let out = command.arg("-S").arg(socket).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Starts `isotherm top` with these options in the shell.
    fn top(&self, environment: &str, options: &str) {
        let program = env!("CARGO_BIN_EXE_isotherm");
        let dir = self.dir.path().display();
        self.keys(&[&format!("clear; cd {dir}; {environment} {program} top {options}"), "Enter"]);
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until the screen has all these words.
    fn shows(&self, words: &[&str]) {
        until_or(
            || format!("{words:?} do not come on the screen:\n{}", self.screen()),
            || {
                let screen = self.screen();
                words.iter().all(|word| screen.contains(word))
            },
        );
    }

    /// The terminal is as it was: its own screen, with a cursor and an echo.
    fn is_restored(&self, status: i32) {
        self.shows(&[&format!("end:{status}$")]);
        let flags = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1");
        self.keys(&["echo $((40+2))x", "Enter"]);
        self.shows(&["echo $((40+2))x", "\n42x"]);
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The pid of isotherm in the shell.
    fn pid(&self) -> Pid {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let pid = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Pid::from_raw(pid).unwrap()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.dir.path().join("tmux");
        let mut command = Command::new("tmux");
        command.arg("-S").arg(socket).arg("kill-server").stderr(Stdio::null());
        let _ = command.status();
    }
}

/// A table, the page of the process, a record of what was shown, and the terminal as it was before.
#[test]
fn a_process_is_shown_and_saved() {
    needs_root!();
    if !installed_or_skip("a_process_is_shown_and_saved", &["tmux"]) {
        return;
    }
    let (load, tmux) = (Load::start(32, 8), Tmux::start());
    tmux.top("COLORTERM=truecolor", &format!("--pid {} --refresh 200ms", load.pid()));
    tmux.shows(&["1 proc", "NAME", &load.pid().to_string(), "hot from 10 Hz"]);
    until("hot memory", || !tmux.screen().contains("hot 0 "));
    tmux.keys(&["Enter"]);
    tmux.shows(&["MAPPING", "IDLE FOR", "▀", "now"]);
    let colors = tmux.run(&["capture-pane", "-e", "-p"]);
    assert!(colors.contains("38;2;"), "{colors}");
    tmux.run(&["resize-window", "-x", "120", "-y", "40"]);
    until("a wider screen", || tmux.screen().lines().any(|line| line.chars().count() > 100));
    tmux.run(&["resize-window", "-x", "30", "-y", "8"]);
    tmux.shows(&["the terminal is smaller"]);
    tmux.run(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.keys(&["w"]);
    tmux.shows(&["save to: isotherm.rec_"]);
    tmux.keys(&["Enter"]);
    tmux.shows(&["saved ", "isotherm.rec"]);
    tmux.keys(&["?"]);
    tmux.shows(&["select a row", "Ctrl-C"]);
    tmux.keys(&["qq"]);
    tmux.is_restored(0);
    let record = Record::read(&tmux.path().join("isotherm.rec"));
    assert!(!record.snapshots.is_empty());
    let done = run_in(tmux.path(), &["record", "--check", "isotherm.rec"]);
    assert_eq!(done.status, 0, "{}", done.err);
}

/// A signal restores the terminal too; so does the end of the watched process, after q.
#[test]
fn a_signal_restores_the_terminal() {
    needs_root!();
    if !installed_or_skip("a_signal_restores_the_terminal", &["tmux"]) {
        return;
    }
    let (load, tmux) = (Load::start(16, 4), Tmux::start());
    tmux.top("", &format!("--pid {}", load.pid()));
    tmux.shows(&["NAME", "live"]);
    kill_process(tmux.pid(), Signal::TERM).unwrap();
    tmux.is_restored(0);
    tmux.top("", &format!("--pid {}", load.pid()));
    tmux.shows(&["NAME", "live"]);
    drop(load);
    tmux.shows(&["ENDED: all processes have ended"]);
    tmux.keys(&["q"]);
    tmux.is_restored(0);
}

#[test]
fn the_end_of_the_terminal_ends_it() {
    needs_root!();
    if !installed_or_skip("the_end_of_the_terminal_ends_it", &["tmux"]) {
        return;
    }
    let (load, tmux) = (Load::start(16, 4), Tmux::start());
    tmux.top("", &format!("--pid {}", load.pid()));
    tmux.shows(&["NAME", "live"]);
    let process = format!("/proc/{}", tmux.pid().as_raw_nonzero());
    tmux.run(&["kill-server"]);
    until("the end of isotherm", || !Path::new(&process).exists());
}

/// A terminal without tmux in between, so that a key and a new size can come at the same time.
struct Pty {
    ours: File,
    seen: Vec<u8>,
}

impl Pty {
    /// Runs a program in a new terminal.
    fn run(program: &mut Command) -> (Self, Child) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let mut options = File::options();
        // Else it could become the terminal of the test itself.
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let theirs = options.open(name.to_str().unwrap()).unwrap();
        let mut pty = Pty { ours: ours.into(), seen: Vec::new() };
        pty.resize(80);
        program.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap());
        let child = program.stderr(theirs).spawn().unwrap();
        (pty, child)
    }

    fn resize(&mut self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.ours, size).unwrap();
    }

    /// Presses a key and waits until the program has written this text.
    fn key(&mut self, key: u8, text: &str) {
        self.ours.write_all(&[key]).unwrap();
        self.shows(text);
    }

    /// Waits until the program has written this text since the last one.
    fn shows(&mut self, text: &str) {
        until(text, || {
            let (mut bytes, second) = ([0; 4096], Timespec { tv_sec: 1, tv_nsec: 0 });
            if poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&second)).unwrap() == 1 {
                let read = self.ours.read(&mut bytes).unwrap();
                self.seen.extend(&bytes[..read]);
            }
            String::from_utf8_lossy(&self.seen).contains(text)
        });
        self.seen.clear();
    }
}

/// A key that comes together with a new size counts at once, not with the next key.
#[test]
fn keys_count_while_the_size_changes() {
    needs_root!();
    let load = Load::start(16, 4);
    // setsid gives the terminal to the program, so that the kernel tells it of a new size.
    let mut program = Command::new("setsid");
    program.args([
        "--ctty",
        env!("CARGO_BIN_EXE_isotherm"),
        "top",
        "--pid",
        &load.pid().to_string(),
    ]);
    let (mut pty, mut child) = Pty::run(&mut program);
    pty.shows("live");
    for round in 0..40 {
        pty.resize(81 + round % 2);
        pty.key(b'?', "PgUp");
        pty.key(b'x', "NAME");
    }
    pty.ours.write_all(b"q").unwrap();
    assert!(wait(&mut child).success());
}

/// Over ssh, which passes the size and the kind of the terminal, but not `COLORTERM`: 256 colours. The server serves
/// one connection on pipes, so that it needs no port.
#[test]
fn it_works_over_ssh() {
    needs_root!();
    if !installed_or_skip("it_works_over_ssh", &["tmux", "ssh", SSHD]) {
        return;
    }
    // Without PAM, an account whose password begins with ! has no access.
    let is_locked = fs::read_to_string("/etc/shadow").unwrap().contains("root:!");
    if !has_or_skip(!is_locked, "it_works_over_ssh", "an account of root that is not locked") {
        return;
    }
    // which the server requires, and its unit would make
    fs::create_dir_all("/run/sshd").unwrap();
    let (load, tmux) = (Load::start(32, 8), Tmux::start());
    let key = tmux.path().join("key");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    assert!(keygen.status().unwrap().success());
    let server =
        "HostKey key\nAuthorizedKeysFile key.pub\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n";
    let here = tmux.path().display();
    let server = server.replace("key", &format!("{here}/key"));
    fs::write(tmux.path().join("sshd"), server).unwrap();
    let client = format!(
        "IdentityFile {here}/key\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n\
         ProxyCommand {SSHD} -i -f {here}/sshd\n"
    );
    fs::write(tmux.path().join("ssh"), client).unwrap();
    let (program, pid) = (env!("CARGO_BIN_EXE_isotherm"), load.pid());
    let command = format!("cd {here}; ssh -t -F ssh root@here {program} top --pid {pid}");
    tmux.keys(&[&format!("clear; {command}"), "Enter"]);
    tmux.shows(&["1 proc", "NAME", &pid.to_string()]);
    until("hot memory", || !tmux.screen().contains("hot 0 "));
    tmux.keys(&["Enter"]);
    tmux.shows(&["MAPPING", "▀"]);
    let colors = tmux.run(&["capture-pane", "-e", "-p"]);
    assert!(colors.contains("38;5;") && !colors.contains("38;2;"), "{colors}");
    tmux.run(&["resize-window", "-x", "120", "-y", "40"]);
    until("a wider screen", || tmux.screen().lines().any(|line| line.chars().count() > 100));
    tmux.keys(&["q"]);
    tmux.is_restored(0);
}

/// A record is played without root and without colours.
#[test]
fn a_record_is_played_without_colours() {
    needs_root!();
    if !installed_or_skip("a_record_is_played_without_colours", &["tmux"]) {
        return;
    }
    let (load, tmux) = (Load::start(32, 8), Tmux::start());
    let pid = load.pid().to_string();
    let recorded =
        run_in(tmux.path(), &["record", "--pid", &pid, "--duration", "8s", "-o", "a.rec"]);
    assert_eq!(recorded.status, 0, "{}", recorded.err);
    drop(load);
    tmux.top("NO_COLOR=1", "--replay a.rec --speed 20x --refresh 100ms");
    tmux.shows(&["ENDED: the record has ended", &pid]);
    tmux.keys(&["Enter"]);
    tmux.shows(&["not touched, 0.1 to 1000 Hz"]);
    let screen = tmux.run(&["capture-pane", "-e", "-p"]);
    // Attributes such as underlining are no colours, and 39 and 49 reset them.
    let colors = |c: u32| (30..39).contains(&c) || (40..49).contains(&c) || (90..108).contains(&c);
    let codes = screen.split("\x1b[").skip(1).filter_map(|code| code.split('m').next());
    let mut codes = codes.flat_map(|code| code.split(';')).filter_map(|code| code.parse().ok());
    assert!(!codes.any(colors), "{screen}");
    tmux.keys(&["q"]);
    tmux.is_restored(0);
    tmux.top("", "--replay none.rec");
    tmux.shows(&["none.rec", "end:1$"]);
}

/// Commands with a socket show the same processes to the view.
#[test]
fn a_service_is_shown() {
    needs_root!();
    if !installed_or_skip("a_service_is_shown", &["tmux"]) {
        return;
    }
    let (load, tmux) = (Load::start(32, 8), Tmux::start());
    for (mut service, _) in services(tmux.path(), load.pid()) {
        tmux.top("", "--service --control c/sock");
        tmux.shows(&["1 proc", &load.pid().to_string()]);
        until("hot memory", || !tmux.screen().contains("hot 0 "));
        tmux.keys(&["Enter"]);
        tmux.shows(&["MAPPING", "▀"]);
        let stopped = run_in(tmux.path(), &["service", "stop", "--control", "c/sock"]);
        assert_eq!(stopped.status, 0, "{}", stopped.err);
        wait(&mut service);
        tmux.shows(&["ENDED: the service has ended"]);
        tmux.keys(&["C-c"]);
        tmux.is_restored(0);
    }
}

#[test]
fn it_requires_a_terminal_and_something_to_show() {
    let dir = TempDir::new().unwrap();
    let wrong = run_in(dir.path(), &["top"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.err.contains("--replay FILE"), "{}", wrong.err);
    let wrong = run_in(dir.path(), &["top", "--replay", "a.rec", "--speed", "0x"]);
    assert_eq!(wrong.status, 2, "{}", wrong.err);
    for ignored in [
        &["top", "--replay", "a.rec", "--children"] as &[&str],
        &["top", "--replay", "a.rec", "--", "./app"],
        &["top", "--service", "--except-comm", "a"],
        &["top", "--pid", "1", "--speed", "4x"],
        &["top", "--control", "none", "--speed", "4x"],
    ] {
        let wrong = run_in(dir.path(), ignored);
        assert!(wrong.status == 2 && wrong.err.contains("cannot be used with"), "{}", wrong.err);
    }
    let missing = run_in(dir.path(), &["top", "--replay", "a.rec"]);
    assert!(missing.status == 1 && missing.err.contains("a.rec"), "{}", missing.err);
    let nobody = run_in(dir.path(), &["top", "--control", "none"]);
    assert!(nobody.status == 1 && nobody.err.contains("no service listens"), "{}", nobody.err);
}
