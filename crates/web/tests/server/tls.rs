//! Listening for other machines.

use std::process::Command;
use std::sync::Arc;

use isotherm_view::Index;
use isotherm_web::{ListenOptions, Server, ServerError, Source, SourceKind};

use crate::scene::{limits, listen};

fn start(options: &ListenOptions) -> Result<Server, ServerError> {
    let source = Arc::new(Source::new(SourceKind::Live, "live".into(), None, Index::new(limits())));
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

/// A page over TLS, asked by curl, with a certificate that openssl has made.
#[test]
fn a_page_comes_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout"]);
    let made = openssl.arg(&key).arg("-out").arg(&cert).output();
    if !made.is_ok_and(|made| made.status.success())
        || Command::new("curl").arg("-V").output().is_err()
    {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "openssl or curl is missing");
        eprintln!("skipped: openssl or curl is missing");
        return;
    }
    let tls = Some((cert.clone(), key));
    let listen = ListenOptions {
        tls,
        listen: "0.0.0.0:0".parse().unwrap(),
        hosts: vec!["localhost".into()],
    };
    let server = start(&listen).unwrap();
    let address = server.address();
    assert!(address.starts_with("https://localhost:"), "{address}");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--max-time", "60", "--noproxy", "*", "--cacert"])
        .arg(&cert)
        .arg(address);
    let answer = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    assert!(answer.contains("200 OK") && answer.contains("; Secure"), "{answer}");
}
