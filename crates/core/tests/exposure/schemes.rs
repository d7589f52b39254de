//! The ready schemes, by the regions that they select.

use super::*;
use isotherm_core::scheme::{Scheme, parse};

/// The bytes in `range` that a scheme selects.
fn selected(scheme: &Scheme, s: &Snapshot, range: AddrRange) -> u64 {
    bytes_where(&s.targets[0], range, |r| scheme.pattern.matches(r, Attrs::default().sample))
}

/// A program that passes through its memory keeps its huge pages, also where its measured rate varies around the rate
/// for which the scheme makes them.
#[test]
fn ethp_splits_no_huge_pages_of_passes() {
    let schemes = parse(include_str!("../../../../schemes/ethp.txt"), ms(100)).unwrap();
    let [makes, splits] = &schemes[..] else { panic!("{schemes:?}") };
    for (every, size) in [(1, 64), (2, 256), (4, 64), (8, 128), (16, 64)] {
        let passes = mib(0, size);
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, size + 64), MappingSpec::anonymous()).unwrap();
            m.touch(t, passes, TouchPattern::Sweep { every: Duration::from_secs(every) }).unwrap();
        });
        let (snapshots, _) = watched(90.0, Attrs::default(), &ops, target, |_| {});
        for s in snapshots.iter().filter(|s| s.start > seconds(45.0)) {
            let split = selected(splits, s, passes) / MIB;
            assert!(
                split <= size / 50,
                "{split} of {size} MiB, a pass in {every} s, at {:?}",
                s.end
            );
        }
        let last = snapshots.last().unwrap();
        assert!(selected(splits, last, mib(size, 64)) >= 60 * MIB, "idle memory");
        // A huge page that was made once stays.
        let is_made = |at: &u64| {
            let block = mib(*at, 2);
            snapshots.iter().any(|s| selected(makes, s, block) == block.len())
        };
        let made = (0..size).step_by(2).filter(is_made).count() as u64 * 2;
        assert!(every > 2 || made >= size * 9 / 10, "{made} of {size} MiB, a pass in {every} s");
    }
}
