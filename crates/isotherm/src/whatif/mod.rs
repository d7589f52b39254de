//! Plays a record through several settings, and computes the effect of each.

mod figures;
mod options;
mod settings;

pub use figures::figures;
pub use options::{Sweep, TierList, limit, sweep, tiers};
pub use settings::{Settings, SettingsError};
