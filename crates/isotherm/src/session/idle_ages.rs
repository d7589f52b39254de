//! Idle ages of the targets: how much memory is idle for how long, and how much of such memory was touched again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use isotherm_core::{PAGE_SIZE, PageAges, Snapshot, TargetId};

use super::attributions::Attributions;

/// The ages of the metrics, in s.
pub const AGES: [u32; 10] = [10, 30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400];
/// Maximum number of control groups whose counters are kept.
const MOST_GROUPS: usize = 1024;

/// Bytes by age: idle for each of [`AGES`] or longer.
pub type BytesByAge = [f64; AGES.len()];

/// The last histograms of each target, and sums of what has returned.
#[derive(Default)]
pub struct IdleAges {
    last: BTreeMap<TargetId, Arc<PageAges>>,
    returned: BytesByAge,
    /// the same for each control group, including the groups below it
    returned_in: BTreeMap<String, BytesByAge>,
}

fn by_age(of: impl Fn(f64) -> f64) -> BytesByAge {
    AGES.map(|age| of(age.into()) * PAGE_SIZE as f64)
}

fn add(to: &mut BytesByAge, more: &BytesByAge) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}

impl IdleAges {
    /// Adds the ages of the next snapshot.
    pub fn add(&mut self, s: &Snapshot, attributions: &Attributions) {
        let present: BTreeSet<TargetId> = s.targets.iter().map(|t| t.id).collect();
        self.last.retain(|id, _| present.contains(id));
        for (id, ages) in s.targets.iter().filter_map(|t| Some((t.id, t.ages.as_ref()?))) {
            let returned = by_age(|age| ages.returned.at_least(age));
            add(&mut self.returned, &returned);
            for path in attributions.of(id).iter().flat_map(|a| a.groups()) {
                if self.returned_in.len() < MOST_GROUPS || self.returned_in.contains_key(path) {
                    add(self.returned_in.entry(path.to_owned()).or_default(), &returned);
                }
            }
            self.last.insert(id, Arc::clone(ages));
        }
    }

    /// The last histograms of a target; `None` if its ages are not known yet.
    pub(crate) fn pages(&self, target: TargetId) -> Option<&PageAges> {
        self.last.get(&target).map(|ages| &**ages)
    }

    /// Memory of a target by idle age, resident or in swap; `None` if its ages are not known yet.
    pub fn idle(&self, target: TargetId) -> Option<BytesByAge> {
        let ages = self.last.get(&target)?;
        Some(by_age(|age| ages.idle.at_least(age) + ages.swapped.at_least(age)))
    }

    /// Idle memory of all targets that was touched again.
    pub fn returned(&self) -> &BytesByAge {
        &self.returned
    }

    /// The same for a control group, including the groups below it.
    pub fn returned_in(&self, path: &str) -> Option<&BytesByAge> {
        self.returned_in.get(path)
    }
}
