//! The memory pressure on the targets while their common group changes.

use isotherm_core::Pressure;
use isotherm_linux::cgroup::Cgroup;

/// The counters of the group that contains all targets. They continue where another group takes its place: goals and
/// watermarks subtract earlier counters, which would be those of the other group.
#[derive(Default)]
pub struct ContinuedPressure {
    /// the group at the last call (`None`: the machine), and its counters
    last: Option<(Option<Cgroup>, Pressure)>,
    sum: Pressure,
}

impl ContinuedPressure {
    /// The continued counters, if those of `group` are now `now`.
    pub fn next(&mut self, group: Option<Cgroup>, now: Pressure) -> Pressure {
        match &self.last {
            None => self.sum = now,
            Some((of, before)) if *of == group => add_growth(&mut self.sum, before, &now),
            Some(_) => {}
        }
        self.last = Some((group, now));
        Pressure { headroom: now.headroom, ..self.sum }
    }
}

fn add_growth(sum: &mut Pressure, before: &Pressure, now: &Pressure) {
    let add = |sum: &mut u64, before: u64, now: u64| {
        *sum = sum.saturating_add(now.saturating_sub(before));
    };
    add(&mut sum.scanned, before.scanned, now.scanned);
    add(&mut sum.refaults, before.refaults, now.refaults);
    add(&mut sum.private_refaults, before.private_refaults, now.private_refaults);
    add(&mut sum.major_faults, before.major_faults, now.major_faults);
    let stalled = now.stalled.saturating_sub(before.stalled);
    sum.stalled = sum.stalled.saturating_add(stalled);
}
