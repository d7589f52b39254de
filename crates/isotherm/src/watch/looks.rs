//! Our own monitor, over one of the ways to look at processes.

use isotherm_core::{Act, Attrs, Monitor, Nanos, OpsError, Source, Step, TargetId, watch};
use isotherm_linux::{Best, Hold, Processes, Way, WayError};
use tracing::{debug, info};

use super::{AttrsFor, Ready, Watch, WatchError, check_sample};
use crate::usage::UsageError;

/// A way to look at processes.
pub struct Looks {
    way: Way,
    ops: Box<dyn Processes>,
    /// whether it can read all memory at once
    reads_all: bool,
}

impl Looks {
    /// Opens the way that was asked for, or the best one. Prints why it is not the first choice.
    pub fn open(asked: Option<Way>) -> Result<Self, WayError> {
        if let Some(way) = asked {
            return Ok(Looks::new(way, way.open()?));
        }
        let Best { way, ops, passed } = Way::best()?;
        if let Some((first, e)) = passed.first() {
            let (way, first) = (way.name(), first.name());
            info!("looking by {way}, since {first} does not work: {e}");
        }
        Ok(Looks::new(way, ops))
    }

    fn new(way: Way, mut ops: Box<dyn Processes>) -> Self {
        let reads_all = ops.survey().is_some();
        debug!("looking by {}: {}", way.name(), way.how());
        Looks { way, ops, reads_all }
    }
}

impl Looks {
    /// The name of the way.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.way.name()
    }
}

impl Ready for Looks {
    fn describe(&self) -> String {
        self.way.describe()
    }

    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        asked.attrs_for(self.way, self.reads_all)
    }

    fn act(&self) -> Option<&dyn Act> {
        Some(&*self.ops)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut *self.ops
    }

    fn takes_frames(&self) -> bool {
        self.way.takes_frames()
    }

    fn takes_files(&self) -> bool {
        self.way.takes_files()
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        let monitor = watch(self.ops, attrs, targets, seed).map_err(UsageError::from)?;
        Ok(Box::new(Working { monitor, way: self.way, reads_all: self.reads_all }))
    }
}

/// A running monitor, with the actions on its targets.
struct Working {
    monitor: Box<dyn Monitor<Ops = Box<dyn Processes>>>,
    way: Way,
    reads_all: bool,
}

impl Source for Working {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.monitor.step(now)
    }
}

impl Watch for Working {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut **self.monitor.ops()
    }

    fn set_targets(&mut self, targets: &[TargetId]) -> Result<(), WatchError> {
        self.monitor.set_targets(targets);
        Ok(())
    }

    fn attrs(&self) -> Option<Attrs> {
        Some(self.monitor.attrs())
    }

    fn attrs_of(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        asked.attrs_for(self.way, self.reads_all)
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), WatchError> {
        if attrs == self.monitor.attrs() {
            return Ok(());
        }
        check_sample(self.way, &attrs)?;
        Ok(self.monitor.set_attrs(attrs)?)
    }

    fn act(&mut self) -> Option<&mut dyn Act> {
        Some(&mut **self.monitor.ops())
    }

    fn outlive_targets(&mut self) {
        self.monitor.outlive_targets();
    }

    fn stop(&mut self) -> Result<(), WatchError> {
        self.monitor.stop();
        Ok(())
    }
}
