//! `isotherm interleave set`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::rule::MachineNodes;
use isotherm::interleave::{SetTo, put_back_text};
use isotherm_linux::numa::{self, RequestedWeights};

use super::root;
use crate::cli::Set;
use crate::commands::report::output::print;

/// Sets weights, or restores the previous ones.
pub fn run(o: &Set) -> Result<ExitCode> {
    let wanted = match &o.to {
        SetTo::Weights(weights) => {
            MachineNodes::read()?.check_nodes(weights.keys())?;
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
