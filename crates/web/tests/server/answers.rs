//! What requests with the token get.

use std::time::Duration;

use isotherm_core::{Attribution, Attrs, Nanos, TargetId};
use isotherm_record::{Event, Reader, RecordingHeader};
use tempfile::TempDir;

use crate::scene::{MIB, Scene};
use crate::{Answer, ask, get};

/// The events of a downloaded record.
fn events(answer: &Answer) -> Vec<Event> {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("r");
    std::fs::write(&path, &answer.body).unwrap();
    Reader::open(&path).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_token_becomes_a_cookie_and_leaves_the_address() {
    let scene = Scene::new(&["app"]);
    let (port, token) = scene.address();
    let first = get(&scene, &format!("/?token={token}"), "");
    assert_eq!((first.status, first.header("location")), (200, None));
    let cookie = first.header("set-cookie").unwrap();
    for part in [&format!("isotherm-{port}="), "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&token));
    let cookie = cookie.split(';').next().unwrap();
    let page = get(&scene, "/", &format!("Cookie: {cookie}\r\n"));
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = String::from_utf8(page.body).unwrap();
    assert!(
        !text.contains("http:") && !text.contains("https:") && !text.contains(" style="),
        "{text}"
    );
}

#[test]
fn tiles_points_rows_and_ages_agree_with_the_snapshots() {
    let mut scene = Scene::new(&["app", "other"]);
    scene.snapshots(40, 2);
    let axis = ask(&scene, "/api/source/0/axis?target=0").json();
    let areas = axis["areas"].as_array().unwrap();
    assert_eq!((areas.len(), areas[0]["start"].as_str()), (2, Some("0x550000000000")));
    // The first second: the band is at the bottom.
    let tile = |version: u64| {
        ask(
            &scene,
            &format!(
                "/api/source/0/tile?target=0&axis={version}&from_ms=0&pixel_ms=250&from_byte=0&row_bytes={}&width=4&height=8",
                32 * MIB
            ),
        )
    };
    let version = axis["version"].as_u64().unwrap();
    let cells = tile(version).body;
    assert_eq!(cells.len(), 32);
    for column in cells.chunks(8) {
        assert!(column[0] > 40, "{column:?}");
        assert!(column[1..].iter().all(|c| (5..40).contains(c)), "{column:?}");
    }
    assert_eq!(tile(version + 1).status, 409);
    let point = "/api/source/0/point?target=0&ms=100&byte=4096";
    let of_axis = |version: u64| ask(&scene, &format!("{point}&axis={version}"));
    assert_eq!((of_axis(version).status, of_axis(version + 1).status), (200, 409));
    let point = ask(&scene, point).json();
    assert_eq!(point["address"], "0x550000001000");
    assert_eq!(point["mapping"], "[heap]");
    assert_eq!(point["region"]["heat"], "hot");
    let hz = point["region"]["hz"].as_f64().unwrap();
    assert!(
        (78.0..82.0).contains(&hz) && point["region"]["high_hz"].as_f64() > Some(hz),
        "{point}"
    );
    let rows = ask(&scene, "/api/source/0/table?ms=1e9").json();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(rows[0]["hot"], 32 * MIB);
    let groups = ask(&scene, "/api/source/0/table?ms=1e9&by=cgroup").json();
    let slice = groups.as_array().unwrap().iter().find(|g| g["name"] == "/system.slice").unwrap();
    assert_eq!((slice["processes"].as_u64(), slice["hot"].as_u64()), (Some(2), Some(64 * MIB)));
    let ages = ask(&scene, "/api/source/0/ages?target=1&ms=5000").json();
    assert_eq!(ages["idle"].as_array().unwrap().len(), ages["lowest_ms"].as_array().unwrap().len());
    let series = ask(&scene, "/api/source/0/series").json();
    let parts: Vec<_> =
        series["parts"].as_array().unwrap().iter().filter(|p| p.is_array()).collect();
    assert!(
        parts.iter().all(|p| p[0] == 64.0 * MIB as f64 && p[4] == 7.0 * MIB as f64),
        "{series}"
    );
}

#[test]
fn pictures_and_records_of_a_span_can_be_downloaded() {
    let mut scene = Scene::new(&["app", "other"]);
    scene.snapshots(120, 2);
    let picture = |format: &str| {
        ask(
            &scene,
            &format!("/api/source/0/picture?target=0&from_ms=2000&to_ms=20000&format={format}"),
        )
    };
    assert!(picture("png").body.starts_with(b"\x89PNG"), "{}", picture("png").head);
    assert!(picture("svg").body.starts_with(b"<svg") || picture("svg").body.starts_with(b"<?xml"));
    assert_eq!(picture("gif").status, 400);
    let record = ask(&scene, "/api/source/0/record?target=1&from_ms=5000&to_ms=10000");
    assert_eq!(record.header("content-disposition"), Some("attachment; filename=\"isotherm.rec\""));
    let events = events(&record);
    let snapshots: Vec<_> = events
        .iter()
        .filter_map(|e| if let Event::Snapshot(s) = e { Some(s) } else { None })
        .collect();
    assert!((4..=30).contains(&snapshots.len()), "{}", snapshots.len());
    assert!(snapshots.iter().all(|s| s.targets.len() == 1 && s.targets[0].id.0 == 1));
    assert!(events.iter().any(|e| matches!(e, Event::Attribution(a) if a.target.0 == 1)));
    assert!(matches!(events.last(), Some(Event::End(_))));
}

/// A service sends a header with each answer, which has the time of that answer.
#[test]
fn a_record_of_a_span_has_the_time_of_its_start() {
    let mut scene = Scene::new(&["app"]);
    for seconds in 1..=10 {
        let started = Nanos(0) + Duration::from_secs(seconds);
        let mut facts = RecordingHeader::new("0.1.0", Attrs::default(), started);
        facts.started_unix_ms = 1_000_000 + 1000 * seconds;
        scene.push(Event::Header(facts));
        scene.snapshots(4, 1);
    }
    let record = ask(&scene, "/api/source/0/record?from_ms=2000&to_ms=6000");
    let events = events(&record);
    let starts = |e: &Event| if let Event::Snapshot(s) = e { Some(s.start) } else { None };
    let start = events.iter().find_map(starts).unwrap();
    let Event::Header(facts) = &events[0] else { panic!("{:?}", events[0]) };
    let unix_ms = 1_000_000 + start.0 / 1_000_000;
    assert_eq!((facts.started, facts.started_unix_ms), (start, unix_ms));
}

/// Attributions of several processes are read at different times of a snapshot.
#[test]
fn a_record_of_all_processes_has_their_attributions_in_order() {
    let mut scene = Scene::new(&["app", "other"]);
    let later = |id| Attribution {
        target: TargetId(id),
        at: Nanos(200_000_000),
        comm: "app".into(),
        cgroup: "/".into(),
        swapped: 9 * MIB,
        major_faults: 0,
    };
    scene.push(Event::Attribution(later(0)));
    scene.snapshots(8, 2);
    let record = ask(&scene, "/api/source/0/record?from_ms=0&to_ms=2000");
    let of = |e: &Event| if let Event::Attribution(a) = e { Some(a.target.0) } else { None };
    assert_eq!(events(&record).iter().filter_map(of).collect::<Vec<_>>(), [1, 0]);
}

/// A record is first shown by a sample, and a service may be restarted: each has an index of its own.
#[test]
fn a_tile_of_an_earlier_index_is_refused() {
    let mut scene = Scene::new(&["app"]);
    scene.snapshots(4, 2);
    let axis = |scene: &Scene| {
        ask(scene, "/api/source/0/axis?target=1").json()["version"].as_u64().unwrap()
    };
    let tile = |scene: &Scene, version: u64| {
        let path = format!(
            "/api/source/0/tile?target=1&axis={version}&from_ms=0&pixel_ms=250&from_byte=0&row_bytes={MIB}&width=1&height=1"
        );
        ask(scene, &path).status
    };
    let before = axis(&scene);
    assert_eq!(tile(&scene, before), 200);
    scene.restart();
    let after = axis(&scene);
    assert_eq!((tile(&scene, before), tile(&scene, after)), (409, 200));
}

#[test]
fn questions_without_an_answer_say_why() {
    let scene = Scene::new(&["app"]);
    for (path, status) in [
        ("/api/source/1/targets", 404),
        ("/api/source/0/axis?target=9", 404),
        ("/api/source/0/axis", 400),
        ("/api/source/0/point?target=0&ms=0&byte=0", 404),
        (
            "/api/source/0/tile?target=0&axis=0&from_ms=0&pixel_ms=NaN&from_byte=0&row_bytes=1&width=1&height=1",
            400,
        ),
        (
            "/api/source/0/tile?target=0&axis=0&from_ms=0&pixel_ms=1&from_byte=0&row_bytes=1&width=99999&height=1",
            400,
        ),
        (
            "/api/source/0/tile?target=0&axis=0&from_ms=-1&pixel_ms=1&from_byte=0&row_bytes=0&width=1&height=1",
            400,
        ),
        ("/api/source/0/picture?from_ms=9&to_ms=1", 404),
        ("/api/source/0/table?ms=1&by=%3Cscript%3E", 400),
        ("/nothing", 404),
    ] {
        let answer = ask(&scene, path);
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
}
