//! The zones of the real machine: readings, expected values, and changes between two readings.

mod change;
mod reading;
pub mod remarks;
mod state;
pub mod text;

pub use change::{Change, KindChange, NodeChange, Reclaim};
pub use reading::ZoneSample;
pub use state::{FormulaWatermarks, State, ZoneState};

#[cfg(test)]
mod tests;
