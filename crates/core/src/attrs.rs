//! The attributes of a monitor: intervals, limits of the regions, and sampling.

use std::time::Duration;

use crate::range::PAGE_SIZE;

/// The kind of a monitor. `docs/concepts/how-it-sees.md` describes the first kind, and
/// `docs/concepts/monitor.md` the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MonitorKind {
    /// Clears once and reads many times: the time at which a page becomes young gives its rate.
    #[default]
    Exposure,
    /// Looks at random windows of adaptive regions, by the kernel's rules.
    Regions,
    /// Clears and reads all pages in each interval.
    Pages,
}

impl MonitorKind {
    /// All kinds, in index order.
    pub const ALL: [MonitorKind; 3] =
        [MonitorKind::Exposure, MonitorKind::Regions, MonitorKind::Pages];

    /// The name in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["exposure", "regions", "pages"][self as usize]
    }
}

/// The attributes of a monitor. Every way to create or change them ends in [`Attrs::checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// Time between clearing and reading the accessed bits of a window.
    pub sample: Duration,
    /// Time from one snapshot to the next.
    pub aggr: Duration,
    /// Time between two readings of the mappings.
    pub update: Duration,
    /// Minimum number of regions, if there is enough memory.
    pub min_regions: u32,
    /// Maximum number of regions, and therefore of looks in one sampling interval. [`MonitorKind::Exposure`]
    /// makes up to this number for each 64 GiB of resident memory, and its snapshots report the resulting
    /// limit here.
    pub max_regions: u32,
    /// Regions are cut at multiples of this many bytes (a power of two, at least a page).
    pub min_region_size: u64,
    /// Size of a look in bytes, one per region and sampling interval (a power of two, a page to 2 MiB).
    pub window: u64,
    /// Number of parts that a region is split into each aggregation interval, 2 to 16.
    pub split_parts: u32,
    /// Minimum number of sampling intervals between two clears in a region whose heat is settled. In between,
    /// a cleared window is read repeatedly until it is touched. 1 is the kernel's behaviour; each clear costs
    /// a TLB shootdown. At most the number of sampling intervals in an aggregation interval.
    pub clear_every: u32,
    /// Also split regions in which all looks agreed, as the kernel does.
    pub split_uniform: bool,
    /// Split into one more part if the last split has changed nothing, as the kernel does.
    pub extra_split: bool,
    /// The kind of monitor.
    pub monitor: MonitorKind,
    /// Budget of [`MonitorKind::Exposure`]: its own CPU time plus the CPU time that the targets lose, in
    /// millionths of one CPU. 10,000 are 1 %.
    pub budget_ppm: u32,
    /// Maximum number of TLB shootdowns per second of [`MonitorKind::Exposure`]; 0: limited by the budget
    /// only.
    pub max_clears: u32,
    /// Interval of [`MonitorKind::Exposure`], in which it reads all memory four times. [`Duration::ZERO`]: as
    /// short as the budget allows, and at least 1 s.
    pub interval: Duration,
    /// Report windows instead of regions: neighbours merge only if they do not differ at all.
    pub windows: bool,
}

/// An error in attributes, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttrsError {
    /// the limits of the number of regions
    #[error(
        "{min} regions at least and {max} at most: the first must be 3 or more and not above the second (try 100..1000)"
    )]
    Regions {
        /// asked minimum
        min: u32,
        /// asked maximum
        max: u32,
    },
    /// more regions than one interval allows looks
    #[error(
        "at most {max} regions is above the limit of {limit}: every region costs a look each sampling interval"
    )]
    TooManyRegions {
        /// asked maximum
        max: u32,
        /// supported maximum
        limit: u32,
    },
    /// the sampling and aggregation intervals
    #[error(
        "a sampling interval of {sample:?} is not shorter than the aggregation interval of {aggr:?}: make it at most half of that (try 20ms and 400ms)"
    )]
    SampleAboveAggr {
        /// asked sampling interval
        sample: Duration,
        /// asked aggregation interval
        aggr: Duration,
    },
    /// an interval outside its limits
    #[error("the {name} interval of {value:?} is outside {low:?}..{high:?}")]
    Interval {
        /// name of the interval
        name: &'static str,
        /// asked value
        value: Duration,
        /// shortest
        low: Duration,
        /// longest
        high: Duration,
    },
    /// a size outside its limits
    #[error("{name} of {value} bytes: it must be a power of two from {low} to {high}")]
    Size {
        /// name of the size
        name: &'static str,
        /// asked value
        value: u64,
        /// smallest
        low: u64,
        /// biggest
        high: u64,
    },
    /// the number of parts of a split
    #[error("a region cannot be split into {0} parts: choose 2 to 16")]
    Parts(u32),
    /// the budget
    #[error(
        "a budget of {0} millionths of a CPU: choose 0.01 % to 100 % (100 to 1000000); 1 % is the default"
    )]
    Budget(u32),
    /// a way to look that the monitor cannot use
    #[error(
        "the {0} monitor reads a whole process at once, which this way to look does not support: \
         choose --monitor regions or --look bpf"
    )]
    NoSurvey(&'static str),
    /// The sampling interval is outside of the limits of tuning.
    #[error(
        "a sampling interval of {sample:?} is outside the limits of its tuning, {min:?} to \
         {max:?}: start within them (--sample {min:?})"
    )]
    OutOfGoal {
        /// initial sampling interval
        sample: Duration,
        /// minimum
        min: Duration,
        /// maximum
        max: Duration,
    },
    /// `clear_every`
    #[error("a clear every 0 sampling intervals: choose 1 (the kernel's way) or more")]
    ClearEvery,
}

/// Maximum of [`Attrs::max_regions`]: all input from outside has a limit.
const MAX_REGIONS: u32 = 100_000;
/// A target has a region for each mapped area, up to this multiple of [`Attrs::max_regions`].
const MAX_AREAS_FACTOR: u64 = 8;
/// [`Attrs::max_regions`] applies to each unit of this many resident bytes.
const MAX_REGIONS_UNIT_BYTES: u64 = 64 << 30;
const MIN_INTERVAL: Duration = Duration::from_micros(100);
/// Shortest time between two reads of all memory.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);

impl Default for Attrs {
    /// 20 ms, 400 ms and 1 s; 100 to 1000 regions cut at 64 KiB; windows of 64 KiB; splits into four parts.
    /// `docs/concepts/monitor.md` gives the reasons.
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
    /// Returns the attributes if they are valid.
    ///
    /// # Errors
    /// Names the first invalid attribute and a valid value.
    pub fn checked(self) -> Result<Self, AttrsError> {
        for (name, value) in
            [("sampling", self.sample), ("aggregation", self.aggr), ("update", self.update)]
        {
            if value < MIN_INTERVAL || value > MAX_INTERVAL {
                return Err(AttrsError::Interval {
                    name,
                    value,
                    low: MIN_INTERVAL,
                    high: MAX_INTERVAL,
                });
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
        if !self.interval.is_zero()
            && !(MIN_READ_INTERVAL * 4..=MAX_INTERVAL).contains(&self.interval)
        {
            let (value, low, high) = (self.interval, MIN_READ_INTERVAL * 4, MAX_INTERVAL);
            return Err(AttrsError::Interval { name: "monitor's", value, low, high });
        }
        Ok(self)
    }

    /// Maximum number of regions in a snapshot of a monitor that reads all memory, for this number of
    /// resident bytes: [`Attrs::max_regions`] for each 64 GiB.
    pub(crate) fn most_regions(&self, resident: u64) -> u32 {
        if self.windows {
            return MAX_REGIONS;
        }
        let times =
            u32::try_from(resident.div_ceil(MAX_REGIONS_UNIT_BYTES)).unwrap_or(u32::MAX).max(1);
        self.max_regions.saturating_mul(times).min(MAX_REGIONS)
    }

    /// Maximum number of regions of a target of such a monitor that has `own` of `all` resident pages and so many mapped
    /// areas: its share of [`Attrs::most_regions`]. Each area has a region, up to a multiple of
    /// [`Attrs::max_regions`]: a heap of V8 is an area for each 256 KiB.
    pub(crate) fn regions_of_target(&self, most: u32, own: u64, all: u64, areas: usize) -> usize {
        let share = u64::from(most) * own / all.max(1);
        let bound = u64::from(self.max_regions) * MAX_AREAS_FACTOR;
        let areas = (areas as u64).min(bound).min(MAX_REGIONS.into());
        usize::try_from(share.max(areas)).unwrap_or(usize::MAX)
    }

    /// These attributes with the kernel's (DAMON's) rules: in each sampling interval, the monitor looks at and
    /// clears one page per region. It splits all regions into two, or into three if the last split has shown no
    /// difference.
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

    /// The budget in millionths of one CPU; `None` if the monitor has no budget.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        (self.monitor == MonitorKind::Exposure).then_some(self.budget_ppm)
    }

    /// The unit of an age without a unit: the time between two snapshots.
    #[must_use]
    pub fn snapshot_interval(&self) -> Duration {
        match self.monitor {
            // All memory is read four times per interval, which counts as at least 1 s.
            MonitorKind::Exposure => self.interval.max(Duration::from_secs(1)) / 4,
            MonitorKind::Regions | MonitorKind::Pages => self.aggr,
        }
    }

    /// Number of sampling intervals in an aggregation interval: the kernel's maximum of `nr_accesses`.
    #[must_use]
    pub fn samples(&self) -> u32 {
        let n = self.aggr.as_nanos() / self.sample.as_nanos().max(1);
        u32::try_from(n).unwrap_or(u32::MAX).max(1)
    }

    /// Total time of the sampling intervals in an aggregation interval: [`Attrs::aggr`], rounded down to
    /// whole ones.
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

    /// Converts an age from aggregation intervals of `self` to those of `new`.
    #[must_use]
    pub fn convert_age(&self, age: u32, new: &Attrs) -> u32 {
        let ns = u128::from(age) * self.interval().as_nanos();
        u32::try_from(ns / new.interval().as_nanos().max(1)).unwrap_or(u32::MAX)
    }
}
