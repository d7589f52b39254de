//! Listening for other machines.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use isotherm_view::Index;
use isotherm_web::{ListenOptions, PageSource, Server, ServerError, SourceKind};

use crate::scene::{limits, listen};

fn start(options: &ListenOptions) -> Result<Server, ServerError> {
    let source =
        Arc::new(PageSource::new(SourceKind::Live, "live".into(), None, Index::new(limits())));
    Server::start(options, vec![source], tokio::sync::watch::channel(0).1)
}

#[test]
fn other_machines_need_tls() {
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error =
            start(&ListenOptions { listen: open.parse().unwrap(), ..listen() }).err().unwrap();
        assert!(matches!(error, ServerError::Open(_)), "{error}");
        assert!(error.to_string().contains("--tls-cert"), "{error}");
    }
}

/// Requests name an address of the machine or a name of it, and the server would refuse all of them.
#[test]
fn all_addresses_need_a_name() {
    for all in ["0.0.0.0:0", "[::]:0"] {
        let tls = Some(("cert.pem".into(), "key.pem".into()));
        let options = ListenOptions { listen: all.parse().unwrap(), tls, ..listen() };
        let error = start(&options).err().unwrap();
        assert!(matches!(error, ServerError::Unnamed(_)), "{error}");
        assert!(error.to_string().contains("--host"), "{error}");
    }
}

#[test]
fn a_wrong_certificate_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cert.pem");
    std::fs::write(&path, "no certificate").unwrap();
    let tls = Some((path.clone(), path.clone()));
    let error = start(&ListenOptions { tls, ..listen() }).err().unwrap().to_string();
    assert!(error.contains("cert.pem"), "{error}");
}

/// A server with a certificate that openssl has made, and the certificate; `None` if openssl or curl is missing.
fn certified(dir: &Path) -> Option<(Server, PathBuf)> {
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let mut openssl = Command::new("openssl");
    let curve = "ec_paramgen_curve:prime256v1";
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout"]);
    let made = openssl.arg(&key).arg("-out").arg(&cert).output();
    if !made.is_ok_and(|made| made.status.success())
        || Command::new("curl").arg("-V").output().is_err()
    {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "openssl or curl is missing");
        eprintln!("skipped: openssl or curl is missing");
        return None;
    }
    let listen = ListenOptions {
        tls: Some((cert.clone(), key)),
        listen: "0.0.0.0:0".parse().unwrap(),
        hosts: vec!["localhost".into()],
    };
    Some((start(&listen).unwrap(), cert))
}

/// The page that curl gets, with its headers.
fn page(server: &Server, cert: &Path) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--max-time", "60", "--noproxy", "*", "--cacert"])
        .arg(cert)
        .arg(server.address());
    String::from_utf8(curl.output().unwrap().stdout).unwrap()
}

#[test]
fn a_page_comes_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let Some((server, cert)) = certified(dir.path()) else { return };
    assert!(server.address().starts_with("https://localhost:"), "{}", server.address());
    let answer = page(&server, &cert);
    assert!(answer.contains("200 OK") && answer.contains("; Secure"), "{answer}");
}

/// Neither clients that never begin TLS nor one that stops in the middle of it delay a page.
#[test]
fn half_open_connections_delay_no_page_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let Some((server, cert)) = certified(dir.path()) else { return };
    let port = server.address()["https://localhost:".len()..].split('/').next().unwrap();
    let port: u16 = port.parse().unwrap();
    // The first bytes of a greeting that would have 512.
    let greeting = [0x16, 3, 1, 2, 0, 1];
    let strangers: Vec<TcpStream> = (0..200)
        .map(|i| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(if i % 2 == 0 { &greeting } else { b"" }).unwrap();
            stream
        })
        .collect();
    let answer = page(&server, &cert);
    assert!(answer.contains("200 OK"), "{answer}");
    let refused = server.refused().unwrap_or_default();
    let ended = refused.split(", ").find_map(|part| part.strip_suffix(" connections"));
    assert!(ended.is_some_and(|n| n.parse::<u64>().unwrap() >= 200 - 128), "{refused}");
    drop(strangers);
}
