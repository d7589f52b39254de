//! Locked parts of files: reclaim does not evict their pages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::Duration;

use isotherm_core::{AddrRange, Nanos, align_down};

use super::FileKey;
use super::act::{STEP_BYTES, find_runs, is_cached};
use crate::sys::LockedMapping;

/// Time for which a part stays locked. Schemes lock it again before, as long as it is hot.
const LOCK_TIME: Duration = Duration::from_secs(60);

/// Parts of files that this process keeps in the page cache by locking them in mappings of its own. The pages stay
/// charged to the control groups that have read them.
#[derive(Debug, Default)]
pub struct LockedParts {
    /// by file and offset; they do not overlap
    parts: BTreeMap<(FileKey, u64), LockedPart>,
    bytes: u64,
}

#[derive(Debug)]
struct LockedPart {
    mapping: LockedMapping,
    bytes: u64,
    until: Nanos,
}

impl LockedParts {
    /// Bytes of locked pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Locks the cached pages of a page-aligned part of the file `key`, or keeps them locked, until a minute from now,
    /// while at most `limit` bytes are locked in total. What was locked of an overlapping part beyond this one is unlocked.
    ///
    /// # Errors
    /// If the kernel refuses to lock memory, or the file is shorter now. What was locked before stays so.
    pub fn lock(
        &mut self,
        (key, file): (FileKey, &File),
        part: AddrRange,
        limit: u64,
        now: Nanos,
    ) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            let end = align_down(at.saturating_add(STEP_BYTES), STEP_BYTES).min(part.end);
            self.lock_step((key, file), AddrRange::new(at, end), limit, now)?;
            at = end;
        }
        Ok(())
    }

    fn lock_step(
        &mut self,
        (key, file): (FileKey, &File),
        step: AddrRange,
        limit: u64,
        now: Nanos,
    ) -> io::Result<()> {
        let mut runs = Vec::new();
        find_runs(file, step, &is_cached, &mut runs)?;
        let bytes: u64 = runs.iter().map(AddrRange::len).sum();
        let before = self.overlapping(key, step);
        let freed: u64 = before.iter().filter_map(|at| self.parts.get(at)).map(|p| p.bytes).sum();
        if bytes == 0 || self.bytes - freed + bytes > limit {
            return Ok(());
        }
        let is_same = |at| self.parts.get(at).is_some_and(|p| p.mapping.part() == step);
        let same = before.iter().find(|at| is_same(at)).and_then(|at| self.parts.remove(at));
        let (mapping, was) = match same {
            Some(part) => (part.mapping, part.bytes),
            None => (LockedMapping::new(file, step)?, 0),
        };
        self.bytes -= was;
        runs.iter().try_for_each(|run| mapping.lock(*run))?;
        before.iter().for_each(|at| self.unlock(at));
        let until = now + LOCK_TIME;
        self.parts.insert((key, step.start), LockedPart { mapping, bytes, until });
        self.bytes += bytes;
        Ok(())
    }

    /// The locked parts of a file that overlap `part`. None is longer than a step.
    fn overlapping(&self, key: FileKey, part: AddrRange) -> Vec<(FileKey, u64)> {
        let first = part.start.saturating_sub(STEP_BYTES);
        let near = self.parts.range((key, first)..(key, part.end));
        near.filter(|(_, p)| p.mapping.part().end > part.start).map(|(at, _)| *at).collect()
    }

    fn unlock(&mut self, at: &(FileKey, u64)) {
        self.bytes -= self.parts.remove(at).map_or(0, |part| part.bytes);
    }

    /// Unlocks the parts that were not locked again for a minute.
    pub fn unlock_old(&mut self, now: Nanos) {
        self.parts.retain(|_, part| part.until > now);
        self.bytes = self.parts.values().map(|part| part.bytes).sum();
    }
}
