//! Candidates in their order, taken by batches that fit what is left.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use super::candidates::Candidate;
use crate::act::Budget;
use crate::ops::TargetId;
use crate::range::{AddrRange, align_down};

/// Works handed over at once, at most.
const MAX_BATCH: usize = 512;
/// No work gets less time than this.
const LEAST_TIME: Duration = Duration::from_micros(1);

/// A place in the order of targets and addresses.
pub(super) type Place = (TargetId, u64);

/// What is still to be done in a turn: the best first; of equals, from where the last turn stopped, on
/// to the end, and from the start to there.
#[derive(Debug)]
pub(super) struct Queue<'a>(VecDeque<Candidate<'a>>);

impl<'a> Queue<'a> {
    pub fn new(candidates: Vec<Candidate<'a>>, from: Option<Place>) -> Self {
        let from = from.unwrap_or((TargetId(0), 0));
        let place = |c: &Candidate<'_>| (c.target, c.range.start);
        let mut all: Vec<Candidate<'a>> =
            candidates.into_iter().flat_map(|c| split_at(c, from)).collect();
        all.sort_by(|a, b| match b.score.total_cmp(&a.score) {
            Ordering::Equal => (place(a) < from, place(a)).cmp(&(place(b) < from, place(b))),
            better => better,
        });
        Queue(all.into())
    }

    /// Takes what fits `left`, cutting the last one at a multiple of `unit`. The time is shared by
    /// bytes.
    pub fn batch(&mut self, left: Budget, unit: u64) -> Vec<(Candidate<'a>, Budget)> {
        let mut batch = Vec::new();
        let mut bytes = left.bytes;
        while bytes >= unit && batch.len() < MAX_BATCH {
            let Some(mut next) = self.0.pop_front() else { break };
            if next.range.len() > bytes {
                let cut = align_down(next.range.start.saturating_add(bytes), unit);
                if cut <= next.range.start {
                    self.0.push_front(next);
                    break;
                }
                self.back(next, cut);
                next.range.end = cut;
            }
            bytes -= next.range.len();
            batch.push(next);
        }
        let all: u64 = batch.iter().map(|c| c.range.len()).sum();
        let part = |c: &Candidate<'_>| c.range.len() as f64 / all.max(1) as f64;
        let budget = |c: &Candidate<'_>| Budget {
            bytes: c.range.len(),
            time: left.time.mul_f64(part(c)).max(LEAST_TIME),
        };
        batch.into_iter().map(|c| (c, budget(&c))).collect()
    }

    /// Puts the part of `c` from `at` on back in front.
    pub fn back(&mut self, c: Candidate<'a>, at: u64) {
        if at < c.range.end {
            self.0.push_front(Candidate { range: AddrRange::new(at, c.range.end), ..c });
        }
    }

    /// Leaves out a target that is gone.
    pub fn without(&mut self, target: TargetId) {
        self.0.retain(|c| c.target != target);
    }

    /// What comes next.
    pub fn place(&self) -> Option<Place> {
        self.0.front().map(|c| (c.target, c.range.start))
    }

    pub fn rest(self) -> impl Iterator<Item = Candidate<'a>> {
        self.0.into_iter()
    }
}

/// `c`, in two if `place` lies within.
fn split_at<'a>(c: Candidate<'a>, (target, at): Place) -> Vec<Candidate<'a>> {
    if c.target != target || !c.range.contains(at) || c.range.start == at {
        return vec![c];
    }
    let [before, behind] = [AddrRange::new(c.range.start, at), AddrRange::new(at, c.range.end)];
    vec![Candidate { range: before, ..c }, Candidate { range: behind, ..c }]
}
