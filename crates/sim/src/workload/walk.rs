//! The page that a thread touches next, in real time.

use std::time::Duration;

use super::{Access, Field, Order, Owner, Workload, WorkloadLayout};
use crate::random::{below, mix, unit};

/// The endless sequence of touches of one thread.
#[derive(Debug, Clone)]
pub struct Walk {
    field: Field,
    next: Next,
    key: u64,
    drawn: u64,
}

#[derive(Debug, Clone)]
enum Next {
    InOrder {
        at: u64,
    },
    Random,
    /// `up_to[i]`: share of the touches on the parts 0 to i
    Weighted {
        up_to: Vec<f64>,
    },
    Moving {
        every: Duration,
    },
}

impl Walk {
    /// The walk of the `thread`-th thread of an access of this workload.
    #[must_use]
    pub fn of(
        workload: &Workload,
        layout: &WorkloadLayout,
        access: &Access,
        thread: u32,
        seed: u64,
    ) -> Walk {
        let region = workload.region_index(&access.region).unwrap_or(0);
        let field = layout.field(Owner::Region(region), access.order.stride());
        Walk::new(field, access.order, (thread, access.threads), region_key(seed, region))
    }

    /// The walk over the islands.
    #[must_use]
    pub fn of_islands(layout: &WorkloadLayout, seed: u64) -> Walk {
        Walk::new(layout.field(Owner::Island, 1), Order::Random, (0, 1), mix(seed, 2))
    }

    /// The walk of the `thread`-th of `threads` that touch `field`. Random choices depend on `key` and the
    /// number of the thread; the order of likely blocks with Zipf depends only on `key`.
    fn new(field: Field, order: Order, (thread, threads): (u32, u32), key: u64) -> Walk {
        let next = match order {
            Order::Random => Next::Random,
            Order::Sequential | Order::Strided { .. } => {
                Next::InOrder { at: field.pages() * u64::from(thread) / u64::from(threads.max(1)) }
            }
            Order::Zipf { exponent, .. } => {
                let sum = |sum: &mut f64, share| {
                    *sum += share;
                    Some(*sum)
                };
                let shares = zipf_shares(field.parts(), exponent, key).into_iter();
                Next::Weighted { up_to: shares.scan(0.0, sum).collect() }
            }
            Order::Moving { every, .. } => Next::Moving { every },
        };
        Walk { field, next, key: mix(key, thread.into()), drawn: 0 }
    }

    /// The number of pages that are touched at a time, for which the rate counts.
    #[must_use]
    pub fn pages(&self) -> u64 {
        match self.next {
            Next::Moving { .. } => self.field.per_part(),
            _ => self.field.pages(),
        }
    }

    /// The number of parts of the layout that it touches.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.field.parts()
    }

    /// The index in the layout of the part with this number.
    #[must_use]
    pub fn part(&self, i: usize) -> Option<usize> {
        self.field.part(i)
    }

    /// The next touch at this time after the beginning of the phase: the number of a part, and a page counted
    /// from offset 0. `None` if there is nothing to touch.
    pub fn next(&mut self, since: Duration) -> Option<(usize, u64)> {
        self.drawn += 1;
        let hash = mix(self.key, self.drawn);
        let (pages, per_part) = (self.field.pages(), self.field.per_part());
        let page = match &mut self.next {
            Next::Random => below(hash, pages),
            Next::InOrder { at } => {
                let page = *at;
                *at = if page + 1 >= pages { 0 } else { page + 1 };
                page
            }
            Next::Weighted { up_to } => {
                let u = unit(hash);
                let part =
                    up_to.partition_point(|&sum| sum <= u).min(up_to.len().saturating_sub(1));
                part as u64 * per_part + below(mix(hash, 1), per_part)
            }
            Next::Moving { every } => {
                let turn = since.as_nanos() / every.as_nanos().max(1);
                let part = u64::try_from(turn).unwrap_or(0) % (self.field.parts() as u64).max(1);
                part * per_part + below(hash, per_part)
            }
        };
        self.field.at(page)
    }
}

/// The key of the random choices for a region.
pub(super) fn region_key(seed: u64, region: usize) -> u64 {
    mix(mix(seed, 1), region as u64)
}

/// The share of the touches on each of `blocks`, in the order of addresses. The k-th likely block has a share
/// of 1 / k^`exponent` over the sum of all; `key` determines which block that is.
pub(super) fn zipf_shares(blocks: usize, exponent: f64, key: u64) -> Vec<f64> {
    let mut by_rank: Vec<usize> = (0..blocks).collect();
    by_rank.sort_by_key(|&block| mix(key, block as u64));
    let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
    let sum: f64 = (0..blocks).map(weight).sum();
    let mut shares = vec![0.0; blocks];
    for (rank, block) in by_rank.into_iter().enumerate() {
        shares[block] = weight(rank) / sum;
    }
    shares
}
