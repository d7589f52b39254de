//! `isotherm reclaim`.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::run::{QUICK, isotherm, root_or_skip, run_in, until, wait};
use crate::schemes::swapped;

/// Without what would have it wait on a machine with free memory.
pub const EAGER: [&str; 4] = ["--min-age", "1s", "--watermarks", "none"];

/// `isotherm reclaim` at work, in a directory of its own; killed when dropped.
pub struct Service {
    pub child: Child,
    pub dir: TempDir,
}

impl Service {
    pub fn start(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = isotherm(["reclaim"]);
        command.args(EAGER).args(QUICK).args(options);
        let err = fs::File::create(dir.path().join("err")).unwrap();
        let out = fs::File::create(dir.path().join("out")).unwrap();
        let child = command.current_dir(dir.path()).stdout(out).stderr(err).spawn().unwrap();
        Service { child, dir }
    }

    /// Its exit status at a signal.
    pub fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        wait(&mut self.child).code()
    }

    pub fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn wrong_values_are_told_with_what_would_be_right() {
    for (args, said) in [
        (&[][..], "--pid PID, --comm NAME"),
        (&["--all", "--quota", "10ms"], "10ms/1s, or none"),
        (&["--all", "--quota", "2s/1s"], "no more time than that"),
        (&["--all", "--quota-size", "1"], "the action takes 4096"),
        (&["--all", "--watermarks", "20%,40%,50%"], "falling order"),
        (&["--all", "--goal", "load=1%"], "refault=0.2% or psi=0.1%"),
        (&["--all", "--min-age", "old"], "--min-age"),
        (&["--all", "--look", "damon"], "look by bpf"),
    ] {
        let done = run_in("/".as_ref(), &[&["reclaim"], args].concat());
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
}

#[test]
fn what_is_cold_goes_and_what_is_hot_stays() {
    if !root_or_skip("what_is_cold_goes_and_what_is_hot_stays") {
        return;
    }
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    for signal in [Signal::TERM, Signal::INT] {
        let mut service = Service::start(&["--pid", &load.pid().to_string()]);
        until("what is cold", || swapped(load.pid()) >= 36 * MIB);
        assert_eq!(service.end(signal), Some(0), "{}", service.err());
        assert!(swapped(load.pid()) <= 41 * MIB, "what is hot stays");
    }
}
