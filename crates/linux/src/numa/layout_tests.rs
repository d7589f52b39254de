use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use isotherm_core::Mapping;

use super::*;
use crate::proc::mappings;
use crate::sys::OwnPages;
use crate::walker::own_pid;

/// On a machine with one node all lies there, wherever it is asked to be.
#[test]
fn own_pages_are_found_and_an_absent_node_is_reported() {
    let mut own = OwnPages::map(64).unwrap();
    (0..64).step_by(2).for_each(|page| own.write(page, 1));
    let Some(mut layout) = as_root(own_pid()) else { return };
    let here = layout.look(own.range(0, 64), |_| 0).unwrap();
    assert_eq!(here.pages, 32);
    assert_eq!(here.found.values().sum::<u64>(), 32);
    assert_eq!(here.asked, BTreeMap::from([(0, 32)]));
    let mut done = MoveResult::default();
    let absent = layout.lay_out([(own.range(0, 64), |_| 1000)], &mut done).unwrap_err();
    assert!(absent.to_string().contains("no node 1000 with memory"), "{absent}");
    assert_eq!((done.misplaced, done.moved), (32, 0));
}

/// Flags of pages are for root alone.
fn as_root(pid: i32) -> Option<ProcessLayout> {
    let layout = ProcessLayout::of("/".as_ref(), pid);
    if let Err(NumaError::NoFrames) = layout {
        let all = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
        assert!(!all, "pieces take root");
        return None;
    }
    Some(layout.unwrap())
}

#[test]
fn after_an_exec_there_is_other_memory() {
    let mut command = Command::new("sh");
    command.args(["-c", "read x; exec sleep 60"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = child.id().cast_signed();
    if let Some(mut layout) = as_root(pid) {
        let mut pages = |renewed: bool| {
            if renewed {
                layout.renew().unwrap();
            }
            let mappings = mappings("/".as_ref(), pid).unwrap();
            let pages = |m: &Mapping| layout.look(m.range, |_| 0).unwrap().pages;
            mappings.iter().map(pages).sum::<u64>()
        };
        assert!(pages(false) > 0);
        child.stdin.take().unwrap().write_all(b"x\n").unwrap();
        let is_sleep = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n";
        while !is_sleep() {
            std::thread::yield_now();
        }
        assert_eq!(pages(false), 0, "what it was is gone");
        assert!(pages(true) > 0);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
