use super::*;

const NOW: Duration = Duration::ZERO;

fn walk(named: &str, thread: u32) -> Walk {
    let w = Named::find(named).unwrap().workload().unwrap();
    let layout = WorkloadLayout::new(&w, 1);
    Walk::of(&w, &layout, &w.phases[0].accesses[0], thread, 1)
}

/// Touches by part.
fn counts(walk: &mut Walk, touches: u64, since: Duration) -> Vec<u64> {
    let mut counts = vec![0; walk.parts()];
    for _ in 0..touches {
        counts[walk.next(since).unwrap().0] += 1;
    }
    counts
}

#[test]
fn the_kth_likely_block_is_touched_one_kth_as_often() {
    let mut counts = counts(&mut walk("zipf", 0), 1_000_000, NOW);
    assert!(!counts.is_sorted() && !counts.is_sorted_by(|a, b| a > b), "likely ones lie anywhere");
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // The sum of 1/k up to 1024 is 7.51.
    for k in [1, 2, 4, 16] {
        let expected = 1_000_000.0 / 7.51 / f64::from(k);
        let found = counts[k as usize - 1] as f64;
        assert!((found / expected - 1.0).abs() < 0.05, "{k}: {found} instead of {expected:.0}");
    }
}

/// The simulated machine touches the same blocks as often.
#[test]
fn shares_are_those_of_the_walk() {
    let key = walk::region_key(1, 0);
    let shares = walk::zipf_shares(1024, 1.0, key);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let counts = counts(&mut walk("zipf", 0), 1_000_000, NOW);
    for (share, count) in shares.iter().zip(&counts).filter(|(share, _)| **share > 0.005) {
        assert!((*count as f64 / 1e6 / share - 1.0).abs() < 0.06, "{count}, {share}");
    }
}

#[test]
fn a_window_is_where_it_is_at_that_time() {
    let mut walk = walk("moving-window", 0);
    assert_eq!(walk.pages(), 8192);
    for (seconds, part) in [(0, 0), (2, 0), (3, 1), (46, 15), (48, 0)] {
        let counts = counts(&mut walk, 100, Duration::from_secs(seconds));
        assert_eq!(counts[part], 100, "at {seconds} s: {counts:?}");
    }
}

#[test]
fn in_order_threads_begin_evenly_apart_and_come_round() {
    let w = Workload::parse(
        "about = \"\"\nregion = [{ name = \"a\", size = \"16K\" }]\nphase = [
            { name = \"on\", duration = \"1s\", access = [{ region = \"a\", rate = 1, threads = 2,
                order = \"sequential\" }] }]",
    );
    let w = w.unwrap();
    let layout = WorkloadLayout::new(&w, 1);
    let first = layout.range(Owner::Region(0)).start / isotherm_core::PAGE_SIZE;
    let pages = |thread| {
        let mut walk = Walk::of(&w, &layout, &w.phases[0].accesses[0], thread, 1);
        (0..6).map(|_| walk.next(NOW).unwrap().1 - first).collect::<Vec<_>>()
    };
    assert_eq!((pages(0), pages(1)), (vec![0, 1, 2, 3, 0, 1], vec![2, 3, 0, 1, 2, 3]));
}

#[test]
fn random_threads_go_their_own_ways_over_all_pages() {
    let (mut one, mut two) = (walk("rate-ladder", 0), walk("rate-ladder", 1));
    let pages: Vec<_> = (0..20_000).map(|_| one.next(NOW).unwrap().1).collect();
    assert!(
        pages.iter().zip(std::iter::repeat_with(|| two.next(NOW).unwrap().1)).any(|(a, b)| *a != b)
    );
    let mut distinct = pages;
    distinct.sort_unstable();
    distinct.dedup();
    // Each of 2048 pages is touched ten times in the mean.
    assert!(distinct.len() > 2040, "{}", distinct.len());
}
