//! Rules for all snapshots, mappings and attributions in a record. Both the writer and the reader check them,
//! so that invalid data neither enter nor leave a record.

use isotherm_core::{
    AddrRange, Attribution, CacheTrace, CodeMapping, Fault, Mapping, Quality, RateSupport,
    RegionView, Snapshot, TargetView, WHOLE_BP,
};

use crate::bad::{InvalidField, ensure};

/// Maximal length of a program's name in bytes: the kernel's 15, each of which may become a 3-byte replacement
/// character, and some reserve.
const MAX_COMM: usize = 64;
/// Maximal number of frames of a stack. The kernel's own limit is 127 unless the administrator raises it.
const MAX_FRAMES: usize = 1024;
/// Maximal length of a file's path in bytes: the kernel's, and its ` (deleted)`.
const MAX_PATH: usize = 4096 + 16;
/// Maximal number of hexadecimal digits of a build id. Linkers write 16 to 64.
const MAX_BUILD_ID: usize = 128;
/// Maximal length of a cgroup's path in bytes, as in the kernel.
const MAX_CGROUP: usize = 4096;

/// Checks that `s` may be in a record.
pub(crate) fn snapshot(s: &Snapshot) -> Result<(), InvalidField> {
    ensure(s.start <= s.end, "a snapshot ends before it starts")?;
    ensure(
        s.targets.is_sorted_by(|a, b| a.id < b.id),
        "the targets of a snapshot are not in ascending order",
    )?;
    s.quality.as_ref().map_or(Ok(()), quality)?;
    s.targets.iter().try_for_each(target)
}

/// Checks that `mappings` may be in a record.
pub(crate) fn mappings(mappings: &[Mapping]) -> Result<(), InvalidField> {
    disjoint(mappings.iter().map(|m| m.range), "mappings overlap or are out of order")
}

/// Checks that `a` may be in a record.
pub(crate) fn attribution(a: &Attribution) -> Result<(), InvalidField> {
    ensure(a.comm.len() <= MAX_COMM, "the name of a program is longer than any is")?;
    ensure(a.cgroup.len() <= MAX_CGROUP, "the path of a control group is longer than any is")
}

/// Checks that `f` may be in a record.
pub(crate) fn fault(f: &Fault) -> Result<(), InvalidField> {
    ensure(f.thread.len() <= MAX_COMM, "the name of a thread is longer than any is")?;
    ensure(f.frames.len() <= MAX_FRAMES, "a stack has more frames than the kernel reports")?;
    ensure(f.range.start <= f.range.end, "the memory of a fault ends before it starts")
}

/// Checks that the code of a target may be in a record.
pub(crate) fn code(code: &[CodeMapping]) -> Result<(), InvalidField> {
    disjoint(code.iter().map(|c| c.range), "the code of a target overlaps or is out of order")?;
    let named = |c: &CodeMapping| c.path.len() <= MAX_PATH;
    ensure(code.iter().all(named), "the path of a file is longer than any is")?;
    let is_id = |id: &str| id.len() <= MAX_BUILD_ID && id.bytes().all(|b| b.is_ascii_hexdigit());
    ensure(code.iter().all(|c| is_id(&c.build_id)), "a build id has no hexadecimal digits")
}

/// Checks that `t` may be in a record.
pub(crate) fn trace(t: &CacheTrace) -> Result<(), InvalidField> {
    ensure(t.since <= t.until, "a trace ends before it begins")?;
    ensure(
        t.sampling <= CacheTrace::MAX_SAMPLING,
        "the sampling of a trace is coarser than any is",
    )?;
    let is_in =
        t.accesses.iter().all(|a| (t.sampling..=CacheTrace::MAX_SAMPLING).contains(&a.rarity));
    ensure(is_in, "a trace has an access to a page that is not in its sample")
}

fn quality(q: &Quality) -> Result<(), InvalidField> {
    ensure(q.coverage_bp <= WHOLE_BP, "a snapshot covers more than there is")?;
    ensure(q.error_log2.is_none_or(|e| e >= 0.0), "an error is negative or no number")
}

fn target(t: &TargetView) -> Result<(), InvalidField> {
    disjoint(t.regions.iter().map(|r| r.range), "regions overlap or are out of order")?;
    t.regions.iter().try_for_each(region)
}

fn region(r: &RegionView) -> Result<(), InvalidField> {
    let shares = r.unknown_bp.0.iter().chain([&r.accesses_bp, &r.touched_bp, &r.resident_bp]);
    ensure(shares.into_iter().all(|&bp| bp <= WHOLE_BP), "a share of a region is above one")?;
    let known = |s: RateSupport| s.measured_bp.saturating_add(s.extended_bp);
    let support = r.support.is_none_or(|s| known(s) <= WHOLE_BP);
    ensure(support, "more of a region is measured and extended than there is")?;
    let rates = [r.rate.hz, r.rate.low, r.rate.high];
    ensure(rates.iter().all(|&hz| hz >= 0.0), "a rate is negative or no number")
}

fn disjoint(
    ranges: impl Iterator<Item = AddrRange>,
    words: &'static str,
) -> Result<(), InvalidField> {
    let mut free = 0;
    for r in ranges {
        ensure(free <= r.start && r.start <= r.end, words)?;
        free = r.end;
    }
    Ok(())
}
