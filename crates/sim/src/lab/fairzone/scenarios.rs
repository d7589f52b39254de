//! States that the mails of the seed discuss, and the behaviour of each policy in them.

use isotherm_mm::{
    AllocRequest, FAIR, Fair, Layout, LayoutError, LruType, Memory, Rules, ZoneKind,
};
use serde::Serialize;

/// Allocations in a scenario.
const ALLOCATIONS: u32 = 100;
/// CPUs in a storm.
const CPUS: u32 = 16;

/// The behaviour of a policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    /// the name of the policy
    pub policy: &'static str,
    /// number of allocations requested
    pub allocations: u64,
    /// resets of the batches
    pub resets: u64,
    /// passes through a zonelist per allocation
    pub passes: f64,
    /// allocations that took the slow path
    pub slow_paths: u64,
    /// by zone: pages allocated
    pub allocated: Vec<u64>,
}

/// A state, and the behaviour of each policy in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// its name
    pub name: &'static str,
    /// description
    pub about: String,
    /// the zones, as the kernel calls them
    pub zones: Vec<&'static str>,
    /// one per policy
    pub outcomes: Vec<PolicyOutcome>,
}

/// All scenarios.
///
/// # Errors
/// None; a test ensures this.
pub fn scenarios() -> Result<Vec<Scenario>, LayoutError> {
    Ok(vec![boundary()?, window()?, storm()?, remote()?])
}

/// "high zone alloc batch 1000, low watermark not ok; low zone alloc batch 0, low watermark ok".
fn boundary() -> Result<Scenario, LayoutError> {
    let about = "the mail of 2014-05-29 17:16: Normal has 1000 of its batch left and is at its low \
                 watermark, DMA32 has nothing of its batch left and free pages";
    scenario("boundary", about, &two_zones(1), 1, |memory| {
        down_to_low(memory, 1, 0);
        set_batch(memory, 0, 0);
        set_batch(memory, 1, 1000);
    })
}

/// A little later than [`boundary`]: no zone is above its watermark, and both have part of their batches.
fn window() -> Result<Scenario, LayoutError> {
    let about = "a little later: both zones are below their low watermarks and have some of their \
                 batches left; kswapd has not done anything yet";
    scenario("window", about, &two_zones(1), ALLOCATIONS, short_of_both)
}

/// Many CPUs allocate in the state of [`window`].
fn storm() -> Result<Scenario, LayoutError> {
    let about = format!("the same on {CPUS} CPUs, each of which asks for {ALLOCATIONS} pages");
    scenario("storm", &about, &two_zones(CPUS), CPUS * ALLOCATIONS, short_of_both)
}

/// Local zones have used up their batches, remote zones have not.
fn remote() -> Result<Scenario, LayoutError> {
    let about = "4 nodes: three quarters of the pages of the first one are asked for there, where \
                 DMA32 is half of the node; all other nodes are untouched";
    let zone = |kind| isotherm_mm::ZoneLayout { kind, managed: 100_000 };
    let node = |i: usize| isotherm_mm::NodeLayout {
        zones: match i {
            0 => vec![zone(ZoneKind::Dma32), zone(ZoneKind::Normal)],
            _ => vec![zone(ZoneKind::Normal)],
        },
        distances: (0..4).map(|j| if i == j { 10 } else { 21 }).collect(),
    };
    let layout = Layout { cpus: 4, nodes: (0..4).map(node).collect() };
    scenario("remote", about, &layout, 150_000, |_| {})
}

fn scenario(
    name: &'static str,
    about: &str,
    layout: &Layout,
    allocations: u32,
    prepare: impl Fn(&mut Memory),
) -> Result<Scenario, LayoutError> {
    let mut outcomes = Vec::new();
    let mut zones = Vec::new();
    for fair in FAIR {
        let mut memory = Memory::new(layout, Rules { drift: false, ..fair.rules() })?;
        zones = memory.zones().iter().map(|z| z.kind.name()).collect();
        prepare(&mut memory);
        outcomes.push(outcome(fair, &mut memory, layout.cpus, allocations));
    }
    Ok(Scenario { name, about: about.to_owned(), zones, outcomes })
}

fn outcome(fair: Fair, memory: &mut Memory, cpus: u32, allocations: u32) -> PolicyOutcome {
    let (stats, zones) = (*memory.stats(), allocated(memory));
    for i in 0..allocations {
        let request = AllocRequest {
            cpu: i % cpus,
            node: 0,
            class: ZoneKind::Normal,
            kind: Some(LruType::File),
            write: false,
            owner: i.into(),
        };
        // An allocation that fails counts too.
        let _ = memory.allocate(request, &mut ());
    }
    let stats = memory.stats().since(&stats);
    let now = allocated(memory);
    PolicyOutcome {
        policy: fair.name(),
        allocations: stats.allocations,
        resets: stats.resets,
        passes: stats.passes as f64 / stats.allocations.max(1) as f64,
        slow_paths: stats.slow_paths,
        allocated: now.iter().zip(&zones).map(|(now, before)| now - before).collect(),
    }
}

fn allocated(memory: &Memory) -> Vec<u64> {
    memory.zones().iter().map(|z| z.stats.allocated).collect()
}

fn two_zones(cpus: u32) -> Layout {
    Layout::single(cpus, &[(ZoneKind::Dma32, 757_760), (ZoneKind::Normal, 1_290_240)])
}

fn short_of_both(memory: &mut Memory) {
    for (zone, batch) in [(0, 100), (1, 1000)] {
        down_to_low(memory, zone, 1);
        set_batch(memory, zone, batch);
    }
}

/// Allocates pages down to the low watermark minus `below`.
fn down_to_low(memory: &mut Memory, zone: usize, below: i64) {
    let z = &memory.zones()[zone];
    let kept = z.watermarks.low + z.reserve[ZoneKind::Normal.index()] - below;
    let above = z.free.exact() - kept;
    memory.occupy(zone, above);
}

fn set_batch(memory: &mut Memory, zone: usize, batch: i64) {
    if let Some(z) = memory.zone_mut(zone) {
        let missing = batch - z.batch.exact();
        z.batch.add(0, missing);
        z.depleted = batch <= 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, policy: &str) -> PolicyOutcome {
        let all = scenarios().unwrap();
        let found = all.into_iter().find(|s| s.name == name).unwrap();
        found.outcomes.into_iter().find(|o| o.policy == policy).unwrap()
    }

    #[test]
    fn at_the_boundary_all_go_to_the_lower_zone() {
        for (policy, resets) in [("baseline", 1), ("v1", 0), ("landed", 1)] {
            let o = of("boundary", policy);
            assert_eq!((o.resets, o.slow_paths), (resets, 0), "{policy}");
            assert_eq!(o.allocated, [1, 0], "{policy}");
        }
    }

    /// "During this window, every ALLOC_FAIR is going to fail to due watermarks but still do another
    /// zone batch reset": so it is, and with the others it is not.
    #[test]
    fn in_the_window_the_baseline_resets_each_time() {
        for scenario in ["window", "storm"] {
            let o = of(scenario, "baseline");
            assert_eq!((o.resets, o.slow_paths), (o.allocations, o.allocations));
            assert_eq!(of(scenario, "v1").resets, 0);
            let landed = of(scenario, "landed");
            assert!(landed.resets * 100 <= landed.allocations, "{landed:?}");
            assert!(landed.passes < o.passes, "the pass that could find nothing is saved");
        }
    }

    #[test]
    fn remote_zones_keep_v1_from_resetting() {
        let share = |o: &PolicyOutcome| o.allocated[0] as f64 / 150_000.0;
        for policy in ["baseline", "landed"] {
            assert!((share(&of("remote", policy)) - 0.5).abs() < 0.01, "{policy}");
        }
        let v1 = of("remote", "v1");
        assert_eq!(v1.resets, 0);
        assert!(share(&v1) < 0.35);
    }
}
