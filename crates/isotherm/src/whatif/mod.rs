//! A record, played through several settings: what each would have done.

mod figures;
mod options;
mod settings;

pub use figures::figures;
pub use options::{Sweep, TierList, limit, sweep, tiers};
pub use settings::{Settings, SettingsError};
