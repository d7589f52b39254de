//! The browser view, asked as a browser does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use isotherm::control::snapshots;
use isotherm_core::Nanos;
use isotherm_record::Event;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::kill_on_drop::KillOnDrop;
use crate::load::Load;
use crate::run::{TIMEOUT, isotherm, needs_root, run_in, services, until, wait};
use crate::synthetic;

struct Web {
    child: KillOnDrop,
    port: u16,
    token: String,
}

impl Web {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = isotherm([&["web"], args].concat());
        let mut child = command.current_dir(dir).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = rest.split_once("/?token=").unwrap();
        Web { child: KillOnDrop(child), port: port.parse().unwrap(), token: token.to_owned() }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (port, token) = (self.port, &self.token);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        head.starts_with("HTTP/1.1 200").then(|| serde_json::from_str(body).unwrap())
    }

    fn state(&self) -> Value {
        self.get("/api/state").unwrap()
    }

    /// Ends it, and returns its exit status.
    fn end(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).unwrap();
        wait(&mut self.child).code()
    }
}

#[test]
fn two_records_are_shown_side_by_side() {
    let dir = TempDir::new().unwrap();
    synthetic::write(&dir.path().join("a.rec"), 30);
    synthetic::write(&dir.path().join("b.rec"), 20);
    let web = Web::start(dir.path(), &["a.rec", "--compare", "b.rec"]);
    until("all of both records", || {
        web.state()["sources"].as_array().unwrap().iter().all(|s| s["complete"] == true)
    });
    let state = web.state();
    assert_eq!(
        (&state["sources"][0]["snapshots"], &state["sources"][1]["snapshots"]),
        (&30.into(), &20.into())
    );
    for source in 0..2 {
        let axis = web.get(&format!("/api/source/{source}/axis?target=0")).unwrap();
        assert_eq!(axis["areas"][0]["start"], "0x10000000");
        let point =
            web.get(&format!("/api/source/{source}/point?target=0&ms=900&byte=4096")).unwrap();
        assert_eq!((&point["mapping"], point["from_ms"].as_f64()), (&"[heap]".into(), Some(800.0)));
    }
    assert_eq!(web.end(), Some(0));
}

#[test]
fn a_live_process_is_shown_and_its_end_too() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let mut load = Load::start(64, 16);
    let web = Web::start(dir.path(), &["--pid", &load.pid().to_string()]);
    until("hot memory", || {
        let rows = web.get("/api/source/0/table?ms=1e12").unwrap_or_default();
        rows[0]["hot"].as_u64() > Some(12 << 20) && rows[0]["pid"] == load.pid()
    });
    load.end(0);
    until("the end of the load", || web.state()["sources"][0]["complete"] == true);
    assert!(web.get("/api/source/0/axis?target=0").is_some(), "the page stays");
    assert_eq!(web.end(), Some(0));
}

/// The time of the snapshots that a service keeps, in ms.
fn kept_ms(socket: &Path) -> u64 {
    let (mut first, mut last) = (None, Nanos(0));
    let asked = snapshots(Some(socket), None, |events| {
        for event in events {
            let Event::Snapshot(s) = event else { continue };
            assert!(s.start >= last, "{:?} after {last:?}", s.start);
            first.get_or_insert(s.start);
            last = s.end;
        }
    });
    asked.map_or(0, |_| last.since(first.unwrap_or(last)).as_millis() as u64)
}

/// Two processes: their attributions are read at different times.
#[test]
fn a_recorder_is_shown_by_its_socket_from_its_start() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let (load, other) = (Load::start(64, 16), Load::start(8, 1));
    let pids = [load.pid().to_string(), other.pid().to_string()];
    let mut recorder =
        isotherm(["record", "--pid", &pids[0], "--pid", &pids[1], "--control", "socket"]);
    let mut recorder = recorder.current_dir(dir.path()).stderr(Stdio::null()).spawn().unwrap();
    until("a history", || kept_ms(&dir.path().join("socket")) > 5000);
    let web = Web::start(dir.path(), &["--service", "--control", "socket"]);
    let span_ms = || web.state()["sources"][0]["span_ms"].as_f64().unwrap_or(0.0);
    until("snapshots", || span_ms() > 0.0);
    assert!(span_ms() > 5000.0, "{} ms", span_ms());
    until("memory by process and by group", || {
        let of =
            |by: &str| web.get(&format!("/api/source/0/table?ms=1e12&by={by}")).unwrap_or_default();
        of("process")[0]["hot"].as_u64() > Some(12 << 20) && of("cgroup")[0]["processes"] == 2
    });
    assert_eq!(web.end(), Some(0));
    kill_process(Pid::from_child(&recorder), Signal::INT).unwrap();
    assert!(wait(&mut recorder).success());
}

/// Marks are of what schemes did since the page was there.
#[test]
fn a_service_is_shown_with_what_its_schemes_do() {
    needs_root!();
    let (dir, mut load) = (TempDir::new().unwrap(), Load::start(64, 16));
    for (mut service, acts) in services(dir.path(), load.pid()) {
        let web = Web::start(dir.path(), &["--service", "--control", "c/sock"]);
        until("hot memory", || {
            let rows = web.get("/api/source/0/table?ms=1e12").unwrap_or_default();
            rows[0]["hot"].as_u64() > Some(12 << 20) && rows[0]["pid"] == load.pid()
        });
        let marks = || web.get("/api/source/0/marks").unwrap();
        // The service may already have reclaimed all idle memory. What is touched now becomes idle again.
        load.touch(load.memory);
        if acts {
            until("a mark", || marks()[0]["bytes"].as_u64() > Some(0));
        }
        assert_eq!(marks().as_array().unwrap().is_empty(), !acts);
        assert_eq!(web.end(), Some(0));
        kill_process(Pid::from_child(&service), Signal::INT).unwrap();
        assert!(wait(&mut service).success());
    }
}

#[test]
fn it_says_what_is_missing() {
    let dir = TempDir::new().unwrap();
    synthetic::write(&dir.path().join("a.rec"), 3);
    for (args, status, text) in [
        (&["web"][..], 2, "nothing to show"),
        (&["web", "none.rec"], 1, "none.rec"),
        (&["web", "a.rec", "--log", "none.jsonl"], 1, "none.jsonl"),
        (&["web", "a.rec", "--log", "."], 1, "cannot open the log ."),
        (&["web", "--log", "a"], 2, "FILE"),
        (&["web", "--service", "--log", "a"], 2, "cannot be used with"),
        (&["web", "--pid", "1", "--skip-damaged"], 2, "cannot be used with"),
        (&["web", "a.rec", "--listen", "7777"], 2, "write 127.0.0.1:7777"),
        (&["web", "--control", "none"], 1, "no service listens"),
        (&["web", "a.rec", "--pid", "1"], 2, "cannot be used with"),
        (&["web", "a.rec", "--control", "none"], 2, "cannot be used with"),
        (&["web", "a.rec", "--tls-cert", "c"], 2, "--tls-key"),
        (&["web", "a.rec", "--host", "box.example:7777"], 2, "without a port"),
    ] {
        let done = run_in(dir.path(), args);
        assert!(
            done.status == status && done.err.contains(text),
            "{args:?}: {} {}",
            done.status,
            done.err
        );
    }
    let done = run_in(dir.path(), &["web", "a.rec", "--listen", "0.0.0.0:0"]);
    assert!(done.status == 1 && done.err.contains("--tls-cert"), "{}", done.err);
    let tls = ["--tls-cert", "c", "--tls-key", "k"];
    let done = run_in(dir.path(), &[&["web", "a.rec", "--listen", "0.0.0.0:0"][..], &tls].concat());
    assert!(done.status == 1 && done.err.contains("--host"), "{}", done.err);
}
