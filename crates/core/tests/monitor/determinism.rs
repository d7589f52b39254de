use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Snapshots, and the requested windows.
fn history(machine_seed: u64, seed: u64) -> (Vec<Arc<Snapshot>>, Vec<AddrRange>) {
    let (ops, target) = machine(machine_seed, a_quarter_hot);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&asked);
    let spoil = move |ask: &Ask, _: &mut Seen| log.borrow_mut().push(ask.range);
    let watched = Spoiled { ops: ops.clone(), spoil };
    let mut monitor = RegionSampler::new(watched, Attrs::default(), &[target], seed).unwrap();
    let snapshots = run(&mut monitor, &ops, seconds(3.0)).unwrap();
    drop(monitor);
    (snapshots, Rc::into_inner(asked).unwrap().into_inner())
}

#[test]
fn a_seed_and_a_machine_give_the_same_snapshots() {
    assert_eq!(history(1, 1), history(1, 1));
}

#[test]
fn another_seed_looks_elsewhere() {
    let (one, other) = (history(1, 1), history(1, 2));
    let first = |h: &(_, Vec<AddrRange>)| h.1[..100].to_vec();
    assert_ne!(first(&one), first(&other));
    assert_ne!(one.0, other.0);
}

#[test]
fn another_machine_is_touched_otherwise() {
    assert_ne!(history(1, 1).0, history(2, 1).0);
}

/// Each step reads the windows that the previous one cleared, without clearing them again.
#[test]
fn a_window_is_cleared_once_and_read_once() {
    let (ops, target) = machine(1, a_quarter_hot);
    let attrs = Attrs { clear_every: 1, ..Attrs::default() };
    let asked = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&asked);
    let spoil = move |ask: &Ask, seen: &mut Seen| log.borrow_mut().push((seen.read_at, *ask));
    let mut monitor =
        RegionSampler::new(Spoiled { ops: ops.clone(), spoil }, attrs, &[target], 1).unwrap();
    let snapshots = run(&mut monitor, &ops, seconds(2.0)).unwrap();
    let asked = asked.borrow();
    let at = |step: u64, clear: bool| -> Vec<AddrRange> {
        let now = Nanos(step * 20_000_000);
        let is_window = |r: AddrRange| r.len() <= attrs.window;
        let then = asked.iter().filter(|(t, ask)| *t == now && ask.clear == clear);
        let then = then.filter(|(_, ask)| is_window(ask.range));
        then.map(|(_, ask)| ask.range).collect()
    };
    assert!((0..100).all(|step| at(step, true) == at(step + 1, false)));
    let read: u64 = (1..=100).map(|step| at(step, false).len() as u64).sum();
    assert_eq!(read, snapshots.iter().map(|s| s.cost.looks).sum::<u64>());
}
