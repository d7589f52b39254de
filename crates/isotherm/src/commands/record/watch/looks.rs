//! Our own monitor, over one of the ways to look at processes.

use anyhow::Result;
use isotherm_core::{Attrs, RegionSampler, TargetId};
use isotherm_linux::{Best, Hold, Processes, Way, WayError};

use super::{Ready, Watch};
use crate::cli::{Record, UsageError};
use crate::words::say;

/// A way to look at processes.
pub struct Looks {
    way: Way,
    ops: Box<dyn Processes>,
}

impl Looks {
    /// The way that was asked for, or the best one, saying why it is not the first.
    pub fn open(asked: Option<Way>) -> Result<Self, WayError> {
        if let Some(way) = asked {
            return Ok(Looks { way, ops: way.open()? });
        }
        let Best { way, ops, passed } = Way::best()?;
        if let Some((first, e)) = passed.first() {
            let (way, first) = (way.name(), first.name());
            say(format_args!("isotherm: looking by {way}, since {first} does not work: {e}"));
        }
        Ok(Looks { way, ops })
    }
}

impl Ready for Looks {
    fn describe(&self) -> String {
        self.way.describe()
    }

    fn attrs(&self, o: &Record) -> Result<Attrs, UsageError> {
        o.attrs(self.way)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut *self.ops
    }

    fn takes_frames(&self) -> bool {
        self.way.takes_frames()
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>> {
        let monitor =
            RegionSampler::new(self.ops, attrs, targets, seed).map_err(UsageError::from)?;
        Ok(Box::new(monitor))
    }
}

impl Watch for RegionSampler<Box<dyn Processes>> {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut **self.ops()
    }

    fn set_targets(&mut self, targets: &[TargetId]) -> Result<()> {
        self.set_targets(targets);
        Ok(())
    }

    fn outlive_targets(&mut self) {
        self.outlive_targets();
    }

    fn stop(&mut self) -> Result<()> {
        self.stop();
        Ok(())
    }
}
