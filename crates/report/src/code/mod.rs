//! Memory by the code that touched it first or allocated it: sampled page faults or allocations, joined with the heat
//! of their memory.

mod change;
mod claims;
mod estimate;
mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attribution, CodeMapping, Fault, FaultKind, HeatBytes, Missing, Nanos, PAGE_SIZE,
    RegionView, Snapshot, TargetId, TargetView,
};
use serde::Serialize;

use crate::basis::{Basis, BasisTally, ms};
use crate::filter::{FilterError, Gate, Options};
use crate::pieces::each_piece;
pub use change::{ChangedRow, ChangedStack, CodeChange, CodeSide};
use claims::{Claim, Claims};
pub use estimate::Estimate;
use estimate::{HeatSum, WeightedSum};
pub use rows::CodeRow;

/// The value of `owner` if the rows show the code that allocated memory.
pub(crate) const ALLOCATION: &str = "allocation";
/// Maximum number of stacks; further ones share one without frames. A limit, because records come from outside.
const MAX_STACKS: usize = 100_000;
/// Stacks with fewer named frames are short: most of them lack a frame pointer.
const WHOLE_STACK: usize = 3;

/// The meaning of the rows of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CodeBy {
    /// the innermost function that is in no C or C++ library and no allocator
    #[default]
    Function,
    /// the line in that function
    Line,
    /// the file that contains it
    Library,
    /// the whole call path
    Path,
    /// the thread that touched the memory first
    Thread,
    /// the global variable or the mapping that the memory is in
    Data,
}

impl CodeBy {
    /// All kinds, with their names.
    pub const ALL: [(CodeBy, &'static str); 6] = [
        (CodeBy::Function, "function"),
        (CodeBy::Path, "path"),
        (CodeBy::Line, "line"),
        (CodeBy::Library, "library"),
        (CodeBy::Thread, "thread"),
        (CodeBy::Data, "data"),
    ];

    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        CodeBy::ALL.iter().find(|(by, _)| *by == self).map_or("", |(_, name)| name)
    }
}

/// An address in the code of a target.
#[derive(Debug, Clone, Copy)]
pub struct CodeAddress<'a> {
    /// the target
    pub target: TargetId,
    /// the address of an instruction in it
    pub address: u64,
    /// the file that was mapped there, if it is known
    pub code: Option<&'a CodeMapping>,
    /// all files that the target executed then
    pub executed: &'a [CodeMapping],
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StackFrame {
    /// its name; for a function without a name, the file and the offset in it
    pub function: Arc<str>,
    /// `file:line`, if it is known
    pub line: Option<Arc<str>>,
    /// path of the file that contains it; empty if it is not known
    pub library: Arc<str>,
    /// whether the function has a name
    pub named: bool,
}

/// Finds the names of functions at addresses: the innermost inlined function first. None if there is no name.
pub trait FindFunctions {
    /// The functions at an address, each with its line.
    fn functions(&mut self, at: &CodeAddress<'_>) -> Vec<(String, Option<String>)>;

    /// The global variables of at least a page of a file that a target executes: addresses in the target, ascending and
    /// disjoint, and names.
    fn variables(&mut self, _code: &CodeMapping) -> Vec<(AddrRange, String)> {
        Vec::new()
    }
}

/// The memory of one call stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackRow {
    /// the outermost frame first
    pub frames: Vec<StackFrame>,
    /// name of the thread
    pub thread: String,
    /// its memory
    #[serde(flatten)]
    pub memory: CodeMemory,
}

/// Memory by heat, in bytes, as estimated from samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CodeMemory {
    /// hot bytes
    #[serde(rename = "hot_bytes")]
    pub hot: Estimate,
    /// warm bytes
    #[serde(rename = "warm_bytes")]
    pub warm: Estimate,
    /// cold bytes
    #[serde(rename = "cold_bytes")]
    pub cold: Estimate,
    /// bytes whose accesses cannot be observed
    #[serde(rename = "unknown_bytes")]
    pub unknown: Estimate,
    /// all of these
    #[serde(skip)]
    pub of_any_heat: Estimate,
    /// the same; `None` if the record does not contain which memory is resident
    #[serde(rename = "resident_bytes")]
    pub resident: Option<Estimate>,
    /// mean idle age of the cold bytes
    pub idle_ms: f64,
    /// its 95 % interval; `None` if nothing is cold, or fewer than two samples are
    pub idle_interval_ms: Option<[f64; 2]>,
}

impl CodeMemory {
    fn of(sum: &HeatSum) -> Self {
        let part = |part: &WeightedSum| part.estimate_of(&sum.resident);
        CodeMemory {
            hot: part(&sum.hot),
            warm: part(&sum.warm),
            cold: part(&sum.cold),
            unknown: part(&sum.unknown),
            of_any_heat: sum.resident.estimate(),
            resident: Some(sum.resident.estimate()),
            idle_ms: sum.idle.mean(),
            idle_interval_ms: sum.idle.interval(),
        }
    }

    fn exact(b: &HeatBytes, idle: f64) -> Self {
        let exact = |n: u64| Estimate { bytes: n as f64, low: n as f64, high: n as f64 };
        let idle_ms = (b.cold > 0).then(|| idle / b.cold as f64);
        CodeMemory {
            hot: exact(b.hot),
            warm: exact(b.warm),
            cold: exact(b.cold),
            unknown: exact(b.unknown),
            of_any_heat: exact(b.resident()),
            resident: Some(exact(b.resident())),
            idle_ms: idle_ms.unwrap_or(0.0),
            idle_interval_ms: idle_ms.map(|mean| [mean, mean]),
        }
    }

    /// Without resident memory if the record does not contain it.
    fn known(self, missing: Missing) -> Self {
        CodeMemory { resident: self.resident.and_then(|n| missing.resident(n)), ..self }
    }
}

/// The memory by code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Code {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used; memory is that of its last snapshot
    #[serde(flatten)]
    pub basis: Basis,
    /// meaning of the rows
    pub by: &'static str,
    /// all resident memory of the targets
    pub all: CodeMemory,
    /// the memory whose pages have a stack
    pub with_stack: CodeMemory,
    /// `allocation` if the rows show the code that allocated memory (in targets without sampled allocations, the code
    /// that touched it first), `first_touch` if they show the code that touched it first in all targets
    pub owner: &'static str,
    /// number of sampled pages or allocations
    pub samples: u64,
    /// share of the bytes with a stack whose stack has fewer than three named frames
    pub short_stacks: f64,
    /// major faults a second in the selected time
    pub refaults_per_second: f64,
    /// bytes in swap, mean of the snapshots in the selected time; `None` if the record does not contain them
    pub saved_bytes: Option<f64>,
    /// rows, the most cold bytes first
    pub rows: Vec<CodeRow>,
    /// the call stacks, the most bytes first
    pub stacks: Vec<StackRow>,
    /// the call stacks that brought memory back by major faults: the most first
    pub refaults: Vec<RefaultRow>,
}

/// Major faults of one call stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RefaultRow {
    /// the outermost frame first
    pub frames: Vec<StackFrame>,
    /// name of the thread
    pub thread: String,
    /// number of faults
    pub faults: u64,
    /// faults per second
    pub per_second: f64,
    /// faults per minute for each MiB in swap on average: what the saved memory costs this code. `None` if nothing is
    /// in swap, or the record does not contain it
    pub per_minute_per_mib_saved: Option<f64>,
}

/// Receives the snapshots, faults and code of a record.
#[derive(Debug)]
pub struct CodeBuilder {
    options: Options,
    by: CodeBy,
    /// Sampled allocations are ignored.
    first_touch: bool,
    gate: Gate,
    claims: BTreeMap<TargetId, Claims>,
    /// the files that each target executes
    code: BTreeMap<TargetId, Arc<Vec<CodeMapping>>>,
    /// Faults, and the code of their targets. A record contains them before the snapshots of their time.
    waiting: Vec<(Fault, Arc<Vec<CodeMapping>>)>,
    last: Option<(Range<Duration>, Arc<Snapshot>)>,
    /// faults after the selected time are ignored
    over: bool,
    refaults: HashMap<Owner, u64>,
    /// the bytes in swap that each target had last
    saved: BTreeMap<TargetId, u64>,
    /// those of each admitted snapshot, and the number of these snapshots
    saved_sum: (f64, f64),
}

/// A stack of a target, and the thread that it was seen in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    target: TargetId,
    frames: Arc<[u64]>,
    thread: Arc<str>,
    code: ByAddress,
}

/// The code of a target at a time. Equal if it is the same allocation, which is cheap to compare.
#[derive(Debug, Clone)]
struct ByAddress(Arc<Vec<CodeMapping>>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ByAddress {}

impl std::hash::Hash for ByAddress {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Owner {
    fn of_the_rest(&self) -> Self {
        Owner { frames: [].into(), thread: "".into(), ..self.clone() }
    }

    fn of(target: TargetId, claim: &Claim) -> Self {
        Owner {
            target,
            frames: Arc::clone(&claim.frames),
            thread: Arc::clone(&claim.thread),
            code: ByAddress(Arc::clone(&claim.code)),
        }
    }
}

impl CodeBuilder {
    /// A builder that has received nothing.
    #[must_use]
    pub fn new(options: Options, by: CodeBy) -> Self {
        CodeBuilder {
            gate: Gate::new(options.filter.clone()),
            options,
            by,
            first_touch: false,
            claims: BTreeMap::new(),
            code: BTreeMap::new(),
            waiting: Vec::new(),
            last: None,
            over: false,
            refaults: HashMap::new(),
            saved: BTreeMap::new(),
            saved_sum: (0.0, 0.0),
        }
    }

    /// Attributes memory to the code that touched it first, although allocations were sampled.
    #[must_use]
    pub fn by_first_touch(self, first_touch: bool) -> Self {
        CodeBuilder { first_touch, ..self }
    }

    /// The files that a target executes from now on.
    pub fn code(&mut self, target: TargetId, code: &Arc<Vec<CodeMapping>>) {
        self.code.insert(target, Arc::clone(code));
    }

    /// Adds a fault, or a change of a sampled page.
    pub fn fault(&mut self, f: &Fault) {
        if !self.over && self.options.filter.wants(f.target) {
            let code = self.code.entry(f.target).or_default();
            self.waiting.push((f.clone(), Arc::clone(code)));
        }
    }

    /// Applies the waiting faults before `end`.
    fn apply_until(&mut self, end: Nanos) {
        for (f, code) in self.waiting.extract_if(.., |(f, _)| f.at < end) {
            let claims = self.claims.entry(f.target).or_default();
            claims.push(&f, &code);
            if f.kind == FaultKind::Major && self.gate.is_in_time(f.at) {
                let Fault { target, frames, thread, .. } = f;
                let owner = Owner { target, frames, thread, code: ByAddress(code) };
                *entry(&mut self.refaults, owner) += f.weight;
            }
        }
    }

    /// Notes the bytes in swap of a target.
    pub fn attribution(&mut self, a: &Attribution) {
        self.saved.insert(a.target, a.swapped);
    }

    /// Adds a snapshot. The last one in the selected time that has memory gives the heat.
    pub fn push(&mut self, s: &Arc<Snapshot>) {
        let admitted = self.gate.admit(s);
        self.over |= admitted.is_none() && self.last.is_some();
        if self.over {
            self.waiting.clear();
        }
        self.apply_until(s.end);
        let views = || self.options.filter.views(s);
        let saved = |v: &TargetView| self.saved.get(&v.id).map(|&bytes| bytes as f64);
        if admitted.is_some() && views().any(|v| saved(v).is_some()) {
            self.saved_sum.0 += views().filter_map(saved).sum::<f64>();
            self.saved_sum.1 += 1.0;
        }
        if let Some(time) = admitted
            && views().any(|v| !v.regions.is_empty())
        {
            self.last = Some((time, Arc::clone(s)));
        }
    }

    /// The memory by code.
    ///
    /// # Errors
    /// If there is no snapshot in the selected time, or no memory at the selected addresses.
    pub fn finish(mut self, find: &mut dyn FindFunctions) -> Result<Code, FilterError> {
        let time = self.gate.found_memory()?;
        // The changes that the last look at all pages has found. Rates are those of the time of the snapshots.
        self.waiting.retain(|(f, _)| f.kind != FaultKind::Major);
        self.apply_until(Nanos(u64::MAX));
        let Some((last_time, s)) = self.last.take() else { return Err(FilterError::Empty) };
        let views: Vec<&TargetView> = self.options.filter.views(&s).collect();
        let ByStack { stacks, sum: with_stack, samples, has_allocations } =
            self.by_stack(&views, s.start);
        let mut frames = rows::Namer::new(find);
        let stacks: Vec<(StackRow, HeatSum)> =
            stacks.into_iter().map(|(owner, sum)| (frames.stack(&owner, &sum), sum)).collect();
        let named = |(row, _): &&(StackRow, HeatSum)| {
            row.frames.iter().filter(|f| f.named).count() >= WHOLE_STACK
        };
        let whole: f64 = stacks.iter().filter(named).map(|(_, s)| s.resident.bytes).sum();
        let seconds = (time.end - time.start).as_secs_f64().max(f64::MIN_POSITIVE);
        let saved = (self.saved_sum.1 > 0.0).then(|| self.saved_sum.0 / self.saved_sum.1);
        let refaults = refault_rows(&self.refaults, seconds, saved, &mut frames);
        let (all, idle) = self.totals(&s);
        let mut tally = BasisTally::default();
        tally.whole(&all, (last_time.end - last_time.start).as_secs_f64());
        let mut rows = match self.by {
            CodeBy::Data => {
                let variables = variables(&self.code, find);
                rows::by_data(&views, &self.options, &variables)
            }
            by => rows::by_stack(&stacks, by),
        };
        let mut stacks: Vec<StackRow> = stacks.into_iter().map(|(row, _)| row).collect();
        stacks.sort_by(|a, b| {
            let bytes = b.memory.of_any_heat.bytes.total_cmp(&a.memory.of_any_heat.bytes);
            bytes.then_with(|| (&a.frames, &a.thread).cmp(&(&b.frames, &b.thread)))
        });
        let missing = self.options.missing;
        let of_rows = rows.iter_mut().map(|row| &mut row.memory);
        let of_stacks = stacks.iter_mut().map(|row| &mut row.memory);
        of_rows.chain(of_stacks).for_each(|memory| *memory = memory.known(missing));
        Ok(Code {
            schema_version: 1,
            basis: tally.basis(&self.options, &last_time),
            by: self.by.name(),
            owner: if has_allocations { ALLOCATION } else { "first_touch" },
            all: CodeMemory::exact(&all, idle).known(missing),
            with_stack: CodeMemory::of(&with_stack).known(missing),
            samples,
            short_stacks: match with_stack.resident.bytes {
                bytes if bytes > 0.0 => (1.0 - whole / bytes).max(0.0),
                _ => 0.0,
            },
            refaults_per_second: refaults.iter().map(|r| r.faults).sum::<u64>() as f64 / seconds,
            saved_bytes: saved,
            rows,
            stacks,
            refaults,
            title: self.options.title,
        })
    }

    /// The memory of a snapshot that began at `begin`, by stack.
    fn by_stack(&self, views: &[&TargetView], begin: Nanos) -> ByStack {
        let thresholds = self.options.thresholds;
        let heat = |r: &RegionView| r.bytes(&thresholds);
        let mut all = ByStack::default();
        for view in views {
            let Some(claims) = self.claims.get(&view.id) else { continue };
            let regions: Vec<RegionView> = self.options.filter.clipped(view).collect();
            // Page faults would describe the same memory once more. A program that has not loaded the library has no
            // others.
            let by_allocation = !self.first_touch && claims.has_allocations;
            all.has_allocations |= by_allocation;
            let sums: Vec<_> = if by_allocation {
                claims.allocations().map(|c| (c, of_allocation(c, &regions, heat))).collect()
            } else {
                let resident = claims.pages().filter(|p| p.resident);
                let of_page = |p| of_page(p, claims.refilled(p), &regions, heat);
                let mut sums: Vec<_> = resident.map(|p| (p, of_page(p))).collect();
                limit_later(&mut sums, view, self.options.filter.clip(), begin, heat);
                sums
            };
            for (claim, sum) in sums.into_iter().filter(|(_, sum)| sum.resident.bytes > 0.0) {
                all.samples += 1;
                all.sum += sum;
                *entry(&mut all.stacks, Owner::of(view.id, claim)) += sum;
            }
        }
        all
    }

    /// All memory of a snapshot, and the sum of the cold bytes times their idle age in ms.
    fn totals(&self, s: &Snapshot) -> (HeatBytes, f64) {
        let (mut all, mut idle) = (HeatBytes::default(), 0.0);
        for r in self.options.filter.regions(s) {
            let b = r.bytes(&self.options.thresholds);
            idle += b.cold as f64 * ms(r.age);
            all += b;
        }
        (all, idle)
    }
}

/// The memory of a snapshot by stack.
#[derive(Default)]
struct ByStack {
    stacks: HashMap<Owner, HeatSum>,
    /// the sum over all stacks
    sum: HeatSum,
    /// number of sampled pages or allocations
    samples: u64,
    /// whether any memory is attributed to allocations
    has_allocations: bool,
}

/// The code that brings memory back, the most frequent first.
fn refault_rows(
    refaults: &HashMap<Owner, u64>,
    seconds: f64,
    saved_bytes: Option<f64>,
    frames: &mut rows::Namer<'_>,
) -> Vec<RefaultRow> {
    let row = |(owner, &faults): (&Owner, &u64)| RefaultRow {
        frames: frames.frames(owner),
        thread: owner.thread.to_string(),
        faults,
        per_second: faults as f64 / seconds,
        per_minute_per_mib_saved: per_mib_saved(faults as f64 / seconds, saved_bytes),
    };
    let mut rows: Vec<RefaultRow> = refaults.iter().map(row).collect();
    rows.sort_by(|a, b| b.faults.cmp(&a.faults).then_with(|| a.frames.cmp(&b.frames)));
    rows
}

/// Faults per minute for each MiB in swap, from faults per second; `None` if nothing is there.
#[must_use]
pub fn per_mib_saved(per_second: f64, saved_bytes: Option<f64>) -> Option<f64> {
    let mib = saved_bytes.filter(|&saved| saved >= 1.0)? / f64::from(1 << 20);
    Some(per_second * 60.0 / mib)
}

/// The global variables of each target, in ascending order.
fn variables(
    code: &BTreeMap<TargetId, Arc<Vec<CodeMapping>>>,
    find: &mut dyn FindFunctions,
) -> BTreeMap<TargetId, Vec<(AddrRange, String)>> {
    let mut of = |code: &[CodeMapping]| {
        let mut files = BTreeSet::new();
        // One mapping of a file determines where its variables are.
        let first = |code: &&CodeMapping| files.insert(Arc::clone(&code.path));
        let code = code.iter().filter(first);
        let mut all: Vec<_> = code.flat_map(|code| find.variables(code)).collect();
        all.sort_by_key(|(range, _)| range.start);
        // Files do not overlap, unless a record is wrong.
        let mut end = 0;
        all.retain(|(range, _)| {
            let is_free = range.start >= end;
            end = end.max(range.end);
            is_free
        });
        all
    };
    code.iter().map(|(id, code)| (*id, of(code))).collect()
}

/// The entry of a stack, or of the target's stacks beyond the maximum.
fn entry<T: Default>(stacks: &mut HashMap<Owner, T>, owner: Owner) -> &mut T {
    let is_beyond = stacks.len() >= MAX_STACKS && !stacks.contains_key(&owner);
    let owner = if is_beyond { owner.of_the_rest() } else { owner };
    stacks.entry(owner).or_default()
}

/// Lets the pages of a mapping that were touched from `begin` of the snapshot on represent no more than the rest of its
/// resident memory: the snapshot may have read that memory before they were touched.
fn limit_later(
    sums: &mut [(&Claim, HeatSum)],
    view: &TargetView,
    clip: AddrRange,
    begin: Nanos,
    heat: impl Fn(&RegionView) -> HeatBytes,
) {
    let mapping = |claim: &Claim| {
        let after = view.mappings.partition_point(|m| m.range.end <= claim.range.start);
        view.mappings.get(after).filter(|m| m.range.contains(claim.range.start)).map(|_| after)
    };
    let is_later = |claim: &Claim| claim.at >= begin;
    // Of each mapping: what the earlier pages leave of it, and the sum of the later ones.
    let mut rests: HashMap<Option<usize>, (f64, f64)> = HashMap::new();
    each_piece(view, clip, |piece, mapping| {
        rests.entry(mapping).or_default().0 += heat(piece).resident() as f64;
    });
    for (claim, sum) in &*sums {
        let (rest, later) = rests.entry(mapping(claim)).or_default();
        match is_later(claim) {
            true => *later += sum.resident.bytes,
            false => *rest -= sum.resident.bytes,
        }
    }
    for (claim, sum) in sums.iter_mut().filter(|(claim, _)| is_later(claim)) {
        let (rest, later) = rests.get(&mapping(claim)).copied().unwrap_or_default();
        if rest < later {
            *sum = sum.scaled(rest.max(0.0) / later);
        }
    }
}

/// The memory that a sampled page stands for, by the heat of the regions that it is in. Of a huge page, other code has
/// filled the share `refilled` since.
fn of_page(
    claim: &Claim,
    refilled: f64,
    regions: &[RegionView],
    heat: impl Fn(&RegionView) -> HeatBytes,
) -> HeatSum {
    let bytes = |part: u64, region: &RegionView, heat: &HeatBytes| match claim.range.len() {
        // The sampled page itself was found resident.
        PAGE_SIZE if heat.resident() > 0 => part as f64,
        PAGE_SIZE => 0.0,
        // A part of a huge page may have been freed.
        _ => resident_share(part, region, heat) * (1.0 - refilled),
    };
    joined(claim, regions, bytes, heat)
}

/// The memory that a sampled allocation stands for. It may not be touched yet, or paged out: it is as resident as the
/// regions that it is in.
fn of_allocation(
    claim: &Claim,
    regions: &[RegionView],
    heat: impl Fn(&RegionView) -> HeatBytes,
) -> HeatSum {
    joined(claim, regions, resident_share, heat)
}

/// The resident bytes of a part of a region, if they are spread evenly over it.
fn resident_share(part: u64, region: &RegionView, heat: &HeatBytes) -> f64 {
    part as f64 * heat.resident() as f64 / region.range.len() as f64
}

/// The sum over the parts of a sample in each region. `bytes` computes the resident bytes of a part.
fn joined(
    claim: &Claim,
    regions: &[RegionView],
    bytes: impl Fn(u64, &RegionView, &HeatBytes) -> f64,
    heat: impl Fn(&RegionView) -> HeatBytes,
) -> HeatSum {
    let mut sum = HeatSum::default();
    let first = regions.partition_point(|r| r.range.end <= claim.range.start);
    for region in regions.iter().skip(first) {
        let Some(part) = region.range.intersect(&claim.range) else { break };
        let heat = heat(region);
        sum +=
            HeatSum::sample(bytes(part.len(), region, &heat), &heat, ms(region.age), claim.weight);
    }
    sum
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
