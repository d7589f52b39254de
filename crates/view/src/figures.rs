//! The figures of each target at one moment.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Heat, HeatBytes, Snapshot, TargetId, TargetView, Thresholds};
use isotherm_record::edit::aggregate;

/// Memory of a process or a control group during one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// bytes by heat
    pub heat: HeatBytes,
    /// greatest age of a cold region; `None` if no memory is cold
    pub oldest_cold: Option<Duration>,
    /// bytes of anonymous memory in swap, whoever moved them there
    pub saved: u64,
    /// pages that the process waited for during the snapshot
    pub refaults: u64,
}

impl Figures {
    /// The figures of regions; what attributions say is 0.
    #[must_use]
    pub fn of(view: &TargetView, thresholds: &Thresholds) -> Self {
        let mut figures = Figures::default();
        for region in &view.regions {
            let bytes = region.bytes(thresholds);
            figures.heat += bytes;
            // The age is compared first, because it is cheaper than the heat.
            if bytes.cold > 0
                && figures.oldest_cold.is_none_or(|oldest| region.age > oldest)
                && region.heat(thresholds) == Heat::Cold
            {
                figures.oldest_cold = Some(region.age);
            }
        }
        figures
    }
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, o: &Figures) {
        self.heat += o.heat;
        self.oldest_cold = self.oldest_cold.max(o.oldest_cold);
        self.saved = self.saved.saturating_add(o.saved);
        self.refaults = self.refaults.saturating_add(o.refaults);
    }
}

/// A snapshot, and the figures of its targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// the snapshot
    pub snapshot: Arc<Snapshot>,
    /// the figures of each of its targets
    pub figures: BTreeMap<TargetId, Figures>,
    /// percent of the last 10 s in which a process of the group waited for memory, by path of the group: `/`
    /// is the whole machine
    pub pressure: Arc<BTreeMap<Arc<str>, f32>>,
}

impl Moment {
    /// A moment whose figures are those of the regions alone.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, thresholds: &Thresholds) -> Self {
        let of = |view: &TargetView| (view.id, Figures::of(view, thresholds));
        let figures = snapshot.targets.iter().map(of).collect();
        Moment { snapshot, figures, pressure: Arc::default() }
    }

    /// The view of a target.
    #[must_use]
    pub fn target(&self, id: TargetId) -> Option<&TargetView> {
        let at = self.snapshot.targets.binary_search_by_key(&id, |view| view.id).ok()?;
        self.snapshot.targets.get(at)
    }

    /// Duration of its snapshot, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.snapshot.end.since(self.snapshot.start).as_secs_f64()
    }

    /// Computes the figures of the regions again, with other limits of hot and cold.
    pub(crate) fn judge(&mut self, thresholds: &Thresholds) {
        for view in &self.snapshot.targets {
            if let Some(figures) = self.figures.get_mut(&view.id) {
                let Figures { heat, oldest_cold, .. } = Figures::of(view, thresholds);
                (figures.heat, figures.oldest_cold) = (heat, oldest_cold);
            }
        }
    }

    /// One moment of all `parts`, which are in order of time: means of their regions, sums of their refaults, and
    /// the last of everything else. `every` is the least aggregation interval of the result.
    pub(crate) fn joined(parts: &[Moment], every: Duration, t: &Thresholds) -> Option<Moment> {
        let (last, rest) = parts.split_last()?;
        if rest.is_empty() {
            return Some(last.clone());
        }
        let snapshots: Vec<&Snapshot> = parts.iter().map(|m| &*m.snapshot).collect();
        let joined = Moment::new(Arc::new(aggregate(&snapshots, every)?), t);
        let mut figures = joined.figures;
        for (id, figures) in &mut figures {
            let all = || parts.iter().filter_map(|m| m.figures.get(id));
            figures.refaults = all().map(|f| f.refaults).sum();
            figures.saved = all().next_back().map_or(0, |f| f.saved);
        }
        Some(Moment { figures, pressure: Arc::clone(&last.pressure), ..joined })
    }
}
