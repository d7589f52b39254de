//! The tree below `/sys/kernel/mm/damon/admin/kdamonds`, from Linux 6.12 to 7.2. What came later than
//! 6.12 is an `Option`, and `since` names the kernel. Each file stands here once.

use super::entry::{Element, Entry, Numbered, Place, Shown, SysfsError};
use super::words::{
    Action, Available, Command, FilterType, GoalMetric, GoalTuner, Operations, ProbeFilterType,
    WatermarkMetric,
};

/// Directories as structs: a field is a file or a directory of its name, or of the one given.
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
    /// One kdamond. `state` takes commands, and is not among what is written with the others.
    Kdamond of "nr_kdamonds" {
        /// its contexts; the kernel takes one
        contexts: Vec<Context>;
        /// on or off
        state: Shown<Command>;
        /// of its thread; -1 when it is off
        pid: Shown<i32>;
        /// how often what is shown is made new by itself, in milliseconds; 0: never
        refresh_ms: Option<u64>, since "6.17";
    }

    /// What is monitored, how, and what is done about it.
    Context of "nr_contexts" {
        /// what the kernel can monitor
        avail_operations: Shown<Available>;
        /// what is monitored
        operations: Operations;
        /// bytes that one step of an address stands for
        addr_unit: Option<u64>, since "6.18";
        /// whether monitoring rests
        pause: Option<bool>, since "7.2";
        /// how it is monitored
        monitoring_attrs: MonitoringAttrs;
        /// whose memory
        targets: Vec<Target>;
        /// what is done about it
        schemes: Vec<Scheme>;
    }

    /// How memory is monitored.
    MonitoringAttrs {
        /// times
        intervals: Intervals;
        /// how many regions
        nr_regions: Bounds;
        /// attributes of memory that are counted as well
        probes: Option<Vec<Probe>>, since "7.2";
    }

    /// Times, in microseconds.
    Intervals {
        /// from clearing an accessed bit to reading it
        sample_us: u64;
        /// from one result to the next
        aggr_us: u64;
        /// between two readings of what is mapped
        update_us: u64;
        /// have the kernel tune sampling and aggregation
        intervals_goal: Option<IntervalsGoal>, since "6.15";
    }

    /// What tuning aims at. All zero: no tuning.
    IntervalsGoal {
        /// share of the possible accesses to be seen, of 10,000
        access_bp: u64;
        /// within so many aggregation intervals
        aggrs: u64;
        /// sampling interval at least
        min_sample_us: u64;
        /// sampling interval at most
        max_sample_us: u64;
    }

    /// From `min` to `max`, both included.
    Bounds {
        /// at least
        min: u64;
        /// at most
        max: u64;
    }

    /// An attribute of memory that is counted.
    Probe of "nr_probes" {
        /// which memory has it
        filters: Vec<ProbeFilter>;
    }

    /// Which memory has an attribute.
    ProbeFilter of "nr_filters" {
        /// what is looked at
        kind: ProbeFilterType = "type";
        /// whether it is for what matches, or for what does not
        matching: bool;
        /// whether that counts
        allow: bool;
        /// of a cgroup, from its root
        path: String;
    }

    /// Whose memory is monitored.
    Target of "nr_targets" {
        /// a process; means nothing for physical memory
        pid_target: i32;
        /// to be removed at the next commit
        obsolete_target: Option<bool>, since "6.19";
        /// where, if that is fixed
        regions: Vec<Region>;
    }

    /// A range of addresses.
    Region of "nr_regions" {
        /// first
        start: u64;
        /// first behind
        end: u64;
    }

    /// What is done to which memory.
    Scheme of "nr_schemes" {
        /// what
        action: Action;
        /// node to migrate to; -1: none
        target_nid: i32;
        /// how often, in microseconds; 0: every aggregation interval
        apply_interval_us: u64;
        /// to which memory
        access_pattern: AccessPattern;
        /// how much at most
        quotas: Quotas;
        /// when
        watermarks: Watermarks;
        /// to which of it; from Linux 6.15 on better in the two below
        filters: Vec<Filter>;
        /// those that the core applies
        core_filters: Option<Vec<Filter>>, since "6.15";
        /// those that the operations set applies
        ops_filters: Option<Vec<Filter>>, since "6.15";
        /// several nodes to migrate to
        dests: Option<Vec<Destination>>, since "6.17";
        /// what has come of it
        stats: Stats;
        /// which memory it was tried on
        tried_regions: TriedRegions;
    }

    /// Which memory a scheme is for.
    AccessPattern {
        /// size in bytes
        sz: Bounds;
        /// sampling intervals in which it was accessed
        nr_accesses: Bounds;
        /// aggregation intervals for which it has been so
        age: Bounds;
    }

    /// How much a scheme may do within an interval.
    Quotas {
        /// time in milliseconds; 0: no limit
        ms: u64;
        /// bytes; 0: no limit
        bytes: u64;
        /// the interval, in milliseconds
        reset_interval_ms: u64;
        /// what comes of all of it, in bytes
        effective_bytes: Shown<u64>;
        /// how goals are followed
        goal_tuner: Option<GoalTuner>, since "7.1";
        /// what failed is charged by this share: numerator
        fail_charge_num: Option<u64>, since "7.2";
        /// and denominator; 0: all of it
        fail_charge_denom: Option<u64>, since "7.2";
        /// who comes first
        weights: Weights;
        /// what is aimed at
        goals: Vec<Goal>;
    }

    /// What counts how much when not all can be done, each of 1,000.
    Weights {
        /// size
        sz_permil: u64;
        /// accesses
        nr_accesses_permil: u64;
        /// age
        age_permil: u64;
    }

    /// What a quota aims at.
    Goal of "nr_goals" {
        /// measured by
        target_metric: GoalMetric;
        /// to be reached
        target_value: u64;
        /// reached, if the user tells
        current_value: u64;
        /// node, for metrics of one
        nid: Option<i32>, since "6.16";
        /// cgroup, for metrics of one
        path: Option<String>, since "6.19";
    }

    /// When a scheme is active.
    Watermarks {
        /// measured by
        metric: WatermarkMetric;
        /// how often that is checked, in microseconds
        interval_us: u64;
        /// inactive above
        high: u64;
        /// active below
        mid: u64;
        /// inactive below
        low: u64;
    }

    /// Which memory a scheme is for, besides the pattern.
    Filter of "nr_filters" {
        /// what is looked at
        kind: FilterType = "type";
        /// whether it is for what matches, or for what does not
        matching: bool;
        /// whether that is let through
        allow: Option<bool>, since "6.14";
        /// of a cgroup, from its root
        memcg_path: String;
        /// first address
        addr_start: u64;
        /// first address behind
        addr_end: u64;
        /// position of the target
        damon_target_idx: i32;
        /// size at least, in bytes
        min: Option<u64>, since "6.15";
        /// size at most, in bytes
        max: Option<u64>, since "6.15";
    }

    /// A node to migrate to.
    Destination of "nr_dests" {
        /// which
        id: u64;
        /// how much of all goes there
        weight: u64;
    }

    /// What a scheme has done so far.
    Stats {
        /// regions it was tried on
        nr_tried: Shown<u64>;
        /// their bytes
        sz_tried: Shown<u64>;
        /// regions it was done to
        nr_applied: Shown<u64>;
        /// their bytes
        sz_applied: Shown<u64>;
        /// bytes that passed the filters of the operations set
        sz_ops_filter_passed: Option<Shown<u64>>, since "6.14";
        /// times that a quota was used up
        qt_exceeds: Shown<u64>;
        /// results that it has seen
        nr_snapshots: Option<Shown<u64>>, since "7.0";
        /// after how many it ends; 0: never
        max_nr_snapshots: Option<u64>, since "7.0";
    }

    /// Which memory a scheme was last tried on.
    TriedRegions {
        /// all of it
        total_bytes: Shown<u64>;
        /// where
        regions: Numbered<TriedRegion> = ".";
    }

    /// A region that a scheme was tried on.
    TriedRegion {
        /// first address
        start: Shown<u64>;
        /// first address behind
        end: Shown<u64>;
        /// sampling intervals in which it was accessed
        nr_accesses: Shown<u32>;
        /// aggregation intervals for which it has been so
        age: Shown<u32>;
        /// bytes that passed the filters of the operations set
        sz_filter_passed: Option<Shown<u64>>, since "6.14";
        /// what the probes of the context have found, in their order
        probes: Option<Numbered<TriedProbe>>, since "7.2";
    }

    /// What a probe has found in a region.
    TriedProbe {
        /// samples that had its attribute, in the aggregation interval
        hits: Shown<u32>;
    }
}
