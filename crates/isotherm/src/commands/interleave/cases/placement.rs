//! Where pages lie that are touched under a policy: exactly where the rule says.

use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::{self, Existing, PolicyMode, move_pages};
use isotherm_mm::mempolicy::Weights;

use super::memory::{Memory, even, mask, own_pid, policy, signed};
use super::{Bench, Outcome};

/// Pages bound to a node.
const PAGES: u64 = 16;
/// Rounds of weights, and pages that are no round.
const ROUNDS: u64 = 8;
const ODD: u64 = 5;

/// Here, and in a thread that is started under the policy.
fn here_and_inherited(check: impl Fn() -> Outcome + Sync) -> Outcome {
    check()?;
    let child = std::thread::scope(|s| s.spawn(&check).join());
    child
        .unwrap_or_else(|_| Err("it could not be tried".into()))
        .map_err(|e| format!("inherited: {e}"))
}

fn on_each_node(bench: &Bench, mode: PolicyMode) -> Outcome {
    for &node in &bench.nodes {
        policy(mode, &[node])?;
        here_and_inherited(|| Memory::new(PAGES)?.lies_by(&even(&[node])?))
            .map_err(|e| format!("node {node}: {e}"))?;
    }
    Ok(())
}

pub fn bind(bench: &Bench) -> Outcome {
    on_each_node(bench, PolicyMode::BIND)
}

pub fn prefer(bench: &Bench) -> Outcome {
    on_each_node(bench, PolicyMode::PREFERRED)
}

pub fn interleave(bench: &Bench) -> Outcome {
    policy(PolicyMode::INTERLEAVE, &bench.nodes)?;
    let rule = even(&bench.nodes)?;
    here_and_inherited(|| {
        let m = Memory::new(ROUNDS * rule.total() + ODD)?;
        // Before Linux 6.7, 32 bits of the page's number count.
        let short = |page: u64| page & u64::from(u32::MAX);
        m.lies_by(&rule).or_else(|e| m.lies_by_index(&rule, short).map_err(|_| e))
    })
}

fn rounds_of(weights: &Weights) -> u64 {
    ROUNDS * weights.total() + ODD
}

pub fn weighted(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    Memory::new(rounds_of(&bench.weights))?.lies_by(&bench.weights)
}

pub fn weighted_pairs(bench: &Bench) -> Outcome {
    let all = bench.weights.nodes();
    for (i, &a) in all.iter().enumerate() {
        for &b in all.iter().skip(i + 1) {
            let weights = Weights::new([a, b]).map_err(|e| e.to_string())?;
            policy(PolicyMode::WEIGHTED_INTERLEAVE, &[a.0, b.0])?;
            let lies = Memory::new(rounds_of(&weights))?.lies_by(&weights);
            lies.map_err(|e| format!("nodes {} and {}: {e}", a.0, b.0))?;
        }
    }
    Ok(())
}

pub fn weighted_inherited(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    here_and_inherited(|| Memory::new(rounds_of(&bench.weights))?.lies_by(&bench.weights))
}

/// Pages of a file count from the number of the file: any whole rounds come out alike.
pub fn weighted_file(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    let rounds = bench.weights.nodes().iter().map(|&(node, w)| (node, ROUNDS * u64::from(w)));
    let wanted: Vec<(u32, u64)> = rounds.collect();
    Memory::of_file(ROUNDS * bench.weights.total())?.counts_are(&wanted)
}

fn bind_range(m: &Memory, mode: PolicyMode, nodes: &[u32], existing: Existing) -> Outcome {
    sys::bind(m.range(), mode, &mask(nodes), existing).map_err(|e| format!("it is refused: {e}"))
}

pub fn range_bind(bench: &Bench) -> Outcome {
    for &node in &bench.nodes {
        for mode in [PolicyMode::BIND, PolicyMode::PREFERRED, PolicyMode::INTERLEAVE] {
            let m = Memory::new(PAGES)?;
            bind_range(&m, mode, &[node], Existing::Leave)?;
            m.lies_by(&even(&[node])?).map_err(|e| format!("node {node}, {mode:?}: {e}"))?;
            bind_range(&m, mode, &[node], Existing::Strict)?;
        }
    }
    Ok(())
}

pub fn range_weighted(bench: &Bench) -> Outcome {
    let m = Memory::new(rounds_of(&bench.weights))?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Leave)?;
    m.lies_by(&bench.weights)
}

/// Memory that lies on `node` already.
fn on_node(node: u32, pages: u64) -> Result<Memory, String> {
    let m = Memory::new(pages)?;
    policy(PolicyMode::BIND, &[node])?;
    m.lies_by(&even(&[node])?)?;
    policy(PolicyMode::DEFAULT, &[])?;
    Ok(m)
}

fn first(bench: &Bench) -> Result<u32, String> {
    bench.nodes.first().copied().ok_or_else(|| "there is no node".into())
}

/// What lies on a node of the policy is where it may be: the kernel does not move it.
pub fn range_stays(bench: &Bench) -> Outcome {
    let m = on_node(first(bench)?, rounds_of(&bench.weights))?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Move)?;
    m.lies_by(&even(&[first(bench)?])?)
}

pub fn range_moved(bench: &Bench) -> Outcome {
    let elsewhere = first(bench)?;
    let others = bench.weights.nodes().iter().copied().filter(|n| n.0 != elsewhere);
    let weights = Weights::new(others).map_err(|e| e.to_string())?;
    let nodes: Vec<u32> = weights.nodes().iter().map(|n| n.0).collect();
    let m = on_node(elsewhere, rounds_of(&weights))?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &nodes, Existing::Move)?;
    m.lies_by(&weights)
}

pub fn moved(bench: &Bench) -> Outcome {
    let m = on_node(first(bench)?, rounds_of(&bench.weights))?;
    let addrs = m.addrs();
    let to: Vec<i32> = addrs.iter().map(|a| signed(bench.weights.node(a / PAGE_SIZE))).collect();
    let left = move_pages(own_pid(), &addrs, &to).0.map_err(|e| format!("refused: {e}"))?;
    if left > 0 {
        return Err(format!("{left} pages cannot be moved"));
    }
    m.lies_by(&bench.weights)
}
