//! Changes of the machine's weights, and what was there before, so that it can be put back: by who has
//! asked for it, at the end of a run, or by a later isotherm if this one is killed.
//!
//! Two may lie on each other: what was set, and above it what holds while commands run. Each is taken
//! back node by node, and only where it still stands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::NumaError;
use super::undo_log::{Change, Run, UndoLog, has_leftover};
use super::weights::Setting;
use crate::state::Thread;

/// What weights are to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// these, the others as they are
    Weights(BTreeMap<u32, u8>),
    /// derived by the kernel
    Auto,
    /// as if nobody had set any
    Default,
}

/// What has been put back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PutBack {
    /// nodes whose weight is as before
    pub nodes: Vec<u32>,
    /// nodes whose weight somebody else has set since: left alone
    pub left: Vec<u32>,
    /// whether the automatic mode is as before
    pub mode: bool,
    /// whether the automatic mode, which was on, cannot be turned on again: there is no bandwidth to
    /// derive from
    pub mode_lost: bool,
}

impl PutBack {
    /// Whether there was something to put back, or to leave.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.mode || self.mode_lost || !self.nodes.is_empty() || !self.left.is_empty()
    }

    fn and(mut self, other: PutBack) -> Self {
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

/// Weights that hold while this lives; then what was before is put back, unless another one wants the
/// same.
#[derive(Debug)]
pub struct Holding {
    root: PathBuf,
    ended: bool,
}

impl Holding {
    /// Ends it; returns what was put back, nothing if another one holds the same.
    ///
    /// # Errors
    /// If the kernel refuses. It stays noted then, for a later isotherm to try.
    pub fn end(mut self) -> Result<PutBack, NumaError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<PutBack, NumaError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(PutBack::default());
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

/// Sets weights, for good; returns how it is now. If that fails in between, nothing is changed.
///
/// # Errors
/// If there are no weights here, a node is not there, a run has set others, or the kernel refuses.
pub fn set(root: &Path, wanted: &Wanted) -> Result<Setting, NumaError> {
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
        // What could not be undone stays noted.
        if e.undone {
            log.state.set = earlier;
            log.save()?;
        }
        return Err(e.why);
    }
    // What the kernel has derived, if it has.
    if let (Wanted::Default | Wanted::Auto, Some(change)) = (wanted, &mut log.state.set) {
        change.wrote = log.files.read()?;
    }
    log.close()
}

/// Has these weights hold until [`Holding`] is dropped. Whoever wants the same may join.
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
            // Writing what is there already would end the automatic mode.
            let other = |(node, weight): &(&u32, &u8)| now.weights.get(node) != Some(weight);
            let wanted = weights.iter().filter(other).map(|(&node, &weight)| (node, weight));
            let wanted = Wanted::Weights(wanted.collect());
            let change = planned(&now, &wanted)?;
            let (asked, owners) = (weights.clone(), vec![own]);
            log.state.run = Some(Run { change, asked, owners });
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

/// Puts back what isotherm has set, as far as it still stands.
///
/// # Errors
/// If a run goes on, or the kernel refuses.
pub fn put_back(root: &Path) -> Result<PutBack, NumaError> {
    let mut log = UndoLog::open(root)?;
    log.refuse_runs()?;
    let swept = std::mem::take(&mut log.swept);
    let done = match log.state.set.clone() {
        Some(change) => log.undo(&change)?,
        None => PutBack::default(),
    };
    log.state.set = None;
    log.close()?;
    Ok(swept.and(done))
}

/// Puts back what a run that was killed has left.
///
/// # Errors
/// If the kernel refuses.
pub fn sweep(root: &Path) -> Result<PutBack, NumaError> {
    // Whoever may not write it is told of it only if there is something to do.
    if !has_leftover(root) {
        return Ok(PutBack::default());
    }
    let mut log = UndoLog::open(root)?;
    let swept = std::mem::take(&mut log.swept);
    log.close()?;
    Ok(swept)
}

/// What a change would come to.
fn planned(now: &Setting, wanted: &Wanted) -> Result<Change, NumaError> {
    let mut wrote = now.clone();
    match wanted {
        Wanted::Weights(weights) => {
            let have = || now.weights.keys().copied().collect();
            if let Some(&node) = weights.keys().find(|n| !now.weights.contains_key(n)) {
                return Err(NumaError::NoNode { node, have: have() });
            }
            wrote.weights.extend(weights);
            if !weights.is_empty() {
                wrote.auto = now.auto.map(|_| false);
            }
        }
        Wanted::Auto if now.auto.is_none() => return Err(NumaError::NoAuto),
        Wanted::Auto => wrote.auto = Some(true),
        Wanted::Default if now.auto.is_some() => wrote.auto = Some(true),
        Wanted::Default => wrote.weights.values_mut().for_each(|w| *w = 1),
    }
    Ok(Change { before: now.clone(), wrote })
}

/// A change after another one: what was before both of them, but for what somebody else has changed
/// between.
fn on_top_of(earlier: &Change, now: &Setting, change: Change) -> Change {
    let first = |node: &u32, weight: u8| {
        let ours = earlier.wrote.weights.get(node) == Some(&weight);
        let before = earlier.before.weights.get(node).filter(|_| ours);
        (*node, before.copied().unwrap_or(weight))
    };
    let same_mode = now.auto == earlier.wrote.auto;
    // Weights of the automatic mode that was ours are the kernel's; before it were others.
    if same_mode && now.auto == Some(true) {
        return Change { before: earlier.before.clone(), ..change };
    }
    let before = Setting {
        auto: if same_mode { earlier.before.auto } else { now.auto },
        weights: now.weights.iter().map(|(n, &w)| first(n, w)).collect(),
    };
    Change { before, ..change }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
