//! `isotherm interleave probe`.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::interleave::probe::{Measuring, ProbePlan, nodes_to_measure};
use isotherm::interleave::rule::MachineNodes;
use isotherm::stop::Stop;
use isotherm_report::lines_picture;

use crate::cli::{Probe, UsageError};
use crate::commands::report::output::{Output, show};
use crate::log::say;

/// The minimum of `--time`; a shorter measurement has no useful result.
const MIN_TIME: Duration = Duration::from_secs(1);

/// Measures the nodes, after the user has agreed.
pub fn run(o: &Probe) -> Result<ExitCode> {
    if o.time < MIN_TIME {
        return Err(UsageError::new(format!("make --time {MIN_TIME:?} or longer")).into());
    }
    let output = o.output.as_deref().map(Output::picture).transpose()?;
    let machine = MachineNodes::read()?;
    let nodes = nodes_to_measure(&machine, &o.nodes)?;
    let plan = ProbePlan::new(&machine, &nodes, o.time)?;
    if !o.yes && !agreed(&plan)? {
        say("isotherm: nothing was measured");
        return Ok(ExitCode::FAILURE);
    }
    let stop = Stop::at_signals()?;
    let mut measuring = Measuring::begin(plan, &stop);
    for &node in &nodes {
        measuring.node(node)?;
    }
    let probed = measuring.end();
    match output {
        Some(output) => {
            // The figures also go to standard output.
            show(o.json, &probed, || probed.text())?;
            output.write(&probed, || probed.text(), || lines_picture(&probed.picture()))
        }
        None => show(o.json, &probed, || probed.text()),
    }
}

/// Asks the user whether to start. Without a terminal it fails.
fn agreed(plan: &ProbePlan) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let text = "probe saturates the memory of this machine and slows down all its programs: \
                    give --yes to start without a confirmation";
        return Err(UsageError::new(text).into());
    }
    say(format_args!(
        "isotherm: probe saturates the memory of this machine for {:?} at most, with {} threads and {} MiB on one \
         node after the other. All programs on it will be slower meanwhile. Start? [y/N]",
        plan.time,
        plan.threads,
        plan.bytes_a_node() >> 20
    ));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
