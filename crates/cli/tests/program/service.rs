//! A service beyond paging out: it re-reads its file, writes a record, and survives a crash.

use std::fs;
use std::time::Duration;

use isotherm_record::FileEndReason;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use isotherm_linux::swap::Swap;

use crate::alone::Alone;
use crate::disk::{mount, with_own_mounts};
use crate::load::{Load, MIB};
use crate::reclaim::{Service, spawn};
use crate::run::{Record, isotherm, needs_root, run_in, until, wait};

/// With this file, `r.toml`, and only the test's own options.
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
fn a_reload_keeps_the_rates() {
    needs_root!();
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
    reload(&service, &changed, "re-read the file");
    let after = service.status();
    assert_eq!(after["attributes"]["max_regions"], 600);
    assert_eq!(after["schemes"][1]["scheme"], "stat");
    assert!(service.applied() >= before["schemes"][0]["applied"]["bytes"].as_u64().unwrap());
    assert!(after["started_ns"].is_u64());
    assert_eq!((&after["started_ns"], &after["pid"]), (&before["started_ns"], &before["pid"]));
    for (text, said) in [
        (format!("pid = {pid}\ndry-run = true\nmin-age = \"old\"\n"), "line 3, column 11"),
        (format!("pid = {pid}\ndry-run = true\n[[scheme]]\naction = 3\n"), "line 4, column 10"),
        (format!("pid = {}\ndry-run = true\n", load.pid() + 1), "`pid` cannot change"),
        (format!("pid = {pid}\ndry-run = true\nlook = \"smaps\"\n"), "`look` cannot change"),
        (
            format!("pid = {pid}\ndry-run = true\nbudget = \"1%\"\n"),
            "--budget belongs to the exposure",
        ),
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

/// If it had restarted, no memory would be cold for 5 s.
#[test]
fn the_exposure_monitor_goes_on_when_a_config_is_read_anew() {
    needs_root!();
    let load = Load::start(48, 8);
    let text = |budget: &str| {
        let pid = load.pid();
        format!("pid = {pid}\ndry-run = true\nwatermarks = \"none\"\nbudget = \"{budget}\"\n")
    };
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("r.toml"), text("1%")).unwrap();
    let mut command = isotherm(["reclaim", "--config", "r.toml"]);
    command.args(["--control", "c/sock"]).current_dir(dir.path());
    let service = Service::by_command(command, dir);
    service.until_working();
    let cold = || service.status()["total"]["cold"].as_u64().unwrap();
    until("what is cold", || cold() >= 30 * MIB);
    reload(&service, &text("0.7%"), "re-read the file");
    // Some snapshots later.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(cold() >= 30 * MIB, "{} bytes", cold());
    assert_eq!(service.status()["cost"]["budget"], 0.007);
}

/// Swap that is full or missing may have room later. The service prints that, and counts failures.
#[test]
fn full_swap_leaves_the_service_reachable() {
    needs_root!();
    // Less than 1 MiB does not count as room: it is full from the start.
    let Some(alone) = Alone::with_swap(1) else { return };
    const FULL: &str = "swap is full";
    let load = Load::start(48, 8);
    let text = |age: &str| {
        let pid = load.pid();
        format!(
            "pid = {pid}\nwatermarks = \"none\"\nquota = \"none\"\nmin-age = \"{age}\"\n\
             [[scheme]]\nname = \"goal\"\naction = \"stat\"\n[scheme.quota]\n\
             goals = [{{ resident = {{ target = \"1G\", of = \"/no/such\" }} }}]\n"
        )
    };
    let mut service = by_config(&text("1s"));
    service.until_working();
    let failed = |service: &Service| service.status()["schemes"][0]["failed"]["bytes"].as_u64();
    let reported = |service: &Service| {
        let err = service.err();
        assert!(err.contains(FULL) && err.contains("attempts count as failed"), "{err}");
        assert!(err.contains("scheme `goal` does nothing until this can be read"), "{err}");
    };
    reported(&service);
    until("what fails", || failed(&service).is_some_and(|bytes| bytes > 0));
    reload(&service, &text("1500ms"), "re-read the file");
    assert!(service.err().matches(FULL).count() >= 2, "{}", service.err());
    fs::write(service.dir.path().join("mine.toml"), PAGE_OUT).unwrap();
    let committed = service.asked(&["commit", "mine.toml"]);
    assert!(committed.err.contains(FULL), "{}", committed.err);
    service.asked(&["pause"]);
    service.asked(&["resume"]);

    service.child.kill().unwrap();
    service.child.wait().unwrap();
    service.again(&["--config", "r.toml"]);
    service.until_working();
    reported(&service);
    assert_eq!(service.status()["schemes"][0]["scheme"], "mine", "{}", service.err());
    let more = Swap::start(128 << 20).unwrap();
    until("what goes when there is room", || service.applied() >= 30 * MIB);
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
    drop(load);
    more.end().unwrap();
    drop(alone);
}

/// There is no swap. Memory of files could be paged out, and swap may be created later.
#[test]
fn without_swap_it_starts_and_says_so() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    let load = Load::start(16, 4);
    let service = Service::working(&["--pid", &load.pid().to_string()]);
    let err = service.err();
    assert!(err.contains("there is no swap") && err.contains("isotherm system swap zram"), "{err}");
    let fails = || service.status()["schemes"][0]["failed"]["bytes"].as_u64() > Some(0);
    until("what fails", fails);
}

#[test]
fn without_a_config_a_hangup_ends_it() {
    needs_root!();
    let load = Load::start(16, 4);
    let mut service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    assert_eq!(service.end(Signal::HUP), Some(0), "{}", service.err());
    assert!(service.err().contains("SIGHUP"), "{}", service.err());
}

#[test]
fn attributes_change_while_it_watches() {
    needs_root!();
    let load = Load::start(48, 8);
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("c")).unwrap();
    let pid = load.pid().to_string();
    let mut command = isotherm(["reclaim", "--watermarks", "none", "--dry-run"]);
    command.args(["--pid", &pid, "--control", "c/sock"]).current_dir(dir.path());
    let service = Service::by_command(command, dir);
    service.until_working();
    let before = service.status();
    assert_eq!((&before["monitor"], &before["cost"]["budget"]), (&json!("exposure"), &json!(0.01)));
    service.asked(&["attributes", "--budget", "0.5%", "--interval", "2s", "--regions", "50..500"]);
    let after = service.status();
    assert_eq!(after["cost"]["budget"], 0.005);
    let expected = json!({ "budget": 0.005, "ipis": 0, "interval_seconds": 2.0,
                           "update_seconds": 1.0, "min_regions": 50, "max_regions": 500 });
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

/// For the regions monitor, the intervals too. Regions and the account of the service are kept.
#[test]
fn intervals_change_while_it_watches() {
    needs_root!();
    let load = Load::start(48, 8);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let tried = || service.status()["schemes"][0]["tried"]["bytes"].as_u64().unwrap();
    until("something to page out", || tried() > 0);
    let before = tried();
    let args = ["--sample", "5MS", "--aggr", "50ms", "--update", "1.5s", "--regions", "40..400"];
    service.asked(&[&["attributes"][..], &args].concat());
    let after = service.status();
    assert_eq!((&after["monitor"], &after["paused"]), (&json!("regions"), &json!(false)));
    let expected = json!({ "sample_seconds": 0.005, "aggr_seconds": 0.05, "update_seconds": 1.5,
                           "min_regions": 40, "max_regions": 400 });
    assert_eq!(after["attributes"], expected);
    assert!(tried() >= before, "the account goes on");
    for (args, said) in [
        (["attributes", "--sample", "40ms"], "not shorter than the aggregation interval"),
        (["attributes", "--update", "48h"], "the update interval"),
        (["attributes", "--budget", "1%"], "accepts sample, aggr, update and regions"),
    ] {
        let done = service.ask(&args);
        assert!(done.status == 1 && done.err.contains(said), "{}", done.err);
        assert_eq!(service.status()["attributes"], expected);
    }
}

/// The service has received only the text.
#[test]
fn schemes_that_are_wrong_are_reported_with_file_line_and_key() {
    needs_root!();
    let load = Load::start(16, 4);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let file = service.dir.path().join("wrong.toml");
    for (text, said) in [
        ("action = 'stat'\nquota = { time = '2s' }\n", "line 3, column 18: `quota.time`: scheme"),
        ("action = 'stat'\nsize = 5\n", "line 3"),
    ] {
        fs::write(&file, format!("[[scheme]]\n{text}")).unwrap();
        let done = service.ask(&["commit", "wrong.toml"]);
        let begin = "isotherm: wrong.toml: ";
        assert!(done.status == 1 && done.err.starts_with(begin), "{}", done.err);
        assert!(done.err.contains(said), "{}", done.err);
        assert_eq!(service.status()["schemes"][0]["scheme"], "reclaim");
    }
}

#[test]
fn an_invalid_config_is_reported_with_file_line_and_option() {
    let dir = TempDir::new().unwrap();
    for (text, said) in [
        ("all = true\nquota = \"2s/1s\"\n", "r.toml: line 2, column 9: --quota: a quota of 2s"),
        (
            "all = true\n\nwatermarks = \"20%,40%,50%\"\n",
            "r.toml: line 3, column 14: --watermarks: watermarks 2000, 4000, 5000",
        ),
        ("all = true\nregions = \"9..3\"\n", "r.toml: line 2, column 11: --regions: 9 regions"),
        ("all = true\npid = 1\n", "r.toml: line 1, column 7: "),
        (
            "all = true\n[[scheme]]\naction = \"stat\"\n[scheme.quota]\ntime = \"2s\"\n",
            "r.toml: line 5, column 8: `quota.time`: scheme `stat`: a quota of 2s",
        ),
        (
            "all = true\n[[scheme]]\nname = \"reclaim\"\naction = \"stat\"\n",
            "r.toml: line 3, column 8: `name`: two schemes are called `reclaim`",
        ),
    ] {
        fs::write(dir.path().join("r.toml"), text).unwrap();
        let done = run_in(dir.path(), &["reclaim", "--config", "r.toml", "--dry-run"]);
        assert!(done.status == 2 && done.err.contains(said), "{text}: {}", done.err);
    }
}

#[test]
fn a_record_is_begun_and_ended_from_outside() {
    needs_root!();
    let load = Load::start(48, 8);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    assert!(service.status()["record"].is_null());
    let nothing = service.ask(&["record", "stop"]);
    assert!(
        nothing.status == 1 && nothing.err.contains("there is no recording"),
        "{}",
        nothing.err
    );
    service.asked(&["record", "start", "a.rec"]);
    let second = service.ask(&["record", "start", "b.rec"]);
    assert!(second.status == 1 && second.err.contains("a recording already"), "{}", second.err);
    until("some snapshots", || service.status()["record"]["snapshots"].as_u64() >= Some(10));
    assert!(service.asked(&["status"]).text().contains("recording: "));
    service.asked(&["record", "stop"]);
    assert!(service.status()["record"].is_null());
    let path = service.dir.path().join("a.rec");
    let record = Record::read(&path);
    record.assert_without_gaps();
    assert_eq!(record.pids(), [load.pid().cast_unsigned()]);
    assert_eq!(record.end.as_ref().unwrap().why, FileEndReason::Stopped);
    assert!(record.snapshots.len() >= 10);
    let sound = run_in(service.dir.path(), &["record", "--check", "a.rec"]);
    assert_eq!(sound.status, 0, "{}", sound.text());
    // A record that is being written when the service ends gets its end too.
    service.asked(&["record", "start", "a.rec"]);
    service.asked(&["stop"]);
    let mut service = service;
    assert_eq!(wait(&mut service.child).code(), Some(0), "{}", service.err());
    let left = fs::read_dir(service.dir.path().join("c")).unwrap();
    assert_eq!(left.map(|f| f.unwrap().path()).collect::<Vec<_>>(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_full_disk_ends_the_record_and_not_the_service() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=24k");
        let load = Load::start(48, 8);
        let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
        let file = disk.path().join("a.rec");
        service.asked(&["record", "start", file.to_str().unwrap()]);
        let ended = || service.status()["record"]["ended"].as_str().map(str::to_owned);
        until("the end of it", || ended().is_some());
        assert!(ended().unwrap().contains("No space left"), "{ended:?}", ended = ended());
        assert!(service.asked(&["status"]).text().contains("recording has ended"));
        until("what is cold", || service.applied() >= 30 * MIB);
        service.asked(&["record", "stop"]);
        service.asked(&["record", "start", "b.rec"]);
    });
}

/// Pending data then finds no room, unless it is so little that it fits in the last page of the file, or the service has
/// tried to write it before. In these cases the test tries again.
#[test]
fn a_record_without_its_end_does_not_make_a_clean_end_a_failure() {
    needs_root!();
    with_own_mounts(|| {
        let at_the_end = |err: &String| err.contains("cannot write the end of the recording");
        let err = (0..5).map(|_| ended_on_a_full_disk()).find(at_the_end);
        let err = err.expect("all has fitted, or was written before the end, each time");
        assert!(err.contains("No space left"), "{err}");
    });
}

/// The message of a service that ends while the disk of its record is full.
fn ended_on_a_full_disk() -> String {
    let disk = TempDir::new().unwrap();
    mount(disk.path(), "size=1m");
    let load = Load::start(48, 8);
    let mut service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    let state = service.dir.path().join("c/sock.state.json");
    service.asked(&["attributes", "--regions", "100..900"]);
    assert!(state.exists());
    let file = disk.path().join("a.rec");
    let size = || fs::metadata(&file).unwrap().len();
    service.asked(&["record", "start", file.to_str().unwrap()]);
    let begun = size();
    until("the mappings, which the first snapshot needs", || size() > begun);
    let _ = fs::write(disk.path().join("others"), vec![1; 1 << 20]).unwrap_err();
    std::thread::sleep(Duration::from_secs(2));
    service.asked(&["stop"]);
    assert_eq!(wait(&mut service.child).code(), Some(0), "{}", service.err());
    assert!(!state.exists(), "this was a clean end");
    service.err()
}

const PAGE_OUT: &str =
    "[[scheme]]\nname = \"mine\"\naction = \"pageout\"\nage = { min = \"1s\" }\n";
const COMMITTED: &str = "[[scheme]]\nname = \"mine\"\naction = \"stat\"\n";

#[test]
fn settings_survive_a_crash() {
    needs_root!();
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
    let said = "continues with the settings of a service that did not end cleanly: attributes, committed \
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

/// The first service learns that 48 MiB are idle for 30 s. The first figures of the next one have that too, although
/// they come after about ten seconds.
#[test]
fn idle_ages_survive_a_restart() {
    needs_root!();
    let load = Load::start(56, 8);
    let pid = load.pid().to_string();
    let command = || {
        let mut command = isotherm(["reclaim", "--control", "c/sock", "--dry-run"]);
        command.args(["--pid", &pid, "--min-age", "1h", "--metrics", "m.prom"]);
        command.args(["--metrics-every", "1s"]);
        command
    };
    let mut service = Service::by_command(command(), TempDir::new().unwrap());
    service.until_working();
    let dir = service.dir.path().to_owned();
    let (ages, metrics) = (dir.join("c/sock.ages.json"), dir.join("m.prom"));
    let idle = || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("isotherm_idle_bytes{age=\"30\"} "));
        line.map_or(0.0, |bytes| bytes.parse().unwrap())
    };
    let most = 44.0 * MIB as f64;
    until("most of it is idle for 30 s", || idle() > most);
    assert!(!ages.exists(), "a crash would leave nothing");
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
    assert!(ages.exists());

    service.child = spawn(command(), &service.dir);
    service.until_working();
    until("its first figures", || idle() > 0.0);
    assert!(idle() > most, "{}", idle() / MIB as f64);
    let said = "continues with the idle ages that the previous service knew, of 1 of its processes";
    assert!(service.err().contains(said), "{}", service.err());
    assert!(!ages.exists(), "it is read once");
    service.child.kill().unwrap();
    service.child.wait().unwrap();

    fs::write(&ages, "{\"boot\": ").unwrap();
    service.child = spawn(command(), &service.dir);
    service.until_working();
    assert!(
        service.err().contains("are not taken up: its contents are invalid"),
        "{}",
        service.err()
    );
}
