//! Moves in the LRU lists, and between nodes.

use isotherm_core::{Act, Action, AddrRange, Destination, Destinations, Failure, Support, Work};
use isotherm_linux::proc::{KPageFlags, Pagemap};

use crate::common::settings::HUGE_PAGES;
use crate::common::{Obedient, attached, needs_root, part};
use crate::{MS, apply, pages, with_memory, work};

/// The number of pages of `range` with this flag (a bit of `/proc/kpageflags`).
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn flagged(process: &Obedient, range: AddrRange, bit: u32) -> usize {
    let root = "/".as_ref();
    let mut pagemap = Pagemap::open(root, process.pid()).unwrap();
    let frames: Vec<u64> =
        pagemap.read(range).filter(|e| e.is_present()).map(|e| e.frame()).collect();
    let flags = KPageFlags::open(root).unwrap().of(&frames).unwrap();
    flags.iter().filter(|f| f.0 >> bit & 1 == 1).count()
}

const ACTIVE: u32 = 6;

#[test]
fn pages_move_up_and_down_the_lists() {
    needs_root!();
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let small = process.map(1000, "small");
    let huge = process.map(512, "huge");
    [small, huge].into_iter().for_each(|m| process.touch(m));
    let down = Work { recheck: MS, ..work(&Action::LruDeprio, target, small) };
    let done = apply(&mut ops, down);
    assert!(pages(done)[1] >= 990, "{done:?}");
    assert_eq!(flagged(&process, small, ACTIVE), 0);
    let done = apply(&mut ops, work(&Action::LruPrio, target, part(small, 0, 500)));
    assert_eq!(pages(done), [500, 500, 0], "{done:?}");
    let generations = std::path::Path::new("/sys/kernel/mm/lru_gen").exists();
    let active = flagged(&process, small, ACTIVE);
    assert!(generations || (450..=500).contains(&active), "{active}");
    let done = apply(&mut ops, work(&Action::LruPrio, target, huge));
    assert_eq!((pages(done), done.failure), ([0, 0, 512], Some(Failure::Refused)));
}

#[test]
fn memory_moves_to_nodes_that_are_there() {
    needs_root!();
    let (process, mut ops, target, memory) = with_memory(300, "small");
    let to = |node| {
        let all = [Destination { node, weight: 1 }];
        Action::MigrateCold(Destinations(all.into()))
    };
    let said = ops.supports(&to(900));
    assert!(matches!(&said, Support::No(why) if why.contains("no node 900")), "{said:?}");
    let node = isotherm_linux::sys::page_nodes(process.pid(), &[memory.start]).unwrap()[0];
    let here = to(node.unsigned_abs());
    assert_eq!(ops.supports(&here), Support::Yes);
    let nodes = isotherm_linux::numa::nodes("/".as_ref()).unwrap();
    for other in nodes.iter().filter(|n| n.node != node.unsigned_abs()) {
        let there = to(other.node);
        let done = apply(&mut ops, Work { recheck: MS, ..work(&there, target, memory) });
        assert_eq!(pages(done)[1], 300, "{done:?}");
        let back = apply(&mut ops, work(&here, target, memory));
        assert_eq!(pages(back)[1], 300, "{back:?}");
    }
    let done = apply(&mut ops, work(&here, target, memory));
    assert_eq!(pages(done), [0, 0, 300], "it lies there: {done:?}");
}
