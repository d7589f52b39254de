//! Making and splitting huge pages.

use std::path::Path;

use isotherm_core::{Failure, OpsError, PageMask, Support};

use crate::act::cursor::WalkTarget;
use crate::act::eligible::Eligible;
use crate::act::memory::ProcessMemory;
use crate::act::operation::Operation;
use crate::act::pieces::{Piece, pages_of};
use crate::act::progress::{Failures, Reply, StepResult};
use crate::sys::{MemoryAdvice, supports_advice};
use crate::walker::RawBlock;

/// Pages of 512 that have to be resident and touched before a huge page is made of them.
const MIN_TOUCHED: u32 = 448;

/// Whether huge pages may be made. The setting can change at any time.
pub(in crate::act) fn huge_pages(root: &Path) -> Support {
    let setting = "sys/kernel/mm/transparent_hugepage/enabled";
    match std::fs::read_to_string(root.join(setting)) {
        Ok(text) if text.contains("[never]") => Support::NotNow(format!(
            "huge pages are switched off on this machine: /{setting} says never"
        )),
        Ok(_) => supports_advice(MemoryAdvice::Collapse).map_or_else(
            |e| {
                Support::No(format!(
                    "the kernel rejects MADV_COLLAPSE: {e}. It requires Linux 6.1 or later"
                ))
            },
            |()| Support::Yes,
        ),
        Err(e) => {
            Support::No(format!("this kernel has no huge pages: cannot read /{setting}: {e}"))
        }
    }
}

/// Makes huge pages.
pub(super) struct HugePage;

impl Operation for HugePage {
    /// Blocks whose accesses can all be observed, and of which nearly all pages are touched.
    fn select(&self, eligible: &Eligible<'_>, _: &mut Failures) -> Vec<Piece> {
        eligible.blocks(|found, touched| {
            let used = touched.and(&found.resident).count() >= MIN_TOUCHED;
            !found.block.huge && found.is_whole() && found.is_seen() && used
        })
    }

    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        if huge_pages(&memory.process.root) != Support::Yes {
            return Ok(Reply::Counted(StepResult::of(0, pages_of(pieces), Failure::Refused)));
        }
        Ok(Reply::Advised(memory.advise(pieces, MemoryAdvice::Collapse)))
    }

    fn verify(&self, block: &RawBlock, _: &PageMask) -> bool {
        block.huge
    }
}

/// Splits huge pages.
pub(super) struct NoHugePage;

impl Operation for NoHugePage {
    fn reads(&self) -> WalkTarget {
        WalkTarget::Huge
    }

    /// Touched or not: a huge page has one accessed bit for all of its pages.
    fn select(&self, eligible: &Eligible<'_>, _: &mut Failures) -> Vec<Piece> {
        eligible.blocks(|found, _| found.block.huge && !found.pieces.is_empty())
    }

    /// The kernel splits a huge page for advice on a part of it. Since Linux 6.12 it frees the pages that contain
    /// only zeros, which is what the huge page wasted.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        let first = |p: &Piece| Piece { pages: 1, ..*p };
        let firsts: Vec<Piece> = pieces.iter().map(first).collect();
        Ok(Reply::Advised(memory.advise(&firsts, MemoryAdvice::Cold)))
    }

    fn verify(&self, block: &RawBlock, _: &PageMask) -> bool {
        !block.huge
    }
}
