use super::*;
use isotherm_core::align_down;
use isotherm_core::{Step, Unknown};
use proptest::prelude::*;

/// Memory that one sample may represent.
const BLOCK: u64 = 2 * MIB;

/// A change by the target, in a stretch of its 4096 pages.
#[derive(Debug, Clone)]
enum Change {
    Touch(u64, u64, f64),
    /// touches each page once
    Once(u64, u64),
    Rest(u64, u64),
    Hide(u64, u64),
    Show(u64, u64),
    Remap(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let (at, len) = (0u64..4000, 1u64..500);
    prop_oneof![
        3 => (at.clone(), len.clone(), 0.02f64..300.0).prop_map(|(at, len, hz)| Change::Touch(at, len, hz)),
        2 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Once(at, len)),
        3 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Rest(at, len)),
        1 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Hide(at, len)),
        1 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Show(at, len)),
        1 => (at, len).prop_map(|(at, len)| Change::Remap(at, len)),
    ]
}

fn within(at: u64, len: u64) -> AddrRange {
    pages(at, len.min(4096 - at))
}

/// Makes a change, if it is possible. Returns the memory that it makes young.
fn happen(ops: &Ops, target: TargetId, change: &Change) -> Option<AddrRange> {
    let mut m = ops.machine();
    match *change {
        Change::Touch(at, len, hz) => _ = m.touch(target, within(at, len), poisson(hz)),
        Change::Once(at, len) => {
            let every = ms(1);
            if m.touch(target, within(at, len), TouchPattern::Periodic { every }).is_ok() {
                m.advance(ms(1));
                m.rest(target, within(at, len)).unwrap();
            }
        }
        Change::Rest(at, len) => m.rest(target, within(at, len)).unwrap(),
        Change::Hide(at, len) => {
            m.set_unknown(target, within(at, len), Some(Unknown::Mlocked)).unwrap();
        }
        Change::Show(at, len) => m.set_unknown(target, within(at, len), None).unwrap(),
        Change::Remap(at, len) => {
            m.unmap(target, within(at, len)).unwrap();
            m.map(target, within(at, len), MappingSpec::anonymous()).unwrap();
            return Some(within(at, len));
        }
    }
    None
}

/// The times at which each page was last mapped and last read.
struct Pages {
    mapped: Vec<Nanos>,
    read: Vec<Nanos>,
}

impl Pages {
    fn of(range: AddrRange) -> std::ops::Range<usize> {
        let page = |addr: u64| ((addr - BASE) / PAGE_SIZE) as usize;
        page(range.start)..page(range.end)
    }

    fn read(&mut self, events: &[Event]) {
        for e in events.iter().filter(|e| !e.clears) {
            e.ranges.iter().for_each(|r| self.read[Pages::of(*r)].fill(e.at));
        }
    }

    /// The time for which all of `range` had been untouched at its last read, and the time since that read.
    fn untouched(
        &self,
        ops: &Ops,
        target: TargetId,
        range: AddrRange,
        end: Nanos,
    ) -> [Duration; 2] {
        let machine = ops.machine();
        let truth = machine.truth(target).unwrap();
        // Nothing can be known of memory that was mapped again since its last read.
        let each = Pages::of(range).filter(|&i| self.mapped[i] <= self.read[i]).map(|i| {
            let (addr, read) = (BASE + i as u64 * PAGE_SIZE, self.read[i]);
            let last = truth.last_touch(addr, read).unwrap_or_default().max(self.mapped[i]);
            [read.since(last), end.since(read)]
        });
        each.min_by_key(|[idle, ago]| *idle + *ago).unwrap_or([Duration::MAX, Duration::ZERO])
    }

    /// Whether, in a block of `range`, some touched pages had been idle for longer than others at their last reads.
    fn rested_in_parts(&self, ops: &Ops, target: TargetId, range: AddrRange) -> bool {
        let machine = ops.machine();
        let truth = machine.truth(target).unwrap();
        let block =
            AddrRange::new(align_down(range.start, BLOCK), range.end.next_multiple_of(BLOCK));
        let last = |i: usize| truth.last_touch(BASE + i as u64 * PAGE_SIZE, self.read[i]);
        let end = Pages::of(block).end.min(self.read.len());
        let touches: Vec<Nanos> = (Pages::of(block).start..end).filter_map(last).collect();
        let apart = touches.iter().max().zip(touches.iter().min());
        apart.is_some_and(|(latest, first)| latest.since(*first) > ms(50))
    }

    /// No region is reported as untouched for longer than all of its pages were at the last read. If
    /// `strict`, the time since then does not count.
    fn check(
        &self,
        s: &Snapshot,
        ops: &Ops,
        target: TargetId,
        strict: bool,
    ) -> Result<(), TestCaseError> {
        for r in s.targets.iter().flat_map(|t| &t.regions) {
            // Extended memory is only presumed idle.
            let known = r.unknown_bp.total() == 0 && r.support.is_none_or(|s| s.extended_bp == 0);
            if r.touched_bp > 0 || !known || r.resident_bp == 0 {
                continue;
            }
            let [idle, ago] = self.untouched(ops, target, r.range, s.end);
            // Times are kept in ms, and a look takes time. Where a part of a block fell idle earlier, a sample of that
            // part may have represented the rest for two rounds.
            let slack = if self.rested_in_parts(ops, target, r.range) { ms(500) } else { ms(3) };
            let bound = if strict { idle } else { idle.saturating_add(ago) }.saturating_add(slack);
            prop_assert!(
                r.age <= bound,
                "{:?} at {:?}, read {ago:?} before, had been idle for {idle:?}, not {:?}",
                r.range,
                s.end,
                r.age
            );
        }
        Ok(())
    }
}

fn ages_are_true(
    seed: u64,
    changes: &[(Change, u64)],
    attrs: Attrs,
    strict: bool,
) -> Result<(), TestCaseError> {
    let (ops, target) = machine(seed, |m, t| {
        m.map(t, pages(0, 4096), MappingSpec::anonymous()).unwrap();
    });
    let mut pages = Pages { mapped: vec![Nanos(0); 4096], read: vec![Nanos(0); 4096] };
    let tapped = Tapped::new(&ops);
    let log = tapped.log.clone();
    let mut monitor = isotherm_core::watch(tapped, attrs, &[target], seed).unwrap();
    for (change, wait) in changes {
        if let Some(range) = happen(&ops, target, change) {
            pages.mapped[Pages::of(range)].fill(ops.machine().now());
        }
        let until = ops.machine().now() + ms(*wait);
        loop {
            let now = ops.machine().now();
            match monitor.step(now).unwrap() {
                Step::Snapshot(s) => {
                    pages.read(&log.take());
                    pages.check(&s, &ops, target, strict)?;
                }
                Step::Wait(next) if next <= until => ops.machine().advance_to(next),
                Step::Wait(_) => break,
                Step::End(why) => panic!("{why:?}"),
            }
        }
        ops.machine().advance_to(until);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_called_untouched_for_longer_than_it_was(
        seed: u64, windows: bool,
        changes in prop::collection::vec((change(), 50u64..4000), 3..20),
    ) {
        ages_are_true(seed, &changes, Attrs { windows, ..Attrs::default() }, false)?;
    }

    #[test]
    fn nor_for_longer_than_was_seen(
        seed: u64,
        changes in prop::collection::vec((change(), 50u64..4000), 3..20),
    ) {
        ages_are_true(seed, &changes, Attrs::default(), true)?;
    }

    #[test]
    fn nor_by_the_page_scan(
        seed: u64, windows: bool,
        changes in prop::collection::vec((change(), 50u64..2000), 3..10),
    ) {
        let monitor = isotherm_core::MonitorKind::Pages;
        ages_are_true(seed, &changes, Attrs { windows, monitor, ..Attrs::default() }, true)?;
    }
}

#[test]
fn cold_memory_is_cold_as_soon_as_it_is_old_enough() {
    let (ops, target) = machine(1, a_quarter_hot);
    let (snapshots, _) = watched(12.0, Attrs::default(), &ops, target, |_| {});
    let cold = |s: &Snapshot| s.bytes(&Thresholds::default()).cold / MIB;
    for s in snapshots.iter().filter(|s| s.end < seconds(5.0)) {
        assert_eq!(cold(s), 0, "{:?}", s.end);
    }
    assert!(cold(snapshots.last().unwrap()) >= 47, "{} MiB", cold(snapshots.last().unwrap()));
}

/// Memory that is shared for some time is not known to have been cold then, even if it was never touched.
#[test]
fn memory_is_not_cold_for_the_time_it_was_unknown() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.set_unknown(t, mib(32, 32), Some(Unknown::Shared)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    run_until(&mut monitor, &ops, 8.0);
    ops.machine().set_unknown(target, mib(32, 32), None).unwrap();
    let s = run_until(&mut monitor, &ops, 10.0).pop().unwrap();
    let old = |range| bytes_where(&s.targets[0], range, |r| r.age > Duration::from_secs(3)) / MIB;
    assert_eq!((old(mib(0, 30)), old(mib(34, 30))), (30, 0));
}

/// A child that shares memory for some time ends.
#[test]
fn memory_that_was_shared_is_known_again() {
    let shared = mib(32, 32);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(48, 16), poisson(20.0)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    run_until(&mut monitor, &ops, 10.0);
    ops.machine().set_unknown(target, shared, Some(Unknown::Shared)).unwrap();
    let unknown = |s: &Snapshot| {
        let regions = s.targets[0].regions.iter();
        regions.map(|r| r.unknown_bytes(Unknown::Shared)).sum::<u64>() / MIB
    };
    let s = run_until(&mut monitor, &ops, 20.0).pop().unwrap();
    assert!(unknown(&s) >= 15, "{} MiB are unknown", unknown(&s));
    ops.machine().set_unknown(target, shared, None).unwrap();
    ops.machine().rest(target, mib(56, 8)).unwrap();
    let s = run_until(&mut monitor, &ops, 40.0).pop().unwrap();
    assert_eq!(unknown(&s), 0);
    for (range, heat) in [(mib(48, 8), Heat::Hot), (mib(56, 8), Heat::Cold)] {
        assert!(called(&s, range, heat) > 0.9, "{range:?}: {:.2}", called(&s, range, heat));
    }
}

/// A heap of 1.5 MiB that grows by 64 KiB every two seconds.
#[test]
fn memory_at_the_end_of_a_growing_mapping_becomes_cold() {
    let (ops, target) =
        machine(1, |m, t| m.map(t, pages(0, 128), MappingSpec::anonymous()).unwrap());
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    for n in 1..16 {
        let s = run_until(&mut monitor, &ops, 2.0 * n as f64).pop().unwrap();
        let cold = called(&s, pages(0, 128), Heat::Cold);
        assert!(n < 5 || cold == 1.0, "{cold:.2} at {:?}", s.end);
        ops.machine().grow(target, BASE, pages(0, 128 + 16 * n)).unwrap();
    }
}

#[test]
fn ages_are_right_after_many_days() {
    const DAY: f64 = 86_400.0;
    let (ops, target) = machine(1, |m, t| m.map(t, mib(0, 8), MappingSpec::anonymous()).unwrap());
    let attrs = Attrs { interval: Duration::from_secs(8 * 3600), ..Attrs::default() };
    let mut monitor = monitor(Tapped::new(&ops), attrs, &[target]);
    for (days, touched) in [(10.0, mib(0, 2)), (30.0, mib(2, 2)), (56.0, mib(4, 2))] {
        run_until(&mut monitor, &ops, days * DAY);
        ops.machine().touch(target, touched, poisson(1.0)).unwrap();
        run_until(&mut monitor, &ops, (days + 1.0) * DAY);
        ops.machine().rest(target, touched).unwrap();
        let s = run_until(&mut monitor, &ops, (days + 5.0) * DAY).pop().unwrap();
        let aged = |least: f64, most: f64| {
            move |r: &RegionView| (least * DAY..most * DAY).contains(&r.age.as_secs_f64())
        };
        assert_eq!(bytes_where(&s.targets[0], touched, aged(2.5, 4.0)), 2 * MIB, "{days}");
        let old = bytes_where(&s.targets[0], mib(6, 2), aged((days + 5.0).min(12.0) - 1.0, 61.0));
        assert_eq!(old, 2 * MIB, "{days}");
    }
}

/// Neighbours that fell idle one after the other have their own ages, or nearly.
#[test]
fn neighbours_of_different_age_are_distinguished() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 80), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 80), poisson(20.0)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    for n in 0..40u32 {
        run_until(&mut monitor, &ops, f64::from(2 * n + 10));
        ops.machine().rest(target, mib(u64::from(2 * n), 2)).unwrap();
    }
    let s = run_until(&mut monitor, &ops, 108.0).pop().unwrap();
    for n in 0..40u32 {
        let old = 98.0 - 2.0 * f64::from(n);
        // Memory that fell idle last, before it had sentinels everywhere, may have the age of its youngest
        // part.
        let late = if n >= 30 { 20.0 } else { 0.0 };
        let about =
            |r: &RegionView| (old / 1.25 - 3.0 - late..old + 0.5).contains(&r.age.as_secs_f64());
        let right = bytes_where(&s.targets[0], mib(2 * u64::from(n), 2), about);
        // A sample at the edge may represent the neighbouring memory.
        assert!(right >= 2 * MIB - (64 << 10), "{n}: {old} s, {right}");
    }
}

/// With windows, regions have their exact ages, even if neighbours are nearly as old: the priority of actions
/// depends on that.
#[test]
fn windows_have_their_true_age() {
    const STRETCHES: u64 = 30;
    let all = pages(0, STRETCHES * 64);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, all, MappingSpec::anonymous()).unwrap();
        m.touch(t, all, poisson(20.0)).unwrap();
    });
    let attrs = Attrs { windows: true, ..Attrs::default() };
    let mut monitor = monitor(Tapped::new(&ops), attrs, &[target]);
    let stretch = |n: u64| pages(n * 64, 64);
    for n in 0..STRETCHES {
        run_until(&mut monitor, &ops, (3 * n + 10) as f64);
        ops.machine().rest(target, stretch(n)).unwrap();
    }
    let s = run_until(&mut monitor, &ops, 108.0).pop().unwrap();
    for n in 0..STRETCHES {
        let old = 98.0 - 3.0 * n as f64;
        let about = |r: &RegionView| (old - 3.0..old + 0.5).contains(&r.age.as_secs_f64());
        assert_eq!(bytes_where(&s.targets[0], stretch(n), about), 64 * PAGE_SIZE, "{n}: {old} s");
    }
}
