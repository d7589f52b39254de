//! Uploads to an S3 server that is down for an hour: moto, in a process of its own.
#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "upload")]

mod moto;
#[path = "../../record/tests/record/python.rs"]
mod python;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fleet::{
    Bucket, DiskLimits, Group, Lake, LakeRow, MINUTE_MS, Rows, Uploader, compact, read,
};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStoreExt, RetryConfig};

use moto::{Moto, free_port};
use python::python_with;

/// A whole hour in November 2026.
const BEGIN: i64 = 1_795_564_800_000;
const UPLOAD_EVERY: Duration = Duration::from_secs(300);

fn store(port: u16) -> AmazonS3 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id("a")
        .with_secret_access_key("b")
        .with_bucket_name("lake")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .unwrap()
}

fn make_bucket(port: u16) {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "PUT /lake HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}

fn rows(minute: i64) -> Rows {
    let group = |i| Group { host: "h".into(), cgroup: format!("/g{i}"), ..Group::default() };
    let row = |group| LakeRow { group, minute, resident_bytes: minute, ..LakeRow::default() };
    Rows { groups: (0..10).map(group).collect(), rows: (0..10).map(row).collect() }
}

/// The minutes in the bucket, and the minutes that its rows report as lost.
fn bucket(store: &AmazonS3, hours: i64) -> (Vec<i64>, i64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut minutes, mut dropped) = (Vec::new(), 0);
    for hour in 0..hours {
        let key = format!("fleet/date=2026-11-25/hour={hour:02}/host=h/rows.parquet");
        let get = async { store.get(&key.as_str().into()).await?.bytes().await };
        let Ok(bytes) = runtime.block_on(get) else { continue };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let rows = read(file.path()).unwrap().rows;
        minutes.extend(rows.iter().map(|r| (r.minute - BEGIN) / MINUTE_MS));
        dropped += rows.iter().map(|r| r.dropped_minutes).sum::<i64>();
    }
    minutes.sort_unstable();
    assert!(
        minutes.chunk_by(|a, b| a == b).all(|same| same.len() == 10),
        "a minute is there twice"
    );
    minutes.dedup();
    (minutes, dropped)
}

/// Writes these minutes, and tries to upload after each. Returns the number of failures.
fn pass(lake: &mut Lake, uploader: &mut Uploader, minutes: std::ops::Range<i64>) -> usize {
    let mut failures = 0;
    for n in minutes {
        let minute = BEGIN + n * MINUTE_MS;
        lake.append(minute, rows(minute)).unwrap();
        failures += usize::from(uploader.turn(lake, minute + MINUTE_MS).is_err());
    }
    failures
}

#[test]
fn an_hour_without_the_bucket_is_caught_up_and_what_is_dropped_is_counted() {
    let Some(python) = python_with("moto.server", "moto[server]") else { return };
    let port = free_port();
    let dir = tempfile::tempdir().unwrap();
    let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
    let store = store(port);
    let place = || Bucket::new(Arc::new(store.clone()), "/fleet/").unwrap();
    let uploader = |most| Uploader::new(place(), UPLOAD_EVERY, most);
    let mut upload = uploader(64 << 20);

    let server = Moto::start(&python, port);
    make_bucket(port);
    assert_eq!(pass(&mut lake, &mut upload, 0..90), 0);
    // Finished hours leave the directory, and the last minutes are not due yet.
    assert_eq!(lake.finished().unwrap(), []);
    assert_eq!(bucket(&store, 2), ((0..86).collect(), 0));

    // The bucket cannot be reached for an hour. moto forgets everything when it ends.
    drop(server);
    assert_eq!(pass(&mut lake, &mut upload, 90..150), 12);
    let server = Moto::start(&python, port);
    make_bucket(port);
    assert_eq!(pass(&mut lake, &mut upload, 150..186), 0);
    let (minutes, dropped) = bucket(&store, 4);
    assert_eq!((minutes, dropped), ((60..186).collect(), 0));

    // For ten hours, with room for a few hours: what is dropped is what the rows say.
    drop(server);
    let hour = lake.stored().unwrap()[0].bytes;
    drop(upload);
    let mut upload = uploader(3 * hour);
    assert!(pass(&mut lake, &mut upload, 186..186 + 10 * 60) > 100);
    let waiting: u64 = lake.finished().unwrap().iter().map(|h| h.bytes).sum();
    assert!(waiting <= 3 * hour, "{waiting} bytes wait");
    let _server = Moto::start(&python, port);
    make_bucket(port);
    assert_eq!(pass(&mut lake, &mut upload, 186 + 10 * 60..186 + 11 * 60), 0);
    upload.finish(&mut lake).unwrap();
    let (minutes, dropped) = bucket(&store, 20);
    assert_eq!(minutes.last(), Some(&(186 + 11 * 60 - 1)));
    let missing = (180..186 + 11 * 60).filter(|m| minutes.binary_search(m).is_err()).count();
    assert!(missing > 4 * 60, "{missing}");
    assert_eq!(usize::try_from(dropped).unwrap(), missing);
    let (copy, mut rows) = (dir.path().join("copy"), 0);
    compact(&place(), &copy, None, BEGIN + (49 * 60) * MINUTE_MS, |day| rows += day.rows).unwrap();
    assert_eq!(rows, 10 * minutes.len());
    assert_eq!(lake.finished().unwrap(), []);
}
