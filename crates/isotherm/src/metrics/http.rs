//! `GET /metrics` on a loopback port.

use std::net::{SocketAddr, TcpListener};

use isotherm_core::Nanos;
use rustix::event::PollFd;

use super::{Form, MetricsError};
use crate::served::{Framing, Served, Wait};

/// Maximum length of a request with all its headers, in bytes.
const MAX_REQUEST: usize = 16 << 10;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// The HTTP listener. It never waits for a client, and answers each connection once.
pub struct Http(Served<TcpListener>);

impl Http {
    pub fn open(address: SocketAddr) -> Result<Self, MetricsError> {
        let listen = |source| MetricsError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let framing = Framing { end: b"\r\n\r\n", max: MAX_REQUEST };
        let refusal = |why: &str| plain("408 Request Timeout", &format!("{why}\n")).into_bytes();
        Ok(Http(Served::new(listener, framing, refusal)))
    }

    /// Answers the requests that have arrived; `text` returns the content of `/metrics`.
    pub fn answer(&mut self, mut text: impl FnMut(Form) -> String) {
        for (client, request) in self.0.requests() {
            let answer = match request.as_deref().map(parse_request) {
                Ok(HttpRequest::Metrics { form, with_body }) => {
                    metrics(form, with_body, &text(form))
                }
                Ok(HttpRequest::Else) => plain("404 Not Found", "the metrics are at /metrics\n"),
                Ok(HttpRequest::Senseless) => {
                    plain("400 Bad Request", "this is not an HTTP/1 request\n")
                }
                Ok(HttpRequest::Method) => {
                    plain("405 Method Not Allowed", "only GET and HEAD work\n")
                }
                Err(why) => plain("431 Request Header Fields Too Large", &format!("{why}\n")),
            };
            self.0.answer(client, answer.as_bytes(), true);
        }
    }
}

impl Wait for Http {
    fn settle(&mut self, now: Nanos) -> bool {
        self.0.settle(now)
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        self.0.fds(out);
    }

    fn go_on(&mut self, ready: &[bool]) {
        if self.0.go_on(ready) {
            self.0.accept(|_| Ok(None));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HttpRequest {
    Metrics { form: Form, with_body: bool },
    Else,
    Method,
    Senseless,
}

/// Parses the head of a request.
fn parse_request(head: &[u8]) -> HttpRequest {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, version] = words[..] else { return HttpRequest::Senseless };
    if !version.starts_with("HTTP/1.") {
        return HttpRequest::Senseless;
    }
    if !["GET", "HEAD"].contains(&method) {
        return HttpRequest::Method;
    }
    if path.split('?').next() != Some("/metrics") {
        return HttpRequest::Else;
    }
    let accepts = lines.filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("accept") && value.to_ascii_lowercase().contains(OPEN_METRICS)
    });
    let form = if accepts { Form::OpenMetrics } else { Form::Prometheus };
    HttpRequest::Metrics { form, with_body: method == "GET" }
}

fn metrics(form: Form, with_body: bool, text: &str) -> String {
    let kind = match form {
        Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
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
        let ask = |head: &str| parse_request(head.as_bytes());
        let plain = metrics(Form::Prometheus, true);
        assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), plain);
        assert_eq!(ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), plain);
        let open = "HEAD /metrics HTTP/1.1\r\naccept: Application/OpenMetrics-Text;q=0.5\r\n\r\n";
        assert_eq!(ask(open), metrics(Form::OpenMetrics, false));
        assert_eq!(ask("GET / HTTP/1.1\r\n\r\n"), HttpRequest::Else);
        assert_eq!(ask("POST /metrics HTTP/1.1\r\n\r\n"), HttpRequest::Method);
        for senseless in ["\r\n\r\n", "GET /metrics\r\n\r\n", "\u{0}\r\n\r\n", "a b c\r\n\r\n"] {
            assert_eq!(ask(senseless), HttpRequest::Senseless, "{senseless:?}");
        }
    }
}
