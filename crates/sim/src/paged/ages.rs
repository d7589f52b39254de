//! Ages of pages when they were reclaimed, by zone and time.

use isotherm_mm::Departure;

/// Maximum number of time steps; later pages count in the last one.
const MAX_STEPS: usize = 100_000;

/// Ages of reclaimed pages, by time step.
#[derive(Debug, Clone)]
pub struct Ages {
    step_ns: u64,
    /// by zone, then by step: pages, and the sum of their ages in ns
    zones: Vec<Vec<(u64, u128)>>,
}

impl Ages {
    pub(super) fn new(zones: usize, step_ns: u64) -> Self {
        Ages { step_ns: step_ns.max(1), zones: vec![Vec::new(); zones] }
    }

    pub(super) fn push(&mut self, d: &Departure) {
        let at = usize::try_from(d.at / self.step_ns).unwrap_or(MAX_STEPS).min(MAX_STEPS - 1);
        let steps = &mut self.zones[d.zone];
        if steps.len() <= at {
            steps.resize(at + 1, (0, 0));
        }
        steps[at].0 += 1;
        steps[at].1 += u128::from(d.age);
    }

    /// For each step in which pages of the zone were reclaimed: its end and their mean age, in s.
    pub fn course(&self, zone: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        let steps = self.zones.get(zone).into_iter().flatten().enumerate();
        steps.filter(|(_, (pages, _))| *pages > 0).map(|(i, &(pages, sum))| {
            let end = (i as u64 + 1) * self.step_ns;
            (end as f64 / 1e9, sum as f64 / pages as f64 / 1e9)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_step() {
        let mut ages = Ages::new(2, 1_000_000_000);
        let s = |n: u64| n * 1_000_000_000;
        for (at, age) in [(0, 2), (0, 4), (2, 9)] {
            ages.push(&Departure { zone: 1, at: s(at), age: s(age) });
        }
        assert_eq!(ages.course(1).collect::<Vec<_>>(), [(1.0, 3.0), (3.0, 9.0)]);
        assert_eq!(ages.course(0).count(), 0);
    }
}
