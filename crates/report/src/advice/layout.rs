//! First pass: the memory at the end of the record, in blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, AgeCurve, Mapping, MappingKind, Snapshot, TargetId, TargetView};

use super::sizing::is_known;
use crate::basis::BasisTally;
use crate::filter::{FilterError, Gate, Options};
use crate::pieces::each_piece;

/// Maximum number of targets with advice: a limit, because records come from outside.
const MAX_ADVISED_TARGETS: usize = 256;
/// Maximum number of blocks of all targets, below 100 bytes each. With more memory, blocks are larger.
const MAX_ADVICE_BLOCKS: u64 = 1 << 15;
/// Maximum number of parts of mappings with advice. Beyond it, the smallest get none.
const MAX_PLACES: usize = 1 << 13;
/// Binary logarithm of the minimum block size, 64 KiB: the window of the monitors.
const MIN_SHIFT: u32 = 16;

/// Collects the memory at the end of the record, to which the advice applies: the first of two passes.
#[derive(Debug)]
pub struct AdviceScope {
    pub(super) options: Options,
    pub(super) gate: Gate,
    pub(super) tally: BasisTally,
    pub(super) targets: BTreeMap<TargetId, Last>,
    /// idle ages of pages, if all memory of the targets is selected
    pub(super) ages: BTreeMap<TargetId, AgeCurve>,
    /// maximum number of targets of a snapshot beyond the limit
    pub(super) beyond: u64,
}

/// A target: the time for which it existed, and its last view.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) time: Range<Duration>,
    seen: Arc<Snapshot>,
}

impl AdviceScope {
    /// A scope that has received no snapshot.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let gate = Gate::new(options.filter.clone());
        AdviceScope {
            options,
            gate,
            tally: BasisTally::default(),
            targets: BTreeMap::new(),
            ages: BTreeMap::new(),
            beyond: 0,
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Arc<Snapshot>) {
        let Some(time) = self.gate.admit(s) else { return };
        let thresholds = self.options.thresholds;
        let bytes = self.options.filter.regions(s).map(|r| r.bytes(&thresholds)).sum();
        self.tally.whole(&bytes, (time.end - time.start).as_secs_f64());
        let (mut beyond, mut has_room, filter) = (0, true, self.options.filter.clone());
        for view in filter.views(s) {
            if self.targets.len() >= MAX_ADVISED_TARGETS && !self.targets.contains_key(&view.id) {
                // Once all are in this snapshot, they stay.
                has_room = has_room && self.forget_ended(s);
                if !has_room {
                    beyond += 1;
                    continue;
                }
            }
            let new = || Last { time: time.clone(), seen: Arc::clone(s) };
            let last = self.targets.entry(view.id).or_insert_with(new);
            (last.time.end, last.seen) = (time.end, Arc::clone(s));
            if let Some(ages) = view.ages.as_ref().filter(|_| self.options.filter.addr.is_none()) {
                self.ages.entry(view.id).or_default().push(ages, s.end);
            }
        }
        self.beyond = self.beyond.max(beyond);
    }

    /// Gives up the target that ended first, for another one. False if all are in this snapshot.
    fn forget_ended(&mut self, s: &Snapshot) -> bool {
        let has_ended = |id: &TargetId| s.targets.binary_search_by_key(id, |v| v.id).is_err();
        let ended = self.targets.iter().filter(|(id, _)| has_ended(id));
        let Some(id) = ended.min_by_key(|(_, last)| last.time.end).map(|(id, _)| *id) else {
            return false;
        };
        self.targets.remove(&id);
        self.ages.remove(&id);
        true
    }

    pub(super) fn time(&self) -> Result<Range<Duration>, FilterError> {
        self.gate.found_memory()
    }

    /// The targets that are there at the end, and whose idle ages say which memory was touched within `window`.
    pub(super) fn counted(&self, window: Duration) -> BTreeSet<TargetId> {
        let end = self.targets.values().map(|last| last.time.end).max();
        let is_there =
            |id: &TargetId| self.targets.get(id).is_some_and(|last| Some(last.time.end) == end);
        let known = self.ages.iter().filter(|(_, curve)| is_known(curve, window.as_secs_f64()));
        known.map(|(id, _)| *id).filter(is_there).collect()
    }

    pub(super) fn layout(&self) -> Layout {
        let clip = self.options.filter.clip();
        let views = self.targets.iter().filter_map(|(id, last)| last.view(*id));
        let mut places: Vec<Place> = views.flat_map(|view| places(view, clip)).collect();
        let mut left_out = 0;
        if places.len() > MAX_PLACES {
            places.sort_by_key(|p| std::cmp::Reverse(p.range.len()));
            left_out = places.drain(MAX_PLACES..).map(|p| p.range.len()).sum();
            places.sort_by_key(|p| (p.target, p.range.start));
        }
        Layout { left_out, ..Layout::new(places) }
    }
}

impl Last {
    pub(super) fn view(&self, id: TargetId) -> Option<&TargetView> {
        self.seen.targets.iter().find(|t| t.id == id)
    }
}

/// Memory of one mapping that was resident at the end.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) target: TargetId,
    pub(super) mapping: Mapping,
    pub(super) range: AddrRange,
    /// number of its first block
    pub(super) first: usize,
}

/// All places in the order of targets and addresses, and the size of blocks.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    pub(super) shift: u32,
    pub(super) blocks: usize,
    /// bytes of places beyond the limit
    pub(super) left_out: u64,
}

impl Layout {
    fn new(mut places: Vec<Place>) -> Self {
        let blocks = |shift: u32| places.iter().map(|p| numbers(p.range, shift).1).sum::<u64>();
        let fits = |shift: &u32| blocks(*shift) <= MAX_ADVICE_BLOCKS;
        let shift = (MIN_SHIFT..63).find(fits).unwrap_or(63);
        let mut first = 0;
        for place in &mut places {
            place.first = first;
            first += numbers(place.range, shift).1 as usize;
        }
        Layout { places, shift, blocks: first, left_out: 0 }
    }

    /// The places of a target that overlap a range.
    pub(super) fn within(&self, target: TargetId, range: AddrRange) -> &[Place] {
        let key = |p: &Place| (p.target, p.range.start);
        let ends = |p: &Place| (p.target, p.range.end);
        let from = self.places.partition_point(|p| ends(p) <= (target, range.start));
        let to = self.places.partition_point(|p| key(p) < (target, range.end));
        self.places.get(from..to).unwrap_or_default()
    }

    /// Each block of a place that a range overlaps: its number, and the part of the range in it.
    pub(super) fn blocks(
        &self,
        place: &Place,
        range: AddrRange,
    ) -> impl Iterator<Item = (usize, AddrRange)> + use<> {
        let (shift, inside) = (self.shift, place.range.intersect(&range).unwrap_or_default());
        let (origin, first) = (place.range.start >> shift, place.first);
        let (from, count) = numbers(inside, shift);
        (from..from + count).map(move |n| {
            let start = (n << shift).max(inside.start);
            // The end of the last block may be beyond the last address.
            let end = (start | ((1 << shift) - 1)).saturating_add(1).min(inside.end);
            (first + (n - origin) as usize, AddrRange::new(start, end))
        })
    }
}

/// The first block of the grid that a range overlaps, and the number of blocks.
fn numbers(range: AddrRange, shift: u32) -> (u64, u64) {
    if range.is_empty() {
        return (range.start >> shift, 0);
    }
    let (first, last) = (range.start >> shift, (range.end - 1) >> shift);
    (first, last - first + 1)
}

/// Resident memory in known mappings, each place as long as possible.
fn places(view: &TargetView, clip: AddrRange) -> Vec<Place> {
    let mut all: Vec<(usize, AddrRange)> = Vec::new();
    each_piece(view, clip, |piece, mapping| {
        let Some(mapping) = mapping.filter(|&i| piece.resident_bp > 0 && can_be_advised(view, i))
        else {
            return;
        };
        match all.last_mut() {
            Some((last, range)) if *last == mapping && range.end == piece.range.start => {
                range.end = piece.range.end;
            }
            _ => all.push((mapping, piece.range)),
        }
    });
    let place = |(i, range): (usize, AddrRange)| {
        let mapping = view.mappings.get(i)?.clone();
        Some(Place { target: view.id, mapping, range, first: 0 })
    };
    all.into_iter().filter_map(place).collect()
}

/// The kernel accepts no advice for memory of its own or of a driver, and physical memory has no process.
fn can_be_advised(view: &TargetView, mapping: usize) -> bool {
    use MappingKind::{Physical, Special};
    view.mappings.get(mapping).is_some_and(|m| !matches!(m.kind, Special | Physical))
}
