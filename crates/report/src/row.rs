//! A region as one line of a list.

use std::time::Duration;

use isotherm_core::{AddrRange, Heat, Mapping, RateSupport, RegionView, TargetView, Thresholds};
use serde::Serialize;

use crate::basis::ms;
use crate::filter::Options;
use crate::names::{label_of, short};
use crate::units::hex;

/// The state of a region, in ascending order of heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RegionState {
    /// no part of it is resident
    Absent,
    /// at least half of the resident memory cannot be observed
    Unknown,
    /// untouched for the cold age or more
    Cold,
    /// neither hot nor cold
    Warm,
    /// touched at the hot rate or more
    Hot,
}

impl RegionState {
    /// The word in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["absent", "unknown", "cold", "warm", "hot"][self as usize]
    }

    fn of(r: &RegionView, t: &Thresholds) -> Self {
        if r.resident_bp == 0 {
            RegionState::Absent
        } else if r.unknown_bp.total() * 2 >= u64::from(r.resident_bp) {
            RegionState::Unknown
        } else {
            match r.heat(t) {
                Heat::Cold => RegionState::Cold,
                Heat::Warm => RegionState::Warm,
                Heat::Hot => RegionState::Hot,
            }
        }
    }
}

/// One region of one snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegionRow {
    /// number of the target
    pub target: u32,
    /// addresses
    #[serde(serialize_with = "hex")]
    pub range: AddrRange,
    /// size of the range
    pub size_bytes: u64,
    /// hot, warm, cold, unknown or absent
    pub state: RegionState,
    /// first-touch rate of its touched pages: see `touched_bp`
    pub rate_hz: f32,
    /// lower end of the rate's 95 % interval
    pub rate_low_hz: f32,
    /// upper end; null in JSON if it is infinite
    pub rate_high_hz: f32,
    /// share of the observable resident pages that are touched at all, in units of 1/10,000
    pub touched_bp: u32,
    /// time for which it has kept its heat; `None` if the record has only a lower bound
    pub age_ms: Option<f64>,
    /// the age, or its lower bound
    pub age_low_ms: f64,
    /// share of the sampled pages that were accessed within a sampling interval, in units of 1/10,000
    pub accesses_bp: u32,
    /// resident bytes; `None` if the record does not contain them
    pub resident_bytes: Option<u64>,
    /// resident bytes whose accesses cannot be observed
    pub unknown_bytes: u64,
    /// basis of the rate; null keys in JSON if the record does not contain it
    #[serde(flatten)]
    pub support: RowSupport,
    /// The mapping that contains most of it; `+ 2 more` if it is in others too.
    pub mapping: String,
}

/// Shares of the observable resident pages whose rate is measured, extended from a sample of their stretch, or
/// old, in units of 1/10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RowSupport {
    /// looked at themselves, recently enough
    pub measured_bp: Option<u32>,
    /// presumed from a sample
    pub extended_bp: Option<u32>,
    /// known only from an earlier time
    pub old_bp: Option<u32>,
}

impl RowSupport {
    fn of(support: Option<RateSupport>) -> Self {
        RowSupport {
            measured_bp: support.map(|s| s.measured_bp),
            extended_bp: support.map(|s| s.extended_bp),
            old_bp: support.map(|s| s.old_bp()),
        }
    }

    /// The largest share and its name, if the record contains it.
    pub(crate) fn most(&self) -> Option<(u32, &'static str)> {
        let shares = [
            (self.old_bp?, "old"),
            (self.extended_bp?, "extended"),
            (self.measured_bp?, "measured"),
        ];
        shares.into_iter().max_by_key(|(bp, _)| *bp)
    }
}

impl RegionRow {
    pub(crate) fn new(view: &TargetView, r: &RegionView, options: &Options) -> Self {
        let (t, missing) = (&options.thresholds, options.missing);
        let bytes = r.bytes(t);
        RegionRow {
            target: view.id.0,
            range: r.range,
            size_bytes: r.range.len(),
            state: RegionState::of(r, t),
            rate_hz: r.rate.hz,
            rate_low_hz: r.rate.low,
            rate_high_hz: r.rate.high,
            touched_bp: r.touched_bp,
            age_ms: missing.age(ms(r.age)),
            age_low_ms: ms(r.age),
            accesses_bp: r.accesses_bp,
            resident_bytes: missing.resident(bytes.resident()),
            unknown_bytes: bytes.unknown,
            support: RowSupport::of(r.support),
            mapping: name(view, &r.range),
        }
    }

    /// Whether accesses to any part of it can be observed.
    pub(crate) fn is_observable(&self) -> bool {
        self.resident_bytes.unwrap_or(self.size_bytes) > self.unknown_bytes
    }

    /// The age, or its lower bound.
    pub(crate) fn age(&self) -> Duration {
        Duration::try_from_secs_f64(self.age_low_ms / 1e3).unwrap_or_default()
    }
}

/// The mappings that a range overlaps.
pub(crate) fn mappings<'a>(
    view: &'a TargetView,
    range: &'a AddrRange,
) -> impl Iterator<Item = &'a Mapping> {
    let first = view.mappings.partition_point(|m| m.range.end <= range.start);
    view.mappings.iter().skip(first).take_while(|m| m.range.start < range.end)
}

fn name(view: &TargetView, range: &AddrRange) -> String {
    let held = |m: &&Mapping| m.range.intersect(range).map_or(0, |r| r.len());
    let Some(most) = mappings(view, range).max_by_key(held) else { return String::new() };
    let name = short(label_of(most));
    match mappings(view, range).filter(|m| label_of(m) != label_of(most)).count() {
        0 => name.to_owned(),
        n => format!("{name} + {n} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{absent, mapping, region, target, unknown};
    use isotherm_core::Unknown;

    #[test]
    fn a_region_has_the_name_of_its_largest_mapping() {
        let maps = vec![
            mapping(0x1000, 0x2000, "/lib/a.so"),
            mapping(0x2000, 0x5000, ""),
            mapping(0x5000, 0x6000, "/lib/a.so"),
        ];
        let view = target(0, maps, vec![]);
        for (start, end, text) in [
            (0x1000, 0x2000, "a.so"),
            (0x1000, 0x4000, "anonymous + 1 more"),
            (0x1000, 0x6000, "anonymous + 2 more"),
            (0x8000, 0x9000, ""),
        ] {
            assert_eq!(name(&view, &AddrRange::new(start, end)), text);
        }
    }

    #[test]
    fn states_are_distinguished() {
        let t = Thresholds::default();
        let lately = RegionView { age: Duration::from_secs(1), ..region(0, 0x1000, 0.0) };
        let states = [
            absent(0, 0x1000),
            unknown(0, 0x1000, Unknown::Shared),
            region(0, 0x1000, 0.0),
            lately,
            region(0, 0x1000, 20.0),
        ]
        .map(|r| RegionState::of(&r, &t));
        assert!(states.is_sorted_by(|a, b| a < b), "{states:?}");
        assert_eq!(states.map(RegionState::name), ["absent", "unknown", "cold", "warm", "hot"]);
    }
}
