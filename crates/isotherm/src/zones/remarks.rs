//! Remarks on unusual figures, as sentences.

use std::collections::BTreeSet;

use isotherm_report::bytes;

use super::change::{Change, KindChange};
use super::state::{State, ZoneState};

/// Watermarks may differ from the formula by this many bytes because it rounds, and by this share because zones
/// may grow and shrink after the watermarks were set.
const SLACK_BYTES: u64 = 8 * 4096;
const SLACK: f64 = 0.02;
/// The order of a huge page on x86-64.
const HUGE_ORDER: usize = 9;
/// At or above this unusable free space index, little of the free memory can become huge pages.
const FRAGMENTED: f64 = 0.8;
/// Below this fairness index, kinds of zones are not used in proportion to their size. Example: of two equally
/// large kinds, one has allocated half as much as the other at 0.9.
const UNFAIR: f64 = 0.9;
/// Smaller amounts of memory, in bytes, do not support a remark.
const MIN_REMARK_BYTES: u64 = 64 << 20;

/// Remarks on a single reading.
pub fn of_state(s: &State) -> Vec<String> {
    let given_up: BTreeSet<u32> =
        s.zones.iter().filter(|z| z.unreclaimable).map(|z| z.node).collect();
    let given_up = given_up.iter().map(|node| {
        format!("kswapd has given up on node {node}, as it could reclaim nothing there")
    });
    s.zones.iter().flat_map(of_zone).chain(given_up).collect()
}

fn of_zone(z: &ZoneState) -> Vec<String> {
    [level(z), mark(z), boost(z), fragments(z)].into_iter().flatten().collect()
}

fn level(z: &ZoneState) -> Option<String> {
    let name = z.name();
    if z.reserve_bytes >= z.managed_bytes {
        let (reserve, size) = (bytes(z.reserve_bytes), bytes(z.managed_bytes));
        return Some(format!(
            "{name} is smaller ({size}) than its reserve ({reserve}): ordinary allocations never \
             come here"
        ));
    }
    if z.free_bytes <= z.min_bytes {
        Some(format!("{name} is below its min watermark: allocating tasks must reclaim first"))
    } else if z.free_bytes <= z.low_bytes {
        Some(format!("{name} is below its low watermark: kswapd must reclaim"))
    } else {
        None
    }
}

fn mark(z: &ZoneState) -> Option<String> {
    let (is, should) = (z.min_bytes.saturating_sub(z.boost_bytes), z.expected?.min_bytes);
    let slack = SLACK_BYTES.max((should as f64 * SLACK) as u64);
    let (name, is_off) = (z.name(), is.abs_diff(should) > slack);
    let (is, should) = (bytes(is), bytes(should));
    is_off.then(|| format!("{name} has a min watermark of {is}, but the formula gives {should}"))
}

fn boost(z: &ZoneState) -> Option<String> {
    let (name, boost) = (z.name(), bytes(z.boost_bytes));
    (z.boost_bytes > 0).then(|| {
        format!(
            "{name} has its watermarks raised by {boost} for a while, since its blocks were mixed"
        )
    })
}

fn fragments(z: &ZoneState) -> Option<String> {
    let unusable = z.unusable.get(HUGE_ORDER).copied()?;
    let stands_out = unusable > FRAGMENTED && z.free_bytes > z.high_bytes;
    let (name, percent) = (z.name(), unusable * 100.0);
    stands_out.then(|| {
        format!("{name} is fragmented: {percent:.0} % of its free memory is in blocks too small for a huge page")
    })
}

/// Remarks on the changes between two readings.
pub fn of_change(c: &Change) -> Vec<String> {
    [favourite(c), stalls(c), kswapd(c), misses(c)].into_iter().flatten().collect()
}

fn favourite(c: &Change) -> Option<String> {
    let over = |k: &KindChange| k.allocated_share - k.size_share;
    let k = c.kinds.iter().max_by(|a, b| over(a).total_cmp(&over(b)))?;
    let stands_out = c.fairness.is_some_and(|f| f < UNFAIR) && c.allocated() >= MIN_REMARK_BYTES;
    let (got, has) = (k.allocated_share * 100.0, k.size_share * 100.0);
    let why = if c.lists_by_node {
        ": since Linux 4.8 the highest zone goes first, as pages age by node"
    } else {
        ": its pages are reclaimed younger or older than those of others"
    };
    stands_out.then(|| {
        format!(
            "{} gave {got:.0} % of what was allocated with {has:.0} % of the memory{why}",
            k.zone
        )
    })
}

fn stalls(c: &Change) -> Option<String> {
    let by: Vec<String> = c.kinds.iter().filter_map(stalled).collect();
    (!by.is_empty()).then(|| format!("allocating tasks had to reclaim first: {}", by.join(", ")))
}

fn stalled(k: &KindChange) -> Option<String> {
    k.stalls.filter(|&n| n > 0).map(|n| format!("{n} times for {}", k.zone))
}

fn kswapd(c: &Change) -> Option<String> {
    let at_work =
        c.nodes.iter().filter_map(|n| Some((n.kswapd_cpu_ms.filter(|&ms| ms > 0)?, n.node)));
    let by: Vec<String> = at_work.map(|(ms, node)| format!("{ms} ms on node {node}")).collect();
    (!by.is_empty()).then(|| format!("kswapd was at work: {}", by.join(", ")))
}

fn misses(c: &Change) -> Option<String> {
    let n: u64 = c.nodes.iter().filter_map(|n| n.numa_miss).sum();
    (n > 0)
        .then(|| format!("{n} allocations went to another node than the one they were meant for"))
}
