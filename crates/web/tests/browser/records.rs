//! The page of one record and of two, and what it saves.

use std::time::{Duration, Instant};

use isotherm_record::{Event, Reader};
use serde_json::json;

use crate::chromium::TIMEOUT;
use crate::scene::{Records, write_record};
use crate::{DRAWN, VIEW, browser_or_skip, keep, middle, span, texts, view};

/// Of the heat of a record, so many bytes are kept.
const MEMORY: usize = 1 << 20;

/// A page that was opened before the record was read shows all of it afterwards.
#[test]
fn a_record_is_shown_from_its_start_to_its_end() {
    let Some(mut browser) = browser_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    write_record(&path, 400);
    let records = Records::of(&[&path], MEMORY);
    browser.open(records.server.address());
    browser.until("document.getElementById('state').textContent.startsWith('record;')", || {});
    records.load();
    browser.until(&format!("{DRAWN} > 0 && {VIEW}.to === 100000"), || {});
    // The browser logs the answers that the record was not ready.
    browser.console.clear();
    assert_eq!(view(&mut browser)["from"], json!(0));
    browser.until("document.querySelectorAll('tbody tr').length === 2", || {});
    let note = "document.querySelector('.pane > .note').textContent";
    browser.until(
        &format!("{note}.startsWith('400 snapshots') && !{note}.includes('reading')"),
        || {},
    );
    assert_eq!(browser.value("document.getElementById('follow').hidden"), json!(true));
    assert!(texts(&mut browser, ".bar .note").contains("at the end"));
    // A click shows the table of that time.
    let (x, y) = middle(&mut browser);
    for kind in ["mousePressed", "mouseReleased"] {
        browser.mouse(kind, x, y, json!({ "button": "left", "clickCount": 1 }));
    }
    browser.until("/^at \\d/.test(document.querySelector('.bar .note').textContent)", || {});
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn two_records_are_side_by_side_and_show_the_same_time() {
    let Some(mut browser) = browser_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let paths = ["long.rec", "short.rec"].map(|name| dir.path().join(name));
    write_record(&paths[0], 400);
    write_record(&paths[1], 200);
    let records = Records::of(&[&paths[0], &paths[1]], MEMORY);
    records.load();
    browser.open(records.server.address());
    let heats = "[...document.querySelectorAll('.heat')]";
    let views = format!("{heats}.map((e) => JSON.parse(e.dataset.view))");
    browser.until(
        &format!("{heats}.length === 2 && {heats}.every((e) => Number(e.dataset.drawn) > 0)"),
        || {},
    );
    assert!(texts(&mut browser, "#state").starts_with("record and record;"));
    let names = texts(&mut browser, "h2.name");
    assert!(names.contains("long.rec") && names.contains("short.rec"), "{names}");
    let sides = browser.value(&format!("{heats}.map((e) => e.getBoundingClientRect().toJSON())"));
    assert_eq!(sides[0]["top"], sides[1]["top"]);
    assert!(sides[0]["right"].as_f64() <= sides[1]["left"].as_f64(), "{sides}");
    // Both show the whole time of the longer one.
    let shown = browser.value(&views);
    for pane in [&shown[0], &shown[1]] {
        assert_eq!((&pane["from"], &pane["to"]), (&json!(0), &json!(100_000)), "{shown}");
    }
    keep(&mut browser, "two-records.png");
    // Zoomed in one, they still show the same.
    let (x, y) = middle(&mut browser);
    browser.mouse("mouseWheel", x, y, json!({ "deltaX": 0, "deltaY": -900 }));
    browser.until(&format!("{views}.every((v) => v.from > 0)"), || {});
    let shown = browser.value(&views);
    assert_eq!(
        (&shown[0]["from"], &shown[0]["to"]),
        (&shown[1]["from"], &shown[1]["to"]),
        "{shown}"
    );
    assert!(span(&shown[1], "from", "to") < 20_000.0, "{shown}");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn buttons_save_pictures_and_a_record() {
    let Some(mut browser) = browser_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (path, saved) = (dir.path().join("a.rec"), dir.path().join("saved"));
    write_record(&path, 200);
    let records = Records::of(&[&path], MEMORY);
    records.load();
    let allow = json!({ "behavior": "allow", "downloadPath": saved });
    browser.call("Browser.setDownloadBehavior", allow);
    browser.open(records.server.address());
    browser.until(&format!("{DRAWN} > 0"), || {});
    for (button, name, kind) in [
        ("PNG", "isotherm.png", "image/png"),
        ("SVG", "isotherm.svg", "image/svg+xml"),
        ("Record of this span", "isotherm.rec", "application/octet-stream"),
    ] {
        browser.value(&format!(
            "[...document.querySelectorAll('button')].find((b) => b.textContent === '{button}').click()"
        ));
        // The address comes with the answers of the browser.
        let begin = Instant::now();
        while browser.downloads.is_empty() || !saved.join(name).exists() {
            assert!(begin.elapsed() < TIMEOUT, "{name} does not come");
            browser.value("0");
            std::thread::sleep(Duration::from_millis(50));
        }
        let from = browser.downloads.pop().unwrap();
        let answer = browser.value(&format!(
            "fetch('{from}').then((a) => [a.headers.get('content-type'), a.headers.get('content-disposition')])"
        ));
        let attached = format!("attachment; filename=\"{name}\"");
        assert_eq!(answer, json!([kind, attached]), "{from}");
    }
    let content = |name| std::fs::read(saved.join(name)).unwrap();
    assert!(content("isotherm.png").starts_with(b"\x89PNG"));
    assert!(String::from_utf8(content("isotherm.svg")).unwrap().contains("<svg"));
    let events = Reader::open(&saved.join("isotherm.rec")).unwrap();
    let snapshots = events.filter(|e| matches!(e, Ok(Event::Snapshot(_)))).count();
    assert_eq!(snapshots, 200, "the whole time was shown");
    assert!(browser.downloads.is_empty() && browser.console.is_empty(), "{:?}", browser.console);
}
