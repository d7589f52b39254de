//! Our own monitor, over one of the ways to look at processes.

use isotherm_core::{
    Act, Attrs, IntervalsGoal, IntervalsTuner, KeptAges, Monitor, MonitorKind, Nanos, OpsError,
    Source, Step, TargetId, watch,
};
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
    goal: Option<IntervalsGoal>,
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
        Looks { way, ops, reads_all, goal: None }
    }

    /// Tunes the intervals of the regions monitor towards this goal.
    #[must_use]
    pub fn tuned_to(self, goal: Option<IntervalsGoal>) -> Self {
        Looks { goal, ..self }
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
        let attrs = asked.attrs_for(self.way, self.reads_all)?;
        if let Some(goal) = self.goal {
            check_goal(self.way, &attrs, goal)?;
        }
        Ok(attrs)
    }

    fn act(&self) -> Option<&dyn Act> {
        Some(&*self.ops)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut *self.ops
    }

    fn requires_frames(&self) -> bool {
        self.way.requires_frames()
    }

    fn requires_files(&self) -> bool {
        self.way.requires_files()
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        let monitor = watch(self.ops, attrs, targets, seed).map_err(UsageError::from)?;
        let tuner = self.goal.map(IntervalsTuner::new);
        Ok(Box::new(MonitorWatch { monitor, tuner, way: self.way, reads_all: self.reads_all }))
    }
}

/// Checks whether the intervals of this monitor can be tuned.
fn check_goal(way: Way, attrs: &Attrs, goal: IntervalsGoal) -> Result<(), UsageError> {
    if attrs.monitor != MonitorKind::Regions {
        let text = "--intervals-goal requires --monitor regions or --look damon: the other monitors choose when \
                    to look by their budget";
        return Err(UsageError::new(text));
    }
    goal.check(attrs)?;
    check_sample(way, &Attrs { sample: goal.min_sample, ..*attrs })
}

/// A running monitor, with the actions on its targets.
struct MonitorWatch {
    monitor: Box<dyn Monitor<Ops = Box<dyn Processes>>>,
    tuner: Option<IntervalsTuner>,
    way: Way,
    reads_all: bool,
}

impl Source for MonitorWatch {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        let step = self.monitor.step(now)?;
        if let (Step::Snapshot(s), Some(tuner)) = (&step, &mut self.tuner)
            && let Some(attrs) = tuner.next(s)
        {
            debug!("sampling each {:?} from now on", attrs.sample);
            self.monitor.set_attrs(attrs).map_err(|e| OpsError::Failed(e.to_string()))?;
        }
        Ok(step)
    }
}

impl Watch for MonitorWatch {
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

    fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        self.monitor.kept_ages()
    }

    fn resume_ages(&mut self, kept: Vec<(TargetId, KeptAges)>) {
        self.monitor.resume_ages(kept);
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
