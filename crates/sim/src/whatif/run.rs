//! One setting, which is played.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{ActionEvent, Engine, Quota, Scheme, SkipReason, mean_hz};
use isotherm_core::{
    Action, KNOWN_SHARE, MIN_RECORD_S, NO_AGES, Nanos, OpsError, PAGE_SIZE, PageAges, PageKind,
    Snapshot, TargetId, too_much_unknown,
};

use super::course::{Course, CoursePart};
use super::memory::Memory;
use super::pace::{Looks, jittered};
use super::samples::visible_share;
use super::{
    DelayModel, Setting, SettingEffect, SettingPolicy, Surroundings, Tier, TierUse, WhatIfError,
};

/// Turns of the schemes between two looks, and the least time between two turns.
const TURNS_PER_LOOK: u32 = 16;
const TURN: Duration = Duration::from_millis(10);

pub(super) struct SettingRun {
    name: String,
    doing: Doing,
    memory: Memory,
    min_age: Duration,
    looks: Looks,
    begin: Option<Nanos>,
    /// begin of the counting of ages
    begun: Option<Nanos>,
    last: Nanos,
    course: Course,
}

enum Doing {
    Schemes(Box<Acting>),
    Tiers { tiers: Vec<Tier>, limit: bool },
}

/// The schemes at work.
struct Acting {
    /// as they were given
    schemes: Vec<Scheme>,
    engine: Engine,
    surroundings: Surroundings,
    uses_metrics: bool,
    /// the last snapshot, as it would have been, and the time of the last turn
    last: Option<(Snapshot, Nanos)>,
    /// number of the next snapshot
    next_seq: u64,
    log: Vec<ActionEvent>,
}

impl SettingRun {
    pub fn new(
        setting: Setting,
        delays: DelayModel,
        surroundings: &Surroundings,
    ) -> Result<Self, WhatIfError> {
        let Setting { name, policy } = setting;
        let mut min_age = Duration::ZERO;
        let floor = match &policy {
            SettingPolicy::Schemes(schemes) => {
                let page_out = schemes.iter().filter(|s| s.action == Action::PageOut);
                page_out.map(age_of).min().unwrap_or_default()
            }
            _ => Duration::ZERO,
        };
        let memory = Memory::new(delays, floor);
        let doing = match policy {
            SettingPolicy::Limit(bytes) => {
                Doing::Tiers { tiers: vec![Tier { bytes, latency: Duration::ZERO }], limit: true }
            }
            SettingPolicy::Tiers(tiers) => Doing::Tiers { tiers, limit: false },
            SettingPolicy::Schemes(schemes) => {
                min_age = schemes.iter().map(age_of).max().unwrap_or_default();
                Doing::Schemes(Box::new(Acting::new(schemes, surroundings, &memory)?))
            }
        };
        let mut run = SettingRun {
            name,
            doing,
            memory,
            min_age,
            looks: Looks::new(min_age),
            begin: None,
            begun: None,
            last: Nanos(0),
            course: Course::default(),
        };
        run.take_step()?;
        Ok(run)
    }

    /// Lets the schemes know the time between two looks.
    fn take_step(&mut self) -> Result<(), WhatIfError> {
        match &mut self.doing {
            Doing::Schemes(acting) => acting.set_step(self.looks.step()),
            Doing::Tiers { .. } => Ok(()),
        }
    }

    /// When it looks at the record.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    pub fn push(&mut self, target: TargetId, ages: &Arc<PageAges>, end: Nanos) {
        let begun = self.begun.unwrap_or(ages.begun);
        self.begun = Some(begun.min(ages.begun));
        self.memory.push(target, ages, end);
    }

    /// Plays a snapshot, if it is due.
    pub fn play(&mut self, s: &Snapshot) -> Result<(), WhatIfError> {
        let begin = *self.begin.get_or_insert(s.start);
        let step = self.looks.step();
        if !self.looks.look(s.end) {
            return Ok(());
        }
        if self.looks.step() != step {
            self.take_step()?;
        }
        let from = if self.last == Nanos(0) { s.start } else { self.last };
        self.last = s.end;
        let paged_out = self.memory.paged_out;
        let before = match &self.doing {
            Doing::Schemes(acting) => acting.spent(),
            Doing::Tiers { .. } => Spent::default(),
        };
        if let Doing::Schemes(acting) = &mut self.doing {
            acting.turns(&mut self.memory, s.end)?;
        }
        let touches = self.memory.advance(s);
        let mut moved = Vec::new();
        let mut spent = Spent::default();
        match &mut self.doing {
            Doing::Schemes(acting) => {
                acting.act(&mut self.memory, s)?;
                spent = acting.spent();
            }
            Doing::Tiers { tiers, .. } => moved = self.memory.settle(tiers),
        }
        let (memory, saved) = self.memory.bytes();
        let page = PAGE_SIZE as f64;
        let seconds = s.end.since(from).as_secs_f64();
        self.course.push(CoursePart {
            from: from.since(begin).as_secs_f64(),
            to: s.end.since(begin).as_secs_f64(),
            memory,
            saved,
            paged_out: (self.memory.paged_out - paged_out) as f64,
            returned: touches.returned * page,
            acting: spent.acting - before.acting,
            full: spent.full - before.full,
            accesses: accesses(s) * seconds,
            touched: touches.by_tier,
            moved: moved.into_iter().map(|pages| pages * page).collect(),
        });
        Ok(())
    }

    /// The results.
    pub fn finish(self) -> SettingEffect {
        let span = self.course.span();
        let begun = self.begun.zip(self.begin).map(|(b, a)| b.since(a).as_secs_f64());
        let age = self.min_age.as_secs_f64();
        // Memory that was paged out before the ages were known does not count.
        let from = match self.doing {
            Doing::Schemes(_) => begun.unwrap_or(0.0) + age + self.looks.step().as_secs_f64(),
            Doing::Tiers { .. } => begun.unwrap_or(0.0) + span * (1.0 - KNOWN_SHARE),
        };
        let counted = self.course.since(from);
        let acts_by_age = matches!(self.doing, Doing::Schemes(_));
        let unknown = too_much_unknown(self.memory.unknown_share()).filter(|_| !acts_by_age);
        let refused = match (begun, &counted) {
            (None, _) => Some(NO_AGES.to_owned()),
            _ if unknown.is_some() => unknown,
            (Some(begun), _) if !acts_by_age && span - begun < MIN_RECORD_S => Some(format!(
                "the record is too short: ages were counted for {:.0} s; record for a minute or longer",
                span - begun
            )),
            (Some(begun), _) if age > (span - begun) * KNOWN_SHARE => Some(format!(
                "the record is too short: ages are known up to two thirds of its {:.0} s, and the minimum age is \
                 {age:.0} s; record for at least {:.0} s",
                span - begun,
                (age / KNOWN_SHARE / 10.0).ceil() * 10.0
            )),
            (_, None) => Some("the record is too short: record for at least a minute".to_owned()),
            _ => None,
        };
        let counted = counted.filter(|_| refused.is_none()).unwrap_or_default();
        let tiers = match &self.doing {
            Doing::Tiers { tiers, limit: false } => uses(tiers, &counted),
            _ => Vec::new(),
        };
        let quota_passed = match &self.doing {
            Doing::Schemes(acting) => acting.passed(),
            Doing::Tiers { .. } => 0,
        };
        SettingEffect {
            name: self.name,
            refused,
            min_age: self.min_age,
            step: self.looks.step(),
            counted,
            course: self.course.into_moments(),
            quota_passed,
            tiers,
        }
    }
}

/// CPU time and full windows since the start, in s.
#[derive(Default)]
struct Spent {
    acting: f64,
    full: f64,
}

impl Acting {
    fn new(
        schemes: Vec<Scheme>,
        surroundings: &Surroundings,
        memory: &Memory,
    ) -> Result<Self, WhatIfError> {
        schemes.iter().try_for_each(|s| surroundings.check(s))?;
        let engine = Engine::new(schemes.clone())?;
        if let Some((scheme, why)) = engine.unsupported(memory).into_iter().next() {
            return Err(WhatIfError::Unplayable { scheme: scheme.to_string(), why });
        }
        let uses = |s: &Scheme| s.watermarks.is_some() || !s.quota.goals.is_empty();
        Ok(Acting {
            uses_metrics: schemes.iter().any(uses),
            schemes,
            engine,
            surroundings: surroundings.clone(),
            last: None,
            next_seq: 0,
            log: Vec::new(),
        })
    }

    /// Quota windows that are shorter than a step become nearly as long: they hold as many times the quota.
    fn set_step(&mut self, step: Duration) -> Result<(), WhatIfError> {
        let schemes = self.schemes.iter().map(|scheme| {
            let times = windows(scheme, step);
            let Quota { time, bytes, reset, .. } = scheme.quota.clone();
            let quota = Quota {
                time: time.map(|time| time * times),
                bytes: bytes.map(|bytes| bytes.saturating_mul(times.into())),
                reset: reset * times,
                ..scheme.quota.clone()
            };
            Scheme { quota, ..scheme.clone() }
        });
        Ok(self.engine.set_schemes(schemes.collect())?)
    }

    /// The turns that are due before `until`, on the last snapshot.
    fn turns(&mut self, memory: &mut Memory, until: Nanos) -> Result<(), WhatIfError> {
        let Some((last, mut clock)) = self.last.take() else { return Ok(()) };
        for _ in 0..TURNS_PER_LOOK {
            let Some(due) = self.engine.due() else { break };
            let at = due.max(clock + TURN);
            if at >= until {
                break;
            }
            clock = at;
            self.step(at, &last, memory)?;
        }
        Ok(())
    }

    /// The turn at the end of a snapshot.
    fn act(&mut self, memory: &mut Memory, s: &Snapshot) -> Result<(), WhatIfError> {
        // It does not look at each snapshot, which is no pause for the engine.
        let snapshot = Snapshot { seq: self.next_seq, ..memory.corrected(s) };
        self.next_seq += 1;
        self.step(s.end, &snapshot, memory)?;
        self.last = Some((snapshot, s.end));
        Ok(())
    }

    fn step(&mut self, at: Nanos, s: &Snapshot, memory: &mut Memory) -> Result<(), OpsError> {
        if self.uses_metrics {
            self.surroundings.update(&memory.figures());
        }
        self.engine.step(at, s, &self.surroundings.metrics, memory, &mut self.log)?;
        self.log.clear();
        Ok(())
    }

    fn spent(&self) -> Spent {
        let full = self
            .engine
            .schemes()
            .map(|(s, stats)| stats.exceeded as f64 * s.quota.reset.as_secs_f64());
        let acting = self.engine.schemes().map(|(_, stats)| stats.took.as_secs_f64()).sum();
        Spent { acting, full: full.sum() }
    }

    /// Bytes that were skipped because the quota was used up, each time.
    fn passed(&self) -> u64 {
        self.engine.schemes().map(|(_, stats)| stats.passed(SkipReason::Quota).bytes).sum()
    }
}

/// Quota windows of a scheme in a step: with each look a window begins.
fn windows(scheme: &Scheme, step: Duration) -> u32 {
    let times = jittered(step).as_secs_f64() / scheme.quota.reset.as_secs_f64().max(1e-3);
    (times.floor() as u32).max(1)
}

/// The age that a scheme demands.
fn age_of(scheme: &Scheme) -> Duration {
    let of_pages = scheme.page_filters.iter().filter_map(|f| match f.kind {
        PageKind::Touched { within } => Some(within),
        _ => None,
    });
    of_pages.fold(*scheme.pattern.age.start(), Duration::max)
}

/// Accesses per second that the regions show: those of each page.
fn accesses(s: &Snapshot) -> f64 {
    let regions = s.targets.iter().flat_map(|t| &t.regions);
    let of = |r: &isotherm_core::RegionView| {
        let pages = (r.range.len() / PAGE_SIZE) as f64 * visible_share(r);
        pages * mean_hz(r, s.attrs.sample)
    };
    regions.map(of).sum()
}

/// The use of each tier.
fn uses(tiers: &[Tier], counted: &CoursePart) -> Vec<TierUse> {
    let seconds = counted.seconds().max(1e-9);
    let of = |v: &[f64], i: usize| v.get(i).copied().unwrap_or(0.0) / seconds;
    let slow: f64 = (1..tiers.len()).map(|i| of(&counted.touched, i)).sum();
    let all = (counted.accesses / seconds).max(slow);
    tiers
        .iter()
        .enumerate()
        .map(|(i, tier)| TierUse {
            tier: *tier,
            accesses: if i == 0 { all - slow } else { of(&counted.touched, i) },
            moved_down: of(&counted.moved, i),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::scheme::Pattern;

    #[test]
    fn a_step_holds_as_many_windows_as_fit() {
        let scheme = Scheme::new("x", Pattern::default(), Action::PageOut);
        let of = |seconds| windows(&scheme, Duration::from_secs(seconds));
        assert_eq!([of(1), of(2), of(8), of(30)], [1, 1, 7, 29]);
    }
}
