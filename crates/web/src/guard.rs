//! Access control: the checks that every request passes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use serde::Serialize;
use subtle::ConstantTimeEq;

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// A random value that only the owner of a browser or a script knows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A new secret from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0u8; SECRET_BYTES];
        let n = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        if n < bytes.len() {
            return Err(std::io::Error::other("the system returned too few random bytes"));
        }
        Ok(Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The secret as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `text` is the secret; in a time that does not depend on where they differ.
    fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// it would change something, or has a body
    Method,
    /// its Host header is not the name of this server
    Host,
    /// a page of another site sent it
    Origin,
    /// it has neither the token nor the cookie
    Token,
    /// its path contains `..`
    Path,
}

impl Refusal {
    /// The status and the text of the answer.
    #[must_use]
    pub fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Refusal::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD without a body work here\n")
            }
            Refusal::Host => (
                StatusCode::FORBIDDEN,
                "the Host header is not the name of this server: open the address that isotherm web printed; \
                 --host adds a name\n",
            ),
            Refusal::Origin => {
                (StatusCode::FORBIDDEN, "a page of another site may not ask this server\n")
            }
            Refusal::Token => (
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: open the whole address that isotherm web printed\n",
            ),
            Refusal::Path => (StatusCode::NOT_FOUND, "there is nothing at a path with ..\n"),
        }
    }
}

/// How a request has proved that it may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// by the cookie, or by the token in its Authorization header
    Known,
    /// by the token in its address: it gets the cookie, and the address without the token
    First,
}

/// Whether a request of this connection has passed the checks.
#[derive(Debug, Clone, Default)]
pub struct Admitted(Arc<AtomicBool>);

impl Admitted {
    /// Notes that a request has passed.
    pub fn admit(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether one has.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers of refused requests and connections.
#[derive(Debug, Default, Serialize)]
pub struct Refused {
    /// requests with a wrong method or a body
    pub method: AtomicU64,
    /// requests with a foreign Host header
    pub host: AtomicU64,
    /// requests of pages of other sites
    pub origin: AtomicU64,
    /// requests without the token
    pub token: AtomicU64,
    /// requests whose path contains `..`
    pub path: AtomicU64,
    /// requests that are no HTTP, have too large headers, or came too slowly
    pub malformed: AtomicU64,
    /// connections beyond the limit: of the oldest client that has shown no token, or else the new one
    pub connections: AtomicU64,
    /// connections of clients that did not read
    pub slow: AtomicU64,
}

impl Refused {
    /// Counts one.
    pub fn count(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Method => &self.method,
            Refusal::Host => &self.host,
            Refusal::Origin => &self.origin,
            Refusal::Token => &self.token,
            Refusal::Path => &self.path,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The checks of one server.
pub struct Guard {
    token: Secret,
    cookie: Secret,
    cookie_name: String,
    /// values of the Host header that are accepted, in lower case
    hosts: Vec<String>,
    tls: bool,
}

impl Guard {
    /// The checks of a server that is known by `hosts`, names with ports.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(hosts: Vec<String>, port: u16, tls: bool) -> std::io::Result<Self> {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        // Cookies do not distinguish ports, so the name must.
        let cookie_name = format!("isotherm-{port}");
        Ok(Guard { token: Secret::random()?, cookie: Secret::random()?, cookie_name, hosts, tls })
    }

    /// The token of the printed address.
    #[must_use]
    pub fn token(&self) -> &Secret {
        &self.token
    }

    /// The value of the Set-Cookie header.
    #[must_use]
    pub fn set_cookie(&self) -> String {
        let secure = if self.tls { "; Secure" } else { "" };
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie_name, self.cookie.0)
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Pass, Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
        let host = host.filter(|host| hosts.next().is_none() && self.hosts.contains(host));
        let host = host.ok_or(Refusal::Host)?;
        let own = format!("{}://{host}", if self.tls { "https" } else { "http" });
        let foreign = |origin: &axum::http::HeaderValue| {
            !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())
        };
        if headers.get_all(header::ORIGIN).iter().any(foreign) {
            return Err(Refusal::Origin);
        }
        let pass = self.pass(uri, headers).ok_or(Refusal::Token)?;
        let empty = |value: &axum::http::HeaderValue| value.as_bytes() == b"0";
        let has_body = headers.contains_key(header::TRANSFER_ENCODING)
            || !headers.get_all(header::CONTENT_LENGTH).iter().all(empty);
        if has_body || !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::Method);
        }
        if climbs(uri.path()) {
            return Err(Refusal::Path);
        }
        Ok(pass)
    }

    fn pass(&self, uri: &Uri, headers: &HeaderMap) -> Option<Pass> {
        let texts = |name| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let cookies = texts(header::COOKIE).flat_map(|line| line.split(';'));
        let cookie = cookies
            .filter_map(|c| c.trim().split_once('='))
            .find(|(name, _)| *name == self.cookie_name);
        let bearer = texts(header::AUTHORIZATION).find_map(|value| value.strip_prefix("Bearer "));
        let parts = uri.query().filter(|_| uri.path() == "/").unwrap_or_default().split('&');
        let token = parts.filter_map(|part| part.strip_prefix("token=")).next();
        if token.is_some_and(|token| self.token.is(token)) {
            return Some(Pass::First);
        }
        let known = cookie.is_some_and(|(_, value)| self.cookie.is(value))
            || bearer.is_some_and(|token| self.token.is(token));
        known.then_some(Pass::Known)
    }
}

/// Whether a part of a path is `..`, also if characters are encoded. No path of the page has one.
fn climbs(path: &str) -> bool {
    let codes = [("%2e", "."), ("%2f", "/"), ("%5c", "\\")];
    let path = path.to_ascii_lowercase();
    let plain = codes.iter().fold(path, |path, (code, text)| path.replace(code, text));
    plain.split(['/', '\\']).any(|part| part == "..")
}

/// Headers of every answer: nothing may come from, or be embedded in, another site.
pub const HEADERS: [(header::HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard::new(vec!["127.0.0.1:7777".into(), "localhost:7777".into()], 7777, false).unwrap()
    }

    fn check(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Result<Pass, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, value.parse().unwrap());
        }
        guard.check(&Method::GET, &path.parse().unwrap(), &map)
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7777");

    #[test]
    fn only_own_names_pass() {
        let guard = guard();
        let first = format!("/?token={}", guard.token().text());
        assert_eq!(check(&guard, &first, &[HOST]), Ok(Pass::First));
        assert_eq!(check(&guard, &first, &[("host", "LocalHost:7777")]), Ok(Pass::First));
        for bad in ["127.0.0.1", "127.0.0.1:80", "evil.example:7777", ""] {
            assert_eq!(check(&guard, &first, &[("host", bad)]), Err(Refusal::Host), "{bad}");
        }
        assert_eq!(check(&guard, &first, &[]), Err(Refusal::Host));
        assert_eq!(check(&guard, &first, &[HOST, HOST]), Err(Refusal::Host));
    }

    #[test]
    fn other_origins_do_not_pass() {
        let guard = guard();
        let first = format!("/?token={}", guard.token().text());
        let ask = |origin| check(&guard, &first, &[HOST, ("origin", origin)]);
        assert_eq!(ask("http://127.0.0.1:7777"), Ok(Pass::First));
        for bad in
            ["http://localhost:7777", "https://127.0.0.1:7777", "null", "http://evil.example"]
        {
            assert_eq!(ask(bad), Err(Refusal::Origin), "{bad}");
        }
    }

    #[test]
    fn the_token_or_the_cookie_is_needed() {
        let guard = guard();
        let token = guard.token().text();
        let cookie = guard.set_cookie();
        let cookie = cookie.split(';').next().unwrap();
        let bearer = format!("Bearer {token}");
        assert_eq!(check(&guard, "/api", &[HOST, ("authorization", &bearer)]), Ok(Pass::Known));
        let cookies = format!("a=b; {cookie}");
        assert_eq!(check(&guard, "/api", &[HOST, ("cookie", &cookies)]), Ok(Pass::Known));
        assert_eq!(check(&guard, &format!("/?a=b&token={token}"), &[HOST]), Ok(Pass::First));
        let wrong = format!("isotherm-7777={token}");
        for bad in
            [("cookie", wrong.as_str()), ("cookie", "isotherm-7777="), ("authorization", "Bearer ")]
        {
            assert_eq!(check(&guard, "/", &[HOST, bad]), Err(Refusal::Token), "{bad:?}");
        }
        for path in ["/?token=", &format!("/?token={token}0"), &format!("/api?token={token}")] {
            assert_eq!(check(&guard, path, &[HOST]), Err(Refusal::Token), "{path}");
        }
    }

    #[test]
    fn nothing_can_be_changed_or_sent() {
        let guard = guard();
        let bearer = format!("Bearer {}", guard.token().text());
        let known = [HOST, ("authorization", bearer.as_str())];
        let body = [known[0], known[1], ("content-length", "3")];
        assert_eq!(check(&guard, "/", &body), Err(Refusal::Method));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HOST.1.parse().unwrap());
        headers.insert(header::AUTHORIZATION, bearer.parse().unwrap());
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let checked = guard.check(&method, &"/".parse().unwrap(), &headers);
            assert_eq!(checked, Err(Refusal::Method), "{method}");
        }
    }

    #[test]
    fn no_path_leads_up() {
        let guard = guard();
        let bearer = format!("Bearer {}", guard.token().text());
        let ask = |path| check(&guard, path, &[HOST, ("authorization", &bearer)]);
        for path in ["/", "/api/state", "/a..b/...", "/api/source/0/tile?mapping=../x"] {
            assert_eq!(ask(path), Ok(Pass::Known), "{path}");
        }
        for path in ["/..", "/../a", "/api/../page.js", "/a/%2E%2e%2fb", "/a%5c..%5Cb"] {
            assert_eq!(ask(path), Err(Refusal::Path), "{path}");
            assert_eq!(check(&guard, path, &[HOST]), Err(Refusal::Token), "{path}");
        }
    }

    #[test]
    fn secrets_differ_and_are_long() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(a.text(), b.text());
        assert_eq!(a.text().len(), 2 * SECRET_BYTES);
    }
}
