//! Writes a different value to each file of DAMON that this kernel has, and reads it again. Requires a
//! machine on which no program uses DAMON. It sets up a kdamond, does not start it, and removes it.

use std::error::Error;

use isotherm_linux::damon::sysfs::{
    AccessPattern, Action, Bounds, Context, Destination, Filter, FilterType, Goal, GoalMetric,
    GoalTuner, Intervals, IntervalsGoal, Kdamond, MonitoringAttrs, Operations, Probe, ProbeFilter,
    ProbeFilterType, Quotas, Region, Scheme, Stats, Target, Unwritable, WatermarkMetric,
    Watermarks, Weights, kdamonds, read, write,
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = kdamonds("/".as_ref());
    if read::<u64>(&dir.join("nr_kdamonds"))? != 0 {
        return Err("somebody uses DAMON: it is left alone".into());
    }
    let result = round_trip(&dir);
    write(&dir.join("nr_kdamonds"), &0u64)?;
    result
}

fn round_trip(dir: &std::path::Path) -> Result<(), Box<dyn Error>> {
    // Reading a tree with one element of each kind shows which files exist.
    let one_of_each = Context {
        targets: vec![Target { regions: vec![Region::default()], ..Target::default() }],
        schemes: vec![Scheme {
            filters: vec![Filter::default()],
            quotas: Quotas { goals: vec![Goal::default()], ..Quotas::default() },
            ..Scheme::default()
        }],
        ..Context::default()
    };
    let empty = vec![Kdamond { contexts: vec![one_of_each], ..Kdamond::default() }];
    write(dir, &empty)?;
    let has: Vec<Kdamond> = read(dir)?;
    let asked: Vec<Kdamond> = has.iter().map(kdamond).collect();
    write(dir, &asked)?;
    let mut got: Vec<Kdamond> = read(dir)?;
    // Files that can only be read.
    for (asked, got) in asked.iter().zip(&mut got) {
        got.pid = Unwritable(asked.pid.0);
        for context in &mut got.contexts {
            println!("operations: {:?}", context.avail_operations.0.0);
            context.avail_operations = Unwritable::default();
        }
    }
    println!("{got:#?}");
    if got != asked {
        return Err(format!("it was asked for {asked:#?}").into());
    }
    println!("round trip: what is read is what was written");
    Ok(())
}

fn kdamond(has: &Kdamond) -> Kdamond {
    Kdamond {
        contexts: has.contexts.iter().map(context).collect(),
        refresh_ms: has.refresh_ms.map(|_| 1234),
        ..has.clone()
    }
}

fn context(has: &Context) -> Context {
    Context {
        avail_operations: Unwritable::default(),
        operations: Operations::Paddr,
        addr_unit: has.addr_unit.map(|_| 16),
        pause: has.pause.map(|_| true),
        monitoring_attrs: MonitoringAttrs {
            intervals: Intervals {
                sample_us: 6000,
                aggr_us: 120_000,
                update_us: 2_000_000,
                intervals_goal: has.monitoring_attrs.intervals.intervals_goal.as_ref().map(|_| {
                    let (min_sample_us, max_sample_us) = (5000, 10_000_000);
                    IntervalsGoal { access_bp: 400, aggrs: 3, min_sample_us, max_sample_us }
                }),
            },
            nr_regions: Bounds { min: 20, max: 300 },
            probes: has.monitoring_attrs.probes.as_ref().map(|_| vec![probe(), Probe::default()]),
        },
        targets: has.targets.iter().map(target).collect(),
        schemes: has.schemes.iter().map(scheme).collect(),
    }
}

fn probe() -> Probe {
    let kind = ProbeFilterType::Memcg;
    Probe { filters: vec![ProbeFilter { kind, matching: true, allow: true, path: "/b".into() }] }
}

fn target(has: &Target) -> Target {
    Target {
        pid_target: 1,
        obsolete_target: has.obsolete_target.map(|_| true),
        regions: vec![Region { start: 4096, end: 8192 }, Region { start: 16384, end: 65536 }],
    }
}

fn scheme(has: &Scheme) -> Scheme {
    let filters = |kinds: &[FilterType]| -> Vec<Filter> {
        has.filters.iter().flat_map(|f| kinds.iter().map(|&kind| filter(f, kind))).collect()
    };
    Scheme {
        action: Action::MigrateHot,
        target_nid: 0,
        apply_interval_us: 50_000,
        access_pattern: AccessPattern {
            sz: Bounds { min: 4096, max: u64::MAX },
            nr_accesses: Bounds { min: 1, max: 20 },
            age: Bounds { min: 2, max: u32::MAX.into() },
        },
        quotas: quotas(&has.quotas),
        watermarks: Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval_us: 5_000_000,
            high: 500,
            mid: 400,
            low: 200,
        },
        filters: filters(&[FilterType::Anon, FilterType::Young, FilterType::Addr]),
        core_filters: has.core_filters.as_ref().map(|_| filters(&[FilterType::Target])),
        ops_filters: has.ops_filters.as_ref().map(|_| filters(&[FilterType::Memcg])),
        dests: has.dests.as_ref().map(|_| vec![Destination { id: 1, weight: 3 }]),
        stats: Stats {
            max_nr_snapshots: has.stats.max_nr_snapshots.map(|_| 9),
            ..has.stats.clone()
        },
        tried_regions: has.tried_regions.clone(),
    }
}

fn filter(has: &Filter, kind: FilterType) -> Filter {
    Filter {
        kind,
        matching: true,
        allow: has.allow.map(|_| true),
        memcg_path: "/a".into(),
        addr_start: 4096,
        addr_end: 8192,
        damon_target_idx: 0,
        min: has.min.map(|_| 4096),
        max: has.max.map(|_| 1 << 21),
    }
}

fn quotas(has: &Quotas) -> Quotas {
    Quotas {
        ms: 10,
        bytes: 1 << 20,
        reset_interval_ms: 1000,
        effective_bytes: has.effective_bytes,
        goal_tuner: has.goal_tuner.map(|_| GoalTuner::Temporal),
        fail_charge_num: has.fail_charge_num.map(|_| 1),
        fail_charge_denom: has.fail_charge_denom.map(|_| 2),
        weights: Weights { sz_permil: 1, nr_accesses_permil: 2, age_permil: 3 },
        goals: has.goals.iter().map(goal).collect(),
    }
}

fn goal(has: &Goal) -> Goal {
    Goal {
        target_metric: GoalMetric::SomeMemPsiUs,
        target_value: 100,
        current_value: 50,
        nid: has.nid.map(|_| 1),
        path: has.path.as_ref().map(|_| "/c".into()),
    }
}
