//! A simulated machine: an operations set whose truth is known to the last access.
//!
//! A [`Machine`] owns a virtual clock and address spaces. Each space has mappings, pages with an
//! accessed bit, and patterns that touch them. [`Ops`] makes it an operations set for a monitor,
//! [`Truth`] says what really happened, and [`score_hot`] compares the two. Nothing here knows a
//! wall clock, a thread or a file: a seed and the same calls give the same answers, bit by bit.
//!
//! ```
//! use std::time::Duration;
//! use isotherm_core::{AddrRange, Attrs, Monitor, Nanos, Thresholds};
//! use isotherm_sim::{Machine, Memory, Ops, Pattern, run, score_hot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut machine = Machine::new(1);
//! let target = machine.spawn();
//! machine.map(target, AddrRange::new(0x1000_0000, 0x2000_0000), Memory::anonymous())?;
//! machine.touch(target, AddrRange::new(0x1000_0000, 0x1200_0000), Pattern::Poisson { hz: 50.0 })?;
//!
//! let ops = Ops::new(machine);
//! let mut monitor = Monitor::new(ops.clone(), Attrs::default(), &[target], 1)?;
//! let snapshots = run(&mut monitor, &ops, Nanos(4_000_000_000))?;
//!
//! let last = snapshots.last().ok_or("no snapshot")?;
//! let score = score_hot(last, &ops.machine(), &Thresholds::default());
//! assert!(score.precision() > 0.9 && score.recall() > 0.9, "{score:?}");
//! # Ok(())
//! # }
//! ```

mod access;
mod area;
mod machine;
mod ops;
mod pattern;
mod random;
mod run;
mod score;
mod space;
mod truth;

pub use area::Memory;
pub use machine::{Machine, SimError};
pub use ops::Ops;
pub use pattern::Pattern;
pub use run::run;
pub use score::{Score, score_hot};
pub use space::AddressSpace;
pub use truth::Truth;
