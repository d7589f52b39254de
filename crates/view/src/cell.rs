//! The state of some memory over some time, in a byte or in a word with its address.

use isotherm_core::{PAGE_SIZE, RateSupport, RegionView};

/// Rates at the ends of the scale of levels. The scale of colours, from 0.1 to 1000 Hz, lies within it.
const LOWEST_LEVEL_HZ: f32 = 0.05;
const HIGHEST_LEVEL_HZ: f32 = 5000.0;
/// The highest level of a rate. Adjacent levels differ by 1.1 %.
const MAX_LEVEL: u16 = 1023;
/// The highest level of a rate in a byte. Adjacent levels differ by 15 %.
const MAX_BYTE_LEVEL: u16 = 83;

/// The state of the memory of a cell, or the basis of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// no region covers it
    Unmapped = 0,
    /// none is resident
    Absent = 1,
    /// less than a quarter is resident, but some is, or more was for a part of the time
    PartlyResident = 2,
    /// at least half of the resident memory cannot be observed
    Unknown = 3,
    /// the rate rests on looks at the memory itself, or its basis is not recorded
    Measured = 4,
    /// the rate is presumed from a sample
    Extended = 5,
    /// the rate is known only from an earlier time
    Old = 6,
}

impl Class {
    fn of(bits: u64) -> Self {
        [
            Class::Unmapped,
            Class::Absent,
            Class::PartlyResident,
            Class::Unknown,
            Class::Measured,
            Class::Extended,
            Class::Old,
        ][(bits as usize).min(6)]
    }
}

/// The state of memory: its class, and the level of its rate; 0 if it was not touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellState {
    class: Class,
    level: u16,
}

impl CellState {
    /// No region covers the memory.
    pub const UNMAPPED: CellState = CellState { class: Class::Unmapped, level: 0 };

    /// The state of a region, as the heat maps of reports show it.
    #[must_use]
    pub fn of(r: &RegionView) -> Self {
        let unknown = r.unknown_bp.total();
        if r.resident_bp < isotherm_report::MIN_RESIDENT_BP {
            let class = if r.resident_bp > 0 { Class::PartlyResident } else { Class::Absent };
            return CellState { class, level: 0 };
        }
        if unknown * 2 >= u64::from(r.resident_bp) {
            return CellState { class: Class::Unknown, level: 0 };
        }
        // The mean over all its pages, so that a few hot pages do not make the whole region hot.
        let share = r.touched_bp.min(10_000) as f32 / 10_000.0;
        CellState {
            class: r.support.map_or(Class::Measured, class),
            level: level(r.rate.hz * share),
        }
    }

    /// The state as a byte: 0 unmapped, 1 absent, 2 unknown, 3 damaged or without data; then 84 levels of rates that
    /// were measured, extended and old.
    #[must_use]
    pub fn byte(self) -> u8 {
        let base = match self.class {
            Class::Unmapped => return 0,
            Class::Absent | Class::PartlyResident => return 1,
            Class::Unknown => return 2,
            Class::Measured => 4,
            Class::Extended => 88,
            Class::Old => 172,
        };
        // The product is larger than 16 bits.
        let steps = u32::from(self.level.saturating_sub(1)) * u32::from(MAX_BYTE_LEVEL - 1);
        let level = u32::from(self.level.min(1)) + steps / u32::from(MAX_LEVEL - 1);
        base + level.min(u32::from(MAX_BYTE_LEVEL)) as u8
    }

    /// How it ranks in a cell with several regions: heat wins, then what is unknown.
    #[must_use]
    pub fn rank(self) -> u16 {
        match (self.class, self.level) {
            (Class::Unmapped, _) => 0,
            (Class::Absent, _) => 1,
            (Class::PartlyResident, _) => 2,
            (Class::Unknown, _) => 4,
            (_, 0) => 3,
            (_, level) => 4 + level,
        }
    }

    /// Whether some of the memory was resident at some time.
    #[must_use]
    pub fn was_resident(self) -> bool {
        self.class >= Class::PartlyResident
    }
}

/// The rate of each level in a byte, from level 0 on: 84 of them.
#[must_use]
pub fn byte_rates() -> Vec<f32> {
    let rates = Rates::default();
    let step = u32::from(MAX_LEVEL - 1);
    let level = |l: u16| match u32::from(l).checked_sub(1) {
        None => 0,
        // The lowest level of those that have this byte.
        Some(l) => 1 + (l * step).div_ceil(u32::from(MAX_BYTE_LEVEL - 1)) as u16,
    };
    (0..=MAX_BYTE_LEVEL).map(|l| rates.hz(level(l))).collect()
}

/// The class of a rate by its basis.
fn class(s: RateSupport) -> Class {
    if s.old_bp() >= 5_000 {
        Class::Old
    } else if s.old_bp() + s.extended_bp >= 5_000 {
        Class::Extended
    } else {
        Class::Measured
    }
}

fn level(hz: f32) -> u16 {
    if hz <= 0.0 {
        return 0;
    }
    let place = (hz / LOWEST_LEVEL_HZ).ln() / (HIGHEST_LEVEL_HZ / LOWEST_LEVEL_HZ).ln();
    1 + (place.clamp(0.0, 1.0) * f32::from(MAX_LEVEL - 1)).round() as u16
}

/// The rates of all levels, because they are looked up for every run.
#[derive(Debug)]
pub struct Rates(Box<[f32; MAX_LEVEL as usize + 1]>);

impl Default for Rates {
    fn default() -> Self {
        let hz = |i: usize| match i {
            0 => 0.0,
            i => {
                LOWEST_LEVEL_HZ
                    * (HIGHEST_LEVEL_HZ / LOWEST_LEVEL_HZ)
                        .powf((i - 1) as f32 / f32::from(MAX_LEVEL - 1))
            }
        };
        Rates(Box::new(std::array::from_fn(hz)))
    }
}

impl Rates {
    fn hz(&self, level: u16) -> f32 {
        self.0[usize::from(level.min(MAX_LEVEL))]
    }
}

/// A stretch of memory: its first page and its state. It ends where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRun(u64);

impl StateRun {
    /// A run from the address `start` on.
    #[must_use]
    pub fn new(start: u64, state: CellState) -> Self {
        StateRun((start / PAGE_SIZE) << 13 | u64::from(state.level) << 3 | state.class as u64)
    }

    /// The first address.
    #[must_use]
    pub fn start(self) -> u64 {
        (self.0 >> 13) * PAGE_SIZE
    }

    /// The state.
    #[must_use]
    pub fn state(self) -> CellState {
        CellState { class: Class::of(self.0 & 7), level: (self.0 >> 3 & 1023) as u16 }
    }
}

/// Seconds in each state, and touches: rate times seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CellSum {
    absent: f32,
    /// some of the absent memory was resident
    was_resident: bool,
    unknown: f32,
    seen: f32,
    touches: f32,
    extended: f32,
    old: f32,
}

impl CellSum {
    /// Adds `seconds` in a state.
    pub fn add(&mut self, rates: &Rates, state: CellState, seconds: f32) {
        match state.class {
            Class::Unmapped => return,
            Class::Absent | Class::PartlyResident => {
                self.absent += seconds;
                self.was_resident |= state.was_resident();
                return;
            }
            Class::Unknown => {
                self.unknown += seconds;
                return;
            }
            Class::Measured => {}
            Class::Extended => self.extended += seconds,
            Class::Old => self.old += seconds,
        }
        self.seen += seconds;
        self.touches += rates.hz(state.level) * seconds;
    }

    /// The state that lasted longest, with its mean rate.
    #[must_use]
    pub fn state(&self) -> CellState {
        let class = if self.seen > 0.0 && self.seen >= self.absent.max(self.unknown) {
            let half = self.seen / 2.0;
            match self {
                s if s.old >= half => Class::Old,
                s if s.old + s.extended >= half => Class::Extended,
                _ => Class::Measured,
            }
        } else if self.unknown > 0.0 && self.unknown >= self.absent {
            Class::Unknown
        } else if self.absent > 0.0 {
            let was_resident = self.was_resident || self.seen + self.unknown > 0.0;
            if was_resident { Class::PartlyResident } else { Class::Absent }
        } else {
            Class::Unmapped
        };
        let level = if class >= Class::Measured { level(self.touches / self.seen) } else { 0 };
        CellState { class, level }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(hz: f32) -> CellState {
        CellState { class: Class::Measured, level: level(hz) }
    }

    proptest! {
        #[test]
        fn a_run_keeps_its_page_and_state(page in 0u64..1 << 51, class in 0u64..7, level in 0u16..=MAX_LEVEL) {
            let state = CellState { class: Class::of(class), level };
            let run = StateRun::new(page * PAGE_SIZE, state);
            prop_assert_eq!((run.start(), run.state()), (page * PAGE_SIZE, state));
        }

        #[test]
        fn a_level_is_within_a_percent_of_its_rate(hz in 0.06f32..4900.0) {
            let found = Rates::default().hz(level(hz));
            prop_assert!((found / hz - 1.0).abs() < 0.01, "{} for {}", found, hz);
        }

        #[test]
        fn hotter_is_never_a_lower_byte(a in 0.0f32..1e4, b in 0.0f32..1e4) {
            prop_assert!((a <= b) == (rate(a).byte() <= rate(b).byte()) || rate(a).byte() == rate(b).byte());
        }
    }

    #[test]
    fn bytes_name_every_class() {
        let of = |class, level| CellState { class, level }.byte();
        assert_eq!(
            [Class::Unmapped, Class::Absent, Class::PartlyResident, Class::Unknown]
                .map(|c| of(c, 0)),
            [0, 1, 1, 2]
        );
        assert_eq!([of(Class::Measured, 0), of(Class::Measured, MAX_LEVEL)], [4, 87]);
        assert_eq!([of(Class::Extended, 0), of(Class::Extended, MAX_LEVEL)], [88, 171]);
        assert_eq!([of(Class::Old, 0), of(Class::Old, MAX_LEVEL)], [172, 255]);
    }

    #[test]
    fn what_lasted_longest_wins_and_rates_are_means() {
        let rates = Rates::default();
        let mut sum = CellSum::default();
        sum.add(&rates, rate(10.0), 1.0);
        sum.add(&rates, rate(0.0), 3.0);
        let hz = rates.hz(sum.state().level);
        assert!((hz / 2.5 - 1.0).abs() < 0.02, "{hz}");
        sum.add(&rates, CellState { class: Class::Unknown, level: 0 }, 5.0);
        assert_eq!(sum.state().class, Class::Unknown);
        assert_eq!(CellSum::default().state(), CellState::UNMAPPED);
    }

    #[test]
    fn memory_that_is_absent_for_longer_was_still_resident() {
        let rates = Rates::default();
        let absent = CellState { class: Class::Absent, level: 0 };
        let mut sum = CellSum::default();
        sum.add(&rates, absent, 10.0);
        assert_eq!(sum.state(), absent);
        sum.add(&rates, rate(10.0), 1.0);
        assert_eq!(sum.state().class, Class::PartlyResident);
        // So it stays, when columns are joined again.
        let mut sums = CellSum::default();
        sums.add(&rates, sum.state(), 11.0);
        sums.add(&rates, absent, 100.0);
        assert_eq!(sums.state().class, Class::PartlyResident);
    }
}
