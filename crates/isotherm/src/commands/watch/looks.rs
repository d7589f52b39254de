//! Our own monitor, over one of the ways to look at processes.

use anyhow::Result;
use isotherm_core::{Act, Attrs, Monitor, Nanos, OpsError, Source, Step, TargetId, watch};
use isotherm_linux::{Best, Hold, Processes, Way, WayError};

use super::{Ready, Watch};
use crate::cli::{UsageError, Watching, check_sample};
use crate::words::say;

/// A way to look at processes.
pub struct Looks {
    way: Way,
    ops: Box<dyn Processes>,
    /// It can read all at once.
    reads_all: bool,
}

impl Looks {
    /// The way that was asked for, or the best one, saying why it is not the first.
    pub fn open(asked: Option<Way>) -> Result<Self, WayError> {
        if let Some(way) = asked {
            return Ok(Looks::new(way, way.open()?));
        }
        let Best { way, ops, passed } = Way::best()?;
        if let Some((first, e)) = passed.first() {
            let (way, first) = (way.name(), first.name());
            say(format_args!("isotherm: looking by {way}, since {first} does not work: {e}"));
        }
        Ok(Looks::new(way, ops))
    }

    fn new(way: Way, mut ops: Box<dyn Processes>) -> Self {
        let reads_all = ops.survey().is_some();
        Looks { way, ops, reads_all }
    }

    /// Who can act on what is watched.
    pub fn act(&self) -> &dyn Act {
        &*self.ops
    }

    /// Begins to watch what is held.
    pub fn watch(self, attrs: Attrs, targets: &[TargetId], seed: u64) -> Result<Acting> {
        let monitor = watch(self.ops, attrs, targets, seed).map_err(UsageError::from)?;
        Ok(Acting { monitor, way: self.way, reads_all: self.reads_all })
    }
}

impl Ready for Looks {
    fn describe(&self) -> String {
        self.way.describe()
    }

    fn attrs(&self, o: &Watching) -> Result<Attrs, UsageError> {
        o.attrs(self.way, self.reads_all)
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
    ) -> Result<Box<dyn Watch>> {
        Ok(Box::new((*self).watch(attrs, targets, seed)?))
    }
}

/// A monitor at work, and who acts on what it sees.
pub struct Acting {
    monitor: Box<dyn Monitor<Ops = Box<dyn Processes>>>,
    way: Way,
    reads_all: bool,
}

impl Acting {
    /// The attributes in force.
    pub fn attrs(&self) -> Attrs {
        self.monitor.attrs()
    }

    /// Those that are asked for, in the way that is taken.
    pub fn attrs_of(&self, o: &Watching) -> Result<Attrs, UsageError> {
        o.attrs(self.way, self.reads_all)
    }

    /// Changes them; what is known is kept.
    pub fn set_attrs(&mut self, attrs: Attrs) -> Result<()> {
        if attrs == self.attrs() {
            return Ok(());
        }
        check_sample(self.way, &attrs)?;
        Ok(self.monitor.set_attrs(attrs)?)
    }

    /// Who can act on what is watched.
    pub fn act(&mut self) -> &mut dyn Act {
        &mut **self.monitor.ops()
    }
}

impl Source for Acting {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.monitor.step(now)
    }
}

impl Watch for Acting {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut **self.monitor.ops()
    }

    fn set_targets(&mut self, targets: &[TargetId]) -> Result<()> {
        self.monitor.set_targets(targets);
        Ok(())
    }

    fn attrs(&self) -> Option<Attrs> {
        Some(self.monitor.attrs())
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<()> {
        Acting::set_attrs(self, attrs)
    }

    fn outlive_targets(&mut self) {
        self.monitor.outlive_targets();
    }

    fn stop(&mut self) -> Result<()> {
        self.monitor.stop();
        Ok(())
    }
}
