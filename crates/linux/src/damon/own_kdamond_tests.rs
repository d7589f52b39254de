use std::fs;

use isotherm_core::Attrs;

use super::*;
use crate::damon::attrs::KdamondAttrs;
use crate::damon::sysfs::Target;

const ALL: &str = "sys/kernel/mm/damon/admin/kdamonds";

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn thread(root: &Path, pid: i32, start_ticks: u64) {
    let zeros = "0 ".repeat(10);
    let stat = format!("{pid} (kdamond.0) I 2 0 0 0 -1 2129984 {zeros}0 0 {start_ticks} 0 0\n");
    file(root, &format!("proc/{pid}/stat"), &stat);
}

/// A machine whose DAMON is free; kdamond 0, where it is to be made, will run as thread 607.
pub fn free() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    file(root, "proc/sys/kernel/random/boot_id", "this-boot\n");
    thread(root, 607, 1038);
    file(root, &format!("{ALL}/nr_kdamonds"), "0\n");
    file(root, &format!("{ALL}/0/state"), "off\n");
    file(root, &format!("{ALL}/0/pid"), "607\n");
    file(root, &format!("{ALL}/0/contexts/nr_contexts"), "1\n");
    file(root, &format!("{ALL}/0/contexts/0/avail_operations"), "vaddr\n");
    dir
}

pub fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(ALL).join(name)).unwrap().trim().to_owned()
}

fn context() -> Context {
    let monitoring_attrs = KdamondAttrs::from(Attrs::default()).monitoring_attrs();
    let targets = vec![Target { pid_target: 42, ..Target::default() }];
    Context { monitoring_attrs, targets, ..Context::default() }
}

/// Whether every write fails because the kdamond belongs to another program.
fn refuses(own_kdamond: &mut OwnKdamond) -> bool {
    let all = [
        own_kdamond.check(),
        own_kdamond.set_up(&context()),
        own_kdamond.commit(),
        own_kdamond.tuned().map(drop),
        own_kdamond.stop(),
        own_kdamond.start(),
    ];
    all.iter().all(|r| matches!(r, Err(DamonError::Stopped)))
}

#[test]
fn made_started_stopped_and_taken_away() {
    let dir = free();
    let root = dir.path();
    let mut own_kdamond = OwnKdamond::take(root).unwrap();
    assert_eq!(read(root, "nr_kdamonds"), "1");
    own_kdamond.start().unwrap();
    assert!(own_kdamond.is_running());
    assert_eq!(read(root, "0/state"), "on");
    own_kdamond.stop().unwrap();
    assert!(!own_kdamond.is_running());
    own_kdamond.start().unwrap();
    drop(own_kdamond);
    assert_eq!((read(root, "0/state"), read(root, "nr_kdamonds")), ("off".into(), "0".into()));
    assert!(!root.join("run/isotherm/damon.json").exists());
}

/// Another program has recreated the directory.
#[test]
fn another_directory_is_left_alone() {
    let dir = free();
    let root = dir.path();
    let mut own_kdamond = OwnKdamond::take(root).unwrap();
    own_kdamond.start().unwrap();
    fs::rename(root.join(ALL).join("0"), root.join(ALL).join("before")).unwrap();
    file(root, &format!("{ALL}/0/state"), "on\n");
    file(root, &format!("{ALL}/0/pid"), "607\n");
    assert!(!own_kdamond.is_running() && refuses(&mut own_kdamond));
    drop(own_kdamond);
    assert_eq!((read(root, "0/state"), read(root, "nr_kdamonds")), ("on".into(), "1".into()));
}

/// Another program uses the directory for its own kdamond, and has also stopped ours.
#[test]
fn another_thread_is_left_alone() {
    for stop in [false, true] {
        let dir = free();
        let root = dir.path();
        let mut own_kdamond = OwnKdamond::take(root).unwrap();
        own_kdamond.start().unwrap();
        if stop {
            own_kdamond.stop().unwrap();
        }
        thread(root, 700, 9000);
        file(root, &format!("{ALL}/0/pid"), "700\n");
        file(root, &format!("{ALL}/0/state"), "on\n");
        assert!(!own_kdamond.is_running() && refuses(&mut own_kdamond), "stopped before: {stop}");
        drop(own_kdamond);
        assert_eq!((read(root, "0/state"), read(root, "nr_kdamonds")), ("on".into(), "1".into()));
    }
}
