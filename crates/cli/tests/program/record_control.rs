//! `isotherm record --control`.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::kill_on_drop::KillOnDrop;
use crate::load::Load;
use crate::run::{Done, Record, isotherm, needs_root, run_in, until, wait};

/// A recorder with a socket, in a directory of its own.
struct Recorder {
    child: KillOnDrop,
    dir: TempDir,
}

impl Recorder {
    fn start(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let err = fs::File::create(dir.path().join("err")).unwrap();
        let mut command = isotherm(["record", "--control", "c/sock", "-o", "a.rec"]);
        command.args(options).current_dir(dir.path()).stderr(err);
        let child = KillOnDrop(command.spawn().unwrap());
        let recorder = Recorder { child, dir };
        until("the first snapshot", || recorder.err().contains(" hot "));
        recorder
    }

    fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }

    fn ask(&self, args: &[&str]) -> Done {
        run_in(self.dir.path(), &[&["service"], args, &["--control", "c/sock"]].concat())
    }

    fn asked(&self, args: &[&str]) -> Done {
        let done = self.ask(args);
        assert_eq!(done.status, 0, "{args:?}: {}", done.err);
        done
    }

    fn status(&self) -> Value {
        self.asked(&["status", "--json"]).json()
    }

    fn record(&self) -> Record {
        Record::read(&self.dir.path().join("a.rec"))
    }
}

#[test]
fn a_recorder_answers_as_a_service_does() {
    needs_root!();
    let (load, other) = (Load::start(16, 4), Load::start(16, 4));
    let mut recorder = Recorder::start(&["--pid", &load.pid().to_string()]);
    let status = recorder.status();
    assert_eq!((&status["paused"], &status["monitor"]), (&false.into(), &"exposure".into()));
    assert_eq!(status["targets"][0]["pid"], load.pid());
    assert_eq!(status["record"]["file"], "a.rec");
    let startup = status["cost"]["startup_seconds"].as_f64().unwrap();
    assert!(startup > 0.0, "{status}");
    // As a share of one CPU; there may be several threads.
    assert!(status["cost"]["own_cpu"].as_f64().unwrap() < 2.0, "{status}");
    let documented = include_str!("../../../../docs/abi/testing/control.md");
    for key in status.as_object().unwrap().keys().chain(status["cost"].as_object().unwrap().keys())
    {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    let shown = recorder.asked(&["status"]);
    let text = shown.text();
    assert!(text.contains(": recording\n") && text.contains(" to start"), "{text}");

    recorder.asked(&["attributes", "--regions", "20..200"]);
    assert_eq!(recorder.status()["attributes"]["max_regions"], 200);
    let pid = other.pid().to_string();
    recorder.asked(&["targets", "--add", &pid]);
    until("the other", || recorder.status()["targets"].as_array().unwrap().len() == 2);
    recorder.asked(&["targets", "--remove", &pid]);

    recorder.asked(&["pause"]);
    let paused = recorder.status();
    assert_eq!(paused["paused"], true);
    let at = |status: &Value| status["record"]["snapshots"].as_u64().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(at(&recorder.status()), at(&paused), "nothing is written");
    recorder.asked(&["resume"]);
    until("a snapshot after that", || at(&recorder.status()) > at(&paused));

    fs::write(recorder.dir.path().join("s.txt"), "4K null null 5 1s null pageout").unwrap();
    for (args, said) in [
        (&["commit", "s.txt"][..], "only watches"),
        (&["record", "start", "b.rec"], "a.rec"),
        (&["targets", "--remove", "1"], "process 1 is not watched"),
    ] {
        let refused = recorder.ask(args);
        assert!(refused.status == 1 && refused.err.contains(said), "{args:?}: {}", refused.err);
    }
    recorder.asked(&["stop"]);
    assert_eq!(wait(&mut recorder.child).code(), Some(0), "{}", recorder.err());
    assert!(recorder.err().contains("stopped by a request"), "{}", recorder.err());
    assert!(!recorder.dir.path().join("c/sock").exists());
    let checked = run_in(recorder.dir.path(), &["record", "--check", "a.rec"]);
    assert_eq!(checked.status, 0, "{}", checked.text());
    let ends: Vec<u64> = recorder.record().snapshots.iter().map(|s| s.end.0).collect();
    let longest = ends.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(longest > 1_500_000_000, "the pause is left out: {longest} ns");
}

/// The program that `env` or a shell starts is watched.
#[test]
fn the_last_program_gives_the_name() {
    needs_root!();
    for command in [
        &["env", "A=1", "tail", "-f", "/dev/null"][..],
        &["sh", "-c", "sleep 1; exec tail -f /dev/null"],
    ] {
        let mut options = vec!["--"];
        options.extend(command);
        let mut recorder = Recorder::start(&options);
        let comm = || recorder.status()["targets"][0]["comm"].as_str().unwrap().to_owned();
        until("the name", || comm() == "tail");
        let written = || recorder.status()["record"]["snapshots"].as_u64();
        until("a snapshot", || written().is_some_and(|n| n > 0));
        kill_process(Pid::from_child(&recorder.child), Signal::INT).unwrap();
        wait(&mut recorder.child);
        let names: Vec<String> =
            recorder.record().targets.iter().map(|t| t.command.clone()).collect();
        assert!(names.contains(&"tail -f /dev/null".to_owned()), "{names:?}");
        let summary = run_in(recorder.dir.path(), &["report", "summary", "-i", "a.rec"]);
        assert_eq!(summary.status, 0, "{}", summary.err);
        let table = summary.text();
        let title = table.lines().next().unwrap();
        assert!(title.contains("tail") && !title.contains("env"), "{title}");
        let checked = run_in(recorder.dir.path(), &["record", "--check", "a.rec"]);
        assert_eq!(checked.status, 0, "{}", checked.text());
    }
}

/// `record --duration 1s` once took 0.2 s of CPU time, and printed 1 %.
#[test]
fn the_start_is_cheap_and_counted() {
    needs_root!();
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let dir = TempDir::new().unwrap();
    let startup = || {
        let done = run_in(dir.path(), &["record", "--pid", &pid, "--duration", "300ms"]);
        assert_eq!(done.status, 0, "{}", done.err);
        let said = done.err.split("of a CPU and ").nth(1).unwrap().split(' ').next().unwrap();
        said.parse::<f64>().unwrap()
    };
    // An unoptimized program on a busy machine: the limit is five times the time of a released one. Loading
    // was 0.14 s of it; the test of loading counts that exactly.
    let least = (0..3).map(|_| startup()).fold(f64::INFINITY, f64::min);
    assert!((0.001..0.5).contains(&least), "{least} s");
}
