//! Changes of the machine's weights. The previous weights are noted, so that they can be restored: on request,
//! at the end of a run, or by a later isotherm if this one is killed.
//!
//! Two changes may overlap: a permanent one, and above it one that lasts while commands run. Each is undone
//! node by node, and only where it is still in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::NumaError;
use super::undo_log::{Change, NotedRun, UndoLog, has_leftover};
use super::weights::WeightSetting;
use crate::state::Thread;

/// The requested weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestedWeights {
    /// these weights; those of other nodes stay
    Weights(BTreeMap<u32, u8>),
    /// derived by the kernel
    Auto,
    /// the default of the kernel
    Default,
}

/// The result of restoring weights.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RestoreResult {
    /// nodes whose previous weight is restored
    pub nodes: Vec<u32>,
    /// nodes whose weight another program has changed since: untouched
    pub left: Vec<u32>,
    /// whether the automatic mode is restored
    pub mode: bool,
    /// whether the automatic mode was on and cannot be turned on again, because the kernel has no bandwidth
    /// data
    pub mode_lost: bool,
}

impl RestoreResult {
    /// Whether there was any weight to restore, or to leave untouched.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.mode || self.mode_lost || !self.nodes.is_empty() || !self.left.is_empty()
    }

    fn and(mut self, other: RestoreResult) -> Self {
        self.nodes.extend(other.nodes);
        self.left.extend(other.left);
        for list in [&mut self.nodes, &mut self.left] {
            list.sort_unstable();
            list.dedup();
        }
        self.mode |= other.mode;
        self.mode_lost |= other.mode_lost;
        self
    }
}

/// Weights that are in force while this value lives. Then the previous weights are restored, unless another
/// holder wants the same weights.
#[derive(Debug)]
pub struct Holding {
    root: PathBuf,
    ended: bool,
}

impl Holding {
    /// Ends it; returns what was restored, which is nothing if another holder has the same weights.
    ///
    /// # Errors
    /// If the kernel refuses. The note then stays, so that a later isotherm can try again.
    pub fn end(mut self) -> Result<RestoreResult, NumaError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<RestoreResult, NumaError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(RestoreResult::default());
        }
        let mut log = UndoLog::open(&self.root)?;
        let own = Thread::own(&self.root);
        let done = log.without_owners(|o| *o != own)?;
        log.close()?;
        Ok(done)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}

/// Sets weights permanently; returns the new setting. If that fails, the previous weights are restored.
///
/// # Errors
/// If the kernel has no weights, a node does not exist, a run holds other weights, or the kernel refuses.
pub fn set(root: &Path, wanted: &RequestedWeights) -> Result<WeightSetting, NumaError> {
    let mut log = UndoLog::open(root)?;
    log.refuse_runs()?;
    let now = log.files.read()?;
    let change = planned(&now, wanted)?;
    let earlier = log.state.set.take();
    let change = match &earlier {
        Some(earlier) => on_top_of(earlier, &now, change),
        None => change,
    };
    log.state.set = Some(change);
    log.save()?;
    if let Err(e) = log.write(wanted, &now) {
        // If the previous weights could not be restored, the note stays.
        if e.undone {
            log.state.set = earlier;
            log.save()?;
        }
        return Err(e.why);
    }
    // Note the weights that the kernel has derived, if any.
    if let (RequestedWeights::Default | RequestedWeights::Auto, Some(change)) =
        (wanted, &mut log.state.set)
    {
        change.wrote = log.files.read()?;
    }
    log.close()
}

/// Sets these weights until [`Holding`] is dropped. Several holders may request the same weights.
///
/// # Errors
/// As those of [`set`].
pub fn hold(root: &Path, weights: &BTreeMap<u32, u8>) -> Result<Holding, NumaError> {
    let mut log = UndoLog::open(root)?;
    let own = Thread::own(root);
    match &mut log.state.run {
        Some(run) if weights.iter().all(|(n, w)| run.asked.get(n).unwrap_or(w) == w) => {
            let now = log.files.read()?.weights;
            let other = |(node, weight): &(&u32, &u8)| now.get(node) != Some(weight);
            let changed: Vec<u32> = weights.iter().filter(other).map(|(&node, _)| node).collect();
            if !changed.is_empty() {
                return Err(NumaError::Changed { nodes: changed });
            }
            run.asked.extend(weights);
            run.owners.push(own);
            log.save()?;
        }
        Some(_) => log.refuse_runs()?,
        None => {
            let now = log.files.read()?;
            // Writing an unchanged weight would end the automatic mode.
            let other = |(node, weight): &(&u32, &u8)| now.weights.get(node) != Some(weight);
            let wanted = weights.iter().filter(other).map(|(&node, &weight)| (node, weight));
            let wanted = RequestedWeights::Weights(wanted.collect());
            let change = planned(&now, &wanted)?;
            let (asked, owners) = (weights.clone(), vec![own]);
            log.state.run = Some(NotedRun { change, asked, owners });
            log.save()?;
            if let Err(e) = log.write(&wanted, &now) {
                if e.undone {
                    log.state.run = None;
                    log.save()?;
                }
                return Err(e.why);
            }
        }
    }
    Ok(Holding { root: root.to_owned(), ended: false })
}

/// Restores the weights from before isotherm's changes, where these are still in force.
///
/// # Errors
/// If a run still holds weights, or the kernel refuses.
pub fn put_back(root: &Path) -> Result<RestoreResult, NumaError> {
    let mut log = UndoLog::open(root)?;
    log.refuse_runs()?;
    let swept = std::mem::take(&mut log.swept);
    let done = match log.state.set.clone() {
        Some(change) => log.undo(&change)?,
        None => RestoreResult::default(),
    };
    log.state.set = None;
    log.close()?;
    Ok(swept.and(done))
}

/// Restores the weights from before a run that was killed.
///
/// # Errors
/// If the kernel refuses.
pub fn sweep(root: &Path) -> Result<RestoreResult, NumaError> {
    // Without permission to write, the caller gets an error only if there is something to restore.
    if !has_leftover(root) {
        return Ok(RestoreResult::default());
    }
    let mut log = UndoLog::open(root)?;
    let swept = std::mem::take(&mut log.swept);
    log.close()?;
    Ok(swept)
}

/// The change that would result from `wanted`.
fn planned(now: &WeightSetting, wanted: &RequestedWeights) -> Result<Change, NumaError> {
    let mut wrote = now.clone();
    match wanted {
        RequestedWeights::Weights(weights) => {
            let have = || now.weights.keys().copied().collect();
            if let Some(&node) = weights.keys().find(|n| !now.weights.contains_key(n)) {
                return Err(NumaError::NoNode { node, have: have() });
            }
            wrote.weights.extend(weights);
            if !weights.is_empty() {
                wrote.auto = now.auto.map(|_| false);
            }
        }
        RequestedWeights::Auto if now.auto.is_none() => return Err(NumaError::NoAuto),
        RequestedWeights::Auto => wrote.auto = Some(true),
        RequestedWeights::Default if now.auto.is_some() => wrote.auto = Some(true),
        RequestedWeights::Default => wrote.weights.values_mut().for_each(|w| *w = 1),
    }
    Ok(Change { before: now.clone(), wrote })
}

/// Combines a change with an earlier one: the previous weights are those before both, except for weights that
/// another program has changed in between.
fn on_top_of(earlier: &Change, now: &WeightSetting, change: Change) -> Change {
    let first = |node: &u32, weight: u8| {
        let ours = earlier.wrote.weights.get(node) == Some(&weight);
        let before = earlier.before.weights.get(node).filter(|_| ours);
        (*node, before.copied().unwrap_or(weight))
    };
    let same_mode = now.auto == earlier.wrote.auto;
    // Weights of isotherm's own automatic mode come from the kernel; the earlier change has noted the weights
    // before it.
    if same_mode && now.auto == Some(true) {
        return Change { before: earlier.before.clone(), ..change };
    }
    let before = WeightSetting {
        auto: if same_mode { earlier.before.auto } else { now.auto },
        weights: now.weights.iter().map(|(n, &w)| first(n, w)).collect(),
    };
    Change { before, ..change }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
