//! Assembles single events to complete results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_core::Nanos;

use super::format::Event;
use crate::damon::results::AggregationResult;

/// One thread writes all events of a result at once. It may change its CPU in between, and isotherm reads the
/// buffer of another CPU a little later: so it waits this long.
const SETTLE_TIME: Duration = Duration::from_millis(10);
/// Maximal number of pending events.
const MAX_PENDING: usize = 1 << 20;

/// Events that are not yet part of a result.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    pending: Vec<Traced>,
    /// targets of the last result, and its time
    last: Option<(BTreeSet<u64>, Nanos)>,
    /// results that were dropped because some of their events were lost or came too late
    pub dropped: u64,
}

/// An event with its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traced {
    pub at: Nanos,
    pub event: Event,
    /// Whether events just before it were lost.
    pub after_loss: bool,
}

impl Bursts {
    /// Adds the events that were read from all CPUs.
    pub fn add(&mut self, events: impl Iterator<Item = Traced>) {
        let room = MAX_PENDING.saturating_sub(self.pending.len());
        self.pending.extend(events.take(room));
        self.pending.sort_by_key(|t| t.at);
    }

    /// Drops all events and the targets of the last result.
    pub fn forget(&mut self) {
        self.pending.clear();
        self.last = None;
    }

    /// The first result that is complete by `now`; results are at least `interval` apart. A result with missing
    /// events is dropped.
    pub fn next(&mut self, now: Nanos, interval: Duration) -> Option<AggregationResult> {
        loop {
            let len = self.first_burst(interval);
            let last = self.pending.get(len.checked_sub(1)?)?.at;
            let whole = whole(self.pending.get(..len)?, last);
            // A kdamond that pauses between its targets will continue; but a target may also have ended.
            let settle = match &whole {
                Some(result) if self.has_all(result) => SETTLE_TIME,
                _ => SETTLE_TIME.max(interval / 4),
            };
            // A later event also shows that this result is complete.
            if len == self.pending.len() && now < last + settle {
                return None;
            }
            self.pending.drain(..len);
            match whole.filter(|result| !self.is_rest(result, interval)) {
                Some(result) => {
                    self.last = Some((result.targets.keys().copied().collect(), last));
                    return Some(result);
                }
                None => self.dropped += 1,
            }
        }
    }

    /// Whether the result contains all targets of the last result.
    fn has_all(&self, result: &AggregationResult) -> bool {
        let there = |target: &u64| result.targets.contains_key(target);
        self.last.as_ref().is_none_or(|(targets, _)| targets.iter().all(there))
    }

    /// Whether it follows the last result so closely that it must be the missing part of that.
    fn is_rest(&self, result: &AggregationResult, interval: Duration) -> bool {
        self.last.as_ref().is_some_and(|(_, at)| result.at.since(*at) < interval / 2)
    }

    /// The number of events in the first burst: the events of one result are in the order of targets and
    /// addresses, and close together.
    fn first_burst(&self, interval: Duration) -> usize {
        let key = |t: &Traced| (t.event.target, t.event.region.range.start);
        let ends = |pair: &[Traced]| match pair {
            [a, b] => key(b) <= key(a) || b.at.since(a.at) > interval / 2,
            _ => false,
        };
        self.pending.windows(2).position(ends).map_or(self.pending.len(), |i| i + 1)
    }
}

/// The result, if each target has as many regions as its events state.
fn whole(burst: &[Traced], at: Nanos) -> Option<AggregationResult> {
    let mut targets = BTreeMap::<u64, Vec<_>>::new();
    for t in burst {
        targets.entry(t.event.target).or_default().push(t.event.region);
    }
    let complete = |t: &Traced| {
        let count = targets.get(&t.event.target).map_or(0, Vec::len) as u64;
        count == t.event.nr_regions && !t.after_loss
    };
    burst.iter().all(complete).then_some(AggregationResult { at, targets })
}

#[cfg(test)]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;
    use crate::damon::results::RawRegion;

    const INTERVAL: Duration = Duration::from_millis(100);
    const MS: u64 = 1_000_000;

    /// The regions `which` of the `nr` regions of `target`.
    fn burst(ms: u64, target: u64, nr: u64, which: std::ops::Range<u64>) -> Vec<Traced> {
        let event = |i: u64| {
            let range = AddrRange::new(i * 4096, (i + 1) * 4096);
            let region = RawRegion { range, nr_accesses: 1, age: 2 };
            let event = Event { target, nr_regions: nr, region };
            Traced { at: Nanos(ms * MS + i), event, after_loss: false }
        };
        which.map(event).collect()
    }

    /// The kdamond was kept from its CPU between two targets.
    #[test]
    fn a_pause_among_targets_is_none_among_results() {
        let both = |ms, pause| [burst(ms, 0, 2, 0..2), burst(ms + pause, 1, 1, 0..1)];
        let mut bursts = Bursts::default();
        bursts.add(both(100, 1).concat().into_iter());
        assert_eq!(results(&mut bursts, 130), [(101, vec![2, 1])]);
        let [first, second] = both(200, 20);
        bursts.add(first.into_iter());
        assert_eq!(results(&mut bursts, 215), [], "the second target is waited for");
        bursts.add(second.into_iter());
        assert_eq!(results(&mut bursts, 231), [(220, vec![2, 1])]);
        // Longer than is waited: what comes then is no result of its own.
        let [first, second] = both(320, 40);
        bursts.add(first.into_iter());
        assert_eq!(results(&mut bursts, 346), [(320, vec![2])]);
        bursts.add(second.into_iter());
        assert_eq!((results(&mut bursts, 386), bursts.dropped), (vec![], 1));
        bursts.add(both(430, 1).concat().into_iter());
        assert_eq!(results(&mut bursts, 445), [(431, vec![2, 1])]);
    }

    /// The reader waits only once for a target that has ended.
    #[test]
    fn a_target_that_has_gone_is_not_waited_for() {
        let mut bursts = Bursts::default();
        bursts.add([burst(100, 0, 1, 0..1), burst(100, 1, 1, 0..1)].concat().into_iter());
        assert_eq!(results(&mut bursts, 126), [(100, vec![1, 1])]);
        for (at, wait) in [(200, 26), (300, 11)] {
            bursts.add(burst(at, 0, 1, 0..1).into_iter());
            assert_eq!(results(&mut bursts, at + wait - 2), []);
            assert_eq!(results(&mut bursts, at + wait), [(at, vec![1])]);
        }
    }

    fn results(bursts: &mut Bursts, now_ms: u64) -> Vec<(u64, Vec<usize>)> {
        let all = std::iter::from_fn(|| bursts.next(Nanos(now_ms * MS), INTERVAL));
        all.map(|r| (r.at.0 / MS, r.targets.values().map(Vec::len).collect())).collect()
    }

    #[test]
    fn a_result_is_over_when_nothing_more_comes() {
        let mut bursts = Bursts::default();
        bursts.add(burst(100, 0, 4, 0..4).into_iter());
        assert_eq!(results(&mut bursts, 105), []);
        assert_eq!(results(&mut bursts, 111), [(100, vec![4])]);
        assert_eq!(results(&mut bursts, 300), []);
    }

    #[test]
    fn targets_belong_together_and_results_do_not() {
        let mut bursts = Bursts::default();
        let all = [
            burst(100, 0, 2, 0..2),
            burst(101, 2, 1, 0..1),
            burst(200, 0, 1, 0..1),
            burst(300, 0, 1, 0..1),
            // The first target has ended: only the time shows that this is another result.
            burst(400, 1, 1, 0..1),
        ];
        bursts.add(all.concat().into_iter().rev());
        let want = [(101, vec![2, 1]), (200, vec![1]), (300, vec![1]), (400, vec![1])];
        assert_eq!(results(&mut bursts, 500), want);
        assert_eq!(bursts.dropped, 0);
    }

    #[test]
    fn incomplete_bursts_are_dropped() {
        let mut bursts = Bursts::default();
        let mut lossy = burst(400, 0, 3, 0..3);
        lossy[0].after_loss = true;
        let all = [
            burst(100, 0, 3, 1..3), // the head is missing
            burst(200, 0, 3, 0..2), // the tail
            burst(300, 0, 3, 0..3),
            lossy, // maybe a whole target
        ];
        bursts.add(all.concat().into_iter());
        assert_eq!(results(&mut bursts, 500), [(300, vec![3])]);
        assert_eq!(bursts.dropped, 3);
    }

    /// The events of another CPU are read later.
    #[test]
    fn events_come_out_of_order() {
        let mut bursts = Bursts::default();
        bursts.add(burst(100, 0, 4, 2..4).into_iter());
        assert_eq!(results(&mut bursts, 101), []);
        bursts.add(burst(100, 0, 4, 0..2).into_iter());
        assert_eq!(results(&mut bursts, 120), [(100, vec![4])]);
    }
}
