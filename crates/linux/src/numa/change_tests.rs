use std::fs;

use super::super::undo_log::PATH;
use super::super::weights::WeightFiles;
use super::*;
use crate::testing::put as file;

const WEIGHTS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

/// A machine with three nodes; as a file has no kernel behind it, setting a weight does not end the
/// automatic mode: tests of that do it by hand.
fn machine(auto: Option<&str>, weights: [u8; 3]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    file(root, "proc/sys/kernel/random/boot_id", "this-boot\n");
    for (node, weight) in weights.into_iter().enumerate() {
        file(root, &format!("{WEIGHTS}/node{node}"), &format!("{weight}\n"));
    }
    if let Some(text) = auto {
        file(root, &format!("{WEIGHTS}/auto"), text);
    }
    let own = crate::walker::own_pid();
    let stat = fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
    file(root, &format!("proc/{own}/stat"), &stat);
    dir
}

fn weights(root: &Path) -> Vec<u8> {
    WeightFiles::find(root).unwrap().read().unwrap().weights.into_values().collect()
}

fn of(pairs: &[(u32, u8)]) -> BTreeMap<u32, u8> {
    pairs.iter().copied().collect()
}

fn set_to(root: &Path, pairs: &[(u32, u8)]) -> Result<WeightSetting, NumaError> {
    set(root, &RequestedWeights::Weights(of(pairs)))
}

/// As after a kill: the held weights are not restored.
fn killed(root: &Path, holding: Holding) {
    std::mem::forget(holding);
    fs::remove_file(root.join(format!("proc/{}/stat", crate::walker::own_pid()))).unwrap();
}

#[test]
fn previous_weights_are_restored() {
    let dir = machine(None, [1, 2, 3]);
    let root = dir.path();
    set_to(root, &[(0, 9)]).unwrap();
    set_to(root, &[(1, 4)]).unwrap();
    assert_eq!(weights(root), [9, 4, 3]);
    let done = put_back(root).unwrap();
    assert_eq!((weights(root), done.nodes), (vec![1, 2, 3], vec![0, 1]));
    assert!(!root.join(PATH).exists());
    assert!(!put_back(root).unwrap().is_something(), "it was put back already");
}

#[test]
fn weights_that_others_set_later_stay() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9), (1, 8)]).unwrap();
    file(root, &format!("{WEIGHTS}/node1"), "7\n");
    set_to(root, &[(2, 5)]).unwrap();
    let done = put_back(root).unwrap();
    assert_eq!(weights(root), [1, 7, 1]);
    assert_eq!(done.nodes, [0, 2]);
}

#[test]
fn later_changes_by_others_are_reported() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9), (1, 8)]).unwrap();
    file(root, &format!("{WEIGHTS}/node1"), "7\n");
    let done = put_back(root).unwrap();
    assert_eq!((weights(root), done.nodes, done.left), (vec![1, 7, 1], vec![0], vec![1]));
}

#[test]
fn a_run_holds_weights_and_equal_runs_join() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9)]).unwrap();
    let one = hold(root, &of(&[(0, 2), (1, 3)])).unwrap();
    assert_eq!(weights(root), [2, 3, 1]);
    let other = hold(root, &of(&[(0, 4)])).unwrap_err();
    assert!(matches!(other, NumaError::InUse { .. }), "{other}");
    assert!(matches!(set_to(root, &[(2, 2)]), Err(NumaError::InUse { .. })));
    assert!(matches!(put_back(root), Err(NumaError::InUse { .. })));
    let joined = hold(root, &of(&[(1, 3), (2, 1)])).unwrap();
    assert!(matches!(hold(root, &of(&[(2, 5)])), Err(NumaError::InUse { .. })));
    drop(joined);
    drop(one);
    assert_eq!(weights(root), [9, 1, 1], "what was set stays");
    put_back(root).unwrap();
    assert_eq!(weights(root), [1, 1, 1]);
}

#[test]
fn a_second_run_is_refused_after_a_change_by_others() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    let held = hold(root, &of(&[(0, 2), (1, 3)])).unwrap();
    file(root, &format!("{WEIGHTS}/node1"), "7\n");
    let other = hold(root, &of(&[(0, 2), (1, 3)])).unwrap_err();
    assert!(matches!(&other, NumaError::Changed { nodes } if nodes == &[1]), "{other}");
    let done = held.end().unwrap();
    assert_eq!((weights(root), done.nodes, done.left), (vec![1, 7, 1], vec![0], vec![1]));
}

#[test]
fn a_note_that_is_not_understood_stays() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    let unversioned = "{\"boot_id\":\"this-boot\",\"set\":null,\"run\":null}";
    for text in ["{\"boot_id\":\"thi", "{\"version\":9,\"boot_id\":\"this-boot\"}", unversioned] {
        file(root, PATH, text);
        let e = set_to(root, &[(0, 9)]).unwrap_err();
        assert!(matches!(e, NumaError::Note { .. }), "{e}");
        assert!(e.to_string().contains("remove the file"), "{e}");
        assert_eq!(fs::read_to_string(root.join(PATH)).unwrap(), text);
    }
    assert_eq!(weights(root), [1, 1, 1]);
}

#[test]
fn a_change_that_cannot_be_undone_stays_noted() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    let log = UndoLog::open(root).unwrap();
    let before = log.files.read().unwrap();
    // Neither written nor read from now on.
    fs::remove_file(root.join(WEIGHTS).join("node1")).unwrap();
    fs::create_dir(root.join(WEIGHTS).join("node1")).unwrap();
    let failed = log.write(&RequestedWeights::Weights(of(&[(0, 9), (1, 9)])), &before).unwrap_err();
    assert!(!failed.undone, "{}", failed.why);
}

#[test]
fn the_next_run_restores_the_weights_of_a_killed_run() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    killed(root, hold(root, &of(&[(0, 2), (1, 3)])).unwrap());
    file(root, &format!("{WEIGHTS}/node1"), "7\n");
    let done = sweep(root).unwrap();
    assert_eq!((weights(root), done.nodes, done.left), (vec![1, 7, 1], vec![0], vec![1]));
    assert!(!sweep(root).unwrap().is_something());
}

#[test]
fn of_another_boot_nothing_is_ours() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9)]).unwrap();
    file(root, "proc/sys/kernel/random/boot_id", "next-boot\n");
    assert!(!put_back(root).unwrap().is_something());
    assert_eq!(weights(root), [9, 1, 1]);
}

#[test]
fn a_node_that_is_not_there_changes_nothing() {
    let dir = machine(None, [1, 1, 1]);
    let root = dir.path();
    let e = set_to(root, &[(0, 9), (3, 1)]).unwrap_err();
    assert!(e.to_string().contains("no node 3 with memory; nodes with memory: 0, 1, 2"));
    assert_eq!(weights(root), [1, 1, 1]);
    assert!(!put_back(root).unwrap().is_something());
    assert!(matches!(set(root, &RequestedWeights::Auto), Err(NumaError::NoAuto)));
    assert!(!root.join(PATH).exists());
    let bare = tempfile::tempdir().unwrap();
    assert!(matches!(put_back(bare.path()), Err(NumaError::NoWeights)));
}

#[test]
fn the_automatic_mode_comes_back_too() {
    let dir = machine(Some("true\n"), [5, 2, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9)]).unwrap();
    file(root, &format!("{WEIGHTS}/auto"), "false\n");
    let done = put_back(root).unwrap();
    assert!(done.mode && done.nodes == [0], "{done:?}");
    let now = WeightFiles::find(root).unwrap().read().unwrap();
    assert_eq!((now.auto, now.weights[&0]), (Some(true), 5));
}

#[test]
fn weights_before_the_automatic_mode_come_back() {
    let dir = machine(Some("false\n"), [3, 3, 1]);
    let root = dir.path();
    set(root, &RequestedWeights::Auto).unwrap();
    file(root, &format!("{WEIGHTS}/node1"), "2\n");
    put_back(root).unwrap();
    assert_eq!(weights(root), [3, 3, 1]);
}

/// With what the kernel has derived there, and a weight set by hand since.
#[test]
fn a_weight_by_hand_after_the_automatic_mode_is_left() {
    let dir = machine(Some("false\n"), [3, 3, 1]);
    let root = dir.path();
    set(root, &RequestedWeights::Auto).unwrap();
    for (name, text) in [("auto", "false\n"), ("node1", "7\n")] {
        file(root, &format!("{WEIGHTS}/{name}"), text);
    }
    let mut log = UndoLog::open(root).unwrap();
    log.state.set.as_mut().unwrap().wrote.weights.insert(0, 5);
    log.close().unwrap();
    file(root, &format!("{WEIGHTS}/node0"), "5\n");
    let done = put_back(root).unwrap();
    assert_eq!((weights(root), done.nodes, done.left), (vec![3, 7, 1], vec![0], vec![1]));
}

#[test]
fn holding_present_weights_writes_nothing() {
    let dir = machine(Some("true\n"), [5, 2, 1]);
    let root = dir.path();
    let held = hold(root, &of(&[(0, 5), (1, 2)])).unwrap();
    let change = &UndoLog::open(root).unwrap().state.run.as_ref().unwrap().change.clone();
    assert_eq!((&change.wrote, change.wrote.auto), (&change.before, Some(true)));
    assert!(matches!(set_to(root, &[(2, 2)]), Err(NumaError::InUse { .. })));
    assert!(!held.end().unwrap().is_something());
}

#[test]
fn an_automatic_mode_that_others_turned_on_stays() {
    let dir = machine(Some("false\n"), [3, 3, 1]);
    let root = dir.path();
    set_to(root, &[(0, 9)]).unwrap();
    for (name, text) in [("auto", "true\n"), ("node0", "5\n")] {
        file(root, &format!("{WEIGHTS}/{name}"), text);
    }
    let done = put_back(root).unwrap();
    assert_eq!((weights(root), done.left), (vec![5, 3, 1], vec![0]));
}
