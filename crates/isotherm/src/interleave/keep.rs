//! Rounds that move the memory of a process to the nodes that the rule gives.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, Mapping};
use isotherm_linux::numa::{MoveResult, ProcessLayout, balancing, node_of};
use isotherm_linux::proc;
use isotherm_mm::mempolicy::NodeWeights;
use tracing::warn;

use super::rule::is_by_address;
use super::{InterleaveError, root};
use crate::stop::Stop;

/// Pause after a round, as a multiple of its duration: rounds use at most a tenth of the time.
const PAUSE_FACTOR: u32 = 9;
/// Bytes of memory after which a round checks for signals. No folio extends beyond a multiple of this size.
const CHECKED: u64 = 1 << 30;

/// Memory that the kernel places by address: each such mapping, with each part of it that is in `within`
/// (`None`: the whole mapping). Both arguments are in ascending order of address.
pub fn parts<'a>(
    mappings: &'a [Mapping],
    within: Option<&'a [AddrRange]>,
) -> impl Iterator<Item = (AddrRange, AddrRange)> + 'a {
    let mut rest = within.unwrap_or_default();
    mappings.iter().filter(|m| is_by_address(m)).flat_map(move |m| {
        let whole = within.is_none().then_some(m.range);
        // Both lists are sorted, so a range that ends before this mapping cannot be in a later one.
        rest = rest.get(rest.partition_point(|r| r.end <= m.range.start)..).unwrap_or_default();
        let here = rest.iter().take_while(move |r| r.start < m.range.end);
        let cut = here.filter_map(|r| r.intersect(&m.range));
        whole.into_iter().chain(cut).map(|part| (m.range, part))
    })
}

/// Runs one round, until `stop` is over. The first value reports the work done even if the round ends partway.
pub fn round(
    layout: &mut ProcessLayout,
    weights: &NodeWeights,
    within: Option<&[AddrRange]>,
    stop: &Stop,
) -> (MoveResult, Result<(), InterleaveError>) {
    let mut out = MoveResult::default();
    let done = all(layout, weights, (within, stop), &mut out);
    (out, done)
}

fn all(
    layout: &mut ProcessLayout,
    weights: &NodeWeights,
    (within, stop): (Option<&[AddrRange]>, &Stop),
    out: &mut MoveResult,
) -> Result<(), InterleaveError> {
    layout.renew()?;
    let mappings = match proc::mappings(root(), layout.pid()) {
        Err(e) if e.is_gone() => return Ok(()),
        mappings => mappings?,
    };
    let by_rule = |(mapping, part): (AddrRange, AddrRange)| {
        (part, move |piece| node_of(weights, mapping.start, piece))
    };
    let cut = parts(&mappings, within)
        .flat_map(|(mapping, part)| between_checks(part).map(move |part| (mapping, part)))
        .take_while(|_| !stop.is_over());
    Ok(layout.lay_out(cut.map(by_rule), out)?)
}

/// The parts of a range after each of which signals are checked: moving their pages takes at most about a second.
fn between_checks(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let ends = std::iter::successors(Some(range.start), move |&at| {
        Some((at - at % CHECKED).saturating_add(CHECKED).min(range.end)).filter(|_| at < range.end)
    });
    ends.clone().zip(ends.skip(1)).map(|(start, end)| AddrRange::new(start, end))
}

/// The times at which rounds are due.
pub struct Rounds {
    interval: Duration,
    next: Instant,
}

impl Rounds {
    /// The first round is due at once.
    pub fn every(interval: Duration) -> Self {
        Rounds { interval, next: Instant::now() }
    }

    /// Whether a round is due.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Sets the time of the next round after a round of this duration.
    pub fn after(&mut self, took: Duration) {
        self.next = Instant::now() + self.interval.max(took * PAUSE_FACTOR);
    }
}

/// Warns if automatic NUMA balancing is on, because it moves pages too.
pub fn warn_of_balancing(what: &str) {
    if balancing(root()).is_some_and(|mode| mode > 0) {
        warn!(
            "NUMA balancing is on (/proc/sys/kernel/numa_balancing), and moves pages to where they are \
             used, regardless of the weights: {what}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::MappingKind;

    #[test]
    fn signals_are_checked_after_each_gibibyte() {
        let of = |start, end| -> Vec<_> {
            between_checks(AddrRange::new(start, end)).map(|r| (r.start, r.end)).collect()
        };
        let end = 2 * CHECKED + 4096;
        assert_eq!(of(4096, end), [(4096, CHECKED), (CHECKED, 2 * CHECKED), (2 * CHECKED, end)]);
        assert_eq!(of(0, CHECKED), [(0, CHECKED)]);
        assert_eq!(of(4096, 4096), []);
        assert_eq!(of(u64::MAX - 4095, u64::MAX), [(u64::MAX - 4095, u64::MAX)]);
    }

    #[test]
    fn parts_of_memory_placed_by_address() {
        let map = |start, end, kind, name: &str| Mapping {
            range: AddrRange::new(start, end),
            kind,
            name: name.into(),
            unknown: None,
        };
        let all = [
            map(0, 10, MappingKind::Heap, "[heap]"),
            map(20, 30, MappingKind::File, "a"),
            map(40, 60, MappingKind::Anonymous, ""),
            map(60, 70, MappingKind::Anonymous, "[anon_shmem:x]"),
        ];
        let r = AddrRange::new;
        let whole: Vec<_> = parts(&all, None).collect();
        assert_eq!(whole, [(r(0, 10), r(0, 10)), (r(40, 60), r(40, 60))]);
        let hot = [r(5, 25), r(45, 50), r(55, 99)];
        let cut: Vec<_> = parts(&all, Some(&hot)).map(|p| p.1).collect();
        assert_eq!(cut, [r(5, 10), r(45, 50), r(55, 60)]);
        let across = [r(5, 45)];
        let cut: Vec<_> = parts(&all, Some(&across)).map(|p| p.1).collect();
        assert_eq!(cut, [r(5, 10), r(40, 45)]);
    }

    #[test]
    fn rounds_take_a_tenth_at_most() {
        let mut rounds = Rounds::every(Duration::ZERO);
        assert!(rounds.is_due());
        rounds.after(Duration::from_secs(60));
        assert!(!rounds.is_due());
    }
}
