//! The search for the smallest memory limit that keeps an objective.

/// The first limit is so far above the predicted one, and a step is so long: shares of the memory in use.
const FIRST_LIMIT_ABOVE: f64 = 0.03;
const STEP: f64 = 0.02;

/// The answer of `report need`.
#[derive(Debug, Clone, Copy)]
pub struct Predicted {
    /// memory that may come back per minute, in percent of the memory that stays
    pub objective: f64,
    /// bytes that must stay
    pub kept: f64,
    /// bytes that can be given up
    pub saved: f64,
    /// whether it reports a cliff
    pub is_cliff: bool,
}

/// A limit in bytes, and the memory that came back per minute at it, in percent of the memory that stayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried {
    /// the limit
    pub limit: f64,
    /// the returned memory
    pub percent: f64,
}

/// The search for the smallest limit that keeps one objective.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search {
    /// the lowest limit that has kept it
    kept: Option<Tried>,
    /// the highest that has not
    pub broken: Option<Tried>,
}

impl Search {
    fn note(&mut self, tried: Tried, objective: f64) {
        if tried.percent > objective {
            self.broken = Some(tried);
        } else {
            self.kept = Some(tried);
        }
    }

    /// The next limit to try; `None` at the end.
    fn next(&self, rest: f64, predicted: f64) -> Option<f64> {
        let first = (predicted + FIRST_LIMIT_ABOVE * rest).min(rest * (1.0 - STEP / 2.0));
        match (self.kept, self.broken) {
            (None, None) => Some(first),
            (Some(kept), None) => {
                Some(first.min(kept.limit - STEP * rest)).filter(|l| *l > 0.2 * rest)
            }
            (None, Some(broken)) => Some(broken.limit + STEP * rest).filter(|l| *l < rest),
            (Some(kept), Some(broken)) => {
                let is_close = kept.limit - broken.limit < 0.6 * STEP * rest;
                (!is_close).then(|| kept.limit.midpoint(broken.limit))
            }
        }
    }

    /// The smallest limit, between the two that are known.
    #[must_use]
    pub fn found(&self, rest: f64, objective: f64) -> Option<f64> {
        let broken = self.broken?;
        let kept = self.kept.unwrap_or(Tried { limit: rest, percent: 0.0 });
        let part = (objective - kept.percent) / (broken.percent - kept.percent);
        Some(kept.limit + part * (broken.limit - kept.limit))
    }
}

/// The searches of one workload, the one with the strictest objective first.
#[derive(Debug, Clone, Default)]
pub struct Trials {
    /// memory in use without a limit, in bytes
    pub rest: f64,
    /// the searches
    pub searches: Vec<(Predicted, Search)>,
    /// the limit that is tried now
    limit: Option<f64>,
    /// whether the workload has had a limit before
    is_settled: bool,
}

impl Trials {
    /// Adds a search for the objective of `predicted`.
    pub fn add(&mut self, predicted: Predicted) {
        self.searches.push((predicted, Search::default()));
    }

    /// The search that is not at its end, and the limit that it tries next.
    #[must_use]
    pub fn next(&self) -> Option<(usize, f64)> {
        let next = |(i, (p, search)): (usize, &(Predicted, Search))| {
            Some((i, search.next(self.rest, self.rest - p.saved)?))
        };
        self.searches.iter().enumerate().find_map(next)
    }

    /// Begins the next trial, and returns its limit.
    pub fn begin(&mut self) -> Option<f64> {
        self.limit = self.next().map(|(_, limit)| limit);
        self.limit
    }

    /// Notes the bytes that came back per minute at the limit: for the objective that is searched for, and for the ones
    /// that follow. Returns a trial for each of these.
    ///
    /// The first trial does not count, and its limit is tried again: more memory returns for some tens of seconds when a
    /// workload gets its first limit, because the kernel has not ordered the pages by age yet.
    pub fn note(&mut self, returned: f64) -> Vec<Tried> {
        let Some((limit, (first, _))) = self.limit.zip(self.next()) else { return Vec::new() };
        if !std::mem::replace(&mut self.is_settled, true) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for (p, search) in self.searches.iter_mut().skip(first) {
            let stays = p.kept + p.saved - (self.rest - limit);
            let tried = Tried { limit, percent: returned / stays * 100.0 };
            search.note(tried, p.objective);
            all.push(tried);
            if tried.percent <= p.objective {
                break;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte below 800 brings 1 % a minute back, as predicted. At the first limit of all, ten times as much as
    /// remains returns.
    #[test]
    fn the_first_limit_of_a_workload_does_not_count() {
        let mut trials = Trials { rest: 1000.0, ..Trials::default() };
        for objective in [5.0, 20.0, 60.0] {
            let saved = 200.0 + objective;
            trials.add(Predicted { objective, kept: 1000.0 - saved, saved, is_cliff: false });
        }
        let mut limits = Vec::new();
        while let Some(limit) = trials.begin() {
            let percent = if limits.is_empty() { 1000.0 } else { (800.0 - limit).max(0.0) };
            trials.note(percent / 100.0 * limit);
            limits.push(limit);
        }
        assert_eq!(limits[0], limits[1], "tried again");
        let found = |(p, search): &(Predicted, Search)| search.found(1000.0, p.objective).unwrap();
        let all: Vec<f64> = trials.searches.iter().map(found).collect();
        for (found, expected) in all.iter().zip([795.0, 780.0, 740.0]) {
            assert!((found - expected).abs() < 2.0, "{all:?}");
        }
    }
}
