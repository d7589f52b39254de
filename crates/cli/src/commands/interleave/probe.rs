//! `isotherm interleave probe`.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::interleave::ChosenLayout;
use isotherm::interleave::probe::{Measuring, Plan, Probed};
use isotherm::interleave::rule::Machine;
use isotherm::stop::Stop;
use isotherm::units::WeightList;
use isotherm_linux::numa::NumaError;
use isotherm_linux::sys::allowed_nodes;
use isotherm_report::{json, lines_picture};

use crate::cli::{Probe, UsageError};
use crate::commands::report::output::{Output, print};
use crate::log::say;

/// The minimum of `--time`; a shorter measurement has no useful result.
const MIN_TIME: Duration = Duration::from_secs(1);

/// Measures the nodes, after the user has agreed.
pub fn run(o: &Probe) -> Result<ExitCode> {
    if o.time < MIN_TIME {
        return Err(UsageError::new(format!("make --time {MIN_TIME:?} or longer")).into());
    }
    let output = o.output.as_deref().map(Output::picture).transpose()?;
    let machine = Machine::read()?;
    let nodes = chosen(&machine, &o.nodes)?;
    let plan = Plan::new(&machine, &nodes, o.time)?;
    if !o.yes && !agreed(&plan)? {
        say("isotherm: nothing was measured");
        return Ok(ExitCode::FAILURE);
    }
    let stop = Stop::at_signals()?;
    let mut measuring = Measuring::begin(plan, &stop);
    for &node in &nodes {
        measuring.node(node)?;
    }
    let probed: Probed = measuring.end();
    match output {
        Some(output) => {
            // The figures also go to standard output.
            show(o, &probed)?;
            output.write(&probed, || probed.text(), || lines_picture(&probed.picture()))
        }
        None => show(o, &probed),
    }
}

fn show(o: &Probe, probed: &Probed) -> Result<ExitCode> {
    let text = if o.json { json(probed)? + "\n" } else { probed.text() };
    print(text.as_bytes())
}

/// The nodes to measure: the named ones, if they exist and are allowed, else all allowed ones.
fn chosen(machine: &Machine, nodes: &[u32]) -> Result<Vec<u32>> {
    let allowed: Vec<u32> = allowed_nodes().map_err(NumaError::Policy)?.nodes().collect();
    if nodes.is_empty() {
        return Ok(machine.nodes.iter().map(|n| n.node).filter(|n| allowed.contains(n)).collect());
    }
    let one = WeightList(vec![1; nodes.len()]);
    let layout = ChosenLayout { nodes: nodes.to_vec(), weights: Some(one) };
    let (rule, _) = machine.rule(&layout, &allowed, i32::try_from(std::process::id())?)?;
    Ok(rule.nodes().iter().map(|n| n.0).collect())
}

/// Asks the user whether to start. Without a terminal it fails.
fn agreed(plan: &Plan) -> Result<bool> {
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
