use super::*;
use isotherm_core::{Rate, Unknown};

#[test]
fn hot_warm_and_cold_memory_is_found() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(100, 64), poisson(100.0)).unwrap();
        m.touch(t, mib(300, 64), poisson(1.0)).unwrap();
    });
    let (snapshots, _) = watched(20.0, Attrs::default(), &ops, target, |_| {});
    for s in snapshots.iter().filter(|s| s.start > seconds(12.0)) {
        let inner = [(mib(102, 60), Heat::Hot), (mib(302, 60), Heat::Warm)];
        let cold = [mib(0, 98), mib(166, 132), mib(366, 146)].map(|r| (r, Heat::Cold));
        for (range, heat) in inner.into_iter().chain(cold) {
            let found = called(s, range, heat);
            assert!(found >= 0.95, "{range:?} {heat:?} in snapshot {}: {found:.3}", s.seq);
        }
    }
}

#[test]
fn rates_are_right_over_three_decades() {
    let rates = [1.0, 10.0, 100.0, 600.0];
    let (ops, target) = machine(3, |m, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        for (i, hz) in rates.into_iter().enumerate() {
            m.touch(t, mib(i as u64 * 64, 32), poisson(hz)).unwrap();
        }
    });
    let (snapshots, _) = watched(12.0, Attrs::default(), &ops, target, |_| {});
    for (i, hz) in rates.into_iter().enumerate() {
        let found = mean_hz_of_last(&snapshots, 8, mib(i as u64 * 64 + 2, 28));
        assert!((found / hz).log2().abs() < 0.3, "{found:.2} Hz instead of {hz}");
    }
}

/// 16 stretches of 8 MiB from 1000 Hz to 0.05 Hz, and the memory between them.
#[test]
fn a_ladder_of_rates_has_at_most_twice_as_many_regions_as_it_has() {
    let hz = |i: u64| 1000.0 * 0.0517f64.powf(i as f64 / 4.5);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 392), MappingSpec::anonymous()).unwrap();
        for i in 0..16 {
            m.touch(t, mib(16 + i * 24, 8), poisson(hz(i))).unwrap();
        }
    });
    let (snapshots, _) = watched(25.0, Attrs::default(), &ops, target, |_| {});
    let settled: Vec<_> = snapshots.iter().filter(|s| s.start > seconds(15.0)).collect();
    let regions: usize = settled.iter().map(|s| s.nr_regions()).sum();
    let mean = regions as f64 / settled.len() as f64;
    assert!(mean <= 66.0, "{mean:.1} regions in the mean, where there are 33");
    let log = |i: u64| {
        let found = mean_hz_of_last(&snapshots, 8, mib(16 + i * 24, 8)).max(0.1);
        (found / hz(i).max(0.1)).log2()
    };
    let error = ((0..16).map(|i| log(i).powi(2)).sum::<f64>() / 16.0).sqrt();
    assert!(error < 0.6, "log2 error {error:.2}");
}

#[test]
fn every_sixteenth_page_is_distinguished_from_all_of_them() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        let of = Box::new(poisson(500.0));
        m.touch(t, mib(64, 128), TouchPattern::Sparse { nth: 16, of }).unwrap();
    });
    let (snapshots, _) = watched(15.0, Attrs::default(), &ops, target, |_| {});
    for s in snapshots.iter().filter(|s| s.start > seconds(8.0)) {
        let view = &s.targets[0];
        let is_right = |r: &RegionView| {
            (312..=1250).contains(&r.touched_bp) && (250.0..1000.0).contains(&r.rate.hz)
        };
        let right = bytes_where(view, mib(66, 124), is_right) / MIB;
        assert!(right >= 104, "{right} of 124 MiB in snapshot {}", s.seq);
        let hot = s.bytes(&Thresholds::default()).hot;
        assert!((4 * MIB..16 * MIB).contains(&hot), "{} KiB are hot, not 8 MiB", hot >> 10);
    }
}

/// The region of the only touched page, at 100 Hz, in `size` MiB.
fn single_hot_page(size: u64, s: f64, windows: bool) -> RegionView {
    let page = pages(size * 256 / 5 * 3 + 5, 1);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, size), MappingSpec::anonymous()).unwrap();
        m.touch(t, page, poisson(100.0)).unwrap();
    });
    let attrs = Attrs { windows, ..Attrs::default() };
    let (snapshots, _) = watched(s, attrs, &ops, target, |_| {});
    let regions = &snapshots.last().unwrap().targets[0].regions;
    let touched: Vec<&RegionView> = regions.iter().filter(|r| r.touched_bp > 0).collect();
    assert_eq!(touched.len(), 1, "{touched:?}");
    assert!(touched[0].range.contains(page.start) && touched[0].range.len() <= 64 << 10);
    *touched[0]
}

#[test]
fn a_single_hot_page_in_8_gib_is_found_with_windows() {
    single_hot_page(8192, 40.0, true);
}

/// The page is not lost among cold ones with which it could be joined, and its interval contains its rate.
#[test]
fn a_single_hot_page_keeps_a_region_of_its_own() {
    let region = single_hot_page(64, 20.0, false);
    let Rate { low, high, .. } = region.rate;
    assert!((f64::from(low)..=f64::from(high)).contains(&100.0), "{region:?}");
    assert!(region.touched_bp <= 1000, "{region:?}");
}

/// A huge page has one bit for all its windows.
#[test]
fn windows_of_huge_pages_are_as_hot_as_these() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 128), MappingSpec::anonymous().huge()).unwrap();
        m.touch(t, mib(32, 32), poisson(1.0)).unwrap();
    });
    let attrs = Attrs { windows: true, ..Attrs::default() };
    let (snapshots, _) = watched(10.0, attrs, &ops, target, |_| {});
    for s in snapshots.iter().filter(|s| s.start > seconds(3.0)) {
        let found = called(s, mib(32, 32), Heat::Hot);
        assert!(found >= 0.95, "{found:.2} of what is touched 512 times a second, in {}", s.seq);
    }
}

/// From once a second to a hundred times: this requires a second sign, not a second turn.
#[test]
fn heating_is_observed_soon() {
    for size in [8, 256] {
        let range = mib(16, size);
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
            m.touch(t, range, poisson(1.0)).unwrap();
        });
        let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
        run_until(&mut monitor, &ops, 20.0);
        ops.machine().rest(target, range).unwrap();
        ops.machine().touch(target, range, poisson(100.0)).unwrap();
        let later = run_until(&mut monitor, &ops, 30.0);
        let found = |s: &&Arc<Snapshot>| called(s, range, Heat::Hot) >= 0.5;
        let soon = later.iter().find(found).map(|s| s.end.since(seconds(20.0)).as_secs_f64());
        assert!(soon.is_some_and(|s| s < 4.0), "{size} MiB: {soon:?} s");
    }
}

#[test]
fn a_moved_window_is_seen_soon() {
    let every = Duration::from_secs(3);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 512), TouchPattern::Moving { window: 32 * MIB, every, hz: 100.0 })
            .unwrap();
    });
    let (snapshots, events) = watched(33.0, Attrs::default(), &ops, target, |_| {});
    let full: Vec<Nanos> = events
        .iter()
        .filter(|e| !e.clears && e.at > seconds(9.0) && e.ranges == [mib(0, 512)])
        .map(|e| e.at)
        .collect();
    let round = full.last().unwrap().since(full[0]).as_secs_f64() / (full.len() - 1) as f64;
    let seen = |jump: u64| {
        let at = seconds(jump as f64 * 3.0);
        let window = mib(jump % 16 * 32, 32);
        let later = snapshots.iter().filter(|s| s.end > at);
        let first = later.into_iter().find(|s| called(s, window, Heat::Hot) >= 0.5);
        first.map_or(3.0, |s| s.end.since(at).as_secs_f64())
    };
    let delays: Vec<f64> = (3..11).map(seen).collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!(mean <= round + 0.15, "{mean:.3} s, rounds of {round:.3} s: {delays:.2?}");
}

/// 16 MiB as an unobservable mapping, and 16 unobservable MiB within another one; all of it is hot.
#[test]
fn unknown_memory_is_neither_hot_nor_cold() {
    for why in [Unknown::Shared, Unknown::Dma] {
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
            m.map(t, mib(64, 16), MappingSpec::anonymous().unknown(why)).unwrap();
            m.touch(t, mib(48, 32), poisson(100.0)).unwrap();
            m.set_unknown(t, mib(48, 16), Some(why)).unwrap();
        });
        let (snapshots, _) = watched(10.0, Attrs::default(), &ops, target, |_| {});
        let last = snapshots.last().unwrap();
        let b = last.bytes(&Thresholds::default());
        assert_eq!((b.hot, b.absent), (0, 0), "{}", why.name());
        let unknown: u64 = last.targets[0].regions.iter().map(|r| r.unknown_bytes(why)).sum();
        assert_eq!(unknown, b.unknown);
        assert!(unknown.abs_diff(32 * MIB) <= MIB, "{}: {} MiB", why.name(), unknown / MIB);
        assert!(b.cold > 46 * MIB, "{} MiB", b.cold / MIB);
    }
}

#[test]
fn a_seed_and_a_machine_give_the_same_snapshots() {
    let history = |of_machine, seed| {
        let (ops, target) = machine(of_machine, a_quarter_hot);
        let tapped = Tapped::new(&ops);
        let log = tapped.log.clone();
        let mut monitor = Exposure::new(tapped, Attrs::default(), &[target], seed).unwrap();
        let snapshots = run_until(&mut monitor, &ops, 5.0);
        (snapshots, log.take())
    };
    assert_eq!(history(1, 1), history(1, 1));
    assert_ne!(history(1, 1), history(1, 2));
    assert_ne!(history(1, 1), history(2, 1));
}

const SLOW: [f64; 3] = [0.05, 0.1, 0.3];

/// Memory that is cleared together is touched together, so one look says little. The intervals show that, not
/// the rates.
#[test]
fn intervals_contain_the_rate_of_a_sequential_walk() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 592), MappingSpec::anonymous()).unwrap();
        for (i, hz) in SLOW.into_iter().enumerate() {
            m.touch(t, mib(400 + i as u64 * 64, 48), poisson(hz)).unwrap();
        }
        for i in 0..4 {
            let every = Duration::from_millis(10);
            m.touch(t, mib(16 + i * 96, 32), TouchPattern::Sweep { every }).unwrap();
            m.touch(t, mib(64 + i * 96, 32), poisson(100.0)).unwrap();
        }
    });
    let (snapshots, _) = watched(30.0, Attrs::default(), &ops, target, |_| {});
    let (mut all, mut held, mut factors) = (0, 0, [vec![], vec![], vec![], vec![]]);
    for s in snapshots.iter().filter(|s| s.start > seconds(6.0)) {
        for r in &s.targets[0].regions {
            let Rate { hz, low, high } = r.rate;
            let lies_in = |first: u64| {
                (0..4).any(|i| mib(first + i * 96, 32).intersect(&r.range) == Some(r.range))
            };
            if lies_in(16) {
                all += 1;
                held += u32::from((low..=high).contains(&100.0));
            } else if lies_in(64) && hz > 0.0 {
                factors[3].push(high / hz);
            }
            for (i, factors) in (0..).zip(&mut factors[..3]) {
                let slow = mib(400 + i * 64 + 2, 44);
                if s.start > seconds(20.0) && hz > 0.0 && r.range.intersect(&slow).is_some() {
                    factors.push(high / hz);
                }
            }
        }
    }
    assert!(all > 100 && held * 10 >= all * 9, "{held} of {all}");
    // Memory that is touched at random times does not count as such a pass, however slow it is.
    for (factors, hz) in factors.iter_mut().zip(SLOW.into_iter().chain([100.0])) {
        factors.sort_unstable_by(f32::total_cmp);
        let factor = factors[factors.len() / 2];
        assert!(factor < 2.0, "{hz} Hz at random times is known within a factor of {factor}");
    }
}

/// A process that has no memory yet, as just after an `exec`.
#[test]
fn no_snapshot_ends_when_it_starts() {
    let field = field::Field::new(&[], 1);
    let mut monitor = Exposure::new(field.clone(), Attrs::default(), &[field::TARGET], 1).unwrap();
    let snapshots = field.run(&mut monitor, seconds(3.0));
    assert!(snapshots.len() > 5);
    assert!(snapshots.iter().all(|s| s.end > s.start));
}
