//! Actions on a real process.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod page_out;
mod places;
mod sizes;
mod swap;
mod touches;

use std::time::Duration;

use common::{obey as be_obedient, root, with_memory};
use isotherm_core::{Act, Action, AddrRange, Applied, Budget, Look, PAGE_SIZE, TargetId, Work};
use isotherm_linux::Vaddr;

#[test]
fn obey() {
    be_obedient();
}

const ALL: Budget = Budget { bytes: u64::MAX, time: Duration::from_secs(3600) };
const MS: Duration = Duration::from_millis(1);

fn work(action: &Action, target: TargetId, range: AddrRange) -> Work<'_> {
    Work { action, target, range, budget: ALL, filters: &[], recheck: Duration::ZERO, cause: None }
}

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn apply(ops: &mut Vaddr, work: Work<'_>) -> Applied {
    let mut out = Vec::new();
    ops.apply(&[work], &mut out).unwrap();
    assert_eq!(out.len(), 1);
    out[0]
}

/// Tried, applied and passed memory, in pages.
fn pages(a: Applied) -> [u64; 3] {
    [a.tried, a.applied, a.passed].map(|bytes| bytes / PAGE_SIZE)
}

/// The number of huge pages of `range`.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn huge(ops: &mut Vaddr, target: TargetId, range: AddrRange) -> usize {
    let mut blocks = Vec::new();
    Look::survey(ops).unwrap().survey(target, &[range], &mut blocks).unwrap();
    blocks.iter().filter(|b| b.huge).count()
}
