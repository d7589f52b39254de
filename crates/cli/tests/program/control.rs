//! The control socket, and clients that misbehave.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::load::{Load, MIB};
use crate::reclaim::Service;
use crate::run::{TIMEOUT, copy_program, finish, needs_root, run_in, until};

#[test]
fn a_socket_has_one_service() {
    needs_root!();
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("c")).unwrap();
    // The socket of a service that has ended.
    drop(UnixListener::bind(dir.path().join("c/sock")).unwrap());
    let service = Service::start_in(dir, &["--pid", &pid, "--dry-run"], &[]);
    service.until_working();
    let mode = fs::metadata(service.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = ["reclaim", "--pid", &pid, "--dry-run", "--control", "c/sock"];
    let second = run_in(service.dir.path(), &again);
    assert_eq!(second.status, 1);
    let who = format!("process {}, which is running", service.child.id());
    assert!(second.err.contains(&who), "{}", second.err);
    assert_eq!(service.status()["pid"], service.child.id());

    let file = service.dir.path().join("c/file");
    fs::write(&file, "years of work").unwrap();
    let args = ["reclaim", "--pid", &pid, "--dry-run", "--control", "c/file"];
    let foreign = run_in(service.dir.path(), &args);
    assert!(foreign.status == 1 && foreign.err.contains("is not a socket"), "{}", foreign.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), "years of work");
}

#[test]
fn others_may_not_ask() {
    needs_root!();
    let load = Load::start(16, 4);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let folder = fs::metadata(service.dir.path().join("c")).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
    // As a user might do by mistake.
    let open = |path: &str| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for path in [service.dir.path().to_str().unwrap(), &service.socket()] {
        open(path);
    }
    open(service.dir.path().join("c").to_str().unwrap());
    let program = service.dir.path().join("isotherm");
    copy_program(env!("CARGO_BIN_EXE_isotherm"), &program);
    for _ in 0..2 {
        let mut stranger = Command::new(&program);
        stranger
            .args(["service", "stop", "--control", &service.socket()])
            .current_dir("/")
            .uid(65534)
            .gid(65534);
        let refused = finish(&mut stranger);
        assert_eq!(refused.status, 1);
        assert!(refused.err.contains("user 65534 may not send requests"), "{}", refused.err);
    }
    assert_eq!(service.status()["pid"], service.child.id());
    let reports = service.err().matches("refused a connection of user 65534 (process ").count();
    assert_eq!(reports, 1, "{}", service.err());
}

/// Each of these clients would stop a service that waits for it.
#[test]
fn bad_clients_are_harmless() {
    needs_root!();
    let load = Load::start(48, 8);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let connect = || UnixStream::connect(service.socket()).unwrap();
    let said = |bytes: &[u8]| {
        let mut stream = connect();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    for bytes in [&b"hot and cold\n"[..], b"\xff\0\n", b"{}\n", b"{\"do\":\"dance\"}\n", b"\n"] {
        let answer = said(bytes);
        assert_eq!(answer["ok"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("status, pause"), "{answer}");
    }
    // More than the limit, without an end. The answer says why the rest cannot be sent.
    let mut endless = connect();
    let _ = endless.write_all(&vec![b'x'; 3 << 20]);
    let silent: Vec<UnixStream> = (0..4).map(|_| connect()).collect();
    for mut half in &silent[..2] {
        half.write_all(b"{\"do\":\"sta").unwrap();
    }
    // Sends a request, and does not read the answer.
    let mut deaf = connect();
    for _ in 0..1000 {
        let _ = deaf.write(b"{\"do\":\"status\"}\n").unwrap();
    }
    until("what is cold", || service.applied() >= 30 * MIB);
    // All connections are in use. They are free again after the time limits of the others.
    let many: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
    assert_eq!(service.status()["pid"], service.child.id());
    drop((many, silent, endless, deaf));
    assert_eq!(service.status()["pid"], service.child.id());
}

/// Silent clients delay no other client, whether they belong to one process or to many.
#[test]
fn silent_clients_give_way() {
    needs_root!();
    let load = Load::start(16, 4);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let silent: Vec<UnixStream> =
        (0..30).map(|_| UnixStream::connect(service.socket()).unwrap()).collect();
    let said = |stream: &UnixStream| {
        let mut answer = String::new();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    // One process may have eight connections.
    let refused = said(&silent[29]);
    assert!(refused.contains("connections open here"), "{refused}");
    assert_eq!(service.status()["pid"], service.child.id());
    let mut dropped = said(&silent[0]);
    assert!(dropped.contains("no complete request came in time"), "{dropped}");
    drop(silent);
    // Each connection belongs to another process; there are more than the limit.
    let socket = service.socket();
    let connect = "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                   print('in',flush=True)\ns.settimeout(300)\nprint(s.recv(999).decode(),flush=True)";
    let start = |_| {
        let mut command = Command::new("python3");
        command.args(["-c", connect, &socket]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (child, out)
    };
    let mut many: Vec<_> = (0..40).map(start).collect();
    assert_eq!(service.status()["pid"], service.child.id());
    dropped.clear();
    many[0].1.read_line(&mut dropped).unwrap();
    assert!(dropped.contains("closed:"), "{dropped}");
    for (child, _) in &mut many {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// For a service that has stopped, the client prints a message.
#[test]
fn a_service_that_does_not_answer_is_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let done = run_in(dir.path(), &["service", "status", "--control", "sock"]);
    assert_eq!(done.status, 1);
    let said = "has not answered within 10 s";
    assert!(done.err.contains(said) && !done.err.contains("os error"), "{}", done.err);
}
