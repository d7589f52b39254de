//! `isotherm reclaim`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::kill_on_drop::KillOnDrop;
use crate::load::{Load, MIB};
use crate::run::{Done, QUICK, isotherm, needs_root, run_in, until, wait};
use crate::schemes::{log_in, swapped};
use crate::workload::Running;

/// Options with which it acts at once, also on a machine with free memory.
pub const EAGER: [&str; 4] = ["--min-age", "1s", "--watermarks", "none"];

/// A running `isotherm reclaim`, in a directory of its own; killed when dropped.
pub struct Service {
    pub child: KillOnDrop,
    pub dir: TempDir,
}

impl Service {
    pub fn start(options: &[&str]) -> Self {
        Service::start_in(TempDir::new().unwrap(), options, &[])
    }

    /// Starts it, and waits for the first snapshot.
    pub fn working(options: &[&str]) -> Self {
        let service = Service::start(options);
        service.until_working();
        service
    }

    pub fn until_working(&self) {
        until("the first snapshot", || self.err().contains(" hot "));
    }

    /// Its socket is `c/sock` in its directory.
    pub fn start_in(dir: TempDir, options: &[&str], env: &[(&str, &str)]) -> Self {
        Service::start_by(isotherm(["reclaim"]), dir, options, env)
    }

    /// With a command that is complete except for the options of `reclaim`.
    pub fn start_by(
        mut command: Command,
        dir: TempDir,
        options: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        command
            .args(["--control", "c/sock"])
            .args(EAGER)
            .args(QUICK)
            .args(options)
            .envs(env.iter().copied());
        Service::by_command(command, dir)
    }

    /// With the four capabilities of the unit, and no others.
    pub fn as_the_unit(options: &[&str]) -> Self {
        let unit = include_str!("../../../../packaging/isotherm-reclaim.service");
        let named = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names: Vec<&str> = named.unwrap().split(' ').collect();
        assert_eq!(names.len(), 4);
        let name = |name: &&str| name.strip_prefix("CAP_").unwrap().to_lowercase();
        let kept: String = names.iter().map(name).map(|name| format!(",+{name}")).collect();
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set=-all{kept}"));
        command.args(["--inh-caps=-all", "--no-new-privs"]);
        command.arg(env!("CARGO_BIN_EXE_isotherm")).arg("reclaim");
        Service::start_by(command, TempDir::new().unwrap(), options, &[])
    }

    /// With a complete command.
    pub fn by_command(command: Command, dir: TempDir) -> Self {
        let child = spawn(command, &dir);
        Service { child, dir }
    }

    /// Replaces a service that has ended.
    pub fn again(&mut self, options: &[&str]) {
        let mut command = isotherm(["reclaim", "--control", "c/sock"]);
        command.args(EAGER).args(QUICK).args(options);
        self.child = spawn(command, &self.dir);
    }

    /// Its exit status after a signal.
    pub fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        wait(&mut self.child).code()
    }

    pub fn socket(&self) -> String {
        self.dir.path().join("c/sock").to_str().unwrap().to_owned()
    }

    /// Runs a client of it.
    pub fn ask(&self, args: &[&str]) -> Done {
        run_in(self.dir.path(), &[&["service"], args, &["--control", "c/sock"]].concat())
    }

    pub fn asked(&self, args: &[&str]) -> Done {
        let done = self.ask(args);
        assert_eq!(done.status, 0, "{args:?}: {}", done.err);
        done
    }

    pub fn status(&self) -> Value {
        self.asked(&["status", "--json"]).json()
    }

    pub fn applied(&self) -> u64 {
        self.status()["schemes"][0]["applied"]["bytes"].as_u64().unwrap()
    }

    /// The lines of its log so far, if the log has this name.
    pub fn log(&self) -> Vec<Value> {
        log_in(self.dir.path())
    }

    fn commit(&self, name: &str, text: &str) -> Done {
        fs::write(self.dir.path().join(name), text).unwrap();
        self.ask(&["commit", name])
    }

    pub fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }
}

pub fn spawn(mut command: Command, dir: &TempDir) -> KillOnDrop {
    let err = fs::File::create(dir.path().join("err")).unwrap();
    let out = fs::File::create(dir.path().join("out")).unwrap();
    KillOnDrop(command.current_dir(dir.path()).stdout(out).stderr(err).spawn().unwrap())
}

#[test]
fn wrong_values_are_reported_with_a_valid_value() {
    for (args, said) in [
        (&[][..], "--pid PID, --comm NAME"),
        (&["--all", "--quota", "10ms"], "10ms/1s, or none"),
        (&["--all", "--quota", "2s/1s"], "no more time than that"),
        (&["--all", "--quota-size", "1"], "the action takes 4096"),
        (&["--all", "--watermarks", "20%,40%,50%"], "falling order"),
        (&["--all", "--goal", "load=1%"], "refault=0.2% or psi=0.1%"),
        (&["--all", "--min-age", "old"], "--min-age"),
        (&["--pid", "1", "--look", "damon"], "choose --look bpf"),
    ] {
        let done = run_in("/".as_ref(), &[&["reclaim"], args].concat());
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
}

#[test]
fn cold_memory_is_paged_out_and_hot_memory_stays() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    for signal in [Signal::TERM, Signal::INT] {
        let mut service = Service::working(&["--pid", &load.pid().to_string()]);
        until("what is cold", || swapped(load.pid()) >= 36 * MIB);
        assert_eq!(service.end(signal), Some(0), "{}", service.err());
        assert!(swapped(load.pid()) <= 41 * MIB, "what is hot stays");
    }
}

/// Its region is hot on average, and fifteen of sixteen pages are cold.
#[test]
fn cold_pages_among_hot_ones_go_by_themselves() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let scattered = Running::start("strewn.toml", &["--duration", "1h"]);
    let options = ["--pid", &scattered.pid(), "--quota", "none", "--pages"];
    let (all, hot) = (scattered.memory().len(), 2 * MIB);
    let whole = Service::working(&options[..4]);
    until("what is cold around it", || scattered.swapped() >= all - 34 * MIB);
    std::thread::sleep(Duration::from_secs(2));
    assert!(scattered.swapped() <= all - 31 * MIB, "it is one to who does not look at pages");
    drop(whole);
    let service = Service::working(&options);
    until("what is cold in it", || scattered.swapped() >= all - 2 * hot);
    // It looks again after 10 s.
    std::thread::sleep(Duration::from_secs(11));
    assert!(scattered.swapped() <= all - hot / 2, "{}", service.err());
}

/// Nothing goes, so the same memory is found cold again and again.
#[test]
fn a_dry_run_counts_cold_memory_once() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    let pid = load.pid().to_string();
    let service = Service::working(&["--pid", &pid, "--dry-run", "--quota", "none", "--pages"]);
    until("what is cold", || service.applied() >= 36 * MIB);
    std::thread::sleep(Duration::from_secs(5));
    assert!(service.applied() <= 44 * MIB, "{} of 40 MiB", service.applied());
}

#[test]
fn status_tells_how_it_goes() {
    needs_root!();
    let load = Load::start(48, 8);
    let mut service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    until("what is cold", || service.status()["total"]["cold"].as_u64() >= Some(30 * MIB));
    until("what would go", || service.applied() >= 30 * MIB);
    let status = service.status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["pid"], service.child.id());
    assert_eq!((&status["paused"], &status["dry_run"]), (&false.into(), &true.into()));
    let one = &status["targets"][0];
    assert_eq!(one["pid"], load.pid());
    let comm = fs::read_to_string(format!("/proc/{}/comm", load.pid())).unwrap();
    assert_eq!(one["comm"], comm.trim_end());
    let of = |key: &str| one[key].as_u64().unwrap();
    assert_eq!(of("resident"), of("hot") + of("warm") + of("cold") + of("unknown"));
    assert!(of("cold") >= 30 * MIB && of("resident") >= 48 * MIB, "{one}");
    let by = one["unknown_by"].as_object().unwrap();
    let by: u64 = by.values().map(|v| v.as_u64().unwrap()).sum();
    assert!(of("unknown").abs_diff(by) <= MIB, "{one}");
    assert_eq!(status["schemes"][0]["scheme"], "reclaim");

    let documented = include_str!("../../../../docs/abi/testing/control.md");
    let objects = [&status, one, &status["total"], &status["cost"]];
    for key in objects.iter().flat_map(|o| o.as_object().unwrap().keys()) {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    let text = service.asked(&["status"]);
    for part in ["dry run", "resident", comm.trim_end(), "reclaim", "own CPU"] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
    service.asked(&["stop"]);
    assert_eq!(wait(&mut service.child).code(), Some(0), "{}", service.err());
    assert!(!fs::exists(service.socket()).unwrap(), "it is taken away");
    let nobody = service.ask(&["status"]);
    assert_eq!(nobody.status, 1);
    assert!(nobody.err.contains("isotherm reclaim --all"), "{}", nobody.err);
}

#[test]
fn a_paused_service_does_not_act() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    let pid = load.pid().to_string();
    // A busy machine needs more than 10 ms for a huge page, so there is only a quota of bytes.
    let slowly = ["--pid", &pid, "--quota-size", "4M", "--quota", "none"];
    let service = Service::working(&slowly);
    until("some of it", || service.applied() > 0);
    service.asked(&["pause"]);
    assert_eq!(service.status()["paused"], true);
    let before = (service.applied(), swapped(load.pid()));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((service.applied(), swapped(load.pid())), before);
    service.asked(&["resume"]);
    until("more of it", || service.applied() > before.0);
}

#[test]
fn other_schemes_go_on_where_those_before_were() {
    needs_root!();
    let load = Load::start(48, 8);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    until("some of it", || service.applied() > 0);
    let same = "[[scheme]]\nname = \"reclaim\"\naction = \"pageout\"\nrate = { max = 0 }\n\
                age = { min = \"2h\" }\n";
    for (name, text, said) in [
        ("bad.toml", "[[scheme]]\naction = \"stat\"\ncolour = 1\n", "line 3, column 1"),
        ("bad.txt", "4K null null 5 soon null pageout", "line 1, column 16"),
        ("none.txt", "# nothing\n", "no scheme"),
        ("node.txt", "4K null null 0 1h null migrate_cold 0", "privileges"),
    ] {
        let before = service.applied();
        let done = service.commit(name, text);
        assert_eq!(done.status, 1, "{name}: {}", done.err);
        assert!(done.err.contains(said), "{name}: {}", done.err);
        assert_eq!(service.status()["schemes"][0]["scheme"], "reclaim");
        assert!(service.applied() >= before);
    }
    let before = service.applied();
    let done = service.commit("same.toml", same);
    assert_eq!(done.status, 0, "{}", done.err);
    let after = service.applied();
    assert!(after >= before);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(service.applied(), after, "nothing is as old as that");
    let done = service.commit("other.txt", "4K null null null null null stat");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(service.status()["schemes"][0]["scheme"], "stat");
}

/// A process of another user.
pub fn stranger() -> Child {
    Command::new("sleep").arg("300").uid(65534).gid(65534).spawn().unwrap()
}

#[test]
fn the_capabilities_of_the_unit_are_enough() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let mut sleeper = stranger();
    let pid = sleeper.id();
    let service = Service::as_the_unit(&["--pid", &pid.to_string()]);
    until("what is cold", || swapped(pid.cast_signed()) > 0);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    drop(service);
}
