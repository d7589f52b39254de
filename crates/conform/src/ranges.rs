//! Ranges that have a memory policy of their own.

use std::path::Path;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc;
use isotherm_linux::sys::{
    self, Existing, PolicyMode, SleepingChild, missing_capabilities, move_pages, policy_at,
};
use isotherm_mm::mempolicy::NodeWeights;

use crate::memory::{BasePages, even, mask, own_pid, policy, signed, text};
use crate::{Bench, Outcome, PAGES, rounds_of};

/// Modes that use a single node if the policy names a single node.
const OF_ONE: [PolicyMode; 3] = [PolicyMode::BIND, PolicyMode::PREFERRED, PolicyMode::INTERLEAVE];

pub fn bind_range(m: &BasePages, mode: PolicyMode, nodes: &[u32], existing: Existing) -> Outcome {
    sys::bind(m.range(), mode, &mask(nodes), existing).map_err(|e| format!("it is refused: {e}"))
}

pub fn on_nodes(bench: &Bench) -> Outcome {
    for &node in &bench.nodes {
        for mode in OF_ONE {
            for existing in [Existing::Leave, Existing::Strict] {
                let m = BasePages::new(PAGES)?;
                bind_range(&m, mode, &[node], existing)?;
                m.lies_by(&even(&[node])?).map_err(|e| format!("node {node}, {mode:?}: {e}"))?;
                bind_range(&m, mode, &[node], Existing::Strict)?;
            }
        }
    }
    Ok(())
}

pub fn weighted(bench: &Bench) -> Outcome {
    let m = BasePages::new(rounds_of(&bench.weights))?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Leave)?;
    m.lies_by(&bench.weights)
}

/// A forked child has the policy too, and its existence does not change the placement in the parent.
pub fn forked(bench: &Bench) -> Outcome {
    let m = BasePages::inherited(rounds_of(&bench.weights))?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Leave)?;
    let child = SleepingChild::fork().map_err(text)?;
    let all = proc::policies(Path::new("/"), child.pid()).map_err(|e| e.to_string())?;
    let of_range = all.get(&m.range().start).map(String::as_str);
    if !of_range.is_some_and(|policy| policy.starts_with("weighted interleave:")) {
        return Err(format!("the child has {of_range:?} there"));
    }
    m.lies_by(&bench.weights)
}

/// The policy that the kernel reports for a range. It is the policy that was set, the local mode if a preferred
/// policy names no node, or the default policy after the range was reset.
pub fn reported_policy(bench: &Bench) -> Outcome {
    let m = BasePages::new(PAGES)?;
    let is = |mode: PolicyMode, nodes: &[u32]| {
        let reported = policy_at(m.range().start).map_err(text)?;
        if reported == (mode, mask(nodes)) {
            Ok(())
        } else {
            Err(format!("{reported:?}, not {mode:?}"))
        }
    };
    let one = [first(bench)?];
    let weighted = bench.weighted.then_some(PolicyMode::WEIGHTED_INTERLEAVE);
    for mode in OF_ONE.into_iter().chain(weighted) {
        bind_range(&m, mode, &one, Existing::Leave)?;
        is(mode, &one)?;
    }
    bind_range(&m, PolicyMode::PREFERRED, &[], Existing::Leave)?;
    is(PolicyMode::LOCAL, &[])?;
    bind_range(&m, PolicyMode::DEFAULT, &[], Existing::Leave)?;
    is(PolicyMode::DEFAULT, &[])
}

/// Memory that is already on `node`.
fn on_node(node: u32, m: BasePages) -> Result<BasePages, String> {
    policy(PolicyMode::BIND, &[node])?;
    m.lies_by(&even(&[node])?)?;
    policy(PolicyMode::DEFAULT, &[])?;
    Ok(m)
}

fn first(bench: &Bench) -> Result<u32, String> {
    bench.nodes.first().copied().ok_or_else(|| "there is no node".into())
}

fn first_two(bench: &Bench) -> Result<[u32; 2], String> {
    bench.nodes.first_chunk().copied().ok_or_else(|| "there is one node".into())
}

/// Memory on any node of the policy satisfies the policy, so the kernel does not move it.
pub fn stays(bench: &Bench) -> Outcome {
    let m = on_node(first(bench)?, BasePages::new(rounds_of(&bench.weights))?)?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Move)?;
    m.is_by(&even(&[first(bench)?])?)
}

pub fn moved_by_weight(bench: &Bench) -> Outcome {
    let elsewhere = first(bench)?;
    let others = bench.weights.nodes().iter().copied().filter(|n| n.0 != elsewhere);
    let weights = NodeWeights::new(others).map_err(|e| e.to_string())?;
    let nodes: Vec<u32> = weights.nodes().iter().map(|n| n.0).collect();
    let m = on_node(elsewhere, BasePages::new(rounds_of(&weights))?)?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &nodes, Existing::Move)?;
    m.is_by(&weights)
}

pub fn moved_to_a_node(bench: &Bench) -> Outcome {
    let [elsewhere, node] = first_two(bench)?;
    let all = may_move_all().then_some(Existing::MoveAll);
    for existing in [Existing::Move].into_iter().chain(all) {
        for mode in OF_ONE {
            let m = on_node(elsewhere, BasePages::new(PAGES)?)?;
            bind_range(&m, mode, &[node], existing)?;
            m.is_by(&even(&[node])?).map_err(|e| format!("{mode:?}, {existing:?}: {e}"))?;
        }
    }
    Ok(())
}

/// Memory that another process maps too moves only with `MPOL_MF_MOVE_ALL`, which requires CAP_SYS_NICE.
pub fn moved_with_others(bench: &Bench) -> Outcome {
    let [elsewhere, node] = first_two(bench)?;
    let m = on_node(elsewhere, BasePages::inherited(PAGES)?)?;
    let _child = SleepingChild::fork().map_err(text)?;
    bind_range(&m, PolicyMode::BIND, &[node], Existing::Move)?;
    m.is_by(&even(&[elsewhere])?).map_err(|e| format!("of its own alone: {e}"))?;
    match bind_range(&m, PolicyMode::BIND, &[node], Existing::MoveAll) {
        Ok(()) if may_move_all() => m.is_by(&even(&[node])?),
        Ok(()) => Err("it requires no privilege".into()),
        Err(e) if may_move_all() => Err(e),
        Err(_) => Ok(()),
    }
}

fn may_move_all() -> bool {
    !missing_capabilities().contains(&"CAP_SYS_NICE")
}

pub fn pages_moved(bench: &Bench) -> Outcome {
    let m = on_node(first(bench)?, BasePages::new(rounds_of(&bench.weights))?)?;
    let addrs = m.addrs();
    let to: Vec<i32> = addrs.iter().map(|a| signed(bench.weights.node(a / PAGE_SIZE))).collect();
    let left = move_pages(own_pid(), &addrs, &to).0.map_err(|e| format!("refused: {e}"))?;
    if left > 0 {
        return Err(format!("{left} pages cannot be moved"));
    }
    m.is_by(&bench.weights)
}
