//! What a service does beyond paging out: it is told anew, keeps a record, and outlives a crash.

use std::fs;
use std::time::Duration;

use isotherm_record::Why;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::disk::{mount, with_own_mounts};
use crate::load::{Load, MIB};
use crate::reclaim::Service;
use crate::run::{Record, root_or_skip, run_in, until, wait};

/// With this file, `r.toml`, and no other option but the test's own.
fn by_config(text: &str) -> Service {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("r.toml"), text).unwrap();
    Service::start_in(dir, &["--config", "r.toml"], &[])
}

fn reload(service: &Service, text: &str, said: &str) {
    fs::write(service.dir.path().join("r.toml"), text).unwrap();
    kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
    until(said, || service.err().contains(said));
}

#[test]
fn a_config_read_anew_keeps_what_is_known() {
    if !root_or_skip("a_config_read_anew_keeps_what_is_known") {
        return;
    }
    let load = Load::start(48, 8);
    let pid = load.pid();
    let service = by_config(&format!("pid = {pid}\ndry-run = true\nregions = \"100..900\"\n"));
    service.until_working();
    until("some of it", || service.applied() > 0);
    let before = service.status();
    let changed = format!(
        "pid = {pid}\ndry-run = true\nregions = \"50..600\"\nquota-size = \"0\"\n\
         [[scheme]]\naction = \"stat\"\n"
    );
    reload(&service, &changed, "read anew");
    let after = service.status();
    assert_eq!(after["attributes"]["max_regions"], 600);
    assert_eq!(after["schemes"][1]["scheme"], "stat");
    assert!(service.applied() >= before["schemes"][0]["applied"]["bytes"].as_u64().unwrap());
    assert_eq!((&after["since"], &after["pid"]), (&before["since"], &before["pid"]));
    for (text, said) in [
        (format!("pid = {pid}\ndry-run = true\nmin-age = \"old\"\n"), "line 3, column 11"),
        (format!("pid = {pid}\ndry-run = true\n[[scheme]]\naction = 3\n"), "line 4, column 10"),
        (format!("pid = {}\ndry-run = true\n", load.pid() + 1), "`pid` cannot change"),
        (format!("pid = {pid}\ndry-run = true\nlook = \"smaps\"\n"), "`look` cannot change"),
        (format!("pid = {pid}\ndry-run = true\nbudget = \"1%\"\n"), "--budget is of the exposure"),
    ] {
        reload(&service, &text, said);
        let now = service.status();
        assert_eq!(now["attributes"], after["attributes"], "{text}");
        assert_eq!(now["schemes"][1]["scheme"], "stat", "{text}");
    }
    fs::remove_file(service.dir.path().join("r.toml")).unwrap();
    kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
    until("word of it", || service.err().contains("cannot read the options in r.toml"));
    assert_eq!(service.status()["attributes"], after["attributes"]);
}

/// Nothing would be cold for 5 s, had it begun anew.
#[test]
fn the_exposure_monitor_goes_on_when_a_config_is_read_anew() {
    if !root_or_skip("the_exposure_monitor_goes_on_when_a_config_is_read_anew") {
        return;
    }
    let load = Load::start(48, 8);
    let text = |budget: &str| {
        let pid = load.pid();
        format!("pid = {pid}\ndry-run = true\nwatermarks = \"none\"\nbudget = \"{budget}\"\n")
    };
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("r.toml"), text("1%")).unwrap();
    let mut command = crate::run::isotherm(["reclaim", "--config", "r.toml"]);
    command.args(["--control", "c/sock"]).current_dir(dir.path());
    let service = Service::by_command(command, dir);
    service.until_working();
    let cold = || service.status()["total"]["cold"].as_u64().unwrap();
    until("what is cold", || cold() >= 30 * MIB);
    reload(&service, &text("0.7%"), "read anew");
    // Some snapshots later.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(cold() >= 30 * MIB, "{} bytes", cold());
    assert_eq!(service.status()["cost"]["budget"], 0.007);
}

#[test]
fn without_a_config_a_hangup_ends_it() {
    if !root_or_skip("without_a_config_a_hangup_ends_it") {
        return;
    }
    let load = Load::start(16, 4);
    let mut service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    assert_eq!(service.end(Signal::HUP), Some(0), "{}", service.err());
    assert!(service.err().contains("SIGHUP"), "{}", service.err());
}

#[test]
fn attributes_change_while_it_watches() {
    if !root_or_skip("attributes_change_while_it_watches") {
        return;
    }
    let load = Load::start(48, 8);
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("c")).unwrap();
    let pid = load.pid().to_string();
    let mut command = crate::run::isotherm(["reclaim", "--watermarks", "none", "--dry-run"]);
    command.args(["--pid", &pid, "--control", "c/sock"]).current_dir(dir.path());
    let service = Service::by_command(command, dir);
    service.until_working();
    let before = service.status();
    assert_eq!((&before["monitor"], &before["cost"]["budget"]), (&json!("exposure"), &json!(0.01)));
    service.asked(&["attributes", "--budget", "0.5%", "--interval", "2s", "--regions", "50..500"]);
    let after = service.status();
    assert_eq!(after["cost"]["budget"], 0.005);
    let expected = json!({ "budget": 0.005, "ipis": 0, "interval_seconds": 2.0,
                           "min_regions": 50, "max_regions": 500 });
    assert_eq!(after["attributes"], expected);
    for (args, said) in [
        (["attributes", "--regions", "500..50"], "500 regions at least"),
        (["attributes", "--interval", "1ms"], "interval"),
    ] {
        let done = service.ask(&args);
        assert!(done.status == 1 && done.err.contains(said), "{}", done.err);
        assert_eq!(service.status()["attributes"], expected);
    }
    let none = service.ask(&["attributes"]);
    assert_eq!(none.status, 2, "{}", none.err);
    until("snapshots after that", || service.status()["total"]["resident"].as_u64() > Some(0));
}

#[test]
fn a_record_is_begun_and_ended_from_outside() {
    if !root_or_skip("a_record_is_begun_and_ended_from_outside") {
        return;
    }
    let load = Load::start(48, 8);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    assert!(service.status()["record"].is_null());
    let nothing = service.ask(&["recording", "stop"]);
    assert!(nothing.status == 1 && nothing.err.contains("nothing is recorded"), "{}", nothing.err);
    service.asked(&["recording", "start", "a.rec"]);
    let second = service.ask(&["recording", "start", "b.rec"]);
    assert!(second.status == 1 && second.err.contains("a recording already"), "{}", second.err);
    until("some snapshots", || service.status()["record"]["snapshots"].as_u64() >= Some(10));
    assert!(service.asked(&["status"]).text().contains("recording: "));
    service.asked(&["recording", "stop"]);
    assert!(service.status()["record"].is_null());
    let path = service.dir.path().join("a.rec");
    let record = Record::read(&path);
    record.assert_without_gaps();
    assert_eq!(record.pids(), [load.pid().cast_unsigned()]);
    assert_eq!(record.end.as_ref().unwrap().why, Why::Stopped);
    assert!(record.snapshots.len() >= 10);
    let sound = run_in(service.dir.path(), &["record", "--check", "a.rec"]);
    assert_eq!(sound.status, 0, "{}", sound.text());
    // One that goes on when the service ends has its end too.
    service.asked(&["recording", "start", "a.rec"]);
    service.asked(&["stop"]);
    let mut service = service;
    assert_eq!(wait(&mut service.child).code(), Some(0), "{}", service.err());
    let left = fs::read_dir(service.dir.path().join("c")).unwrap();
    assert_eq!(left.map(|f| f.unwrap().path()).collect::<Vec<_>>(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_full_disk_ends_the_record_and_not_the_service() {
    if !root_or_skip("a_full_disk_ends_the_record_and_not_the_service") {
        return;
    }
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=24k");
        let load = Load::start(48, 8);
        let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
        let file = disk.path().join("a.rec");
        service.asked(&["recording", "start", file.to_str().unwrap()]);
        let ended = || service.status()["record"]["ended"].as_str().map(str::to_owned);
        until("the end of it", || ended().is_some());
        assert!(ended().unwrap().contains("No space left"), "{ended:?}", ended = ended());
        assert!(service.asked(&["status"]).text().contains("recording has ended"));
        until("what is cold", || service.applied() >= 30 * MIB);
        service.asked(&["recording", "stop"]);
        service.asked(&["recording", "start", "b.rec"]);
    });
}

/// What waits to be written then finds no room.
#[test]
fn a_record_without_its_end_does_not_make_a_clean_end_a_failure() {
    if !root_or_skip("a_record_without_its_end_does_not_make_a_clean_end_a_failure") {
        return;
    }
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=1m");
        let load = Load::start(48, 8);
        let mut service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
        let state = service.dir.path().join("c/sock.state.json");
        service.asked(&["attributes", "--regions", "100..900"]);
        assert!(state.exists());
        let file = disk.path().join("a.rec");
        let size = || fs::metadata(&file).unwrap().len();
        service.asked(&["recording", "start", file.to_str().unwrap()]);
        let begun = size();
        until("the mappings, which the first snapshot needs", || size() > begun);
        let _ = fs::write(disk.path().join("others"), vec![1; 1 << 20]).unwrap_err();
        std::thread::sleep(Duration::from_secs(2));
        service.asked(&["stop"]);
        assert_eq!(wait(&mut service.child).code(), Some(0), "{}", service.err());
        let err = service.err();
        assert!(err.contains("without its end") && err.contains("No space left"), "{err}");
        assert!(!state.exists(), "this was a clean end");
    });
}

const COMMITTED: &str = "[[scheme]]\nname = \"mine\"\naction = \"stat\"\n";

#[test]
fn what_it_was_told_outlives_a_crash() {
    if !root_or_skip("what_it_was_told_outlives_a_crash") {
        return;
    }
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let options = ["--pid", &pid, "--dry-run"];
    let mut service = Service::working(&options);
    let dir = service.dir.path().to_owned();
    let state = dir.join("c/sock.state.json");
    assert!(!state.exists(), "nothing has changed");
    fs::write(dir.join("mine.toml"), COMMITTED).unwrap();
    service.asked(&["commit", "mine.toml"]);
    service.asked(&["pause"]);
    service.asked(&["attributes", "--regions", "20..200"]);
    assert!(state.exists());
    service.child.kill().unwrap();
    service.child.wait().unwrap();

    service.again(&options);
    service.until_working();
    let status = service.status();
    assert_eq!(
        (&status["paused"], &status["schemes"][0]["scheme"]),
        (&json!(true), &json!("mine"))
    );
    assert_eq!(status["attributes"]["max_regions"], 200);
    let said = "goes on as a service was told that did not end cleanly: attributes, committed \
                schemes, paused";
    assert!(service.err().contains(said), "{}", service.err());
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
    assert!(!state.exists(), "a clean end leaves nothing");

    service.again(&options);
    service.until_working();
    let status = service.status();
    assert_eq!(status["schemes"][0]["scheme"], "reclaim");
    assert_eq!(status["paused"], false);
    service.child.kill().unwrap();
    service.child.wait().unwrap();

    fs::write(&state, "{\"paused\": tr").unwrap();
    service.again(&options);
    service.until_working();
    assert!(service.err().contains("set aside"), "{}", service.err());
    assert_eq!(service.status()["paused"], false);
    assert!(state.with_extension("json.bad").exists());
}
