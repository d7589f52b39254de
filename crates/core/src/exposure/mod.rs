//! The exposure monitor: clears once, reads many times.

use std::marker::PhantomData;

use crate::attrs::{Attrs, AttrsError};
use crate::monitor::{Monitor, Observer};
use crate::ops::{Look, OpsError, Source, Space, Step, TargetId};
use crate::time::Nanos;

/// Clears once, reads many times.
pub struct Exposure<O> {
    ops: O,
    attrs: Attrs,
}

impl<O: Space + Look> Exposure<O> {
    /// Nothing is looked at before the first [`Source::step`].
    ///
    /// # Errors
    /// If `attrs` make no sense, or `ops` cannot read everything.
    pub fn new(
        mut ops: O,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Self, AttrsError> {
        if ops.survey().is_none() {
            return Err(AttrsError::NoSurvey(attrs.monitor.name()));
        }
        Ok(Exposure { ops, attrs: attrs.checked()? })
    }
}

impl<O: Space + Look> Source for Exposure<O> {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        Err(OpsError::Failed("not yet".into()))
    }
}

impl<O: Space + Look> Monitor for Exposure<O> {
    type Ops = O;

    fn ops(&mut self) -> &mut O {
        &mut self.ops
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {}

    fn attrs(&self) -> Attrs {
        self.attrs
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        Ok(())
    }

    fn set_targets(&mut self, ids: &[TargetId]) {}

    fn outlive_targets(&mut self) {}

    fn stop(&mut self) {}
}
