//! Plays a record through schemes, a memory limit, or tiers of memory.
//!
//! A [`Player`] receives the snapshots of a record in order. A sample of the pages of its targets is touched as the
//! record's page ages say ([`isotherm_core::PageAges`]). The schemes are those of [`isotherm_core::scheme`], run by
//! the same engine; only the memory that they act on is simulated. A page that is touched while it is paged out
//! has come back. The program does not change its behaviour: it touches the same pages at the same times.

mod course;
mod memory;
mod pace;
mod run;
mod samples;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Goal, MemoryMetrics, Metrics, Scheme, SchemeError, Scope, WatermarkMetric,
};
use isotherm_core::{MAX_REGION_TURN, OpsError, Snapshot, TargetView};

pub use course::CoursePart;
pub use pace::SnapshotSelector;

use self::pace::is_ripe;
use self::run::SettingRun;

/// A setting to play.
#[derive(Debug, Clone)]
pub struct Setting {
    /// name of the setting
    pub name: String,
    /// the actions on the memory
    pub policy: SettingPolicy,
}

/// The actions on the memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SettingPolicy {
    /// schemes act
    Schemes(Vec<Scheme>),
    /// Memory that was untouched for the longest time is paged out while there are more bytes than this.
    Limit(u64),
    /// Memory that was untouched for the longest time moves to the next tier while a tier is full, and back to
    /// the first one when it is touched.
    Tiers(Vec<Tier>),
}

/// A tier of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// its size
    pub bytes: u64,
    /// time of an access
    pub latency: Duration,
}

/// The time that actions and faults take, and until a touch is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayModel {
    /// CPU time for paging out a page
    pub page_out: Duration,
    /// time for which the program waits until a page is back
    pub fault: Duration,
    /// time between two reads of all accessed bits: a touch is found at the next one. Zero: at once
    pub read_every: Duration,
    /// time between two clears of the same bits: a page counts as touched until then, less a quarter of the age that a
    /// scheme demands. Zero: a found touch is the last one
    pub clear_every: Duration,
}

impl Default for DelayModel {
    /// For swap in compressed memory: as `docs/concepts/acting.md` and `report need` have it. Touches are known at
    /// once.
    fn default() -> Self {
        DelayModel {
            page_out: Duration::from_nanos(4220),
            fault: Duration::from_micros(20),
            read_every: Duration::ZERO,
            clear_every: Duration::ZERO,
        }
    }
}

impl DelayModel {
    /// With the times of the default monitor, which `docs/concepts/how-it-sees.md` explains.
    #[must_use]
    pub fn with_monitor(self) -> Self {
        DelayModel { read_every: Duration::from_secs(1), clear_every: MAX_REGION_TURN, ..self }
    }
}

/// The machine around the targets.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// memory that the machine has for the targets, for watermarks and goals of free memory: free is what they do
    /// not have
    pub memory: Option<u64>,
    /// Processes and control groups of the targets. Each group in `groups` has the figures of all targets.
    pub metrics: Metrics,
}

impl Surroundings {
    /// Checks whether a record, with these surroundings, has the figures that a scheme needs.
    fn check(&self, scheme: &Scheme) -> Result<(), WhatIfError> {
        let missing = |why: &str| {
            Err(WhatIfError::Unplayable { scheme: scheme.name.to_string(), why: why.to_owned() })
        };
        let has = |of: &Scope| match of {
            Scope::Machine => true,
            Scope::Group(name) => self.metrics.groups.contains_key(name),
        };
        let no_memory = "it depends on free memory, which a record does not show: give the \
                         memory that the machine has for the targets with --memory";
        match scheme.watermarks.as_ref().map(|w| &w.metric) {
            Some(WatermarkMetric::Free) if self.memory.is_none() => return missing(no_memory),
            Some(WatermarkMetric::Fragmentation) => {
                return missing("it depends on fragmentation, which a record does not show");
            }
            Some(WatermarkMetric::Stalled(of)) if !has(of) => return missing(NO_GROUP),
            _ => {}
        }
        for goal in &scheme.quota.goals {
            match goal {
                Goal::Free { .. } if self.memory.is_none() => return missing(no_memory),
                Goal::User { .. } => {
                    return missing(
                        "its goal is a metric of the user, which a record does not show",
                    );
                }
                Goal::Stalled { of, .. }
                | Goal::Refaults { of, .. }
                | Goal::Resident { of, .. }
                    if !has(of) =>
                {
                    return missing(NO_GROUP);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn update(&mut self, figures: &MemoryMetrics) {
        self.metrics.machine = *figures;
        self.metrics.groups.values_mut().for_each(|group| *group = *figures);
        self.metrics.free_bp = self.memory.zip(figures.resident).map(|(all, used)| {
            let free = all.saturating_sub(used) as f64 / all.max(1) as f64;
            (free * 1e4).round() as u32
        });
    }
}

const NO_GROUP: &str = "it depends on one control group, and only all targets together can be \
                        played: write of = \"targets\" or of = \"machine\"";

/// Why a setting cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// an invalid scheme
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// a scheme that needs data that a record does not contain
    #[error("the scheme {scheme} cannot be played: {why}")]
    Unplayable {
        /// its name
        scheme: String,
        /// the reason
        why: String,
    },
    /// an action has failed
    #[error(transparent)]
    Ops(#[from] OpsError),
}

/// The use of a tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierUse {
    /// the tier
    pub tier: Tier,
    /// accesses per second, as far as the record shows them
    pub accesses: f64,
    /// bytes per second that move to the next tier, or out of the last one
    pub moved_down: f64,
}

/// The effect of a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingEffect {
    /// name of the setting
    pub name: String,
    /// why there are no figures
    pub refused: Option<String>,
    /// the longest age that a scheme demands
    pub min_age: Duration,
    /// time between two looks at the record, at its end
    pub step: Duration,
    /// the time that counts: from when the age can have been reached
    pub counted: CoursePart,
    /// all of the time
    pub course: Vec<CoursePart>,
    /// bytes that were skipped because a quota was used up, counted each time
    pub quota_passed: u64,
    /// with [`SettingPolicy::Tiers`], the use of each
    pub tiers: Vec<TierUse>,
}

/// Plays a record through several settings at once.
pub struct Player {
    runs: Vec<SettingRun>,
    waiting: VecDeque<Arc<Snapshot>>,
}

impl Player {
    /// A player that has received no snapshot.
    ///
    /// # Errors
    /// If a setting cannot be played.
    pub fn new(
        settings: Vec<Setting>,
        delays: DelayModel,
        surroundings: &Surroundings,
    ) -> Result<Self, WhatIfError> {
        let run = |setting| SettingRun::new(setting, delays, surroundings);
        let runs = settings.into_iter().map(run).collect::<Result<_, _>>()?;
        Ok(Player { runs, waiting: VecDeque::new() })
    }

    /// Adds the next snapshot.
    ///
    /// # Errors
    /// If an action fails.
    pub fn push(&mut self, s: &Arc<Snapshot>) -> Result<(), WhatIfError> {
        // Files are not simulated: the delays are those of paging, and the ages of files are those of windows.
        let mut s = Arc::clone(s);
        if s.targets.iter().any(TargetView::is_file) {
            Arc::make_mut(&mut s).targets.retain(|view| !view.is_file());
        }
        for view in &s.targets {
            if let Some(ages) = &view.ages {
                self.runs.iter_mut().for_each(|run| run.push(view.id, ages, s.end));
            }
        }
        self.waiting.push_back(Arc::clone(&s));
        while self.waiting.front().is_some_and(|first| is_ripe(first.end, s.end)) {
            self.play_next()?;
        }
        Ok(())
    }

    /// A player for each setting, so that they can play at the same time: what one setting does has no effect on
    /// another. All need the snapshots of this player's [`SnapshotSelector`].
    #[must_use]
    pub fn divided(self) -> Vec<Player> {
        let alone = |run| Player { runs: vec![run], waiting: self.waiting.clone() };
        self.runs.into_iter().map(alone).collect()
    }

    /// Which snapshots need to be pushed, if none was yet.
    #[must_use]
    pub fn selector(&self) -> SnapshotSelector {
        SnapshotSelector::new(self.runs.iter().map(|run| run.looks().clone()).collect())
    }

    /// The results, in the order of the settings.
    ///
    /// # Errors
    /// If an action fails.
    pub fn finish(mut self) -> Result<Vec<SettingEffect>, WhatIfError> {
        while !self.waiting.is_empty() {
            self.play_next()?;
        }
        Ok(self.runs.into_iter().map(SettingRun::finish).collect())
    }

    fn play_next(&mut self) -> Result<(), WhatIfError> {
        let Some(first) = self.waiting.pop_front() else { return Ok(()) };
        self.runs.iter_mut().try_for_each(|run| run.play(&first))
    }
}
