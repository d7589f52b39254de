//! Properties that hold for any nodes, weights and orders.

use isotherm_mm::mempolicy::{Allowed, Mode, NodeWeights, Task, Use, WeightFilesModel};
use isotherm_mm::{Memory, NodeSet};
use proptest::prelude::*;

use super::{PAGES, given, memory, node_of, request, task, weights};

const NODES: usize = 4;

fn sets() -> impl Strategy<Value = NodeSet> {
    (1_usize..1 << NODES).prop_map(|bits| (0..NODES).filter(|n| bits >> n & 1 == 1).collect())
}

fn some_weights() -> impl Strategy<Value = [u8; NODES]> {
    // Mostly small weights, for more rounds.
    let weight = || prop_oneof![4 => 1_u8..8, 1 => 1_u8..=255];
    [weight(), weight(), weight(), weight()]
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::WeightedInterleave),
        2 => Just(Mode::Interleave),
        1 => Just(Mode::Preferred),
        1 => Just(Mode::Bind),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Mapped(u64, u8),
    Other(u8),
    Rebind(NodeSet),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<u64>(), any::<u8>()).prop_map(|(at, pages)| Step::Mapped(at >> 1, pages)),
        3 => any::<u8>().prop_map(Step::Other),
        2 => sets().prop_map(Step::Rebind),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    /// While memory is free, allocations follow the rule, over any stretch of pages.
    #[test]
    fn pages_lie_where_the_rule_says(
        nodes in sets(), w in some_weights(), from in 0..u64::MAX / 2, pages in 0_u64..3000,
        local in 0..NODES,
    ) {
        let (mut memory, files) = (memory(NODES), weights(&w));
        let mut task = task(Mode::WeightedInterleave, nodes, NodeSet::ALL);
        for index in from..from + pages {
            let what = Use::Mapped(index);
            task.allocate(&mut memory, request(local), what, &files, &mut (), |_| ()).unwrap();
        }
        let rule = NodeWeights::new(nodes.iter().map(|n| (u32::try_from(n).unwrap(), w[n]))).unwrap();
        let mut expected = [0; NODES];
        for (node, count) in rule.counts(from..from + pages) {
            expected[usize::try_from(node).unwrap()] = count;
        }
        prop_assert_eq!(given(&memory), expected);
    }

    /// With weights of 1, weighted interleave is plain interleave.
    #[test]
    fn ones_are_plain(nodes in sets(), index in any::<u64>(), local in 0..NODES) {
        let files = weights(&[1; NODES]);
        let mut weighted = task(Mode::WeightedInterleave, nodes, NodeSet::ALL);
        let mut plain = task(Mode::Interleave, nodes, NodeSet::ALL);
        for what in [Use::Mapped(index), Use::Other, Use::Other, Use::Mapped(index / 3), Use::Other] {
            prop_assert_eq!(
                weighted.node(what, local, &files, |_| ()), plain.node(what, local, &files, |_| ()));
        }
    }

    /// Whatever changes and whenever, until no memory remains: a page is on a node that is allowed at the
    /// time, no page is lost, and no allocation fails while there is memory.
    #[test]
    fn never_outside_the_allowed_nodes(
        mode in modes(), nodes in sets(), w in some_weights(), local in 0..NODES, steps in steps(),
        mut changes in proptest::collection::vec(proptest::option::weighted(0.3, sets()), 0..60),
    ) {
        let (mut memory, files) = (memory(NODES), weights(&w));
        let mut task = task(mode, nodes, NodeSet::ALL);
        let mut taken = 0;
        for step in steps {
            let mut meanwhile = |allowed: &mut Allowed| {
                if let Some(nodes) = changes.pop().flatten() {
                    allowed.rebind(nodes);
                }
            };
            match step {
                Step::Rebind(nodes) => task.allowed_mut().rebind(nodes),
                Step::Mapped(at, pages) => {
                    for index in at..at + u64::from(pages) {
                        // One at a time, so that the allowed nodes at that time are known.
                        taken += one(&mut task, &mut memory, Use::Mapped(index), local, &files, |_| ())?;
                    }
                }
                Step::Other(pages) => {
                    for _ in 0..pages {
                        taken += one(&mut task, &mut memory, Use::Other, local, &files, &mut meanwhile)?;
                    }
                }
            }
        }
        prop_assert_eq!(given(&memory).iter().sum::<u64>(), taken);
        let free: i64 = memory.zones().iter().map(|z| z.free.exact()).sum();
        prop_assert_eq!(free.unsigned_abs() + taken, PAGES.unsigned_abs() * NODES as u64);
    }
}

/// Allocates a page, if there is one. Returns the number of pages.
fn one(
    task: &mut Task,
    memory: &mut Memory,
    what: Use,
    local: usize,
    files: &WeightFilesModel,
    meanwhile: impl FnMut(&mut Allowed),
) -> Result<u64, TestCaseError> {
    match task.allocate(memory, request(local), what, files, &mut (), meanwhile) {
        Ok(page) => {
            prop_assert!(task.usable().contains(node_of(memory, page.frame)));
            prop_assert!(task.allowed().nodes().contains(node_of(memory, page.frame)));
            Ok(1)
        }
        Err(_) => {
            let usable = memory.zones().iter().filter(|z| task.usable().contains(z.node));
            for zone in usable {
                prop_assert!(zone.free.exact() <= zone.watermarks.min + 1);
            }
            Ok(0)
        }
    }
}
