//! Requests to the server of `isotherm web`.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use isotherm_core::Thresholds;
use isotherm_record::Reader;
use isotherm_view::Index;
use isotherm_view::index::IndexLimits;
use isotherm_view::pyramid::Retention;
use isotherm_web::{ListenOptions, PageSource, Server, SourceKind};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::bounded_with_threads;

const RECORD: &[u8] = include_bytes!("../../crates/record/tests/record/stored/version-6.isotherm");

/// A server of one record.
struct Site {
    _server: Server,
    _changes: watch::Sender<u64>,
    _dir: TempDir,
    address: SocketAddr,
    token: String,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    fs::write(&path, RECORD).unwrap();
    let limits = IndexLimits {
        retention: Retention::Evenly,
        memory: 4 << 20,
        ring: 1 << 20,
        bridge: false,
        thresholds: Thresholds::default(),
    };
    let record = Some((path, false));
    let source =
        Arc::new(PageSource::new(SourceKind::Record, "a.rec".into(), record, Index::new(limits)));
    for event in Reader::new(Cursor::new(RECORD), Path::new("a.rec")).unwrap() {
        source.change().push(event.unwrap());
    }
    source.end("");
    let (changes, changed) = watch::channel(0);
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ListenOptions { listen, tls: None, hosts: Vec::new() };
    let server = Server::start(&options, vec![source], changed).unwrap();
    let (address, token) = server.address().split_once("/?token=").unwrap();
    let address = address.strip_prefix("http://").unwrap().parse().unwrap();
    let token = token.to_owned();
    Site { _server: server, _changes: changes, _dir: dir, address, token }
});

/// Sends the input twice: as it is, and as the path of a request with the token. Each answer must be one of HTTP, and
/// no path may make an error of the server.
pub fn web_requests(bytes: &[u8]) -> bool {
    bounded_with_threads(|| answers(bytes))
}

fn answers(bytes: &[u8]) -> bool {
    let answer = exchange(bytes, Ends::Now);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", shown(&answer));
    // A stream of events does not end.
    let path: Vec<u8> = bytes.iter().copied().filter(|byte| (33..127).contains(byte)).collect();
    if path.windows(6).any(|part| part == b"events") {
        return true;
    }
    let (host, token) = (SITE.address, &SITE.token);
    let head = format!(
        " HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(&[b"GET /", &path[..], head.as_bytes()].concat(), Ends::ByServer);
    let status = answer.get(9..12).unwrap_or_default();
    assert!(answer.starts_with(b"HTTP/1.1 ") && status != b"500", "{}", shown(&answer));
    true
}

/// Who ends a connection. A server may drop a request whose client has ended it.
#[derive(PartialEq)]
enum Ends {
    Now,
    ByServer,
}

/// Sends bytes, and returns the answer.
fn exchange(bytes: &[u8], ends: Ends) -> Vec<u8> {
    let mut stream = TcpStream::connect(SITE.address).unwrap();
    // A server that refuses may close before it has read everything.
    let _ = stream.write_all(bytes);
    if ends == Ends::Now {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn shown(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(500)]).into_owned()
}
