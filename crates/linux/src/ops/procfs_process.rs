//! A process that is observed without BPF.

use std::ops::Deref;
use std::path::Path;

use isotherm_core::{AddrRange, Liveness, Mapping, OpsError};

use super::annotate::{annotate, mapping_at};
use super::held::{AttachError, HeldProcess, refused};
use super::process::HOLDINGS_EVERY;
use crate::proc::{self, AreaUsage, Holdings, Pagemap};

/// A target of [`super::Smaps`] and of [`super::Idle`].
#[derive(Debug)]
pub(crate) struct ProcfsProcess {
    held: HeldProcess,
    /// It belongs to one address space, so that it detects an `exec`.
    pub pagemap: Pagemap,
    pub mappings: Vec<Mapping>,
    flags: Vec<AreaUsage>,
    holdings: Holdings,
    updates: u32,
}

impl Deref for ProcfsProcess {
    type Target = HeldProcess;
    fn deref(&self) -> &HeldProcess {
        &self.held
    }
}

impl ProcfsProcess {
    /// Holds process `pid`, and opens its pagemap.
    pub fn attach(root: &Path, pid: i32) -> Result<Self, AttachError> {
        let held = HeldProcess::take(root, pid)?;
        let pagemap = Pagemap::open(root, pid).map_err(|e| refused(pid, e))?;
        if held.has_ended() {
            return Err(AttachError::NoProcess(pid));
        }
        let holdings = Holdings::default();
        let (mappings, flags) = (Vec::new(), Vec::new());
        Ok(ProcfsProcess { held, pagemap, mappings, flags, holdings, updates: 0 })
    }

    /// Reads the mappings again, and every `HOLDINGS_EVERY` calls also their flags, which cost more.
    fn update(&mut self) -> Result<Liveness, AttachError> {
        let (root, pid) = (&self.held.root, self.held.pid);
        let mappings = self.held.mappings()?;
        let first = mappings.first().map(|m| AddrRange::new(m.range.start, m.range.start + 4096));
        let replaced = first.is_some_and(|page| self.pagemap.read(page).next().is_none());
        if replaced {
            self.pagemap = Pagemap::open(root, pid)?;
            self.updates = 0;
        }
        if self.updates.is_multiple_of(HOLDINGS_EVERY) {
            self.holdings = proc::holdings(root, pid, &self.holdings);
            match proc::usage(root, pid) {
                Ok(flags) => self.flags = flags,
                // The caller must learn of the new program at once.
                Err(e) if replaced && e.is_transient() => {
                    self.mappings.clear();
                    self.postpone(&e);
                    return Ok(Liveness::Replaced);
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.updates = self.updates.wrapping_add(1);
        // Mappings that are newer than the flags count as ordinary mappings.
        let flags: Vec<Option<u64>> =
            mappings.iter().map(|m| self.flags_of(m.range).or(Some(0))).collect();
        self.mappings = annotate(mappings, &flags, &self.mappings, &self.holdings);
        Ok(match (self.has_ended(), replaced) {
            (true, _) => Liveness::Gone,
            (_, true) => Liveness::Replaced,
            _ => Liveness::Alive,
        })
    }

    /// Reads the mappings again, and copies them to `out`.
    pub fn mappings_into(&mut self, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        out.clear();
        let read = self.update();
        let state = self.outcome(read)?;
        if state != Liveness::Gone {
            out.extend_from_slice(&self.mappings);
        }
        Ok(state)
    }

    fn flags_of(&self, range: AddrRange) -> Option<u64> {
        let i = self.flags.partition_point(|u| u.range.end <= range.start);
        let usage = self.flags.get(i)?;
        usage.range.intersect(&range).map(|_| usage.vm_flags)
    }

    /// The mapping that contains `addr`.
    pub fn mapping_at(&self, addr: u64) -> Option<&Mapping> {
        mapping_at(&self.mappings, addr)
    }
}
