//! A simulated machine: an operations set whose truth is known to the last access.
//!
//! A [`Machine`] owns a virtual clock and address spaces. Each space has mappings, pages with an accessed bit,
//! and patterns that touch them. [`Ops`] makes it an operations set for a monitor, [`Truth`] returns the true
//! accesses, and [`score`] compares both. A [`workload`] makes the same accesses here and on the real machine,
//! and the same code scores its [`GroundTruth`]. No part of this crate uses a wall clock, a thread or a file:
//! the same seed and the same calls give the same results, bit by bit.
//!
//! ```
//! use std::time::Duration;
//! use isotherm_core::{AddrRange, Attrs, RegionSampler, Nanos};
//! use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern, run, score};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut machine = Machine::new(1);
//! let target = machine.spawn();
//! machine.map(target, AddrRange::new(0x1000_0000, 0x2000_0000), MappingSpec::anonymous())?;
//! let hot = AddrRange::new(0x1000_0000, 0x1200_0000);
//! machine.touch(target, hot, TouchPattern::Poisson { hz: 50.0 })?;
//!
//! let ops = Ops::new(machine);
//! let mut monitor = RegionSampler::new(ops.clone(), Attrs::default(), &[target], 1)?;
//! let snapshots = run(&mut monitor, &ops, Nanos(4_000_000_000))?;
//!
//! let last = snapshots.last().ok_or("no snapshot")?;
//! let truth = ops.machine().truth(target)?.ground(last.start, last.end);
//! let hot = score(&truth, last, target).ok_or("another time")?.hot;
//! assert!(hot.precision() > Some(0.9) && hot.recall() > Some(0.9), "{hot:?}");
//! # Ok(())
//! # }
//! ```

mod access;
mod accuracy;
mod accuracy_text;
mod area;
mod blocks;
mod calibration;
mod changes;
pub mod fleet;
mod ground_truth;
mod kind;
pub mod lab;
mod machine;
mod ops;
mod over_time;
pub mod paged;
mod pattern;
mod random;
mod run;
mod score;
mod space;
mod truth;
pub mod whatif;
pub mod workload;

pub use accuracy::{
    AGED, Accuracy, AccuracyBuilder, Blocks, Delay, HOT_SCORES_FROM, KindScores, ScoreStatistics,
};
pub use accuracy_text::{accuracy_text, over_time_text};
pub use area::MappingSpec;
pub use blocks::BlockScores;
pub use calibration::{Calibrated, Decade, by_decade, calibrate};
pub use changes::{Delays, delays};
pub use ground_truth::{
    GroundTruth, IntervalTruth, MachineKind, Stretch, TRUTH_VERSION, TruthError,
};
pub use machine::{Machine, SimError};
pub use ops::Ops;
pub use over_time::{F1, OverTime, PHASE_LEAD_IN, SecondF1};
pub use pattern::TouchPattern;
pub use run::run;
pub use score::{MIN_SCORED_HZ, Score, Scores, highest_hz, score};
pub use space::AddressSpace;
pub use truth::Truth;
