//! Common parts of the tests of all monitors: a simulated machine with one target.

// The lints that clippy permits in tests, for their helpers too.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test binary uses a part")]

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE, TargetId};
use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern};

pub const MIB: u64 = 1 << 20;
pub const BASE: u64 = 0x7f00_0000_0000;

/// The stretch of `len` pages, `at` pages after the base.
pub fn pages(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * PAGE_SIZE, BASE + (at + len) * PAGE_SIZE)
}

/// The stretch of `len` MiB, `at` MiB after the base.
pub fn mib(at: u64, len: u64) -> AddrRange {
    pages(at * 256, len * 256)
}

pub fn poisson(hz: f64) -> TouchPattern {
    TouchPattern::Poisson { hz }
}

pub fn seconds(s: f64) -> Nanos {
    Nanos((s * 1e3).round() as u64 * 1_000_000)
}

/// A machine with one target, which `lay` sets up.
pub fn machine(seed: u64, lay: impl FnOnce(&mut Machine, TargetId)) -> (Ops, TargetId) {
    let mut machine = Machine::new(seed);
    let target = machine.spawn();
    lay(&mut machine, target);
    (Ops::new(machine), target)
}

/// 64 MiB, of which the second quarter is hot.
pub fn a_quarter_hot(machine: &mut Machine, target: TargetId) {
    machine.map(target, mib(0, 64), MappingSpec::anonymous()).unwrap();
    machine.touch(target, mib(16, 16), poisson(100.0)).unwrap();
}
