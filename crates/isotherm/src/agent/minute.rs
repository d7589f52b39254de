//! The sums of one minute, and the rows that they make.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{
    AGE_BINS, AgeHistogram, Attribution, HeatBytes, PAGE_SIZE, PageAges, TargetId, Thresholds,
    proportional_parts,
};
use isotherm_fleet::{COLUMN_AGES, LakeRow};

use super::counters::GroupCounters;

/// The sums over the snapshots of one minute.
#[derive(Debug, Default)]
pub struct Minute {
    snapshots: u32,
    groups: BTreeMap<Arc<str>, Sums>,
}

/// The sums of one control group.
#[derive(Debug, Default)]
struct Sums {
    heat: HeatBytes,
    swapped: u64,
    idle: Bins,
    returned: Bins,
    paged_out: Option<u64>,
    last: Last,
}

/// The state of a control group at the last snapshot.
#[derive(Debug, Default)]
struct Last {
    heat: HeatBytes,
    swapped: u64,
    idle: Bins,
    saved: Option<u64>,
    /// resident bytes of the largest target, and this target
    largest: Option<(u64, TargetId)>,
}

/// Numbers of pages by age, of many targets.
#[derive(Debug, Clone)]
struct Bins([u64; AGE_BINS]);

impl Default for Bins {
    fn default() -> Self {
        Bins([0; AGE_BINS])
    }
}

impl Bins {
    fn add(&mut self, more: &AgeHistogram) {
        self.0.iter_mut().zip(&more.0).for_each(|(to, more)| *to += u64::from(*more));
    }

    /// Bytes of at least each age, divided by `n`.
    fn bytes(&self, n: u64) -> [i64; COLUMN_AGES.len()] {
        // A histogram has 32 bits for each number.
        let unit = self.0.iter().max().map_or(0, |most| most >> u32::BITS) + 1;
        let h = AgeHistogram(self.0.map(|pages| u32::try_from(pages / unit).unwrap_or(u32::MAX)));
        let factor = (unit * PAGE_SIZE) as f64 / n as f64;
        COLUMN_AGES.map(|(_, age)| (h.at_least(age as f64) * factor) as i64)
    }

    /// Bytes of all ages, divided by `n`.
    fn total(&self, n: u64) -> u64 {
        self.0.iter().sum::<u64>().saturating_mul(PAGE_SIZE) / n
    }
}

/// One target in a snapshot.
pub struct Observed<'a> {
    /// its memory
    pub heat: HeatBytes,
    /// its control group and its memory in swap
    pub attribution: &'a Attribution,
    /// its idle ages, if they are known
    pub ages: Option<&'a PageAges>,
    /// whether the idle ages were counted for this snapshot
    pub ages_are_new: bool,
    /// bytes that isotherm has paged out and that are still in swap; `None` if it does not page out
    pub saved: Option<u64>,
}

impl Minute {
    /// Adds a snapshot.
    pub fn snapshot<'a>(&mut self, targets: impl Iterator<Item = Observed<'a>>) {
        if self.snapshots == 0 {
            // The other groups had processes only in the previous minute, and its sizes end with it.
            self.groups.retain(|_, sums| {
                (sums.heat, sums.swapped, sums.idle) = Default::default();
                sums.paged_out.is_some_and(|bytes| bytes > 0)
            });
        }
        self.snapshots += 1;
        self.groups.values_mut().for_each(|sums| sums.last = Last::default());
        for target in targets {
            let sums = self.of(&target.attribution.cgroup);
            let heat = &target.heat;
            sums.heat = [sums.heat, *heat].into_iter().sum();
            sums.last.heat = [sums.last.heat, *heat].into_iter().sum();
            sums.swapped += target.attribution.swapped;
            sums.last.swapped += target.attribution.swapped;
            if let Some(ages) = target.ages {
                sums.idle.add(&ages.idle);
                sums.last.idle.add(&ages.idle);
                if target.ages_are_new {
                    sums.returned.add(&ages.returned);
                }
            }
            if let Some(saved) = target.saved {
                *sums.last.saved.get_or_insert(0) += saved;
                sums.paged_out.get_or_insert(0);
            }
            let resident = heat.resident();
            if sums.last.largest.is_none_or(|(most, _)| most < resident) {
                sums.last.largest = Some((resident, target.attribution.target));
            }
        }
    }

    /// Adds bytes that isotherm has paged out.
    pub fn paged_out(&mut self, cgroup: &Arc<str>, bytes: u64) {
        *self.of(cgroup).paged_out.get_or_insert(0) += bytes;
    }

    fn of(&mut self, cgroup: &Arc<str>) -> &mut Sums {
        self.groups.entry(Arc::clone(cgroup)).or_default()
    }

    /// The next minute. While it has no snapshot of its own, its sizes are those of the last one.
    pub fn next(self) -> Minute {
        let last = self.groups.into_iter().filter(|(_, sums)| sums.last.largest.is_some());
        let kept = |sums: Sums| Sums {
            heat: sums.last.heat,
            swapped: sums.last.swapped,
            idle: sums.last.idle.clone(),
            paged_out: sums.paged_out.map(|_| 0),
            last: sums.last,
            ..Sums::default()
        };
        Minute { snapshots: 0, groups: last.map(|(path, sums)| (path, kept(sums))).collect() }
    }

    /// The paths of the groups, in the order of [`Minute::rows`].
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(|path| &**path)
    }

    /// The largest target of each group at the last snapshot, in the same order.
    pub fn largest(&self) -> impl Iterator<Item = Option<TargetId>> {
        self.groups.values().map(|sums| sums.last.largest.map(|(_, target)| target))
    }

    /// A row for each group. `counted` are the counters of the kernel for each group, in the same order.
    pub fn rows(
        &self,
        minute: i64,
        own_cpu_us: u64,
        host_bytes: u64,
        counted: &[GroupCounters],
    ) -> Vec<LakeRow> {
        let n = u64::from(self.snapshots.max(1));
        let resident = self.groups.values().map(|sums| sums.heat.resident());
        let own = proportional_parts(own_cpu_us, resident);
        let mut rows = Vec::with_capacity(self.groups.len());
        for (i, (sums, own)) in self.groups.values().zip(own).enumerate() {
            let kernel = counted.get(i).copied().unwrap_or_default();
            let mean = |bytes: u64| signed(bytes / n);
            let [hot, warm, cold, unknown] =
                [sums.heat.hot, sums.heat.warm, sums.heat.cold, sums.heat.unknown].map(mean);
            rows.push(LakeRow {
                group: u32::try_from(i).unwrap_or(u32::MAX),
                minute,
                resident_bytes: hot + warm + cold + unknown,
                hot_bytes: hot,
                warm_bytes: warm,
                cold_bytes: cold,
                unknown_bytes: unknown,
                swapped_bytes: mean(sums.swapped),
                saved_bytes: sums.last.saved.map(signed),
                paged_out_bytes: sums.paged_out.map(signed),
                refaults: kernel.refaults.map(signed),
                major_faults: kernel.major_faults.map(signed),
                psi_some_us: kernel.psi_some_us.map(signed),
                psi_full_us: kernel.psi_full_us.map(signed),
                limit_bytes: kernel.limit_bytes.map(signed),
                host_bytes: signed(host_bytes),
                aged_bytes: signed(sums.idle.total(n)),
                own_cpu_us: signed(own),
                snapshots: i64::from(self.snapshots),
                dropped_minutes: 0,
                idle: sums.idle.bytes(n),
                returned: sums.returned.bytes(1),
            });
        }
        rows
    }
}

/// The memory of a target by heat, with the default thresholds.
pub fn heat(view: &isotherm_core::TargetView) -> HeatBytes {
    view.bytes(&Thresholds::default())
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use isotherm_core::Nanos;

    use super::*;

    fn attribution(cgroup: &str, id: u32, swapped: u64) -> Attribution {
        Attribution {
            target: TargetId(id),
            at: Nanos(0),
            comm: "".into(),
            cgroup: cgroup.into(),
            swapped,
            major_faults: 0,
        }
    }

    fn observed<'a>(
        a: &'a Attribution,
        ages: Option<&'a PageAges>,
        hot: u64,
        cold: u64,
    ) -> Observed<'a> {
        let heat = HeatBytes { hot, cold, ..HeatBytes::default() };
        Observed { heat, attribution: a, ages, ages_are_new: true, saved: None }
    }

    fn ages(idle: &[(u64, u32)], returned: &[(u64, u32)]) -> PageAges {
        let mut ages = PageAges::default();
        idle.iter().for_each(|(ms, n)| ages.idle.add(*ms, *n));
        returned.iter().for_each(|(ms, n)| ages.returned.add(*ms, *n));
        ages
    }

    #[test]
    fn sizes_are_means_over_the_snapshots_of_the_host() {
        let (a, b) = (attribution("/a", 1, 0), attribution("/b", 2, 8));
        let mut minute = Minute::default();
        minute.snapshot([observed(&a, None, 10, 30), observed(&b, None, 4, 0)].into_iter());
        minute.snapshot(std::iter::once(observed(&a, None, 30, 10)));
        let rows = minute.rows(60_000, 0, 99, &[]);
        assert_eq!(minute.groups().collect::<Vec<_>>(), ["/a", "/b"]);
        let sizes = |r: &LakeRow| (r.resident_bytes, r.hot_bytes, r.cold_bytes, r.swapped_bytes);
        assert_eq!(sizes(&rows[0]), (40, 20, 20, 0));
        // It was there in one of two snapshots.
        assert_eq!(sizes(&rows[1]), (2, 2, 0, 4));
        assert!(rows.iter().all(|r| r.snapshots == 2 && r.minute == 60_000 && r.host_bytes == 99));
        assert_eq!((rows[0].paged_out_bytes, rows[0].refaults), (None, None));
        // Each part is rounded down, and the whole is still their sum.
        minute.snapshot(std::iter::once(observed(&a, None, 1, 1)));
        let row = minute.rows(60_000, 0, 99, &[])[0];
        assert_eq!(sizes(&row), (26, 13, 13, 0));
    }

    #[test]
    fn a_minute_without_a_snapshot_has_the_sizes_of_the_last_one() {
        let (a, b) = (attribution("/a", 1, 0), attribution("/b", 2, 0));
        let known = ages(&[(2_000, 5)], &[(2_000, 5)]);
        let mut minute = Minute::default();
        minute.snapshot([observed(&a, None, 10, 30), observed(&b, Some(&known), 4, 0)].into_iter());
        minute.snapshot(std::iter::once(observed(&b, Some(&known), 6, 0)));
        let mut next = minute.next();
        let row = next.rows(0, 0, 0, &[])[0];
        assert_eq!(next.groups().collect::<Vec<_>>(), ["/b"]);
        assert_eq!(
            (row.snapshots, row.hot_bytes, row.idle[0], row.returned[0]),
            (0, 6, 5 << 12, 0)
        );
        next.snapshot(std::iter::once(observed(&a, None, 1, 1)));
        assert_eq!(next.groups().collect::<Vec<_>>(), ["/a"]);
        assert_eq!(next.rows(0, 0, 0, &[])[0].resident_bytes, 2);
    }

    #[test]
    fn idle_is_a_mean_and_returned_is_a_sum() {
        let a = attribution("/a", 1, 0);
        let first = ages(&[(1_500, 6)], &[(4_000, 1)]);
        let last = ages(&[(12_000, 6), (100, 3)], &[(20_000, 2)]);
        let mut minute = Minute::default();
        minute.snapshot(std::iter::once(observed(&a, Some(&first), 1, 1)));
        minute.snapshot(std::iter::once(observed(&a, Some(&last), 1, 1)));
        // The same ages again are not counted again.
        minute.snapshot(std::iter::once(Observed {
            ages_are_new: false,
            ..observed(&a, Some(&last), 1, 1)
        }));
        let row = minute.rows(0, 0, 0, &[])[0];
        let at = |age: &str| COLUMN_AGES.iter().position(|(name, _)| *name == age).unwrap();
        assert_eq!(
            (row.aged_bytes, row.idle[at("1s")], row.idle[at("10s")], row.idle[at("15s")]),
            (8 << 12, 6 << 12, 4 << 12, 0)
        );
        assert_eq!(
            (row.returned[at("1s")], row.returned[at("15s")], row.returned[at("30s")]),
            (3 << 12, 2 << 12, 0)
        );
        assert!(row.idle.is_sorted_by(|a, b| a >= b) && row.returned.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn the_parts_of_the_own_cost_add_up() {
        let all: Vec<_> = (0..7).map(|i| attribution(&format!("/{i}"), i, 0)).collect();
        for memory in [0, 1, 1000] {
            let mut minute = Minute::default();
            minute
                .snapshot(all.iter().map(|a| observed(a, None, memory * u64::from(a.target.0), 0)));
            let rows = minute.rows(0, 1001, 0, &[]);
            assert_eq!(rows.iter().map(|r| r.own_cpu_us).sum::<i64>(), 1001);
        }
    }

    #[test]
    fn what_isotherm_paged_out_is_counted() {
        let a = attribution("/a", 1, 100);
        let mut minute = Minute::default();
        minute.snapshot(std::iter::once(Observed { saved: Some(60), ..observed(&a, None, 1, 1) }));
        minute.paged_out(&a.cgroup, 25);
        minute.snapshot(std::iter::once(Observed { saved: Some(80), ..observed(&a, None, 1, 1) }));
        let row = minute.rows(0, 0, 0, &[])[0];
        assert_eq!((row.saved_bytes, row.paged_out_bytes), (Some(80), Some(25)));
    }

    /// Found by an audit: a group had twice its size if isotherm paged it out before the first snapshot of a minute.
    #[test]
    fn the_sizes_of_the_previous_minute_do_not_count_again() {
        let (a, b) = (attribution("/a", 1, 100), attribution("/b", 2, 100));
        let known = ages(&[(2_000, 5)], &[]);
        let observed = |a| observed(a, Some(&known), 10, 30);
        let mut minute = Minute::default();
        minute.snapshot([observed(&a), observed(&b)].into_iter());
        let mut next = minute.next();
        next.paged_out(&a.cgroup, 25);
        next.paged_out(&b.cgroup, 25);
        next.snapshot(std::iter::once(observed(&a)));
        let rows = next.rows(0, 0, 0, &[]);
        let of = |r: &LakeRow| (r.resident_bytes, r.cold_bytes, r.swapped_bytes, r.idle[0]);
        assert_eq!([of(&rows[0]), of(&rows[1])], [(40, 30, 100, 5 << 12), (0, 0, 0, 0)]);
        assert_eq!([&rows[0], &rows[1]].map(|r| r.paged_out_bytes), [Some(25); 2]);
    }
}
