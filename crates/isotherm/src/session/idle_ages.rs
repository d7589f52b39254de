//! Idle ages of the targets: how much memory is idle for how long, and how much of such memory was touched again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use isotherm_core::{Attribution, PAGE_SIZE, PageAges, Snapshot, TargetId};

use super::MAX_LEFT_GROUPS;

/// The ages of the metrics, in s.
pub const METRIC_AGES_S: [u32; 10] = [10, 30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400];

/// Bytes by age: idle for each of [`METRIC_AGES_S`] or longer.
pub type BytesByAge = [f64; METRIC_AGES_S.len()];

/// The last histograms of each target, and sums of what has returned.
#[derive(Default)]
pub struct IdleAges {
    last: BTreeMap<TargetId, Arc<PageAges>>,
    returned: BytesByAge,
    /// the same for each control group, including the groups below it
    returned_in: BTreeMap<String, BytesByAge>,
}

fn by_age(of: impl Fn(f64) -> f64) -> BytesByAge {
    METRIC_AGES_S.map(|age| of(age.into()) * PAGE_SIZE as f64)
}

fn add(to: &mut BytesByAge, more: &BytesByAge) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}

impl IdleAges {
    /// Adds the ages of the next snapshot, whose targets have these attributions.
    pub fn add<'a>(&mut self, s: &Snapshot, of: impl Fn(TargetId) -> Option<&'a Attribution>) {
        let present: BTreeSet<TargetId> = s.targets.iter().map(|t| t.id).collect();
        self.last.retain(|id, _| present.contains(id));
        for (id, ages) in s.targets.iter().filter_map(|t| Some((t.id, t.ages.as_ref()?))) {
            let returned = by_age(|age| ages.returned.at_least(age));
            add(&mut self.returned, &returned);
            for path in of(id).iter().flat_map(|a| a.groups()) {
                add(self.returned_in.entry(path.to_owned()).or_default(), &returned);
            }
            self.last.insert(id, Arc::clone(ages));
        }
        if self.returned_in.len() > present.len() + MAX_LEFT_GROUPS {
            let all = present.iter().filter_map(|id| of(*id));
            let lived_in: BTreeSet<&str> = all.flat_map(Attribution::groups).collect();
            self.returned_in.retain(|path, _| lived_in.contains(&**path));
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

    /// The same for a control group, including the groups below it; `None` if no ages of it are known yet.
    pub fn returned_in(&self, path: &str) -> Option<&BytesByAge> {
        self.returned_in.get(path)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{Attrs, Cost, Nanos, TargetView};

    use super::*;

    /// A page of the process returns, which is in a group of its own.
    fn add_one(ages: &mut IdleAges, n: u32) {
        let mut row = PageAges::default();
        row.returned.add(20_000, 1);
        let target = TargetView {
            id: TargetId(n),
            ran: None,
            mappings: Arc::default(),
            left_out: 0,
            dirty: None,
            regions: Vec::new(),
            ages: Some(Arc::new(row)),
        };
        let s = Snapshot {
            seq: n.into(),
            start: Nanos(0),
            end: Nanos(1),
            attrs: Attrs::default(),
            cost: Cost::default(),
            quality: None,
            targets: vec![target],
        };
        let attribution = Attribution {
            target: TargetId(n),
            at: Nanos(0),
            comm: "".into(),
            cgroup: format!("/jobs/{n}").into(),
            swapped: 0,
            major_faults: 0,
        };
        ages.add(&s, |_| Some(&attribution));
    }

    /// Each job has a group, and there are thousands of jobs, one after the other.
    #[test]
    fn new_groups_are_counted_after_any_number_of_old_ones() {
        let mut ages = IdleAges::default();
        (0..3000).for_each(|n| add_one(&mut ages, n));
        assert!(ages.returned_in.len() <= MAX_LEFT_GROUPS + 3, "{}", ages.returned_in.len());
        let page = PAGE_SIZE as f64;
        assert_eq!(ages.returned_in("/jobs/2999").unwrap()[0], page);
        assert_eq!(ages.returned_in("/").unwrap()[0], 3000.0 * page);
        assert_eq!(ages.returned_in("/jobs/0"), None);
    }
}
