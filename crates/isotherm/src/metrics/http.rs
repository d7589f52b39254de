//! `GET /metrics` on a loopback port.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use isotherm_core::Nanos;
use isotherm_linux::sys::read_regular;
use rustix::event::PollFd;
use rustix::system::uname;

use super::{ExpositionFormat, MetricsError};
use crate::served::{Framing, Served, Wait};

/// Maximum length of a request with all its headers, in bytes.
const MAX_REQUEST: usize = 16 << 10;

/// The port of a `Host` header that names none.
const DEFAULT_PORT: u16 = 80;
/// Maximum bytes that are read of `/etc/hosts`.
const MAX_HOSTS: u64 = 64 << 10;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// The HTTP listener. It never waits for a client, and answers each connection once.
pub struct Http {
    served: Served<TcpListener>,
    port: u16,
}

impl Http {
    pub fn open(address: SocketAddr) -> Result<Self, MetricsError> {
        let listen = |source| MetricsError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let port = listener.local_addr().map_err(listen)?.port();
        let framing = Framing { end: b"\r\n\r\n", max: MAX_REQUEST };
        let refusal = |why: &str| plain("408 Request Timeout", &format!("{why}\n")).into_bytes();
        Ok(Http { served: Served::new(listener, framing, refusal), port })
    }

    /// Answers the requests that have arrived; `text` returns the content of `/metrics`.
    pub fn answer(&mut self, mut text: impl FnMut(ExpositionFormat) -> String) {
        for (client, request) in self.served.requests() {
            let answer = match request.as_deref().map(|head| parse_request(head, self.port)) {
                Ok(HttpRequest::Metrics { form, with_body }) => {
                    metrics(form, with_body, &text(form))
                }
                Ok(HttpRequest::Foreign) => plain("403 Forbidden", FOREIGN),
                Ok(HttpRequest::Else) => plain("404 Not Found", "the metrics are at /metrics\n"),
                Ok(HttpRequest::Senseless) => {
                    plain("400 Bad Request", "this is not an HTTP/1 request\n")
                }
                Ok(HttpRequest::Method) => {
                    plain("405 Method Not Allowed", "only GET and HEAD work\n")
                }
                Err(why) => plain("431 Request Header Fields Too Large", &format!("{why}\n")),
            };
            self.served.answer(client, answer.as_bytes(), true);
        }
    }
}

impl Wait for Http {
    fn settle(&mut self, now: Nanos) -> bool {
        self.served.settle(now)
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        self.served.fds(out);
    }

    fn go_on(&mut self, ready: &[bool]) {
        if self.served.go_on(ready) {
            self.served.accept(|_| Ok(None));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HttpRequest {
    Metrics {
        form: ExpositionFormat,
        with_body: bool,
    },
    /// for a name that a web page may have rebound to this machine
    Foreign,
    Else,
    Method,
    Senseless,
}

const FOREIGN: &str = "the Host header is not a name of this machine: ask 127.0.0.1 or localhost, or add the name \
                       to /etc/hosts\n";

/// Parses the head of a request to a port.
fn parse_request(head: &[u8], port: u16) -> HttpRequest {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, version] = words[..] else { return HttpRequest::Senseless };
    if !version.starts_with("HTTP/1.") {
        return HttpRequest::Senseless;
    }
    let headers = || lines.clone().filter_map(|line| line.split_once(':'));
    let mut hosts = headers().filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let is_own = hosts.next().is_none_or(|(_, host)| is_own(host.trim(), port));
    if !is_own || hosts.next().is_some() {
        return HttpRequest::Foreign;
    }
    if !["GET", "HEAD"].contains(&method) {
        return HttpRequest::Method;
    }
    if path.split('?').next() != Some("/metrics") {
        return HttpRequest::Else;
    }
    let accepts = headers().any(|(name, value)| {
        name.eq_ignore_ascii_case("accept") && value.to_ascii_lowercase().contains(OPEN_METRICS)
    });
    let form = if accepts { ExpositionFormat::OpenMetrics } else { ExpositionFormat::Prometheus };
    HttpRequest::Metrics { form, with_body: method == "GET" }
}

/// Whether a request with this `Host` may read the metrics on a port. A page in a browser could read them if its site
/// changes the address of its name to that of this machine (DNS rebinding). Then the header has this name, and the port to
/// which the browser connects. A proxy may pass on any name, but with its own port.
fn is_own(host: &str, port: u16) -> bool {
    let (name, named_port) = match host.rsplit_once(':') {
        Some((name, digits)) if !digits.ends_with(']') => (name, digits.parse().ok()),
        _ => (host, Some(DEFAULT_PORT)),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || named_port.is_some_and(|named: u16| named != port)
        || name.eq_ignore_ascii_case(&uname().nodename().to_string_lossy())
        || is_in_hosts("/etc/hosts".as_ref(), name)
}

/// Whether the administrator has given an address to this name.
fn is_in_hosts(hosts: &Path, name: &str) -> bool {
    let text = read_regular(hosts, MAX_HOSTS).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let entries = text.lines().filter_map(|line| line.split('#').next());
    let mut names = entries.flat_map(|entry| entry.split_whitespace().skip(1));
    names.any(|known| known.eq_ignore_ascii_case(name))
}

fn metrics(form: ExpositionFormat, with_body: bool, text: &str) -> String {
    let kind = match form {
        ExpositionFormat::OpenMetrics => {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        }
        ExpositionFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
    };
    response("200 OK", kind, text.len()) + if with_body { text } else { "" }
}

fn plain(status: &str, text: &str) -> String {
    response(status, "text/plain; charset=utf-8", text.len()) + text
}

fn response(status: &str, kind: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        let metrics = |form, with_body| HttpRequest::Metrics { form, with_body };
        let ask = |head: &str| parse_request(head.as_bytes(), 9477);
        let plain = metrics(ExpositionFormat::Prometheus, true);
        assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), plain);
        assert_eq!(ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), plain);
        let open = "HEAD /metrics HTTP/1.1\r\naccept: Application/OpenMetrics-Text;q=0.5\r\n\r\n";
        assert_eq!(ask(open), metrics(ExpositionFormat::OpenMetrics, false));
        assert_eq!(ask("GET / HTTP/1.1\r\n\r\n"), HttpRequest::Else);
        assert_eq!(ask("POST /metrics HTTP/1.1\r\n\r\n"), HttpRequest::Method);
        for senseless in ["\r\n\r\n", "GET /metrics\r\n\r\n", "\u{0}\r\n\r\n", "a b c\r\n\r\n"] {
            assert_eq!(ask(senseless), HttpRequest::Senseless, "{senseless:?}");
        }
    }

    /// A page in a browser could read which processes run, by DNS rebinding.
    #[test]
    fn a_name_that_was_rebound_gets_no_metrics() {
        let ask = |host: &str, port| {
            let head = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nAccept: */*\r\n\r\n");
            parse_request(head.as_bytes(), port) != HttpRequest::Foreign
        };
        let foreign =
            ["a.example:9477", "127.0.0.1.a.example:9477", "localhost.a.example:9477", "x:9477"];
        let malformed =
            ["a.example:", "a.example:x", "a.example:99999", "a:9477\r\nHost: a.example"];
        for host in foreign.iter().chain(&malformed) {
            assert!(!ask(host, 9477), "{host}");
        }
        assert!(!ask("a.example", 80));
        let twice = "a.example\r\nHost: a.example:9477";
        assert!(!ask(twice, 9477));
    }

    /// Prometheus and other programs on this machine, and behind a proxy, with or without a name of its own.
    #[test]
    fn scrapers_get_metrics_by_the_names_that_they_use() {
        let name = uname().nodename().to_string_lossy().into_owned();
        let own =
            [&name.to_uppercase(), "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "10.0.0.7"];
        for host in own {
            for host in [host.to_owned(), format!("{host}:9477"), format!("{host}:80")] {
                assert!(is_own(&host, 9477), "{host}");
            }
            assert!(is_own(host, 80), "{host}");
        }
        assert!(is_own("a.example", 9477) && is_own("a.example:8443", 9477), "a proxy");
        let without = parse_request(b"GET /metrics HTTP/1.0\r\n\r\n", 9477);
        assert!(matches!(without, HttpRequest::Metrics { .. }));
    }

    #[test]
    fn names_in_the_hosts_file_are_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "# a\n127.0.1.1\tdb.example db # c\n\n::1 d").unwrap();
        let known = |name: &str| is_in_hosts(file.path(), name);
        assert!(["db.example", "DB", "d"].into_iter().all(known));
        assert!(!["", "a", "c", "127.0.1.1", "::1", "example"].into_iter().any(known));
        assert!(!is_in_hosts("/no/hosts".as_ref(), "db"));
    }
}
