use super::*;
use isotherm_core::Survey;
use std::cell::Cell;
use std::rc::Rc;

/// The target stops for 100 ms right after each clear of its hot memory. That memory stays hot.
#[test]
fn a_target_that_stops_after_a_clear_keeps_its_hot_memory() {
    let hot = mib(16, 16);
    let (ops, target) = machine(1, a_quarter_hot);
    let stopped = Rc::new(Cell::new(Duration::ZERO));
    let since = Rc::new(Cell::new(None::<Nanos>));
    let (was, at) = (Rc::clone(&stopped), Rc::clone(&since));
    let ran = move |now: Nanos| {
        let stops = at.get().map_or(Duration::ZERO, |at: Nanos| now.since(at).min(ms(100)));
        now.since(Nanos(0)) - was.get() - stops
    };
    let mut clears = 0;
    let meddle = move |ops: &mut Ops, now: Nanos, cleared: bool| {
        let mut m = ops.machine();
        match since.get() {
            Some(at) if now.since(at) >= ms(100) => {
                m.touch(target, hot, poisson(100.0)).unwrap();
                stopped.set(stopped.get() + ms(100));
                since.set(None);
            }
            None if cleared && now > seconds(4.0) => {
                clears += 1;
                if clears % 4 == 0 {
                    m.rest(target, hot).unwrap();
                    since.set(Some(now));
                }
            }
            _ => {}
        }
    };
    let (snapshots, _) = watched(20.0, Attrs::default(), &ops, target, |tapped| {
        tapped.ran = Some(Box::new(ran));
        tapped.meddle = Some(Box::new(meddle));
    });
    for s in snapshots.iter().filter(|s| s.start > seconds(4.0)) {
        let found = called(s, mib(18, 12), Heat::Hot);
        assert!(found > 0.9, "{found:.2} of it in snapshot {}, at {:?}", s.seq, s.end);
    }
}

/// Memory that is touched once a second is touched completely within 2 ms, just after a part was cleared.
/// Once is no sign of heat; repeatedly is one.
#[test]
fn a_burst_after_a_clear_is_not_hot_before_there_is_another() {
    let warm = mib(16, 16);
    let hottest = |bursts: usize| {
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
            m.touch(t, warm, poisson(1.0)).unwrap();
        });
        let (mut left, mut since) = (bursts, None::<Nanos>);
        let meddle = move |ops: &mut Ops, now: Nanos, cleared: bool| {
            let mut m = ops.machine();
            let mut touch = |hz| {
                m.rest(target, warm).unwrap();
                m.touch(target, warm, poisson(hz)).unwrap();
            };
            match since {
                Some(at) if now.since(at) >= ms(2) => {
                    touch(1.0);
                    since = None;
                }
                None if cleared && now > seconds(8.0) && left > 0 => {
                    touch(2000.0);
                    (left, since) = (left - 1, Some(now));
                }
                _ => {}
            }
        };
        let (snapshots, _) = watched(16.0, Attrs::default(), &ops, target, |tapped| {
            tapped.meddle = Some(Box::new(meddle));
        });
        let later = snapshots.iter().filter(|s| s.start > seconds(7.0));
        later.map(|s| called(s, warm, Heat::Hot)).fold(0.0, f64::max)
    };
    assert_eq!(hottest(1), 0.0, "one burst");
    assert!(hottest(20) > 0.5, "bursts without end");
}

/// Another program clears half of the warm memory each second. The snapshot counts that, and rates are less
/// certain. Hot memory would be young again before a read.
#[test]
fn foreign_clears_are_counted_and_widen_intervals() {
    let width = |meddles: bool| {
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
            m.touch(t, mib(16, 16), poisson(3.0)).unwrap();
        });
        let mut last = Nanos(0);
        let meddle = move |ops: &mut Ops, now: Nanos, cleared: bool| {
            if meddles && !cleared && now.since(last) >= ms(1000) {
                last = now;
                ops.clear(target, &[mib(16, 8)], &mut Vec::new()).unwrap();
            }
        };
        let (snapshots, _) = watched(12.0, Attrs::default(), &ops, target, |tapped| {
            tapped.meddle = Some(Box::new(meddle));
        });
        let settled: Vec<_> = snapshots.iter().filter(|s| s.start > seconds(6.0)).collect();
        let externally_cleared: u64 =
            settled.iter().map(|s| s.quality.unwrap().externally_cleared).sum();
        let at = mib(20, 1).start;
        let widths = settled.iter().filter_map(|s| {
            let r = s.targets[0].regions.iter().find(|r| r.range.contains(at))?;
            r.rate.error_log2()
        });
        let widths: Vec<f32> = widths.collect();
        assert!(!widths.is_empty());
        (externally_cleared, widths.iter().sum::<f32>() / widths.len() as f32)
    };
    let ((none, before), (externally_cleared, after)) = (width(false), width(true));
    assert_eq!(none, 0);
    assert!(externally_cleared > 2048, "{externally_cleared} pages");
    assert!(after > before, "{before} {after}");
}

/// Reading and clearing may take longer than the first delays.
#[test]
fn early_reads_count_from_the_clear() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut last = Nanos(0);
    // The first read of each round takes 20 ms.
    let meddle = move |ops: &mut Ops, now: Nanos, cleared: bool| {
        if !cleared && now.since(last) > ms(90) {
            ops.machine().advance(ms(20));
        }
        last = ops.machine().now();
    };
    let (_, events) = watched(10.0, Attrs::default(), &ops, target, |tapped| {
        tapped.meddle = Some(Box::new(meddle));
    });
    let settled = |e: &&Event| e.clears && (seconds(2.0)..seconds(9.5)).contains(&e.at);
    let mut clears = 0;
    for clear in events.iter().filter(settled) {
        let is_early = |e: &&Event| !e.clears && e.ranges == clear.ranges && e.at >= clear.at;
        let delays = events.iter().filter(is_early).map(|e| e.at.since(clear.at).as_millis());
        let delays: Vec<u128> = delays.take(4).collect();
        assert_eq!(delays, [1, 3, 10, 30], "at {:?}", clear.at);
        clears += 1;
    }
    assert!(clears > 4, "{clears} clears");
}

/// For four seconds, reads end early, as they may while the machine lacks memory. The ages of idle memory continue.
#[test]
fn a_read_that_ends_early_is_no_sign_of_absence() {
    let (ops, target) = machine(1, a_quarter_hot);
    let (snapshots, _) = watched(20.0, Attrs::default(), &ops, target, |tapped| {
        let is_short = |now| (seconds(12.0)..seconds(16.0)).contains(&now);
        tapped.ends_early = Some(Box::new(is_short));
    });
    for s in snapshots.iter().filter(|s| s.start > seconds(9.0)) {
        let cold = called(s, mib(34, 28), Heat::Cold);
        assert!(cold > 0.99, "{cold:.2} of the idle memory is cold at {:?}", s.end);
    }
}
