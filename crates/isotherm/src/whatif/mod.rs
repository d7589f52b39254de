//! Plays a record through several settings, and computes the effect of each.

mod effects;
mod options;
mod settings;

pub use effects::figures;
pub use options::{Sweep, TierList, limit, sweep, tiers};
pub use settings::{Settings, SettingsError};
