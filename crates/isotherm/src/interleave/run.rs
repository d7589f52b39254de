//! Runs a command whose memory is interleaved over nodes by weight.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use isotherm_linux::numa::{self, Holding, MoveResult, NumaError, ProcessLayout};
use isotherm_linux::sys::{NodeMask, PolicyMode, allowed_nodes, set_policy};
use isotherm_mm::mempolicy::NodeWeights;
use tracing::info;

use super::rule::{MachineNodes, WeightsSource, text};
use super::{
    ChosenLayout, InterleaveError, MAX_FAMILY, ProcessTree, keep, placement_text, put_back_text,
    root,
};
use crate::follow::{StartedCommand, resolve};
use crate::stop::Stop;

/// Time between two checks for signals and for the end of the command.
pub const WAKE: Duration = Duration::from_millis(50);

/// Runs `command` with its memory interleaved. Without weighted interleave in the kernel, moves its pages in rounds,
/// at most one for each `interval`. Returns the exit status of the command; `None` if `stop` ended it.
///
/// # Errors
/// If the command cannot start, or the weights cannot be set or restored.
pub fn run(
    command: &[String],
    chosen: &ChosenLayout,
    interval: Duration,
    stop: &Stop,
) -> Result<Option<u8>, InterleaveError> {
    let Some(program) = resolve(command)? else { return Ok(Some(0)) };
    let machine = MachineNodes::read()?;
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let allowed: Vec<u32> = allowed_nodes().map_err(NumaError::Policy)?.nodes().collect();
    let (weights, from) = machine.rule(chosen, &allowed, own)?;
    let by_kernel = kernel_interleaves(&weights)?;
    let holding = if by_kernel { hold(&weights, from)? } else { None };
    let start = if by_kernel {
        (PolicyMode::WEIGHTED_INTERLEAVE, mask(&weights))
    } else {
        (PolicyMode::PREFERRED, [fastest(&weights)].into_iter().collect())
    };
    let family = if by_kernel {
        None
    } else {
        Some(ProcessTree::begin(root()).map_err(|e| InterleaveError::Family(e.into()))?)
    };
    let mut started = with_policy(start, || StartedCommand::spawn(&program, command, &[]))??;
    let Some(family) = family else {
        let status = started.end(stop)?;
        holding.map_or(Ok(()), put_back)?;
        return Ok(status);
    };
    info!(
        "this kernel has no weighted interleave (Linux 6.9 has it): the command starts on node {}, \
         and isotherm moves pages that belong elsewhere",
        fastest(&weights)
    );
    keep::warn_of_balancing("isotherm moves those pages back");
    let moved = move_while_it_runs(interval, (&mut started, &family), &weights, stop)?;
    let status = started.end(stop)?;
    info!("{}", placement_text::laid_out(&moved));
    Ok(status)
}

/// Restores the weights, and prints which ones it left.
fn put_back(holding: Holding) -> Result<(), InterleaveError> {
    let done = holding.end()?;
    if !done.left.is_empty() {
        info!("{}", put_back_text(&done));
    }
    Ok(())
}

fn mask(weights: &NodeWeights) -> NodeMask {
    weights.nodes().iter().map(|n| n.0).collect()
}

/// The node of the greatest weight: fewer pages have to be moved from there than from any other.
fn fastest(weights: &NodeWeights) -> u32 {
    let nodes = weights.nodes().iter();
    nodes.min_by_key(|(node, weight)| (u8::MAX - weight, *node)).map_or(0, |n| n.0)
}

/// Sets the given weights for the whole machine. Without given weights, root's run notes those of the machine, so
/// that no other run changes them at the same time.
fn hold(weights: &NodeWeights, from: WeightsSource) -> Result<Option<Holding>, InterleaveError> {
    if from != WeightsSource::Given {
        info!("by the weights of the machine, {}", text(weights));
        if !rustix::process::geteuid().is_root() {
            info!(
                "another isotherm may change them during this run: only a run as root \
                 can prevent that"
            );
            return Ok(None);
        }
    }
    let holding = numa::hold(root(), &weights.nodes().iter().copied().collect())?;
    if from != WeightsSource::Given {
        return Ok(Some(holding));
    }
    info!(
        "weights apply to the whole machine: {} holds for all processes that interleave by weight, \
         until this run ends",
        text(weights)
    );
    Ok(Some(holding))
}

/// Whether the kernel has weighted interleave: isotherm sets the policy for itself to find out.
fn kernel_interleaves(weights: &NodeWeights) -> Result<bool, InterleaveError> {
    let attempt = |mode| set_policy(mode, &mask(weights));
    let tried = attempt(PolicyMode::WEIGHTED_INTERLEAVE);
    // If plain interleave fails as well, the kernel refuses the nodes, not the mode.
    let plain = tried.as_ref().map_or_else(|_| attempt(PolicyMode::INTERLEAVE), |()| Ok(()));
    set_policy(PolicyMode::DEFAULT, &NodeMask::default()).map_err(NumaError::Policy)?;
    match (tried, plain) {
        (Ok(()), _) => Ok(true),
        (Err(_), Ok(())) => Ok(false),
        (_, Err(e)) => Err(NumaError::Policy(e).into()),
    }
}

/// Calls `act` under a policy, which the processes that it starts inherit.
fn with_policy<T>(
    policy: (PolicyMode, NodeMask),
    act: impl FnOnce() -> T,
) -> Result<T, InterleaveError> {
    set_policy(policy.0, &policy.1).map_err(NumaError::Policy)?;
    let done = act();
    set_policy(PolicyMode::DEFAULT, &NodeMask::default()).map_err(NumaError::Policy)?;
    Ok(done)
}

/// Moves the pages of the command and its descendants in rounds, until the command ends. Returns
/// the findings of the last round, and the number of pages that all rounds moved.
fn move_while_it_runs(
    interval: Duration,
    (started, family): (&mut StartedCommand, &ProcessTree),
    weights: &NodeWeights,
    stop: &Stop,
) -> Result<MoveResult, InterleaveError> {
    let (mut last, mut moved) = (MoveResult::default(), 0);
    let (mut refused, mut too_many) = (BTreeSet::new(), false);
    let mut rounds = keep::Rounds::every(interval);
    rounds.after(Duration::ZERO);
    while !stop.is_over() && !started.has_ended_in(WAKE)? {
        if !rounds.is_due() {
            continue;
        }
        let since = Instant::now();
        let mut round = MoveResult::default();
        let pids = family.pids(started.pid());
        if pids.len() >= MAX_FAMILY && !std::mem::replace(&mut too_many, true) {
            info!(
                "the command has started {MAX_FAMILY} processes or more: isotherm leaves the others as \
                 they are"
            );
        }
        for pid in pids {
            let (out, done) = match ProcessLayout::of(root(), pid) {
                Ok(mut layout) => keep::round(&mut layout, weights, None, stop),
                // A process that has ended since is no failure.
                Err(NumaError::Attach(e)) if e.is_gone() => continue,
                Err(e) => (MoveResult::default(), Err(e.into())),
            };
            round += &out;
            moved += out.moved;
            if let Err(e) = done
                && refused.insert(pid)
            {
                info!("{e}");
            }
        }
        // A round during which the command ended finds no pages.
        if round.pages > 0 {
            last = round;
        }
        rounds.after(since.elapsed());
    }
    Ok(MoveResult { moved, ..last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_linux::sys;

    #[test]
    fn the_command_starts_on_the_node_of_the_greatest_weight() {
        let fastest =
            |nodes: &[(u32, u8)]| fastest(&NodeWeights::new(nodes.iter().copied()).unwrap());
        assert_eq!(fastest(&[(0, 1), (2, 5)]), 2);
        assert_eq!(fastest(&[(3, 5), (1, 5)]), 1);
        assert_eq!(fastest(&[(0, 255)]), 0);
    }

    #[test]
    fn a_policy_holds_for_a_while() {
        let first: NodeMask = allowed_nodes().unwrap().nodes().take(1).collect();
        let during = with_policy((PolicyMode::BIND, first), || sys::policy().unwrap().0).unwrap();
        assert_eq!((during, sys::policy().unwrap().0), (PolicyMode::BIND, PolicyMode::DEFAULT));
    }
}
