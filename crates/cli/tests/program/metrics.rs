//! Metrics, as other software reads them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::python::python_with;
use crate::reclaim::Service;
use crate::run::{Recorder, needs_root, root_or_skip, run_in, until};
use crate::schemes::swapped;

/// Prints the samples of a text as JSON: name, labels, value.
const SCRIPT: &str = r#"
import json, sys
if sys.argv[2] == "openmetrics":
    from prometheus_client.openmetrics.parser import text_fd_to_metric_families as parse
else:
    from prometheus_client.parser import text_fd_to_metric_families as parse
with open(sys.argv[1], newline="\n") as file:
    families = list(parse(file))
names = [family.name for family in families]
assert len(names) == len(set(names)), names
assert all(family.documentation and family.type != "unknown" for family in families), names
print(json.dumps([[s.name, s.labels, s.value] for family in families for s in family.samples]))
"#;

/// The samples that an independent parser finds in a text.
struct Samples(Vec<Value>);

impl Samples {
    fn parse(python: &Path, text: &str, form: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("metrics");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(python);
        let out = command.args(["-c", SCRIPT]).arg(&file).arg(form).output().unwrap();
        assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
        Samples(serde_json::from_slice(&out.stdout).unwrap())
    }

    /// The sum of all samples with a name and these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |s: &Value| s[0] == name && labels.iter().all(|(key, value)| s[1][key] == *value);
        self.0.iter().filter(|s| has(s)).map(|s| s[2].as_f64().unwrap()).sum()
    }
}

/// A port that was free just now.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The head of an answer, and its body.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

const OPEN: &str =
    "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
const PLAIN: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn metrics_agree_with_status_in_an_official_parser() {
    const NAME: &str = "metrics_agree_with_status_in_an_official_parser";
    if !root_or_skip(NAME) {
        return;
    }
    let Some(python) = python_with("prometheus_client", "prometheus-client") else { return };
    let load = Load::start(48, 8);
    let (pid, port) = (load.pid().to_string(), free_port());
    let service = Service::working(&["--pid", &pid, "--dry-run", "--metrics", &port]);
    let read = |request: &str, form| {
        let (head, text) = ask(&port, request);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", text.len())), "{head}");
        Samples::parse(&python, &text, form)
    };
    let of = [("pid", pid.as_str())];
    let is_told = || {
        let all = read(OPEN, "openmetrics");
        all.sum("isotherm_process_memory_bytes", &[of[0], ("state", "hot")]) >= 7.0 * MIB as f64
            && all.sum("isotherm_scheme_applied_bytes_total", &[("scheme", "reclaim")]) > 0.0
    };
    until("metrics", is_told);
    for (request, form) in [(OPEN, "openmetrics"), (PLAIN, "prometheus")] {
        let all = read(request, form);
        let resident = all.sum("isotherm_process_resident_bytes", &of);
        assert!(resident >= 48.0 * MIB as f64, "{resident}");
        for scope in ["isotherm_process", "isotherm"] {
            let states = all.sum(&format!("{scope}_memory_bytes"), &[]);
            let off = (states - resident).abs();
            assert!(off <= resident * 0.01, "{scope}: {states} of {resident}");
        }
        // It is in a group, and each group is reported completely.
        let cgroup = all.0.iter().find(|s| s[0] == "isotherm_process_resident_bytes").unwrap();
        let cgroup = cgroup[1]["cgroup"].as_str().unwrap_or_default();
        if !cgroup.is_empty() {
            for path in ["/", cgroup] {
                let reported = all.sum("isotherm_cgroup_resident_bytes", &[("cgroup", path)]);
                assert_eq!(reported, resident, "{path}");
            }
        }
        assert_eq!(all.sum("isotherm_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
        assert!(all.sum("isotherm_cpu_seconds_total", &[]) > 0.0);
        assert!(all.sum("isotherm_targets", &[]) >= 1.0);
    }
    assert_eq!(service.status()["targets"][0]["pid"].to_string(), pid);
}

/// Each of these clients would stop a server that waits for it, or get too much.
#[test]
fn bad_clients_of_the_port_are_harmless() {
    needs_root!();
    let load = Load::start(16, 4);
    let (pid, port) = (load.pid().to_string(), free_port());
    let service = Service::working(&["--pid", &pid, "--dry-run", "--metrics", &port]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        ("hot and cold\r\n\r\n", "400"),
        ("\u{0}\u{1}\r\n\r\n", "400"),
    ] {
        let (head, _) = ask(&port, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {head}");
    }
    let at = port.rsplit(':').next().unwrap();
    for (host, status) in [("a.example", "403"), ("localhost", "200"), ("127.0.0.1", "200")] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}:{at}\r\n\r\n");
        let (head, _) = ask(&port, &request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {head}");
    }
    let head = ask(&port, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.0.starts_with("HTTP/1.1 200") && head.1.is_empty(), "{head:?}");
    // Clients that send nothing, half a request, an endless one, or do not read the answer: all connections
    // are in use.
    let connect = || TcpStream::connect(&port).unwrap();
    let silent: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
    for mut half in &silent[..2] {
        half.write_all(b"GET /metr").unwrap();
    }
    let mut endless = connect();
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    let deaf: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    for mut one in &deaf {
        let _ = one.write_all(PLAIN.as_bytes());
    }
    assert_eq!(service.status()["pid"], service.child.id(), "the other socket answers meanwhile");
    let (head, _) = ask(&port, PLAIN);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop((silent, endless, deaf));
}

#[test]
fn a_file_is_written_whole_and_goes_with_its_writer() {
    needs_root!();
    let Some(python) = python_with("prometheus_client", "prometheus-client") else { return };
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let options = ["--pid", &pid, "--metrics", "m.prom", "--metrics-every", "1s"];
    let mut service = Service::working(&[&options[..], &["--dry-run"]].concat());
    let mut recorder = Recorder::recording(&options);
    let files = [service.dir.path().join("m.prom"), recorder.dir().join("m.prom")];
    for file in &files {
        let text = || fs::read_to_string(file).unwrap();
        until("figures", || text().contains("isotherm_process_resident_bytes{"));
        let all = Samples::parse(&python, &text(), "prometheus");
        assert!(all.sum("isotherm_process_resident_bytes", &[("pid", &pid)]) >= 16.0 * MIB as f64);
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "node_exporter runs as another user");
        let beside = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
        let parts = beside.filter(|f| f.file_name().to_string_lossy().starts_with(".tmp")).count();
        assert!(parts <= 1, "{parts} files are left over");
    }
    assert_eq!(service.end(Signal::TERM), Some(0));
    recorder.stop();
    assert!(files.iter().all(|file| !file.exists()));
    let args = ["record", "--pid", &pid, "--metrics", "no/m.prom"];
    let nowhere = run_in(service.dir.path(), &args);
    assert_eq!(nowhere.status, 1);
    assert!(nowhere.err.contains("cannot write the metrics no/m.prom"), "{}", nowhere.err);
}

#[test]
fn public_addresses_are_refused() {
    let dir = TempDir::new().unwrap();
    for (to, said) in [
        ("0.0.0.0:9100", "can be reached from outside"),
        ("[::]:9100", "can be reached from outside"),
        ("metrics.txt", "name a file that ends in .prom"),
    ] {
        let refused = run_in(dir.path(), &["record", "--all", "--metrics", to]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(refused.err.contains(said), "{to}: {}", refused.err);
    }
    let often = ["record", "--all", "--metrics", "m.prom", "--metrics-every", "10ms"];
    assert!(run_in(dir.path(), &often).err.contains("write 1s or more"));
}

/// By all three sources: the metrics, `status`, and the kernel.
#[test]
fn saved_and_refaulted_memory_is_in_the_metrics() {
    const NAME: &str = "saved_and_refaulted_memory_is_in_the_metrics";
    if !root_or_skip(NAME) {
        return;
    }
    let Some(_alone) = Alone::with_swap(128) else { return };
    let mut load = Load::start(48, 8);
    let (pid, port) = (load.pid().to_string(), free_port());
    let service = Service::working(&["--pid", &pid, "--quota", "none", "--metrics", &port]);
    let reported = |name: &str| {
        let text = ask(&port, PLAIN).1;
        let of = format!("pid=\"{pid}\"");
        let line = text.lines().find(|line| line.starts_with(name) && line.contains(&of));
        let value =
            line.and_then(|line| line.rsplit(' ').next()).map(|n| n.parse::<f64>().unwrap());
        value.unwrap_or_default()
    };
    let saved = || service.status()["total"]["saved"].as_u64().unwrap();
    until("what is saved", || saved() >= 36 * MIB);
    service.asked(&["pause"]);
    let in_swap = swapped(load.pid());
    let near = |n: f64| (n - in_swap as f64).abs() <= MIB as f64;
    until("the same by status", || near(saved() as f64));
    until("the same by metrics", || near(reported("isotherm_process_saved_bytes")));
    let before = reported("isotherm_process_refaults_total");
    load.touch(AddrRange::new(load.memory.end - 8 * MIB, load.memory.end));
    let back = (in_swap - swapped(load.pid())) as f64 / PAGE_SIZE as f64;
    assert!(back >= 512.0, "{back} pages were in swap");
    let refaults = || reported("isotherm_process_refaults_total") - before;
    until("what was waited for", || refaults() >= back / 2.0);
}
