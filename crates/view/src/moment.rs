//! The figures of each target at one moment.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Heat, HeatBytes, HugeAges, Mapping, PageAges, RegionView, Snapshot, TargetId, TargetView,
    Thresholds, proportional_parts,
};
use isotherm_record::edit::aggregate;

/// Memory of a process or a control group during one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetTotals {
    /// bytes by heat
    pub heat: HeatBytes,
    /// greatest age of a cold region; `None` if no memory is cold
    pub oldest_cold: Option<Duration>,
    /// bytes of anonymous memory in swap, no matter what moved them there
    pub saved: u64,
    /// pages that the process waited for during the snapshot
    pub refaults: u64,
    /// isotherm's own CPU time during the snapshot, divided among the targets by resident memory
    pub own_cpu: Duration,
}

impl TargetTotals {
    /// The figures of regions; what attributions say, and the own CPU time, is 0.
    #[must_use]
    pub fn of(view: &TargetView, thresholds: &Thresholds) -> Self {
        let mut figures = TargetTotals::default();
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

impl AddAssign<&TargetTotals> for TargetTotals {
    fn add_assign(&mut self, o: &TargetTotals) {
        self.heat += o.heat;
        self.oldest_cold = self.oldest_cold.max(o.oldest_cold);
        self.saved = self.saved.saturating_add(o.saved);
        self.refaults = self.refaults.saturating_add(o.refaults);
        self.own_cpu = self.own_cpu.saturating_add(o.own_cpu);
    }
}

/// A snapshot, and the figures of its targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// the snapshot
    pub snapshot: Arc<Snapshot>,
    /// the figures of its targets, in the same order
    figures: Arc<[TargetTotals]>,
    /// percent of the last 10 s in which a process of the group waited for memory, by path of the group: `/`
    /// is the whole machine
    pub pressure: Arc<BTreeMap<Arc<str>, f32>>,
}

impl Moment {
    /// A moment whose figures are those of the regions and of the cost; what attributions say is 0.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, thresholds: &Thresholds) -> Self {
        let mut figures: Vec<_> =
            snapshot.targets.iter().map(|view| TargetTotals::of(view, thresholds)).collect();
        let resident: Vec<u64> = figures.iter().map(|f| f.heat.resident()).collect();
        let own = u64::try_from(snapshot.cost.cpu.as_nanos()).unwrap_or(u64::MAX);
        let parts = proportional_parts(own, resident.iter().copied()).map(Duration::from_nanos);
        figures.iter_mut().zip(parts).for_each(|(f, part)| f.own_cpu = part);
        Moment { snapshot, figures: figures.into(), pressure: Arc::default() }
    }

    fn place(&self, id: TargetId) -> Option<usize> {
        self.snapshot.targets.binary_search_by_key(&id, |view| view.id).ok()
    }

    /// The view of a target.
    #[must_use]
    pub fn target(&self, id: TargetId) -> Option<&TargetView> {
        self.snapshot.targets.get(self.place(id)?)
    }

    /// The figures of a target.
    #[must_use]
    pub fn figures(&self, id: TargetId) -> Option<&TargetTotals> {
        self.figures.get(self.place(id)?)
    }

    /// The figures of all targets, in ascending order of id.
    pub fn all_figures(&self) -> impl Iterator<Item = (TargetId, &TargetTotals)> {
        self.snapshot.targets.iter().map(|view| view.id).zip(&*self.figures)
    }

    /// Changes the figures of each target.
    pub fn change_figures(&mut self, mut change: impl FnMut(&TargetView, &mut TargetTotals)) {
        let mut figures = self.figures.to_vec();
        self.snapshot.targets.iter().zip(&mut figures).for_each(|(view, f)| change(view, f));
        self.figures = figures.into();
    }

    /// Duration of its snapshot, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.snapshot.end.since(self.snapshot.start).as_secs_f64()
    }

    /// Computes the figures of the regions again, with other limits of hot and cold.
    pub(crate) fn judge(&mut self, thresholds: &Thresholds) {
        self.change_figures(|view, figures| {
            let TargetTotals { heat, oldest_cold, .. } = TargetTotals::of(view, thresholds);
            (figures.heat, figures.oldest_cold) = (heat, oldest_cold);
        });
    }

    /// One moment of all `parts`, which are in order of time: their regions as [`aggregate`] joins them, sums of their
    /// refaults and costs, and the last of everything else. `every` is the least aggregation interval of the result.
    pub(crate) fn joined<'a>(
        parts: impl Iterator<Item = &'a Moment> + Clone,
        every: Duration,
        t: &Thresholds,
    ) -> Option<Moment> {
        let last = parts.clone().last()?;
        let snapshots: Vec<&Snapshot> = parts.clone().map(|m| &*m.snapshot).collect();
        if snapshots.len() == 1 {
            return Some(last.clone());
        }
        let mut joined = Moment::new(Arc::new(aggregate(&snapshots, every)?), t);
        joined.pressure = Arc::clone(&last.pressure);
        joined.change_figures(|view, figures| {
            let all = parts.clone().filter_map(|m| m.figures(view.id));
            figures.refaults = all.clone().map(|f| f.refaults).sum();
            figures.saved = all.last().map_or(0, |f| f.saved);
        });
        Some(joined)
    }

    /// The bytes of what this moment alone holds, and not those of [`Moment::parts`].
    pub(crate) fn own_bytes(&self) -> usize {
        let s = &self.snapshot;
        let regions = |view: &TargetView| {
            view.regions.capacity() * size_of::<RegionView>() + ALLOCATION_BYTES
        };
        size_of::<Snapshot>()
            + s.targets.capacity() * size_of::<TargetView>()
            + s.targets.iter().map(regions).sum::<usize>()
            + self.figures.len() * size_of::<TargetTotals>()
            + 3 * ALLOCATION_BYTES
    }

    /// Data that several moments may share.
    pub(crate) fn parts(&self) -> impl Iterator<Item = SharedData<'_>> {
        let of_views = self.snapshot.targets.iter().flat_map(|view| {
            let ages = view.ages.as_ref().map(SharedData::Ages);
            std::iter::once(SharedData::Mappings(&view.mappings)).chain(ages)
        });
        of_views.chain([SharedData::Pressure(&self.pressure)])
    }
}

/// Bytes of an allocation in addition to its content, at most: reference counts, and what the allocator adds.
pub const ALLOCATION_BYTES: usize = 32;
/// Bytes of an entry of the pressures, at most: the nodes of the map are half full at least.
const PRESSURE_BYTES: usize = 64;

/// Data that several moments may share, for as long as any of them exists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SharedData<'a> {
    Mappings(&'a Arc<Vec<Mapping>>),
    Ages(&'a Arc<PageAges>),
    Pressure(&'a Arc<BTreeMap<Arc<str>, f32>>),
}

impl SharedData<'_> {
    /// Its address, which no other part has while it exists.
    pub(crate) fn address(self) -> usize {
        match self {
            SharedData::Mappings(mappings) => Arc::as_ptr(mappings).addr(),
            SharedData::Ages(ages) => Arc::as_ptr(ages).addr(),
            SharedData::Pressure(pressure) => Arc::as_ptr(pressure).addr(),
        }
    }

    /// The bytes that it occupies.
    pub(crate) fn bytes(self) -> usize {
        let text = |text: &str| text.len() + ALLOCATION_BYTES;
        let content = match self {
            SharedData::Mappings(mappings) => {
                let names: usize = mappings.iter().map(|m| text(&m.name)).sum();
                size_of::<Vec<Mapping>>() + mappings.capacity() * size_of::<Mapping>() + names
            }
            SharedData::Ages(ages) => {
                size_of::<PageAges>() + ages.huge.as_ref().map_or(0, |_| size_of::<HugeAges>())
            }
            SharedData::Pressure(groups) => {
                let names: usize = groups.keys().map(|name| text(name)).sum();
                // A map that is not empty has a node for eleven entries.
                (groups.len() + usize::from(!groups.is_empty()) * 11) * PRESSURE_BYTES + names
            }
        };
        content + 2 * ALLOCATION_BYTES
    }
}
