//! The engine: runs all schemes in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::absent::Absent;
use super::acted::Acted;
use super::aim_step::AimStep;
use super::definition::Scheme;
use super::error::SchemeError;
use super::metrics::Metrics;
use super::running::{Running, Step};
use super::stats::{ActionEvent, Stats};
use crate::act::{Act, Action, Support};
use crate::call::OpsError;
use crate::snapshot::Snapshot;
use crate::time::Nanos;

const MAX_SCHEMES: usize = 64;

/// Acts on snapshots by schemes. Their order matters: memory that one scheme has acted on in a step is
/// skipped by the later schemes.
///
/// ```
/// use std::time::Duration;
/// use isotherm_core::scheme::{Engine, Metrics, Outcome, parse};
/// use isotherm_core::{AddrRange, Attrs, Nanos, RegionSampler};
/// use isotherm_sim::{Machine, MappingSpec, Ops, run};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut machine = Machine::new(1);
/// let target = machine.spawn();
/// machine.map(target, AddrRange::new(0x1000_0000, 0x1400_0000), MappingSpec::anonymous())?;
/// let mut ops = Ops::new(machine);
/// let mut monitor = RegionSampler::new(ops.clone(), Attrs::default(), &[target], 1)?;
///
/// let schemes = parse("4K null  null 5  5s null  pageout", Duration::from_millis(400))?;
/// let mut engine = Engine::new(schemes)?;
/// let mut log = Vec::new();
/// for snapshot in run(&mut monitor, &ops, Nanos(10_000_000_000))? {
///     engine.step(snapshot.end, &snapshot, &Metrics::default(), &mut ops, &mut log)?;
/// }
/// let applied: u64 = engine.schemes().map(|(_, stats)| stats.applied.bytes).sum();
/// assert_eq!(applied, 64 << 20);
/// assert!(log.iter().all(|event| matches!(event.outcome, Outcome::Acted(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Engine {
    running: Vec<Running>,
    absent: Absent,
    log_passed: bool,
}

impl Engine {
    /// Creates an engine with these schemes.
    ///
    /// # Errors
    /// If a scheme is invalid, two have the same name, or there are more than 64.
    pub fn new(schemes: Vec<Scheme>) -> Result<Self, SchemeError> {
        let mut engine = Engine::default();
        engine.set_schemes(schemes)?;
        Ok(engine)
    }

    /// Replaces the schemes. A new scheme with the name of an old one continues its quota window, its
    /// statistics, and its record of actions.
    ///
    /// # Errors
    /// As [`Engine::new`]; in this case nothing changes.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) -> Result<(), SchemeError> {
        if schemes.len() > MAX_SCHEMES {
            return Err(SchemeError::TooMany { what: "schemes", limit: MAX_SCHEMES });
        }
        let mut names = BTreeSet::new();
        for scheme in &schemes {
            scheme.check()?;
            if !names.insert(scheme.name.clone()) {
                return Err(SchemeError::SameName(scheme.name.to_string()));
            }
        }
        let mut before = std::mem::take(&mut self.running);
        let mut place =
            |scheme: Scheme| match before.iter().position(|r| r.scheme.name == scheme.name) {
                None => Running::new(scheme),
                Some(at) => {
                    let mut running = before.swap_remove(at);
                    running.change(scheme);
                    running
                }
            };
        self.running = schemes.into_iter().map(&mut place).collect();
        Ok(())
    }

    /// Sets whether skipped memory also produces events; it is always counted.
    pub fn log_passed(&mut self, yes: bool) {
        self.log_passed = yes;
    }

    /// The schemes whose actions `act` never supports, by name, with the reason. A scheme whose action is
    /// only unsupported at the moment is not included: it continues, and its failures are counted.
    #[must_use]
    pub fn unsupported(&self, act: &dyn Act) -> Vec<(Arc<str>, String)> {
        let why = |r: &Running| match act.supports(&r.scheme.action) {
            Support::No(why) => Some((r.scheme.name.clone(), why)),
            Support::Yes | Support::NotNow(_) => None,
        };
        self.running.iter().filter_map(why).collect()
    }

    /// Runs each scheme that is due on `snapshot`, which may be the same one as in the previous call. Appends
    /// the resulting events to `log`.
    ///
    /// # Errors
    /// Errors of `act`, except for a target that is gone, which is counted. `log` contains the earlier
    /// results; the remaining schemes run in the next step.
    pub fn step(
        &mut self,
        now: Nanos,
        snapshot: &Snapshot,
        metrics: &Metrics,
        act: &mut dyn Act,
        log: &mut Vec<ActionEvent>,
    ) -> Result<(), OpsError> {
        if self.running.iter().any(|r| r.scheme.action == Action::WillNeed) {
            self.absent.note(snapshot);
        } else {
            self.absent = Absent::default();
        }
        let (absent, log_passed) = (&self.absent, self.log_passed);
        let step = Step { now, snapshot, metrics, absent, log_passed };
        let mut taken = Acted::default();
        self.running.iter_mut().try_for_each(|r| r.step(&step, &mut taken, act, log))
    }

    /// The choices of schemes with an objective ([`Scheme::aim`]) since the last call.
    pub fn take_aim_steps(&mut self) -> Vec<AimStep> {
        self.running.iter_mut().flat_map(|r| std::mem::take(&mut r.aim_steps)).collect()
    }

    /// The time of the next step even without a new snapshot; this step uses the last one. A quota window may
    /// begin before the next snapshot.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        self.running.iter().filter_map(Running::next).min()
    }

    /// The schemes in their order, with their statistics.
    pub fn schemes(&self) -> impl Iterator<Item = (&Scheme, &Stats)> {
        self.running.iter().map(|r| (&r.scheme, &r.stats))
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
#[cfg(test)]
#[path = "window_tests.rs"]
mod window_tests;
