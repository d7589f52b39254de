//! The kernel's own monitor, DAMON, as a source of snapshots.
//!
//! [`Kdamond`] creates isotherm's kdamond, reads its results, and removes it. DAMON has one user at a time:
//! isotherm does not touch a kdamond of another user, even if it is only set up and not running.

mod attrs;
mod availability;
mod claim;
mod clock;
mod error;
mod kdamond;
mod members;
mod own_kdamond;
mod reader;
mod reclaim;
mod resident;
mod results;
pub mod sysfs;
mod trace;
mod tried;
mod views;

pub use attrs::KdamondAttrs;
pub use availability::{Availability, DamonOwner, Foreign, availability, operations};
pub use claim::sweep;
pub use error::DamonError;
pub use kdamond::Kdamond;
pub use members::MonitoredMemory;
pub use reclaim::{ExcludedMemory, ReclaimKdamond, ReclaimSpec, ReclaimTotals};
pub use trace::TraceError;
