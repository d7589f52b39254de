//! Requests that a server must withstand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::scene::Scene;
use crate::{Answer, TIMEOUT, ask, bearer, connect, get, raw};

/// The numbers of refused requests.
fn refused(scene: &Scene, what: &str) -> u64 {
    ask(scene, "/api/state").json()["refused"][what].as_u64().unwrap()
}

#[test]
fn without_the_token_nothing_is_reported() {
    let mut scene = Scene::new(&["secret-name"]);
    scene.snapshots(4, 1);
    for path in [
        "/",
        "/page.js",
        "/api/state",
        "/api/events",
        "/api/source/0/targets",
        "/?token=0",
        "/nothing",
    ] {
        let answer = get(&scene, path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"), "{path}");
        assert!(
            answer.header("content-security-policy").is_some()
                && answer.header("set-cookie").is_none()
        );
    }
    assert_eq!(refused(&scene, "token"), 7);
}

#[test]
fn a_name_that_was_rebound_is_refused_even_with_the_token() {
    let scene = Scene::new(&["app"]);
    let token = bearer(&scene);
    let port = scene.address().0;
    for host in
        ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "127.0.0.1:1", "[::1]:1", ""]
    {
        let request =
            format!("GET /api/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\r\n");
        assert_eq!(raw(&scene, request.as_bytes()).status, 403, "{host}");
    }
    let none = format!("GET /api/state HTTP/1.1\r\nConnection: close\r\n{token}\r\n");
    assert!([400, 403].contains(&raw(&scene, none.as_bytes()).status));
    assert!(refused(&scene, "host") >= 6);
}

#[test]
fn other_sites_and_changes_are_refused() {
    let scene = Scene::new(&["app"]);
    let (token, port) = (bearer(&scene), scene.address().0);
    for origin in ["http://evil.example", "null", &format!("https://127.0.0.1:{port}")] {
        let headers = format!("{token}Origin: {origin}\r\n");
        assert_eq!(get(&scene, "/api/state", &headers).status, 403, "{origin}");
    }
    let own = format!("{token}Origin: http://127.0.0.1:{port}\r\n");
    assert_eq!(get(&scene, "/api/state", &own).status, 200);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let request = format!(
            "{method} /api/state HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{token}\r\n"
        );
        assert_eq!(raw(&scene, request.as_bytes()).status, 405, "{method}");
    }
    assert_eq!((refused(&scene, "origin"), refused(&scene, "method")), (3, 6));
}

#[test]
fn paths_lead_nowhere_else() {
    let scene = Scene::new(&["app"]);
    let up = [
        "/../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/source/../../etc/passwd",
        "/api/source/0/../../../etc/passwd",
        "/page.js/../../Cargo.toml",
    ];
    let none =
        ["/api/source/-1/targets", "/api/source/99999999999999999999/targets", "//etc/passwd"];
    for path in up.iter().chain(&none) {
        let answer = ask(&scene, path);
        assert!([400, 404].contains(&answer.status), "{path}: {}", answer.status);
        assert!(!String::from_utf8_lossy(&answer.body).contains("root:"));
    }
    assert_eq!(refused(&scene, "path"), up.len() as u64);
    assert!(scene.server.refused().unwrap().contains("6 path"));
}

#[test]
fn large_and_many_headers_are_refused() {
    let scene = Scene::new(&["app"]);
    let token = bearer(&scene);
    let port = scene.address().0;
    let head = format!("GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{token}");
    let large = format!("{head}X: {}\r\n\r\n", "a".repeat(10 << 20));
    assert_ne!(raw(&scene, large.as_bytes()).status, 200);
    let many: String = (0..1000).map(|i| format!("X{i}: a\r\n")).collect();
    assert_ne!(raw(&scene, format!("{head}{many}\r\n").as_bytes()).status, 200);
    let long =
        format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{token}\r\n", "a".repeat(1 << 20));
    assert_ne!(raw(&scene, long.as_bytes()).status, 200);
    for garbage in
        [&b"\0\0\0\0\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n"]
    {
        assert_ne!(raw(&scene, garbage).status, 200);
    }
    assert!(refused(&scene, "malformed") >= 4);
    assert_eq!(ask(&scene, "/api/state").status, 200);
}

/// Requests that never end are dropped after 10 s, and do not delay others until then.
#[test]
fn half_open_connections_are_dropped_and_delay_nobody() {
    // More descriptors than a process has by default.
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    let mut scene = Scene::new(&["app"]);
    let mut half: Vec<_> = (0..1000).map(|_| connect(&scene)).collect();
    for (i, stream) in half.iter_mut().enumerate() {
        stream.write_all(if i % 2 == 0 { b"GET / HT" } else { b"" }).unwrap();
    }
    let begin = Instant::now();
    scene.snapshots(1, 1);
    let state = ask(&scene, "/api/state");
    assert_eq!((state.status, &state.json()["sources"][0]["snapshots"]), (200, &json!(1)));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    for stream in &mut half {
        let mut rest = Vec::new();
        // The server ends each of them; a reset is an end too.
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begin.elapsed() < TIMEOUT);
    // All but 128 were ended at once.
    assert!(refused(&scene, "connections") >= 1000 - 128);
    assert!(refused(&scene, "malformed") >= 50);
}

/// Strangers do not lock out the owner: the oldest of them ends. Owners may fill the server.
#[test]
fn connections_beyond_the_limit_end_at_once() {
    let scene = Scene::new(&["app"]);
    let strangers: Vec<_> = (0..140).map(|_| connect(&scene)).collect();
    assert_eq!(ask(&scene, "/api/state").status, 200);
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    };
    let closed: Vec<bool> = strangers.iter().map(is_closed).collect();
    assert!(closed[..12].iter().all(|c| *c) && !closed[13..].contains(&true), "{closed:?}");

    let port = scene.address().0;
    let request =
        format!("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{}\r\n", bearer(&scene));
    let mut owners: Vec<_> = (0..128).map(|_| connect(&scene)).collect();
    for owner in &mut owners {
        owner.write_all(request.as_bytes()).unwrap();
        owner.read_exact(&mut [0]).unwrap();
    }
    assert!(strangers.iter().all(is_closed));
    assert_eq!(connect(&scene).read(&mut [0]).unwrap(), 0);
    drop(owners);
    let begin = Instant::now();
    let answer = loop {
        let answer: Answer = ask(&scene, "/api/state");
        if answer.status == 200 || begin.elapsed() > TIMEOUT {
            break answer;
        }
    };
    // 13 for the first answer, the other strangers for the owners, and at least one owner.
    let refused = answer.json()["refused"]["connections"].as_u64().unwrap();
    assert!((140..=1000).contains(&refused), "{refused}");
}

/// Of 100 clients, 50 never read their answers. They hold up neither the recording nor the others, and are dropped.
#[test]
fn clients_that_do_not_read_are_dropped_and_slow_nothing() {
    const EACH: usize = 50;
    let mut scene = Scene::new(&["app"]);
    scene.snapshots(1, 1);
    let port = scene.address().0;
    let request = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{}\r\n", bearer(&scene))
    };
    let (events, page) = (request("/api/events"), request("/page.js"));
    let mut readers: Vec<_> = (0..EACH).map(|_| connect(&scene)).collect();
    readers.iter_mut().for_each(|reader| reader.write_all(events.as_bytes()).unwrap());
    // Their answers are more than all buffers of a connection hold.
    let mut silent: Vec<_> = (0..EACH).map(|_| connect(&scene)).collect();
    for client in &mut silent {
        client.write_all(page.repeat(500).as_bytes()).unwrap();
    }
    (0..500).for_each(|_| scene.snapshots(1, 1));
    for reader in &mut readers {
        let mut text = String::new();
        while !text.contains("\"snapshots\":501,") {
            let mut bytes = [0; 4096];
            let n = reader.read(&mut bytes).unwrap();
            assert!(n > 0, "the events have ended: {text}");
            text += &String::from_utf8_lossy(&bytes[..n]);
        }
    }
    // All of that has happened while the others were still there.
    assert_eq!(refused(&scene, "slow"), 0);
    let start = Instant::now();
    while refused(&scene, "slow") < EACH as u64 {
        assert!(start.elapsed() < TIMEOUT, "{} were dropped", refused(&scene, "slow"));
        std::thread::sleep(Duration::from_millis(200));
    }
    let state = ask(&scene, "/api/state").json();
    assert_eq!(state["refused"]["slow"], EACH);
    // The asker is one more; another may not have been counted off yet.
    let connections = state["connections"].as_u64().unwrap();
    assert!((51..=53).contains(&connections), "{connections} connections are left");
}
