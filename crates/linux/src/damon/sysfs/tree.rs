//! The used part of the tree below `/sys/kernel/mm/damon/admin/kdamonds`, from Linux 6.12 to 7.2. A file that is newer
//! than 6.12 is an `Option`, and `since` names its first kernel. Each file is declared once.

use super::entry::{Element, Entry, NumberedDirs, Place, SysfsError, Unwritable};
use super::words::{
    Action, Available, Command, FilterType, GoalMetric, Operations, WatermarkMetric,
};

/// Declares directories as structs: a field is a file or a directory with the name of the field, or with the
/// given name.
macro_rules! directories {
    ($(
        $(#[$doc:meta])*
        $dir:ident $(of $count:literal)? {
            $($(#[$about:meta])* $field:ident: $type:ty $(= $name:literal)? $(, since $since:literal)?;)*
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $dir { $($(#[$about])* pub $field: $type,)* }

        impl Entry for $dir {
            fn read(place: &Place) -> Result<Self, SysfsError> {
                Ok($dir { $(
                    $field: Entry::read(&directories!(@place place, $field, $($name)?, $($since)?))?,
                )* })
            }

            fn write(&self, place: &Place) -> Result<(), SysfsError> {
                $(self.$field.write(&directories!(@place place, $field, $($name)?, $($since)?))?;)*
                Ok(())
            }
        }

        $(impl Element for $dir {
            const COUNT: &'static str = $count;
        })?
    )* };
    (@place $place:ident, $field:ident, $name:literal, $($since:literal)?) => {
        $place.join($name, directories!(@since $($since)?))
    };
    (@place $place:ident, $field:ident, , $($since:literal)?) => {
        $place.join(stringify!($field), directories!(@since $($since)?))
    };
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
}

directories! {
    /// One kdamond. Writing it does not write `state`, which accepts commands.
    Kdamond of "nr_kdamonds" {
        /// its contexts; the kernel accepts one
        contexts: Vec<Context>;
        /// on or off
        state: Unwritable<Command>;
        /// pid of its thread; -1 when it is off
        pid: Unwritable<i32>;
    }

    /// The memory to monitor, how to monitor it, and the actions on it.
    Context of "nr_contexts" {
        /// operations sets that the kernel has
        avail_operations: Unwritable<Available>;
        /// operations set to use
        operations: Operations;
        /// bytes per step of an address
        addr_unit: Option<u64>, since "6.18";
        /// attributes of monitoring
        monitoring_attrs: MonitoringAttrs;
        /// processes or ranges to monitor
        targets: Vec<Target>;
        /// actions on the memory
        schemes: Vec<Scheme>;
    }

    /// How memory is monitored.
    MonitoringAttrs {
        /// times
        intervals: Intervals;
        /// how many regions
        nr_regions: Bounds;
    }

    /// Intervals, in microseconds.
    Intervals {
        /// from clearing an accessed bit to reading it
        sample_us: u64;
        /// from one result to the next
        aggr_us: u64;
        /// between two updates of the monitored ranges
        update_us: u64;
        /// lets the kernel tune the sampling and the aggregation interval
        intervals_goal: Option<IntervalsGoal>, since "6.15";
    }

    /// The goal of tuning. All fields zero: no tuning.
    IntervalsGoal {
        /// share of all possible accesses to observe, in 1/10,000
        access_bp: u64;
        /// within this many aggregation intervals
        aggrs: u64;
        /// minimal sampling interval
        min_sample_us: u64;
        /// maximal sampling interval
        max_sample_us: u64;
    }

    /// A range from `min` to `max`, both included.
    Bounds {
        /// minimum
        min: u64;
        /// maximum
        max: u64;
    }

    /// A target of monitoring.
    Target of "nr_targets" {
        /// pid of the process; meaningless for physical memory
        pid_target: i32;
        /// fixed ranges to monitor
        regions: Vec<Region>;
    }

    /// A range of addresses.
    Region of "nr_regions" {
        /// first address
        start: u64;
        /// first address after the range
        end: u64;
    }

    /// An action on some memory.
    Scheme of "nr_schemes" {
        /// the action
        action: Action;
        /// node to migrate to; -1: none
        target_nid: i32;
        /// interval of application in microseconds; 0: the aggregation interval
        apply_interval_us: u64;
        /// access pattern of the memory to act on
        access_pattern: AccessPattern;
        /// limits per interval
        quotas: Quotas;
        /// conditions for activation
        watermarks: Watermarks;
        /// filters
        filters: Vec<Filter>;
        /// results so far
        stats: Stats;
        /// memory to which it was tried last
        tried_regions: TriedRegions;
    }

    /// The access pattern of the memory to act on.
    AccessPattern {
        /// size in bytes
        sz: Bounds;
        /// sampling intervals with an access
        nr_accesses: Bounds;
        /// aggregation intervals since the accesses last changed
        age: Bounds;
    }

    /// The limits of a scheme per interval.
    Quotas {
        /// time in milliseconds; 0: no limit
        ms: u64;
        /// bytes; 0: no limit
        bytes: u64;
        /// the interval, in milliseconds
        reset_interval_ms: u64;
        /// limit in bytes that results from all quotas
        effective_bytes: Unwritable<u64>;
        /// priorities
        weights: Weights;
        /// goals of the quota
        goals: Vec<Goal>;
    }

    /// Weights of the priority if not all memory can be handled, each in 1/1,000.
    Weights {
        /// size
        sz_permil: u64;
        /// accesses
        nr_accesses_permil: u64;
        /// age
        age_permil: u64;
    }

    /// A goal of a quota.
    Goal of "nr_goals" {
        /// metric
        target_metric: GoalMetric;
        /// value to reach
        target_value: u64;
        /// current value, if the user supplies it
        current_value: u64;
    }

    /// The conditions in which a scheme is active.
    Watermarks {
        /// metric
        metric: WatermarkMetric;
        /// interval of the check in microseconds
        interval_us: u64;
        /// inactive above
        high: u64;
        /// active below
        mid: u64;
        /// inactive below
        low: u64;
    }

    /// A condition for memory, in addition to the access pattern.
    Filter of "nr_filters" {
        /// property that the filter tests
        kind: FilterType = "type";
        /// whether it applies to memory that matches, or to memory that does not
        matching: bool;
        /// path of a cgroup, from the root of the hierarchy
        memcg_path: String;
        /// first address
        addr_start: u64;
        /// first address after the range
        addr_end: u64;
        /// position of the target
        damon_target_idx: i32;
    }

    /// The statistics of a scheme.
    Stats {
        /// regions to which it was tried
        nr_tried: Unwritable<u64>;
        /// bytes of these regions
        sz_tried: Unwritable<u64>;
        /// regions to which it was applied
        nr_applied: Unwritable<u64>;
        /// bytes of these regions
        sz_applied: Unwritable<u64>;
        /// times that a quota was exhausted
        qt_exceeds: Unwritable<u64>;
    }

    /// The memory to which a scheme was tried last.
    TriedRegions {
        /// total size in bytes
        total_bytes: Unwritable<u64>;
        /// the regions
        regions: NumberedDirs<TriedRegion> = ".";
    }

    /// A region to which a scheme was tried.
    TriedRegion {
        /// first address
        start: Unwritable<u64>;
        /// first address after the region
        end: Unwritable<u64>;
        /// sampling intervals with an access
        nr_accesses: Unwritable<u32>;
        /// aggregation intervals since the accesses last changed
        age: Unwritable<u32>;
    }
}
