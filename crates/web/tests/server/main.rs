//! The server, asked by raw requests.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests, and what helps them")]

#[path = "../scene/mod.rs"]
mod scene;

mod answers;
mod attacks;
mod records;
mod tls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::scene::Scene;

/// No step takes as long as this.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

pub fn connect(scene: &Scene) -> TcpStream {
    connect_to(scene.address().0)
}

fn connect_to(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends bytes, and reads until the server closes.
pub fn raw(scene: &Scene, request: &[u8]) -> Answer {
    send(connect(scene), request)
}

fn send(mut stream: TcpStream, request: &[u8]) -> Answer {
    // A server that refuses may close before it has read everything.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
    Answer { status, head, body }
}

/// A GET request with these headers in addition to Host.
pub fn get(scene: &Scene, path: &str, headers: &str) -> Answer {
    get_at(scene.address().0, path, headers)
}

fn get_at(port: u16, path: &str, headers: &str) -> Answer {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}\r\n"
    );
    send(connect_to(port), request.as_bytes())
}

/// The header of a script that knows the token.
pub fn bearer(scene: &Scene) -> String {
    format!("Authorization: Bearer {}\r\n", scene.address().1)
}

/// A GET request with the token.
pub fn ask(scene: &Scene, path: &str) -> Answer {
    get(scene, path, &bearer(scene))
}

/// The same of a server with this printed address.
pub fn ask_at(address: &str, path: &str) -> Answer {
    let rest = address.strip_prefix("http://127.0.0.1:").unwrap();
    let (port, token) = rest.split_once("/?token=").unwrap();
    get_at(port.parse().unwrap(), path, &format!("Authorization: Bearer {token}\r\n"))
}
