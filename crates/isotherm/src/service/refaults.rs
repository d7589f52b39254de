//! Which code brings memory back, from sampled page faults.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{CodeMapping, Fault, FaultKind, Nanos, TargetId};
use serde::Serialize;

/// The rates are those of the last one to two windows.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of call stacks in a window; further ones count together. A limit, because programs decide how
/// many there are.
const MAX_STACKS: usize = 10_000;
/// Number of call stacks in the state of a service.
const MAX_SHOWN: usize = 10;

/// A thread of a target, and the addresses on its stack, the innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Waiter {
    target: TargetId,
    thread: Arc<str>,
    frames: Arc<[u64]>,
}

/// Major faults of the last one to two windows, by the code that waited for them.
#[derive(Debug)]
pub struct Refaults {
    begun: Nanos,
    now_begun: Nanos,
    before: HashMap<Waiter, u64>,
    now: HashMap<Waiter, u64>,
}

/// Major faults a second: `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct RefaultRates {
    per_second: f64,
    stacks: Vec<RefaultStack>,
}

/// Major faults of one call stack.
#[derive(Debug, Serialize)]
struct RefaultStack {
    pid: Option<u32>,
    thread: Arc<str>,
    per_second: f64,
    /// the outermost frame first
    frames: Vec<CodePlace>,
}

/// A place in the code of a process. For code that the program has generated, the address alone.
#[derive(Debug, Serialize)]
struct CodePlace {
    address: u64,
    #[serde(flatten)]
    file: Option<FilePlace>,
}

/// The same in the file.
#[derive(Debug, Serialize)]
struct FilePlace {
    file: Arc<str>,
    build_id: Arc<str>,
    offset: u64,
}

impl Refaults {
    /// No faults yet.
    pub fn new(now: Nanos) -> Self {
        let (before, empty) = (HashMap::new(), HashMap::new());
        Refaults { begun: now, now_begun: now, before, now: empty }
    }

    /// Counts a fault if it is a major one.
    pub fn push(&mut self, f: &Fault) {
        if f.kind != FaultKind::Major {
            return;
        }
        let (thread, frames) = (Arc::clone(&f.thread), Arc::clone(&f.frames));
        let mut waiter = Waiter { target: f.target, thread, frames };
        if self.now.len() >= MAX_STACKS && !self.now.contains_key(&waiter) {
            waiter = Waiter { target: f.target, thread: "".into(), frames: [].into() };
        }
        *self.now.entry(waiter).or_default() += f.weight;
    }

    /// Forgets faults that are too old.
    pub fn turn(&mut self, now: Nanos) {
        if now.since(self.now_begun) >= WINDOW {
            self.before = std::mem::take(&mut self.now);
            (self.begun, self.now_begun) = (self.now_begun, now);
        }
    }

    /// The rates of the call stacks with the most faults. `code` holds the files that each target executes, and
    /// `pids` its process.
    pub fn rates(
        &self,
        now: Nanos,
        code: &BTreeMap<TargetId, Arc<Vec<CodeMapping>>>,
        pids: &BTreeMap<TargetId, u32>,
    ) -> RefaultRates {
        let seconds = now.since(self.begun).as_secs_f64().max(1.0);
        let mut all: BTreeMap<&Waiter, u64> = BTreeMap::new();
        for (waiter, faults) in self.before.iter().chain(&self.now) {
            *all.entry(waiter).or_default() += faults;
        }
        let sum: u64 = all.values().sum();
        let mut most: Vec<(&Waiter, u64)> = all.into_iter().collect();
        most.sort_by_key(|&(_, faults)| std::cmp::Reverse(faults));
        let stack = |(waiter, faults): (&Waiter, u64)| {
            let code = code.get(&waiter.target).map_or(&[][..], |code| code);
            RefaultStack {
                pid: pids.get(&waiter.target).copied(),
                thread: Arc::clone(&waiter.thread),
                per_second: faults as f64 / seconds,
                frames: places(&waiter.frames, code),
            }
        };
        RefaultRates {
            per_second: sum as f64 / seconds,
            stacks: most.into_iter().take(MAX_SHOWN).map(stack).collect(),
        }
    }
}

/// The places of a stack, the outermost first.
fn places(frames: &[u64], code: &[CodeMapping]) -> Vec<CodePlace> {
    let place = |(i, &frame): (usize, &u64)| {
        // All but the innermost frame are return addresses, which lie after the call.
        let address = if i == 0 { frame } else { frame.saturating_sub(1) };
        let after = code.partition_point(|c| c.range.end <= address);
        let code = code.get(after).filter(|c| c.range.contains(address));
        let file = code.map(|c| FilePlace {
            file: Arc::clone(&c.path),
            build_id: Arc::clone(&c.build_id),
            offset: address - c.range.start + c.offset,
        });
        CodePlace { address, file }
    };
    let mut places: Vec<CodePlace> = frames.iter().enumerate().map(place).collect();
    places.reverse();
    places
}

#[cfg(test)]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn major(frames: &[u64], weight: u64) -> Fault {
        Fault {
            target: TargetId(3),
            at: Nanos(0),
            kind: FaultKind::Major,
            tid: 7,
            thread: "worker".into(),
            range: AddrRange::new(0x1000, 0x2000),
            weight,
            frames: frames.into(),
        }
    }

    fn rates(refaults: &Refaults, s: u64) -> RefaultRates {
        let code = CodeMapping {
            range: AddrRange::new(0x40_0000, 0x50_0000),
            offset: 0x1000,
            path: "/usr/bin/demo".into(),
            build_id: "00ff".into(),
        };
        let code = [(TargetId(3), Arc::new(vec![code]))].into();
        refaults.rates(Nanos(s * SECOND), &code, &[(TargetId(3), 70)].into())
    }

    #[test]
    fn faults_count_for_one_to_two_minutes() {
        let mut refaults = Refaults::new(Nanos(0));
        refaults.push(&major(&[0x40_0010, 0x40_0021, 9], 300));
        refaults.push(&Fault { kind: FaultKind::Minor, ..major(&[1], 50) });
        refaults.turn(Nanos(60 * SECOND));
        refaults.push(&major(&[0x40_0010, 0x40_0021, 9], 300));
        refaults.push(&major(&[0x40_0020], 900));
        let r = rates(&refaults, 100);
        assert_eq!((r.per_second, r.stacks.len()), (15.0, 2));
        let second = &r.stacks[1];
        assert_eq!((second.pid, second.per_second), (Some(70), 6.0));
        let at: Vec<_> = second.frames.iter().map(|f| f.address).collect();
        assert_eq!(at, [8, 0x40_0020, 0x40_0010], "return addresses lie after their calls");
        let offsets: Vec<_> =
            second.frames.iter().map(|f| f.file.as_ref().map(|f| f.offset)).collect();
        assert_eq!(offsets, [None, Some(0x1020), Some(0x1010)]);
        refaults.turn(Nanos(120 * SECOND));
        refaults.turn(Nanos(180 * SECOND));
        assert_eq!(rates(&refaults, 180).per_second, 0.0);
    }

    #[test]
    fn many_stacks_count_together() {
        let mut refaults = Refaults::new(Nanos(0));
        (0..2 * MAX_STACKS as u64).for_each(|frame| refaults.push(&major(&[frame], 1)));
        assert_eq!(refaults.now.len(), MAX_STACKS + 1);
        assert_eq!(rates(&refaults, 10).per_second, MAX_STACKS as f64 * 0.2);
    }
}
