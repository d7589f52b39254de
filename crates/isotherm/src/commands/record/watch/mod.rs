//! What delivers the snapshots of a recording: a way that works here, and then that way at work.

mod looks;

use anyhow::Result;
use isotherm_core::{Attrs, Source, TargetId};
use isotherm_linux::Hold;

use crate::cli::{Record, UsageError};

/// A way to watch that works here; nothing is watched yet.
pub trait Ready {
    /// How it looks, for the record.
    fn describe(&self) -> String;

    /// The attributes asked for, with what this way takes for those that were not.
    fn attrs(&self, o: &Record) -> Result<Attrs, UsageError>;

    /// Who is to be watched.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Begins to watch what is held.
    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>>;
}

/// A way to watch, at work.
pub trait Watch: Source {
    /// Who is watched.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Watches these from now on.
    fn set_targets(&mut self, targets: &[TargetId]);

    /// Ends watching.
    fn stop(&mut self);
}

/// The way that was asked for, or the best one.
pub fn ready(o: &Record) -> Result<Box<dyn Ready>> {
    Ok(Box::new(looks::Looks::open(o.look.0)?))
}
