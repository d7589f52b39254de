use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn frame(pages: u64) -> PatternArea {
    PatternArea { pages, key: 42 }
}

/// All touches of a page in (0, until], the last first, one by one.
fn touches(p: &TouchPattern, page: u64, f: PatternArea, until: u64) -> Vec<u64> {
    let step = |&t: &u64| p.last_touch(page, f, 0, t - 1);
    std::iter::successors(p.last_touch(page, f, 0, until), step).collect()
}

#[test]
fn poisson_has_its_rate_and_its_spread() {
    let p = TouchPattern::Poisson { hz: 20.0 };
    let counts: Vec<f64> =
        (0..2000).map(|i| touches(&p, i, frame(2000), 3 * SECOND).len() as f64).collect();
    let mean = counts.iter().sum::<f64>() / 2000.0;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 2000.0;
    assert!((mean - 60.0).abs() < 0.7 && (variance - 60.0).abs() < 6.0, "{mean} {variance}");
}

#[test]
fn poisson_pages_are_untouched_as_often_as_they_should_be() {
    let p = TouchPattern::Poisson { hz: 30.0 };
    let (from, to) = (SECOND, SECOND + SECOND / 50);
    let none = (0..20_000).filter(|&i| p.last_touch(i, frame(20_000), from, to).is_none()).count();
    let share = none as f64 / 20_000.0;
    assert!((share - (-0.6f64).exp()).abs() < 0.01, "{share}");
}

#[test]
fn a_sweep_passes_once_in_order() {
    let p = TouchPattern::Sweep { every: Duration::from_secs(2) };
    let at: Vec<u64> = (0..4).map(|i| touches(&p, i, frame(4), 2 * SECOND)[0]).collect();
    assert_eq!(at, [SECOND / 2, SECOND, 3 * SECOND / 2, 2 * SECOND]);
    assert_eq!(p.last_touch(3, frame(4), 0, 5 * SECOND), Some(4 * SECOND));
}

#[test]
fn periodic_pages_have_phases_of_their_own() {
    let p = TouchPattern::Periodic { every: Duration::from_millis(100) };
    let first = |page| *touches(&p, page, frame(9), SECOND).last().unwrap();
    assert_eq!(touches(&p, 3, frame(9), SECOND).len(), 10);
    assert!(first(0) != first(1) && first(0) <= SECOND / 10);
}

#[test]
fn a_moving_window_touches_its_pages() {
    let window = 2 * PAGE_SIZE;
    let p = TouchPattern::Moving { window, every: Duration::from_secs(1), hz: 50.0 };
    // Six pages are three places: pages 2 and 3 are held in the seconds 1, 4, 7 ...
    for t in touches(&p, 3, frame(6), 9 * SECOND) {
        assert_eq!((t - 1) / SECOND % 3, 1, "{t}");
    }
    assert_eq!(p.expected(3, frame(6), SECOND / 2, 5 * SECOND), 100.0);
    assert_eq!(p.expected(3, frame(6), 2 * SECOND, 4 * SECOND), 0.0);
}

#[test]
fn sparse_touches_each_nth() {
    let of = Box::new(TouchPattern::Periodic { every: Duration::from_secs(1) });
    let p = TouchPattern::Sparse { nth: 4, of };
    let touched = |i: &u64| p.last_touch(*i, frame(10), 0, SECOND).is_some();
    assert_eq!((0..10).filter(touched).collect::<Vec<_>>(), [0, 4, 8]);
    assert_eq!(
        (p.expected(4, frame(10), 0, SECOND), p.expected(5, frame(10), 0, SECOND)),
        (1.0, 0.0)
    );
}

#[test]
fn blocks_are_touched_as_often_as_is_said() {
    let hz = Arc::from([5.0, 0.0, 80.0]);
    let p = TouchPattern::Blocks { block: 500 * PAGE_SIZE, hz };
    let touches = |page| touches(&p, page, frame(2000), SECOND).len();
    let mean = |block: u64| (block * 500..(block + 1) * 500).map(touches).sum::<usize>() / 500;
    assert_eq!((mean(1), mean(3)), (0, 0), "nothing behind the last block");
    assert!((4..=5).contains(&mean(0)) && (79..=80).contains(&mean(2)), "{}", mean(2));
    assert_eq!(p.expected(1400, frame(2000), SECOND, 3 * SECOND), 160.0);
}

fn pattern() -> impl Strategy<Value = TouchPattern> {
    let every = (1u64..500_000_000).prop_map(Duration::from_nanos);
    let dense = prop_oneof![
        (0.1f64..500.0).prop_map(|hz| TouchPattern::Poisson { hz }),
        every.clone().prop_map(|every| TouchPattern::Periodic { every }),
        every.clone().prop_map(|every| TouchPattern::Sweep { every }),
        (1u64..9, proptest::collection::vec(0.0f64..300.0, 1..9)).prop_map(|(pages, hz)| {
            TouchPattern::Blocks { block: pages * PAGE_SIZE, hz: hz.into() }
        }),
        (1u64..9, every, 0.1f64..500.0).prop_map(|(pages, every, hz)| TouchPattern::Moving {
            window: pages * PAGE_SIZE,
            every,
            hz
        }),
    ];
    (dense, 1u64..4).prop_map(|(of, nth)| TouchPattern::Sparse { nth, of: Box::new(of) })
}

proptest! {
    /// Where one looks from and up to changes nothing about what has happened.
    #[test]
    fn the_last_touch_is_independent_of_reads(
        p in pattern(), page in 0u64..20, a in 0u64..SECOND, b in 0u64..SECOND, c in 0u64..SECOND,
    ) {
        let mut t = [a, b, c];
        t.sort_unstable();
        let last = |after, until| p.last_touch(page, frame(20), after, until);
        let whole = last(t[0], t[2]);
        prop_assert_eq!(whole, last(t[1], t[2]).or(last(t[0], t[1])));
        if let Some(at) = whole {
            prop_assert!(t[0] < at && at <= t[2]);
            prop_assert_eq!(last(at, t[2]), None);
            prop_assert_eq!(last(at - 1, at), Some(at));
        }
    }
}
