//! The zones of the real machine: readings, expected values, and changes between two readings.

mod change;
mod output;
mod reading;
mod remarks;
mod state;
mod text;

pub use change::{Change, KindChange, NodeChange, ReclaimedBytes};
pub use output::ZonesOutput;
pub use reading::ZoneSample;
pub use state::{FormulaWatermarks, State, ZoneState};

#[cfg(test)]
mod tests;
