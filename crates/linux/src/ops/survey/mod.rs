//! Reads all accessed bits of a process at once, and clears them in long runs.

mod clear;
mod folios;
pub(crate) mod pressure;
mod price;
mod runs;

use isotherm_core::{
    AddrRange, BLOCK_SIZE, Block, Cleared, Cost, OpsError, PAGE_SIZE, PageMask, Pressure, Survey,
    TargetId,
};

pub(crate) use self::clear::clear;
pub(crate) use self::folios::{Behind, Special, behind};
pub(super) use self::pressure::PressureCache;
pub(super) use self::price::Price;
use super::process::VaddrTarget;
use super::vaddr::Vaddr;
use crate::sys::monotonic;
use crate::walker::{Plain, RawBlock, Span, SpanReader, Walker, Want, pages_in_block};
use crate::x86::Level;

impl Survey for Vaddr {
    fn survey(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError> {
        let spans: Vec<Span> =
            ranges.iter().map(|&range| Span { range, plain: Plain::Nowhere }).collect();
        let process = self.targets.get(target)?;
        let (mut cost, before) = (Cost::default(), out.len());
        let is_same = read_blocks(&mut self.walker, process, &spans, |block| {
            cost.looks += 1;
            let Some(range) = ranges.get(block.span) else { return };
            let asked = pages_in_block(block.start, *range);
            cost.pages += block.entries().min(asked.count().into());
            let RawBlock { start, huge, read_at, .. } = *block;
            let (resident, young) = (block.resident.and(&asked), block.young.and(&asked));
            if !resident.is_empty() {
                out.push(Block { start, huge, resident, young, read_at });
            }
        })?;
        self.ended_early = !is_same && !process.has_ended();
        out.iter().skip(before).for_each(|block| process.note_read(block));
        cost.cpu = self.cpu.lap();
        Ok(cost)
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn probe(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        nth: u32,
    ) -> Result<(bool, Cost), OpsError> {
        let spans: Vec<Span> =
            ranges.iter().map(|&range| Span { range, plain: Plain::Nowhere }).collect();
        let process = self.targets.get(target)?;
        let mut reader = SpanReader::new(&spans).with_a_young_sample(nth).at_most(1);
        let mut blocks = self.walker.room();
        let mut goes_on = true;
        while goes_on && blocks.is_empty() {
            let read = reader.run(&mut self.walker, process.pid, &mut blocks);
            goes_on = process.as_it_was(read, |read| *read)?.flatten().is_some();
        }
        let is_young = !blocks.is_empty();
        self.walker.give_back(blocks);
        Ok((is_young, Cost { cpu: self.cpu.lap(), looks: 1, ..Cost::default() }))
    }

    fn clear(
        &mut self,
        target: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError> {
        let process = self.targets.get(target)?;
        let cleared = clear(&mut self.walker, process, runs, out)?;
        if cleared.young > 0 {
            process.cleared = Some(monotonic());
        }
        let lost = Price::here().of(cleared.clears, process.running(), cleared.young);
        Ok(Cost {
            cpu: self.cpu.lap(),
            looks: cleared.blocks,
            pages: cleared.entries,
            clears: cleared.clears,
            lost,
        })
    }

    fn swapped(&mut self, target: TargetId, block: u64) -> Result<Option<PageMask>, OpsError> {
        let process = self.targets.get(target)?;
        let window = AddrRange::new(block, block + BLOCK_SIZE);
        let read = self.walker.read(process.pid, std::iter::once((window, Want::Entries)));
        let batch = process.as_it_was(read, |batch| Some(batch.identity))?;
        Ok(batch.and_then(|batch| {
            let answer = batch.answers().next().filter(|a| a.level != Level::Changed)?;
            let pages = usize::try_from(BLOCK_SIZE / PAGE_SIZE).unwrap_or(0);
            Some(PageMask::of(pages, |page| {
                answer.level == Level::Pte && answer.entry(page).is_swapped()
            }))
        }))
    }

    fn pressure(&mut self, target: TargetId) -> Option<Pressure> {
        let process = self.targets.find(target).filter(|p| !p.has_ended())?;
        self.pressure.get(process.pid, monotonic())
    }
}

/// Measures the cost of clearing, unless it was measured before.
pub(super) fn measure_price() {
    Price::here();
}

/// Reads the blocks of `spans` while the process is unchanged; returns whether it still is.
pub(crate) fn read_blocks(
    walker: &mut Walker,
    process: &VaddrTarget,
    spans: &[Span],
    mut each: impl FnMut(&RawBlock),
) -> Result<bool, OpsError> {
    let mut reader = SpanReader::new(spans);
    let mut blocks = walker.room();
    let is_same = loop {
        blocks.clear();
        match process.as_it_was(reader.run(walker, process.pid, &mut blocks), |read| *read)? {
            Some(Some(_)) => blocks.iter().for_each(&mut each),
            Some(None) => break true,
            None => break false,
        }
    };
    walker.give_back(blocks);
    Ok(is_same)
}
