//! Regions, monitors and snapshots: the policy of isotherm, without I/O, clocks or threads.
//!
//! An *operations set* implements [`Space`] (which memory is mapped), [`Look`] (which pages were accessed)
//! and [`Act`] (actions on memory). A [`Monitor`] over an operations set is a [`Source`] of [`Snapshot`]s,
//! one per aggregation interval. A snapshot is immutable, and it is the only input of recorders, reports and
//! schemes.

#![forbid(unsafe_code)]

mod act;
mod age_curve;
mod ages;
mod attribution;
mod attrs;
mod bins;
mod borders;
mod cache_curve;
mod cache_scans;
mod cache_trace;
mod call;
mod counted;
mod drive;
mod estimator;
mod exposure;
mod factory;
mod fault;
mod heat;
mod intervals_goal;
mod missing;
mod monitor;
mod ops;
mod page_mask;
mod page_scan;
mod range;
mod region;
mod region_view;
mod roster;
mod sampler;
pub mod scheme;
mod snapshot;
mod source;
mod support;
mod survey;
mod time;
mod tuning;
mod two_lists;
pub mod units;
mod unknown;
mod unobservable;

pub use act::{
    Act, Action, Applied, Budget, Cause, Destination, Destinations, Failure, PageFilter, PageKind,
    Support, Work, WorkObserver,
};
pub use age_curve::{
    AgeCurve, IdleMemory, KNOWN_SHARE, MIN_AGE_S, MIN_RECORD_S, NO_AGES, idle_times,
    idle_times_from, kept_together, together, too_much_unknown,
};
pub use ages::{AGE_BINS, AgeHistogram, HugeAges, KeptAges, KeptBlock, PageAges};
pub use attribution::{Attribution, groups_above};
pub use attrs::{Attrs, AttrsError, MonitorKind};
pub use cache_curve::{CacheCurve, CachePoint, NoCurve};
pub use cache_scans::CacheScan;
pub use cache_trace::{CacheAccess, CacheAccessKind, CacheTrace};
pub use call::{Cost, OpsError, TargetId, proportional_parts};
pub use counted::{CountedTarget, CountedWindow};
pub use drive::{Driver, drive};
pub use estimator::{Rate, rate};
pub use exposure::Exposure;
pub use factory::watch;
pub use fault::{CodeMapping, Fault, FaultKind, SampleBudget, sample_hash, sample_level};
pub use heat::{Heat, HeatBytes, Thresholds};
pub use intervals_goal::{IntervalsGoal, IntervalsTuner};
pub use missing::Missing;
pub use monitor::Monitor;
pub use ops::{Activity, Ask, Liveness, Look, Mapping, MappingKind, Seen, Space, is_shared_memory};
pub use page_mask::PageMask;
pub use page_scan::PageScan;
pub use range::{AddrRange, PAGE_SIZE, align_down, join_touching};
pub use region::{Region, Tally};
pub use sampler::{RegionSampler, Target};
pub use snapshot::{DirtyBytes, Quality, RegionView, Restraint, Snapshot, TargetView};
pub use source::{EndReason, Source, Step};
pub use support::{RateSupport, SupportBytes, WHOLE_BP};
pub use survey::{BLOCK_SAMPLES, BLOCK_SIZE, Block, Cleared, Pressure, Survey, sample_pages};
pub use time::Nanos;
pub use tuning::{EARLY_DIVISOR, MAX_REGION_TURN, NO_HEAT_HZ};
pub use unknown::{Unknown, UnknownPages};

/// The rules for merging, splitting and fitting regions, for authors of other monitors.
pub mod rules {
    pub use crate::region::{
        SplitPlan, age_regions, apply_min_nr_regions, evenly_split, merge_regions, merge_two,
        set_regions, size_limit, split_regions,
    };
}
