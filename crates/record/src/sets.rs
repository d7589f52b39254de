//! The sets of mappings that a writer must have written.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{Snapshot, TargetId, TargetView};

use crate::mappings::MappingSet;

/// The sets in use. A reader forgets a set at the first snapshot that does not use it, and this type does the
/// same: a target that was absent gets a new set.
#[derive(Default)]
pub(crate) struct Sets {
    current: BTreeMap<TargetId, MappingSet>,
    /// sets that only snapshots not yet written use
    retired: Vec<MappingSet>,
    next: u64,
}

impl Sets {
    /// Retires the sets of targets that are not in `s`.
    pub(crate) fn leave(&mut self, s: &Snapshot) {
        let gone = |id: &TargetId| s.targets.binary_search_by_key(id, |t| t.id).is_err();
        let gone: Vec<TargetId> = self.current.keys().copied().filter(gone).collect();
        self.retired.extend(gone.iter().filter_map(|id| self.current.remove(id)));
    }

    /// The number of the set that `target` uses, unless its mappings have changed.
    pub(crate) fn number(&self, target: &TargetView) -> Option<u64> {
        let set = self.current.get(&target.id)?;
        let same = Arc::ptr_eq(&set.mappings, &target.mappings) || set.mappings == target.mappings;
        same.then_some(set.number)
    }

    /// A set for the mappings of `target`, not in use yet.
    pub(crate) fn new_set(&self, target: &TargetView) -> MappingSet {
        MappingSet { number: self.next, target: target.id, mappings: target.mappings.clone() }
    }

    /// Puts `set` in use, in place of the previous set of its target.
    pub(crate) fn add(&mut self, set: MappingSet) {
        self.next = set.number + 1;
        self.retired.extend(self.current.insert(set.target, set));
    }

    /// The numbers of the sets that the targets of `s` use; puts new ones in use.
    pub(crate) fn numbers(&mut self, s: &Snapshot) -> Vec<u64> {
        self.leave(s);
        let number = |target| {
            self.number(target).unwrap_or_else(|| {
                self.add(self.new_set(target));
                self.next - 1
            })
        };
        s.targets.iter().map(number).collect()
    }

    /// Whether `target` was in the last snapshot.
    pub(crate) fn has(&self, target: TargetId) -> bool {
        self.current.contains_key(&target)
    }

    /// Forgets the retired sets, after all snapshots that use them are written.
    pub(crate) fn forget_retired(&mut self) {
        self.retired.clear();
    }

    /// All sets that later snapshots may use, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<MappingSet> {
        let mut all: Vec<_> = self.retired.iter().chain(self.current.values()).cloned().collect();
        all.sort_by_key(|set| set.number);
        all
    }
}
