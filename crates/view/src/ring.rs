//! A bounded history of snapshots.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{Nanos, Thresholds};

use crate::moment::{Moment, SharedData};

/// The tiers: the time that one moment covers at least, and how long a tier reaches back.
const TIERS: [(Duration, Duration); 3] = [
    (Duration::from_secs(1), Duration::from_secs(10 * 60)),
    (Duration::from_secs(10), Duration::from_secs(2 * 3600)),
    (Duration::from_secs(60), Duration::from_secs(24 * 3600)),
];
/// The newest tier may use half of the memory, and each of the others a quarter.
const SHARES: [usize; TIERS.len()] = [2, 4, 4];
/// The share of the memory that is left for the newest moment: one in so many parts.
const NEWEST_SHARE: usize = 16;
/// Bytes of an entry in the table of shared parts, at most.
const ENTRY_BYTES: usize = 64;

/// Recent snapshots: at most one per second for ten minutes, one per ten seconds for two hours, and one per minute
/// for a day; fewer if the memory does not suffice. A snapshot that lasts longer than that is kept as it is.
/// Shorter ones are joined: sizes are means over their time, rates are medians, and ages are those of the last one.
///
/// Moments that wait to be joined count as well, and so do mappings, idle ages and pressures for as long as any
/// moment has them. The whole stays below its limit as long as a snapshot occupies less than a sixteenth of it; the
/// newest one is always kept.
#[derive(Debug)]
pub struct Ring {
    tiers: [Tier; TIERS.len()],
    last: Option<Moment>,
    last_bytes: usize,
    thresholds: Thresholds,
}

#[derive(Debug)]
struct Tier {
    every: Duration,
    reach: Duration,
    /// maximum of the bytes of `waiting` and `kept`: each may use half
    limit: usize,
    /// moments that are to be joined
    waiting: RetainedMoments,
    kept: RetainedMoments,
}

/// Moments in order of time, and the bytes that they occupy. What several of them share counts once.
#[derive(Debug, Default)]
struct RetainedMoments {
    moments: VecDeque<Moment>,
    own_bytes: usize,
    shared_bytes: usize,
    /// number of users of each shared part, by its address
    users: HashMap<usize, u32>,
}

impl RetainedMoments {
    fn push(&mut self, moment: Moment) {
        self.own_bytes += moment.own_bytes();
        for part in moment.parts() {
            let users = self.users.entry(part.address()).or_default();
            *users += 1;
            if *users == 1 {
                self.shared_bytes += part.bytes() + ENTRY_BYTES;
            }
        }
        self.moments.push_back(moment);
    }

    /// Drops the first moment.
    fn pop(&mut self) {
        let Some(moment) = self.moments.pop_front() else { return };
        self.own_bytes -= moment.own_bytes();
        for part in moment.parts() {
            let Entry::Occupied(mut users) = self.users.entry(part.address()) else { continue };
            *users.get_mut() -= 1;
            if *users.get() == 0 {
                users.remove();
                self.shared_bytes -= part.bytes() + ENTRY_BYTES;
            }
        }
        // What is left should not pay for more moments than there are.
        if self.moments.capacity() > 4 * self.moments.len().max(4) {
            self.moments.shrink_to(2 * self.moments.len());
            self.users.shrink_to(2 * self.users.len());
        }
    }

    fn bytes(&self) -> usize {
        self.own_bytes + self.shared_bytes + self.moments.capacity() * size_of::<Moment>()
    }
}

impl Ring {
    /// An empty ring, which uses at most `memory` bytes.
    #[must_use]
    pub fn new(memory: usize) -> Self {
        let memory = memory - memory / NEWEST_SHARE;
        let tiers = std::array::from_fn(|i| {
            let (every, reach) = TIERS[i];
            let (waiting, kept) = (RetainedMoments::default(), RetainedMoments::default());
            Tier { every, reach, limit: memory / SHARES[i], waiting, kept }
        });
        Ring { tiers, last: None, last_bytes: 0, thresholds: Thresholds::default() }
    }

    /// Adds the next moment. Its figures were computed with the thresholds of the ring.
    pub fn push(&mut self, moment: Moment) {
        self.last_bytes = moment.own_bytes() + moment.parts().map(SharedData::bytes).sum::<usize>();
        self.last = Some(moment.clone());
        let mut next = Some(moment);
        for tier in &mut self.tiers {
            next = next.and_then(|moment| tier.push(moment, &self.thresholds));
        }
    }

    /// The newest moment, which is not joined with others.
    #[must_use]
    pub fn last(&self) -> Option<&Moment> {
        self.last.as_ref()
    }

    /// The time of all kept moments; `None` if there are none.
    #[must_use]
    pub fn span(&self) -> Option<Range<Nanos>> {
        let firsts = self.tiers.iter().filter_map(Tier::start);
        let last = &self.last.as_ref()?.snapshot;
        Some(firsts.chain([last.start]).min()?..last.end)
    }

    /// The moment that covers the time `at`: the finest one that is kept. Before the first it is the first, and
    /// after the last the last; in a gap it is the one before.
    #[must_use]
    pub fn at(&self, at: Nanos) -> Option<&Moment> {
        let last = self.last.as_ref()?;
        if at >= last.snapshot.start {
            return Some(last);
        }
        let holder = self.tiers.iter().find(|tier| tier.start().is_some_and(|start| start <= at));
        let coarsest = || self.tiers.iter().rev().find(|tier| tier.start().is_some());
        let Some(tier) = holder.or_else(coarsest) else { return Some(last) };
        let after = tier.moments().take_while(|m| m.snapshot.start <= at).count();
        tier.moments().nth(after.saturating_sub(1)).or(Some(last))
    }

    /// The moments that overlap `span`, in order of time and without overlap. The first may start before it. Where
    /// several tiers have them, they come from the coarsest whose moments cover no more than `step`, or from the
    /// finest.
    #[must_use]
    pub fn between(&self, span: &Range<Nanos>, step: Duration) -> Vec<&Moment> {
        let wanted = self.tiers.iter().rposition(|tier| tier.every <= step).unwrap_or(0);
        // From the new to the old: finer tiers have what the wanted one has not joined yet, coarser ones what it
        // has dropped.
        let finer = (0..wanted).map(|i| &self.tiers[i]).map(|tier| (tier, true));
        let mut out: Vec<&Moment> = Vec::new();
        let wanted_end = self.tiers[wanted].end().unwrap_or(Nanos(0));
        let mut until = span.end;
        for (tier, is_finer) in finer.chain(self.tiers[wanted..].iter().map(|tier| (tier, false))) {
            let from = if is_finer { wanted_end.max(span.start) } else { span.start };
            for moment in tier.moments().rev() {
                let s = &moment.snapshot;
                if s.end <= from || until <= span.start {
                    break;
                }
                if s.start < until {
                    // Finer moments of which the first ones were dropped already.
                    let covered = |m: &&&Moment| m.snapshot.start < s.end;
                    out.truncate(out.len() - out.iter().rev().take_while(covered).count());
                    out.push(moment);
                }
            }
            until = out.last().map_or(until, |m| m.snapshot.start.min(until));
        }
        out.reverse();
        out
    }

    /// The limits of hot and cold of all figures.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Computes all figures again, with these limits of hot and cold.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
        let held = self
            .tiers
            .iter_mut()
            .flat_map(|tier| tier.kept.moments.iter_mut().chain(&mut tier.waiting.moments));
        held.chain(&mut self.last).for_each(|moment| moment.judge(&thresholds));
    }

    /// The memory that all moments occupy, in bytes: an upper bound, because tiers may share snapshots, and mappings
    /// may share names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tiers = self.tiers.iter().map(|tier| tier.kept.bytes() + tier.waiting.bytes());
        tiers.sum::<usize>() + self.last_bytes
    }
}

impl Tier {
    /// Adds a moment. If it completes one of this tier, returns that.
    fn push(&mut self, moment: Moment, t: &Thresholds) -> Option<Moment> {
        self.waiting.push(moment);
        let waiting = &self.waiting.moments;
        let (first, last) = (waiting.front()?, waiting.back()?);
        let long = last.snapshot.end.since(first.snapshot.start);
        // A little less is enough, because intervals are never exact.
        if long + self.every / 20 < self.every && self.waiting.bytes() < self.limit / 2 {
            return None;
        }
        let joined = Moment::joined(waiting.iter(), self.every, t)?;
        self.waiting = RetainedMoments::default();
        self.kept.push(joined.clone());
        self.trim(joined.snapshot.end);
        Some(joined)
    }

    /// Drops the oldest moments that are too old, or for which there is no room.
    fn trim(&mut self, now: Nanos) {
        while let Some(first) = self.kept.moments.front() {
            let is_old = now.since(first.snapshot.end) > self.reach;
            if !is_old && self.kept.bytes() <= self.limit / 2 {
                break;
            }
            self.kept.pop();
        }
    }

    fn moments(&self) -> impl DoubleEndedIterator<Item = &Moment> {
        self.kept.moments.iter().chain(&self.waiting.moments)
    }

    /// When its first moment starts.
    fn start(&self) -> Option<Nanos> {
        self.moments().next().map(|m| m.snapshot.start)
    }

    /// When its last complete moment ends.
    fn end(&self) -> Option<Nanos> {
        self.kept.moments.back().map(|m| m.snapshot.end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::scene;

    const SECOND: u64 = 1_000_000_000;

    fn moment(seq: u64, seconds: f64, regions: usize) -> Moment {
        let regions = (0..regions as u64)
            .map(|i| scene::region(i << 20, (i + 1) << 20, (i * 7 % 5) as f32))
            .collect();
        let s = scene::snapshot(seq, seconds, vec![scene::target(0, vec![], regions)]);
        Moment::new(Arc::new(s), &Thresholds::default())
    }

    fn filled(seconds: f64, n: u64, memory: usize) -> Ring {
        let mut ring = Ring::new(memory);
        (0..n).for_each(|seq| ring.push(moment(seq, seconds, 3)));
        ring
    }

    fn time(ring: &Ring) -> f64 {
        let span = ring.span().unwrap();
        span.end.since(span.start).as_secs_f64()
    }

    /// Moments in order, adjacent, over all of `span`.
    fn are_whole(moments: &[&Moment], span: &Range<Nanos>) -> bool {
        let adjacent = moments.windows(2).all(|w| w[0].snapshot.end == w[1].snapshot.start);
        let begins = moments.first().is_some_and(|m| m.snapshot.start <= span.start);
        adjacent && begins && moments.last().is_some_and(|m| m.snapshot.end >= span.end)
    }

    #[test]
    fn a_day_of_seconds_is_kept_ever_more_coarsely() {
        let ring = filled(1.0, 90_000, 64 << 20);
        assert_eq!(time(&ring), 86_460.0);
        let now = ring.span().unwrap().end;
        let last = |seconds: u64| Nanos(now.0 - seconds * SECOND)..now;
        let count = |seconds, step| ring.between(&last(seconds), Duration::from_secs(step)).len();
        assert_eq!(count(300, 1), 300);
        assert_eq!(count(3600, 10), 360);
        assert_eq!(count(36_000, 60), 600);
        // What a finer tier has dropped comes from the next one.
        assert_eq!(count(3600, 1), 600 + 3000 / 10);
    }

    #[test]
    fn short_snapshots_are_joined_and_long_ones_stay() {
        let ring = filled(0.25, 40, 1 << 20);
        let all = ring.between(&ring.span().unwrap(), Duration::ZERO);
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|m| m.seconds() == 1.0));
        let ring = filled(5.0, 3, 1 << 20);
        assert_eq!(ring.between(&ring.span().unwrap(), Duration::ZERO).len(), 3);
    }

    #[test]
    fn a_moment_is_found_by_its_time() {
        let ring = filled(1.0, 2000, 64 << 20);
        let span = ring.span().unwrap();
        let at = |seconds: u64| ring.at(Nanos(span.start.0 + seconds * SECOND)).unwrap();
        assert_eq!(at(1999).snapshot.seq, 1999);
        assert_eq!(at(9999).snapshot.seq, 1999);
        assert_eq!(at(1500).snapshot.seq, 1500);
        let old = &at(105).snapshot;
        assert_eq!(old.end.since(old.start), Duration::from_secs(10));
        assert!(
            old.start.0 <= span.start.0 + 105 * SECOND && span.start.0 + 105 * SECOND < old.end.0
        );
        assert_eq!(ring.at(Nanos(0)).unwrap().snapshot.start, span.start);
        assert!(Ring::new(1).at(Nanos(0)).is_none());
    }

    #[test]
    fn other_limits_change_all_figures() {
        let mut ring = filled(1.0, 100, 1 << 20);
        let hot = |ring: &Ring| {
            let all = ring.between(&ring.span().unwrap(), Duration::ZERO);
            all.iter().map(|m| m.all_figures().map(|(_, f)| f.heat.hot).sum::<u64>()).min()
        };
        assert_eq!(hot(&ring), Some(0));
        ring.set_thresholds(Thresholds { hot_hz: 2.0, ..Thresholds::default() });
        assert_eq!(hot(&ring), Some(2 << 20));
        ring.push(moment(100, 1.0, 3));
        assert_eq!(ring.thresholds().hot_hz, 2.0);
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_time_has_no_gap(
            memory in 150_000usize..600_000, lens in prop::collection::vec(1usize..30, 1..400), step in 0u64..100,
        ) {
            let mut ring = Ring::new(memory);
            for (seq, len) in lens.iter().enumerate() {
                ring.push(moment(seq as u64, 0.7, *len));
                prop_assert!(ring.bytes() <= memory, "{} of {memory}", ring.bytes());
                prop_assert_eq!(ring.last().unwrap().snapshot.seq, seq as u64);
            }
            let span = ring.span().unwrap();
            let all = ring.between(&span, Duration::from_secs(step));
            prop_assert!(are_whole(&all, &span));
            let late = Nanos((span.start.0 + span.end.0) / 2)..span.end;
            prop_assert!(are_whole(&ring.between(&late, Duration::from_secs(step)), &late));
        }
    }
}
