//! `isotherm interleave set`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::SetTo;
use isotherm::interleave::rule::Machine;
use isotherm_linux::numa::{self, PutBack, RequestedWeights};

use super::root;
use crate::cli::Set;
use crate::commands::report::output::print;

/// Sets weights, or restores the previous ones.
pub fn run(o: &Set) -> Result<ExitCode> {
    let wanted = match &o.to {
        SetTo::Weights(weights) => {
            Machine::read()?.check_nodes(weights.keys())?;
            RequestedWeights::Weights(weights.clone())
        }
        SetTo::Auto => RequestedWeights::Auto,
        SetTo::Default => RequestedWeights::Default,
        SetTo::Restore => {
            let done = numa::put_back(root())?;
            return print((put_back_text(&done) + "\n").as_bytes());
        }
    };
    let now = numa::set(root(), &wanted)?;
    let mode = match now.auto {
        Some(true) => ", derived by the kernel",
        _ => "",
    };
    let text = format!(
        "weights of this machine: {}{mode}. They hold for all processes that interleave by weight; isotherm \
         interleave set restore restores the previous ones\n",
        now.text()
    );
    print(text.as_bytes())
}

/// The result of a restore, in words.
pub fn put_back_text(done: &PutBack) -> String {
    let list = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if !done.nodes.is_empty() {
        parts.push(format!("weights of nodes {} are as before", list(&done.nodes)));
    }
    if done.mode {
        parts.push("the automatic mode is on again".to_owned());
    }
    if done.mode_lost {
        parts.push(
            "the automatic mode stays off, as there is no bandwidth to derive from".to_owned(),
        );
    }
    if !done.left.is_empty() {
        let left = list(&done.left);
        parts.push(format!(
            "another program has changed the weights of nodes {left} since, and isotherm does \
             not restore those"
        ));
    }
    if parts.is_empty() {
        return "there is nothing to restore".to_owned();
    }
    parts.join("; ")
}
