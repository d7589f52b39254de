//! Reads all page table entries of long stretches of memory.

use std::borrow::Cow;

use isotherm_core::{AddrRange, BLOCK_SAMPLES, BLOCK_SIZE, Nanos, PageMask};

use super::answer::{Identity, identity};
use super::{READ_BLOCKS, WalkError, Walker};
use crate::skel::types;
use crate::sys::monotonic;
use crate::x86::{LeafEntry, Level};

/// Maximal number of stretches in one run of the BPF program.
pub(super) const MAX_SPANS: usize = 512;
/// Maximal number of blocks in one run: 2 GiB, so that a run takes about 1 ms.
const MAX_BLOCKS: u32 = 1024;
/// The same, if the state of folios is read too. A run then takes half a millisecond, or several if the state
/// is not in a CPU cache.
const MAX_BLOCKS_PLAIN: u32 = 32;

/// A stretch to read: page-aligned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub range: AddrRange,
    pub plain: Plain,
}

/// The blocks for which the walker determines which pages are plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    Nowhere,
    /// only in huge pages
    Huge,
    IfYoung,
    Everywhere,
}

/// `enum plain` in `blocks.bpf.h`.
const OF_NONE: u32 = 0;
const OF_HUGE: u32 = 1;
const OF_ALL: u32 = 2;

impl Plain {
    fn of_blocks(self) -> u32 {
        match self {
            Plain::Nowhere => OF_NONE,
            Plain::Huge => OF_HUGE,
            Plain::IfYoung | Plain::Everywhere => OF_ALL,
        }
    }
}

/// A block with at least one mapped page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RawBlock {
    /// address of its first page
    pub start: u64,
    /// index of the span for which it was read
    pub span: usize,
    /// Whether one entry maps the whole block.
    pub huge: bool,
    pub resident: PageMask,
    pub young: PageMask,
    /// Pages that are folios by themselves, on an LRU list, and mapped once; all pages of a huge page if it is
    /// mapped once. `None` if this was not requested, or cannot be determined for huge pages here.
    pub plain: Option<PageMask>,
    /// when it was read
    pub read_at: Nanos,
}

impl RawBlock {
    /// The number of entries that were read for this block.
    pub fn entries(&self) -> u64 {
        if self.huge { 1 } else { 512 }
    }
}

/// Reads the remaining part of some spans, run by run.
pub(crate) struct SpanReader<'a> {
    spans: Cow<'a, [Span]>,
    /// number of spans that have been read completely
    done: usize,
    at: u64,
    most: u32,
    /// see [`SpanReader::with_a_young_sample`]
    sample: u32,
}

impl<'a> SpanReader<'a> {
    pub fn new(spans: impl Into<Cow<'a, [Span]>>) -> Self {
        let spans = spans.into();
        let at = spans.first().map_or(0, |s| s.range.start);
        SpanReader { spans, done: 0, at, most: MAX_BLOCKS, sample: 0 }
    }

    /// Limits each later run to `most` blocks.
    pub fn at_most(self, most: u32) -> Self {
        SpanReader { most: most.min(MAX_BLOCKS), ..self }
    }

    /// Reads only blocks with a young page in a sample: an eighth of their pages. `nth` selects it.
    pub fn with_a_young_sample(self, nth: u32) -> Self {
        SpanReader { sample: 1 + nth % BLOCK_SAMPLES, ..self }
    }

    /// The address at which the next run begins; `None` if everything has been read.
    pub fn position(&self) -> Option<u64> {
        self.spans.get(self.done).map(|s| self.at.max(s.range.start))
    }

    /// Appends the blocks of one run to `out`, and returns the identity of the process; `None` if everything
    /// has been read.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn run(
        &mut self,
        walker: &mut Walker,
        pid: i32,
        out: &mut Vec<RawBlock>,
    ) -> Result<Option<Identity>, WalkError> {
        let rest = self.spans.get(self.done..).unwrap_or_default();
        let now = rest.get(..rest.len().min(MAX_SPANS)).unwrap_or_default();
        let nr_spans = u32::try_from(now.len()).unwrap_or(0);
        if nr_spans == 0 {
            return Ok(None);
        }
        let wanted = now.iter().map(|s| s.plain.of_blocks()).max().unwrap_or(OF_NONE);
        let bss = walker.bss()?;
        for (slot, span) in bss.spans.iter_mut().zip(now) {
            let plain = u64::from(matches!(span.plain, Plain::Everywhere | Plain::Huge));
            *slot = types::span { start: span.range.start, end: span.range.end, plain };
        }
        bss.progress = types::progress { at: self.at, ..types::progress::default() };
        let max_blocks =
            self.most.min(if wanted == OF_ALL { MAX_BLOCKS_PLAIN } else { MAX_BLOCKS });
        let order = walker.order(pid);
        let order = types::order {
            job: READ_BLOCKS,
            nr_spans,
            max_blocks,
            plain: wanted,
            sample: self.sample,
            ..order
        };
        walker.run_order(order)?;
        let read_at = monotonic();
        let (zero, tells_of_huge) = (walker.zero_frames().to_vec(), walker.large_folios);
        let bss = walker.bss()?;
        let found = bss.blocks.iter().take(bss.progress.blocks as usize);
        let found = found.filter_map(|b| of_raw(b, tells_of_huge, &zero, read_at));
        out.extend(found.map(|b| RawBlock { span: self.done + b.span, ..b }));
        let done = (bss.progress.span as usize).min(now.len());
        self.at = match rest.get(done) {
            Some(next) if done == now.len() => next.range.start,
            _ => bss.progress.at,
        };
        self.done += done;
        Ok(Some(identity(bss)))
    }
}

fn of_raw(
    b: &types::block,
    tells_of_huge: bool,
    zero_frames: &[u64],
    read_at: Nanos,
) -> Option<RawBlock> {
    let huge = Level::from_raw(b.level) == Level::Pmd;
    let (resident, young) = if huge {
        let entry = LeafEntry(b.entry);
        let is_memory = entry.is_memory(Level::Pmd, zero_frames);
        let all = |yes| PageMask::span(0, if yes { 512 } else { 0 });
        (all(is_memory), all(is_memory && entry.is_young()))
    } else {
        (PageMask::from_words(b.resident), PageMask::from_words(b.young))
    };
    let plain =
        (b.has_plain != 0 && (tells_of_huge || !huge)).then(|| PageMask::from_words(b.plain));
    let span = b.span as usize;
    let block = RawBlock { start: b.start, span, huge, resident, young, plain, read_at };
    (!resident.is_empty()).then_some(block)
}

/// The pages of the block at `start` that lie in `range`.
pub(crate) fn pages_in_block(start: u64, range: AddrRange) -> PageMask {
    let page = |addr: u64| {
        let offset = addr.saturating_sub(start).min(BLOCK_SIZE);
        usize::try_from(offset / isotherm_core::PAGE_SIZE).unwrap_or(0)
    };
    PageMask::span(page(range.start), page(range.end))
}

/// The parts of `range`, split at the boundaries of page tables.
pub(crate) fn in_blocks(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let first = range.start / BLOCK_SIZE;
    (first..range.end.div_ceil(BLOCK_SIZE)).filter_map(move |block| {
        range.intersect(&AddrRange::new(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{OwnPages, SleepingChild};
    use crate::walker::{Want, own_pid};

    fn walker() -> Option<Walker> {
        if !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(),
                "running BPF requires root"
            );
            return None;
        }
        Some(Walker::fastest().unwrap())
    }

    /// The kernel inverts the frame number of a PROT_NONE huge page, except for its low bits.
    #[test]
    fn mappers_of_a_huge_page_are_found_for_all_entry_types() {
        let Some(mut walker) = walker() else { return };
        let mut own = OwnPages::map_aligned(BLOCK_SIZE, BLOCK_SIZE).unwrap();
        own.write(0, 1);
        own.collapse(0..512).unwrap();
        let range = own.range(0, 512);
        let mut plain = || {
            let spans = [Span { range, plain: Plain::Huge }];
            let mut blocks = Vec::new();
            SpanReader::new(&spans).run(&mut walker, own_pid(), &mut blocks).unwrap();
            let [block] = blocks[..] else { panic!("{blocks:?}") };
            assert!(block.huge && !block.resident.is_empty());
            block.plain.unwrap().count()
        };
        // Children of other tests have it too, for a moment.
        let mut is_alone = || {
            (0..400).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                plain() == 512
            })
        };
        assert!(is_alone());
        own.protect_none(0, 512).unwrap();
        assert!(is_alone());
        let child = SleepingChild::fork().unwrap();
        assert_eq!(plain(), 0);
        drop(child);
    }

    #[test]
    fn the_huge_zero_page_is_not_memory_even_without_permissions() {
        let Some(mut walker) = walker() else { return };
        let own = OwnPages::map_aligned(BLOCK_SIZE, BLOCK_SIZE).unwrap();
        let _ = own.advise(0..512, rustix::mm::Advice::LinuxHugepage);
        let _ = own.read(0);
        let range = own.range(0, 512);
        let mut read = || {
            let batch = walker.read(own_pid(), [(range, Want::Entries)].into_iter()).unwrap();
            let level = batch.answers().next().unwrap().level;
            let spans = [Span { range, plain: Plain::Nowhere }];
            let mut blocks = Vec::new();
            SpanReader::new(&spans).run(&mut walker, own_pid(), &mut blocks).unwrap();
            (level, blocks)
        };
        let (level, blocks) = read();
        assert_eq!(blocks, []);
        own.protect_none(0, 512).unwrap();
        // Without transparent huge pages it is a page table of small zero pages.
        assert_eq!(read(), (level, Vec::new()));
    }

    #[test]
    fn pieces_lie_in_one_table() {
        let range = AddrRange::new(BLOCK_SIZE - 4096, 3 * BLOCK_SIZE + 8192);
        let lens: Vec<u64> = in_blocks(range).map(|r| r.len()).collect();
        assert_eq!(lens, [4096, BLOCK_SIZE, BLOCK_SIZE, 8192]);
    }
}
