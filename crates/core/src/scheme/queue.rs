//! Candidates in order of priority, taken in batches that fit the remaining budget.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use super::candidates::Candidate;
use super::quota::MIN_WORK_TIME;
use crate::act::Budget;
use crate::call::TargetId;
use crate::range::{AddrRange, align_down, align_up};

/// Maximum number of works per batch.
const MAX_BATCH: usize = 512;

/// A position in the order of targets and addresses.
pub(super) type Place = (TargetId, u64);

/// The remaining candidates of a turn, in order of priority. Candidates of equal priority are in circular
/// address order, starting where the last turn stopped.
#[derive(Debug)]
pub(super) struct Queue {
    candidates: VecDeque<Candidate>,
    /// candidates whose control group has no room in its quota
    full: Vec<Candidate>,
    /// the least number of bytes that the action can affect
    unit: u64,
}

impl Queue {
    pub fn new(candidates: Vec<Candidate>, from: Option<Place>, unit: u64) -> Self {
        let from = from.unwrap_or((TargetId(0), 0));
        let mut all = candidates;
        if let Some(i) = all.iter().position(|c| is_inside(c, from)) {
            let behind = Candidate { range: AddrRange::new(from.1, all[i].range.end), ..all[i] };
            all[i].range.end = from.1;
            all.insert(i + 1, behind);
        }
        let place = |c: &Candidate| (c.target, c.range.start);
        // Scores are not negative, so that their bits have the same order.
        all.sort_by_cached_key(|c| (Reverse(c.score.to_bits()), place(c) < from, place(c)));
        Queue { candidates: all.into(), full: Vec::new(), unit }
    }

    /// Takes the candidates that fit in `left`. The last one is cut at a multiple of the unit where the
    /// remaining bytes end, if the bytes that the action can affect are evenly distributed. However, the
    /// budget of each work is sufficient for all of its part: otherwise its remainder would come after later
    /// candidates. `grant` returns how many of the requested bytes the quota of a target's group permits.
    pub fn batch(
        &mut self,
        left: Budget,
        mut grant: impl FnMut(TargetId, u64) -> u64,
    ) -> Vec<(Candidate, Budget)> {
        let mut batch: Vec<(Candidate, Budget)> = Vec::new();
        let mut bytes = left.bytes;
        let works = left.time.as_nanos() / MIN_WORK_TIME.as_nanos();
        let works = usize::try_from(works).unwrap_or(usize::MAX).clamp(1, MAX_BATCH);
        while bytes >= self.unit && batch.len() < works {
            let Some(mut next) = self.candidates.pop_front() else { break };
            let worth = self.worth(&next);
            let wanted = align_up(next.range.len(), self.unit).min(bytes);
            let granted = align_down(grant(next.target, wanted), self.unit);
            if granted == 0 {
                self.full.push(next);
                continue;
            }
            if worth > granted {
                let cut = self.cut(&next, granted, worth);
                self.back(next, cut);
                next.range.end = cut;
            }
            let most = align_up(next.range.len(), self.unit).min(granted);
            bytes -= most;
            batch.push((next, Budget { bytes: most, time: Duration::ZERO }));
        }
        share_out(left.time, &mut batch);
        batch
    }

    /// Bytes of a candidate that the action can affect, in whole units.
    fn worth(&self, c: &Candidate) -> u64 {
        align_up(c.worth().max(1), self.unit).min(align_up(c.range.len(), self.unit))
    }

    /// The address up to which a candidate contains `bytes` of its `worth`: at least the first unit boundary,
    /// so that it makes progress.
    fn cut(&self, c: &Candidate, bytes: u64, worth: u64) -> u64 {
        let part = u128::from(c.range.len()) * u128::from(bytes) / u128::from(worth);
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let first = align_down(c.range.start, self.unit).saturating_add(self.unit);
        align_down(c.range.start.saturating_add(part), self.unit).max(first)
    }

    /// Puts the part of `c` from `at` on back at the front.
    pub fn back(&mut self, c: Candidate, at: u64) {
        if at < c.range.end {
            self.candidates.push_front(Candidate { range: AddrRange::new(at, c.range.end), ..c });
        }
    }

    /// Removes the candidates of a target that is gone.
    pub fn without(&mut self, target: TargetId) {
        self.candidates.retain(|c| c.target != target);
    }

    /// The position of the next candidate.
    pub fn place(&self) -> Option<Place> {
        self.candidates.front().map(|c| (c.target, c.range.start))
    }

    pub fn rest(self) -> impl Iterator<Item = Candidate> {
        self.candidates.into_iter().chain(self.full)
    }
}

/// Distributes the time: the minimum for each work, and the rest in proportion to the bytes.
fn share_out(time: Duration, batch: &mut [(Candidate, Budget)]) {
    let works = u32::try_from(batch.len()).unwrap_or(u32::MAX).max(1);
    let least = MIN_WORK_TIME.min(time / works);
    let rest = time.saturating_sub(least * works);
    let all: u64 = batch.iter().map(|(_, budget)| budget.bytes).sum();
    for (_, budget) in batch {
        budget.time = least + rest.mul_f64(budget.bytes as f64 / all.max(1) as f64);
    }
}

/// Whether a candidate begins before `place` and ends behind it.
fn is_inside(c: &Candidate, (target, at): Place) -> bool {
    c.target == target && c.range.contains(at) && c.range.start != at
}
