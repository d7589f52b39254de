//! Measures the speed of a node's memory: some threads stream over memory bound to the node, and one thread
//! follows a chain through it.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_core::AddrRange;

use super::error::NumaError;
use crate::sys::{self, Arena, ArenaKind, Existing, NodeMask, PolicyMode};

/// Size of a cache line, in bytes and in words.
const LINE: usize = 64;
const WORDS: usize = LINE / 8;
/// A chain uses one line of this many, because a CPU may prefetch the adjacent ones.
const LINES_APART: usize = 4;
/// Words per page.
const PAGE: usize = 512;
/// Lines streamed over between two checks of the stop flag: 256 KiB.
const BATCH_LINES: usize = 4096;
/// Steps of a chain between two checks of the stop flag.
const STEPS_PER_CHECK: usize = 1024;

/// The mix of reads and writes of cache lines that reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mix {
    /// only reads
    Read,
    /// two reads per write
    TwoToOne,
    /// one read per write
    OneToOne,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Mix; 3] = [Mix::Read, Mix::TwoToOne, Mix::OneToOne];

    /// The name in options and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mix::Read => "read",
            Mix::TwoToOne => "2:1",
            Mix::OneToOne => "1:1",
        }
    }

    /// Streams over some lines once; returns the bytes that this moves from and to memory. The CPU reads a line
    /// before it writes it: so each write is also a read.
    fn touch(self, lines: &[AtomicU64]) -> u64 {
        let mut sum = 0u64;
        let mut moved = 0usize;
        for (i, line) in lines.chunks(WORDS).enumerate() {
            let Some(word) = line.first() else { continue };
            let value = word.load(Relaxed);
            sum = sum.wrapping_add(value);
            let write = match self {
                Mix::Read => false,
                Mix::TwoToOne => i % 2 == 1,
                Mix::OneToOne => true,
            };
            if write {
                word.store(value.wrapping_add(1), Relaxed);
            }
            moved += LINE * (1 + usize::from(write));
        }
        black_box(sum);
        moved as u64
    }
}

/// Own memory on one node.
pub struct Bound {
    arena: Arena,
}

/// The result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Streamed {
    /// traffic from and to memory, in bytes per second
    pub bytes_per_s: f64,
    /// mean time per step of the chain, in ns; none if no thread followed it, or if the time was too short
    pub ns: Option<f64>,
}

impl Bound {
    /// Maps `len` bytes on node `node`, and touches them; none if `is_over` returns true before that is done.
    ///
    /// # Errors
    /// If the node does not have this much memory.
    pub fn map(node: u32, len: u64, is_over: impl Fn() -> bool) -> Result<Option<Self>, NumaError> {
        let failed = |source| NumaError::Memory { mib: len >> 20, node, source };
        let arena = Arena::map(len).map_err(failed)?;
        let nodes: NodeMask = [node].into_iter().collect();
        sys::bind(arena.range(), PolicyMode::BIND, &nodes, Existing::Leave).map_err(failed)?;
        // Huge pages, so that TLB misses do not disturb the measurement.
        arena.back(AddrRange::new(0, len), ArenaKind::Huge).map_err(failed)?;
        for batch in arena.words().chunks(BATCH_LINES * WORDS) {
            if is_over() {
                return Ok(None);
            }
            batch.iter().step_by(PAGE).for_each(|word| word.store(0, Relaxed));
        }
        Ok(Some(Bound { arena }))
    }

    /// Links every fourth line to one chain, in an order that no CPU can predict.
    pub fn chain(&self) {
        let links = self.arena.words().len() / (WORDS * LINES_APART);
        let mut order: Vec<u32> = (0..u32::try_from(links).unwrap_or(u32::MAX)).collect();
        // Sattolo's algorithm: a permutation with a single cycle.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for i in (1..order.len()).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let other = usize::try_from(random % i as u64).unwrap_or(0);
            order.swap(i, other);
        }
        for (link, next) in self.arena.words().iter().step_by(WORDS * LINES_APART).zip(order) {
            link.store(u64::from(next), Relaxed);
        }
    }

    /// Follows the chain until `stop` is set; returns the mean time per step, in ns.
    fn follow(&self, stop: &AtomicBool) -> Option<f64> {
        let words = self.arena.words();
        let (since, mut at, mut steps) = (Instant::now(), 0usize, 0usize);
        while !stop.load(Relaxed) {
            for _ in 0..STEPS_PER_CHECK {
                let next = words.get(at * WORDS * LINES_APART)?.load(Relaxed);
                at = usize::try_from(next).ok()?;
            }
            steps += STEPS_PER_CHECK;
        }
        black_box(at);
        (steps > 0).then(|| since.elapsed().as_nanos() as f64 / steps as f64)
    }

    /// Streams over the memory until `stop` is set, with a pause after each batch; returns the bytes moved.
    fn stream(&self, mix: Mix, pause: u32, stop: &AtomicBool) -> u64 {
        let mut moved = 0;
        loop {
            for batch in self.arena.words().chunks(BATCH_LINES * WORDS) {
                if stop.load(Relaxed) {
                    return moved;
                }
                moved += mix.touch(batch);
                (0..pause).for_each(|_| spin_loop());
            }
        }
    }
}

/// Streams over each of `load` in a thread of its own, with a pause of `pause` loop iterations after each 256
/// KiB, while another thread follows the chain through `chained`.
#[must_use]
pub fn measure(
    load: &[Bound],
    (mix, pause): (Mix, u32),
    chained: Option<&Bound>,
    time: Duration,
) -> Streamed {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    thread::scope(|s| {
        let since = Instant::now();
        let streams: Vec<_> =
            load.iter().map(|b| s.spawn(move || b.stream(mix, pause, stop))).collect();
        let chase = chained.map(|b| s.spawn(move || b.follow(stop)));
        thread::sleep(time);
        stop.store(true, Relaxed);
        let elapsed = since.elapsed().as_secs_f64();
        let moved: u64 = streams.into_iter().filter_map(|t| t.join().ok()).sum();
        let ns = chase.and_then(|t| t.join().ok().flatten());
        Streamed { bytes_per_s: moved as f64 / elapsed.max(1e-9), ns }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_moved_are_counted() {
        let words: Vec<AtomicU64> = (0..16 * WORDS).map(|_| AtomicU64::new(0)).collect();
        let line = LINE as u64;
        assert_eq!(Mix::Read.touch(&words), 16 * line);
        assert_eq!(Mix::TwoToOne.touch(&words), 24 * line);
        assert_eq!(Mix::OneToOne.touch(&words), 32 * line);
        let written: u64 = words.iter().map(|w| w.load(Relaxed)).sum();
        assert_eq!(written, 8 + 16);
    }

    fn bound(len: u64) -> Bound {
        let node = sys::allowed_nodes().unwrap().nodes().next().unwrap();
        assert!(Bound::map(node, len, || true).unwrap().is_none());
        Bound::map(node, len, || false).unwrap().unwrap()
    }

    #[test]
    fn a_chain_is_one_circle() {
        let bound = bound(2 << 20);
        bound.chain();
        let words = bound.arena.words();
        let links = words.len() / (WORDS * LINES_APART);
        let mut at = 0;
        let mut seen = vec![false; links];
        for _ in 0..links {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = words[at * WORDS * LINES_APART].load(Relaxed) as usize;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn something_is_measured() {
        let load = [bound(4 << 20)];
        let chain = bound(4 << 20);
        chain.chain();
        let time = Duration::from_millis(50);
        let found = measure(&load, (Mix::TwoToOne, 0), Some(&chain), time);
        assert!(found.bytes_per_s > 0.0 && found.ns.unwrap() > 0.0, "{found:?}");
        assert_eq!(
            measure(&[], (Mix::Read, 0), None, time),
            Streamed { bytes_per_s: 0.0, ns: None }
        );
    }
}
