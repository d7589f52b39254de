//! Behaviour when the node of a policy has no memory left, or may not be used.

use isotherm_mm::mempolicy::{Mode, Use};
use isotherm_mm::{Memory, NodeSet};

use super::{given, memory, node_of, request, set, task, weights};

/// Leaves a node at its low watermark.
fn fill(memory: &mut Memory, node: usize) {
    let zone = &memory.zones()[node];
    let above = zone.free.exact() - zone.watermarks.low;
    memory.occupy(node, above);
}

/// The node of one page by a mode over nodes 0 and 2 of 4, for a request on node 3.
fn first_node(mode: Mode, memory: &mut Memory, nodes: &[usize], allowed: NodeSet) -> usize {
    let mut task = task(mode, set(nodes), allowed);
    let files = weights(&[1, 1, 1, 1]);
    let page = task.allocate(memory, request(3), Use::Mapped(0), &files, &mut (), |_| ()).unwrap();
    node_of(memory, page.frame)
}

#[test]
fn modes_begin_where_they_say() {
    let all = NodeSet::ALL;
    let of = |mode, nodes: &[usize]| first_node(mode, &mut memory(4), nodes, all);
    assert_eq!(of(Mode::Local, &[]), 3);
    assert_eq!(of(Mode::Preferred, &[1]), 1);
    assert_eq!(of(Mode::Bind, &[0, 2]), 2, "the nearest of them");
    assert_eq!(of(Mode::Interleave, &[0, 2]), 0);
    assert_eq!(of(Mode::WeightedInterleave, &[0, 2]), 0);
}

#[test]
fn a_full_node_spills_to_the_nearest() {
    let of = |mode, nodes: &[usize], allowed| {
        let mut memory = memory(4);
        fill(&mut memory, 0);
        first_node(mode, &mut memory, nodes, allowed)
    };
    // Not the other node of the policy: the policy only determines where to begin.
    assert_eq!(of(Mode::WeightedInterleave, &[0, 2], NodeSet::ALL), 1);
    assert_eq!(of(Mode::Interleave, &[0, 2], NodeSet::ALL), 1);
    assert_eq!(of(Mode::Preferred, &[0], NodeSet::ALL), 1);
    assert_eq!(of(Mode::WeightedInterleave, &[0, 2], set(&[0, 2, 3])), 2, "1 is not allowed");
}

#[test]
fn a_bind_never_spills_out() {
    let mut memory = memory(2);
    let mut task = task(Mode::Bind, set(&[1]), NodeSet::ALL);
    let files = weights(&[1, 1]);
    let mut take = |memory: &mut Memory| {
        task.allocate(memory, request(0), Use::Other, &files, &mut (), |_| ()).is_ok()
    };
    while take(&mut memory) {}
    assert_eq!(given(&memory)[0], 0);
    assert!(!take(&mut memory), "although node 0 is free");
}

/// Each node is filled to its low watermark while another one has more, then to its minimum.
#[test]
fn weighted_pages_go_elsewhere_until_nothing_is_left() {
    let mut memory = memory(2);
    let mut task = task(Mode::WeightedInterleave, set(&[0, 1]), NodeSet::ALL);
    let files = weights(&[3, 1]);
    let mut page = 0;
    let mut take = |memory: &mut Memory| {
        page += 1;
        task.allocate(memory, request(0), Use::Mapped(page - 1), &files, &mut (), |_| ()).is_ok()
    };
    // 3 of 4 pages are on node 0, while it has memory.
    let low = memory.zones()[0].watermarks.low;
    let room = memory.zones()[0].free.exact() - low;
    for _ in 0..room / 3 * 4 {
        assert!(take(&mut memory));
    }
    let before = given(&memory);
    assert_eq!(before, [room.unsigned_abs() / 3 * 3, room.unsigned_abs() / 3]);
    for _ in 0..400 {
        assert!(take(&mut memory));
    }
    let after = given(&memory);
    assert!(after[0] - before[0] <= 3, "it is at its low mark");
    assert!(after[1] - before[1] >= 397);
    while take(&mut memory) {}
    assert!(memory.zones().iter().all(|z| z.free.exact() <= z.watermarks.min + 1));
}

#[test]
fn a_failed_allocation_is_retried_with_more_nodes() {
    let mut memory = memory(3);
    memory.occupy(0, super::PAGES);
    let mut task = task(Mode::WeightedInterleave, set(&[0]), set(&[0]));
    let files = weights(&[1, 1, 1]);
    let mut calls = 0;
    let page = task.allocate(&mut memory, request(0), Use::Mapped(0), &files, &mut (), |allowed| {
        calls += 1;
        if calls == 1 {
            allowed.rebind(set(&[2]));
        }
    });
    assert_eq!(node_of(&memory, page.unwrap().frame), 2);
    assert_eq!(task.allowed().policy().nodes(), set(&[2]), "the policy moved along");

    let mut bound = super::task(Mode::Bind, set(&[0]), set(&[0]));
    let page = bound.allocate(&mut memory, request(0), Use::Other, &files, &mut (), |_| ());
    assert!(page.is_err(), "nobody has changed anything");
}
