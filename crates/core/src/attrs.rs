//! What a monitor is told to do: intervals, bounds of the regions, and how it samples.

use std::time::Duration;

use crate::range::PAGE_SIZE;

/// How a monitor finds out what is hot. `docs/concepts/how-it-sees.md` tells of the first, `docs/concepts/monitor.md` of
/// the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MonitorKind {
    /// Clears once and reads many times: when a page turns young tells its rate.
    #[default]
    Exposure,
    /// Looks at random windows of adaptive regions, by the kernel's rules.
    Regions,
    /// Clears and reads all pages in each interval.
    Pages,
}

impl MonitorKind {
    /// All, in the order of their index.
    pub const ALL: [MonitorKind; 3] =
        [MonitorKind::Exposure, MonitorKind::Regions, MonitorKind::Pages];

    /// The word used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["exposure", "regions", "pages"][self as usize]
    }
}

/// The attributes of a monitor. Every way to make or change one ends in [`Attrs::checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// Time between clearing and reading the accessed bits of a window.
    pub sample: Duration,
    /// Time from one snapshot to the next.
    pub aggr: Duration,
    /// Time between two readings of the mappings.
    pub update: Duration,
    /// Regions there are at least, as long as the memory suffices.
    pub min_regions: u32,
    /// Regions, and so looks in one sampling interval, there are at most. [`MonitorKind::Exposure`] makes so many for
    /// each 64 GiB of resident memory, and its snapshots have that number here.
    pub max_regions: u32,
    /// Regions are cut at multiples of this many bytes (a power of two, at least a page).
    pub min_region_size: u64,
    /// Bytes looked at in a region each sampling interval (a power of two, a page to 2 MiB).
    pub window: u64,
    /// Parts that a region is split into each aggregation interval, 2 to 16.
    pub split_parts: u32,
    /// Sampling intervals from one clear to the next at least, in a region whose heat is clear. In
    /// between, a window that was cleared is read again and again until it is touched. 1 is the
    /// kernel's way; each clear costs a TLB shootdown. At most as many as are in an aggregation
    /// interval.
    pub clear_every: u32,
    /// Split regions in which all looks agreed as well, as the kernel does.
    pub split_uniform: bool,
    /// One part more when the last split has changed nothing, as the kernel does.
    pub extra_split: bool,
    /// How to find out what is hot.
    pub monitor: MonitorKind,
    /// What [`MonitorKind::Exposure`] may cost: own CPU time and what targets lose, in millionths of
    /// one CPU. 10,000 are 1 %.
    pub budget_ppm: u32,
    /// TLB shootdowns that it may cause in a second; 0: as many as the budget allows.
    pub max_clears: u32,
    /// Its interval: all memory is read four times in it. [`Duration::ZERO`]: as short as the budget
    /// allows, and 1 s at least.
    pub interval: Duration,
    /// Tell of windows instead of regions: neighbours merge only if nothing tells them apart.
    pub windows: bool,
}

/// What is wrong with attributes, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttrsError {
    /// regions
    #[error(
        "{min} regions at least and {max} at most: the first must be 3 or more and not above the second (try 100..1000)"
    )]
    Regions {
        /// asked minimum
        min: u32,
        /// asked maximum
        max: u32,
    },
    /// more regions than can be looked at in an interval
    #[error(
        "at most {max} regions is above the limit of {limit}: every region costs a look each sampling interval"
    )]
    TooManyRegions {
        /// asked maximum
        max: u32,
        /// what is possible
        limit: u32,
    },
    /// intervals
    #[error(
        "a sampling interval of {sample:?} is not shorter than the aggregation interval of {aggr:?}: make it at most half of that (try 20ms and 400ms)"
    )]
    SampleAboveAggr {
        /// asked sampling interval
        sample: Duration,
        /// asked aggregation interval
        aggr: Duration,
    },
    /// a zero interval, or one that makes no sense
    #[error("the {name} interval of {value:?} is outside {low:?}..{high:?}")]
    Interval {
        /// which
        name: &'static str,
        /// asked value
        value: Duration,
        /// shortest
        low: Duration,
        /// longest
        high: Duration,
    },
    /// sizes
    #[error("{name} of {value} bytes: it must be a power of two from {low} to {high}")]
    Size {
        /// which
        name: &'static str,
        /// asked value
        value: u64,
        /// smallest
        low: u64,
        /// biggest
        high: u64,
    },
    /// parts of a split
    #[error("a region cannot be split into {0} parts: choose 2 to 16")]
    Parts(u32),
    /// budget
    #[error(
        "a budget of {0} millionths of a CPU: choose 0.01 % to 100 % (100 to 1000000); 1 % is the default"
    )]
    Budget(u32),
    /// a way to look that does not suit the monitor
    #[error(
        "the {0} monitor reads all of a process at once, which this way to look cannot: choose the regions monitor, or to look by bpf"
    )]
    NoSurvey(&'static str),
    /// clears
    #[error("a clear every 0 sampling intervals: choose 1 (the kernel's way) or more")]
    ClearEvery,
}

/// More regions than this are refused: a limit on everything that comes from outside.
const MAX_REGIONS: u32 = 100_000;
/// Of so many bytes there are at most as many regions as are asked for.
const REGIONS_OF: u64 = 64 << 30;
const SHORTEST: Duration = Duration::from_micros(100);
/// From one reading of all memory to the next.
const SHORTEST_READ: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Default for Attrs {
    /// 20 ms, 400 ms and 1 s; 100 to 1000 regions cut at 64 KiB; windows of 64 KiB; four parts a
    /// split. `docs/concepts/monitor.md` says why.
    fn default() -> Self {
        Attrs {
            sample: Duration::from_millis(20),
            aggr: Duration::from_millis(400),
            update: Duration::from_secs(1),
            min_regions: 100,
            max_regions: 1000,
            min_region_size: 16 * PAGE_SIZE,
            window: 16 * PAGE_SIZE,
            split_parts: 4,
            clear_every: 8,
            split_uniform: false,
            extra_split: false,
            monitor: MonitorKind::default(),
            budget_ppm: 10_000,
            max_clears: 0,
            interval: Duration::ZERO,
            windows: false,
        }
    }
}

impl Attrs {
    /// The same attributes if they make sense.
    ///
    /// # Errors
    /// Says which one does not, and what would.
    pub fn checked(self) -> Result<Self, AttrsError> {
        for (name, value) in
            [("sampling", self.sample), ("aggregation", self.aggr), ("update", self.update)]
        {
            if value < SHORTEST || value > LONGEST {
                return Err(AttrsError::Interval { name, value, low: SHORTEST, high: LONGEST });
            }
        }
        if self.sample * 2 > self.aggr {
            return Err(AttrsError::SampleAboveAggr { sample: self.sample, aggr: self.aggr });
        }
        let (min, max) = (self.min_regions, self.max_regions);
        if min < 3 || min > max {
            return Err(AttrsError::Regions { min, max });
        }
        if max > MAX_REGIONS {
            return Err(AttrsError::TooManyRegions { max, limit: MAX_REGIONS });
        }
        for (name, value, high) in [
            ("a minimum region size", self.min_region_size, 1 << 30),
            ("a window", self.window, 2 << 20),
        ] {
            if !value.is_power_of_two() || value < PAGE_SIZE || value > high {
                return Err(AttrsError::Size { name, value, low: PAGE_SIZE, high });
            }
        }
        if !(2..=16).contains(&self.split_parts) {
            return Err(AttrsError::Parts(self.split_parts));
        }
        if self.clear_every == 0 {
            return Err(AttrsError::ClearEvery);
        }
        if !(100..=1_000_000).contains(&self.budget_ppm) {
            return Err(AttrsError::Budget(self.budget_ppm));
        }
        if !self.interval.is_zero() && !(SHORTEST_READ * 4..=LONGEST).contains(&self.interval) {
            let (value, low, high) = (self.interval, SHORTEST_READ * 4, LONGEST);
            return Err(AttrsError::Interval { name: "monitor's", value, low, high });
        }
        Ok(self)
    }

    /// Regions in a snapshot of a monitor that reads everything, at most, if so many bytes are resident: as many as
    /// are asked for of each 64 GiB.
    pub(crate) fn most_regions(&self, resident: u64) -> u32 {
        if self.windows {
            return MAX_REGIONS;
        }
        let times = u32::try_from(resident.div_ceil(REGIONS_OF)).unwrap_or(u32::MAX).max(1);
        self.max_regions.saturating_mul(times).min(MAX_REGIONS)
    }

    /// The same by the kernel's rules (DAMON's): one page of a region is looked at and cleared in each sampling
    /// interval, and all regions are split, into two, or three if that has shown nothing.
    #[must_use]
    pub fn by_the_kernels_rules(self) -> Self {
        Attrs {
            min_region_size: PAGE_SIZE,
            window: PAGE_SIZE,
            split_parts: 2,
            clear_every: 1,
            split_uniform: true,
            extra_split: true,
            monitor: MonitorKind::Regions,
            ..self
        }
    }

    /// What watching may cost, in millionths of one CPU; `None` where the monitor keeps to no budget.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        (self.monitor == MonitorKind::Exposure).then_some(self.budget_ppm)
    }

    /// What an age without a unit is counted in: from one snapshot to the next.
    #[must_use]
    pub fn snapshot_interval(&self) -> Duration {
        match self.monitor {
            // All is read four times in its interval, which counts as 1 s at least.
            MonitorKind::Exposure => self.interval.max(Duration::from_secs(1)) / 4,
            MonitorKind::Regions | MonitorKind::Pages => self.aggr,
        }
    }

    /// Sampling intervals in an aggregation interval: the kernel's maximum of `nr_accesses`.
    #[must_use]
    pub fn samples(&self) -> u32 {
        let n = self.aggr.as_nanos() / self.sample.as_nanos().max(1);
        u32::try_from(n).unwrap_or(u32::MAX).max(1)
    }

    /// Time that the samples of an aggregation interval take: [`Attrs::aggr`], cut to whole ones.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.sample.saturating_mul(self.samples())
    }

    /// The kernel's `nr_accesses` (0 to [`Attrs::samples`]) for a share of 10,000.
    ///
    /// As `damon_accesses_bp_to_nr_accesses`: at 20 samples, 2500 of 10,000 is 5.
    #[must_use]
    pub fn nr_accesses(&self, accesses_bp: u32) -> u32 {
        let nr = u64::from(accesses_bp) * u64::from(self.samples()) / 10_000;
        u32::try_from(nr).unwrap_or(u32::MAX)
    }

    /// The share of 10,000 for the kernel's `nr_accesses`; see [`Attrs::nr_accesses`].
    #[must_use]
    pub fn accesses_bp(&self, nr_accesses: u32) -> u32 {
        let bp = u64::from(nr_accesses) * 10_000 / u64::from(self.samples());
        u32::try_from(bp).unwrap_or(u32::MAX)
    }

    /// An age in aggregation intervals of `self`, in those of `new`.
    #[must_use]
    pub fn convert_age(&self, age: u32, new: &Attrs) -> u32 {
        let ns = u128::from(age) * self.interval().as_nanos();
        u32::try_from(ns / new.interval().as_nanos().max(1)).unwrap_or(u32::MAX)
    }
}
