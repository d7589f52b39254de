//! The kernel's own monitor, DAMON, as a source of snapshots.
pub mod sysfs;
