//! `isotherm lab fairzone`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm::text_file::text_of;
use isotherm_mm::Rules;
use isotherm_sim::lab::fairzone::{
    self as lab, Fairzone, LabLoad, policies, properties, properties_text, results_json, scenarios,
    scenarios_text,
};
use isotherm_sim::paged::MachineSpec;
use isotherm_sim::workload::{NAMED, Named};

use crate::cli::{self, Figure, UsageError};
use crate::commands::report::output::{self, Output, print};
use isotherm::lab::fair_zone::{ages, rates};

/// Runs the experiment, its scenarios, or its properties.
pub fn run(o: &cli::Fairzone) -> Result<ExitCode> {
    if o.scenarios {
        let all = scenarios()?;
        return show(o, || scenarios_text(&all), &all, "scenarios");
    }
    if let Some(machines) = o.properties {
        let all = properties(o.seed, machines)?;
        let code = show(o, || properties_text(&all), &all, "properties")?;
        let held = all.iter().all(|p| p.held == p.tried);
        return Ok(if held { code } else { ExitCode::FAILURE });
    }
    experiment(o)
}

/// Prints the result as text, or as JSON.
fn show(
    o: &cli::Fairzone,
    text: impl FnOnce() -> String,
    figures: &impl serde::Serialize,
    name: &str,
) -> Result<ExitCode> {
    if !o.json {
        return print(text().as_bytes());
    }
    print(format!("{}\n", results_json(o.seed, name, figures)).as_bytes())
}

fn experiment(o: &cli::Fairzone) -> Result<ExitCode> {
    let output = o.output.as_deref().map(Output::picture).transpose()?;
    let machine = machine(o.machine.as_deref())?;
    let load = load(o.workload.as_deref())?;
    if matches!(load, LabLoad::Process(_)) && !o.threads.is_empty() {
        let text =
            "--threads is for streams: a workload of a process defines its own number of threads";
        return Err(UsageError::new(text).into());
    }
    let policies = policies_of(&o.policy)?;
    let threads = if o.threads.is_empty() { load.threads() } else { o.threads.clone() };
    let mut runs = Vec::new();
    for (name, rules) in &policies {
        for &threads in &threads {
            runs.push(lab::run(&machine, (name, *rules), &load, threads, o.seed)?);
        }
    }
    let found = Fairzone::new(o.seed, &machine, &load, runs);
    match output {
        None => output::show(o.json, &found, || found.text()),
        Some(output) => output.write(
            &found,
            || found.text(),
            || {
                isotherm_report::lines_picture(&match o.figure {
                    Figure::Ages => ages(&found),
                    Figure::Rates => rates(&found),
                })
            },
        ),
    }
}

fn machine(path: Option<&Path>) -> Result<MachineSpec> {
    let Some(path) = path else { return Ok(MachineSpec::parse(lab::MACHINE_TOML)?) };
    let text = text_of(path, || {
        format!("{} cannot be read: name a file that describes a machine", path.display())
    })?;
    MachineSpec::parse(&text).map_err(|e| usage(path, &e))
}

fn load(name: Option<&str>) -> Result<LabLoad> {
    let Some(name) = name else { return Ok(LabLoad::parse(lab::STREAMS_TOML)?) };
    if let Some(named) = Named::find(name) {
        return Ok(LabLoad::Process(named.workload()?));
    }
    let path = Path::new(name);
    let names = NAMED.map(|n| n.name).join(", ");
    let text = text_of(path, || {
        format!("{name} is no workload: name one ({names}), or a file that describes one")
    })?;
    LabLoad::parse(&text).map_err(|e| usage(path, &e))
}

/// The rules of each policy, with its name. Rules from a file have its path as name.
fn policies_of(names: &[String]) -> Result<Vec<(String, Rules)>> {
    if names.is_empty() {
        let all = policies::policies().into_iter();
        return Ok(all.map(|(name, rules)| (name.to_owned(), rules)).collect());
    }
    names.iter().map(|name| Ok((name.clone(), rules(name)?))).collect()
}

fn rules(name: &str) -> Result<Rules> {
    if let Some(rules) = policies::find(name) {
        return Ok(rules);
    }
    let path = Path::new(name);
    let known: Vec<&str> = policies::policies().into_iter().map(|p| p.0).collect();
    let text = text_of(path, || {
        format!("{name} is not a policy: name one ({}), or a file of rules", known.join(", "))
    })?;
    policies::parse(&text).map_err(|e| usage(path, &e))
}

fn usage(path: &Path, e: &dyn std::error::Error) -> anyhow::Error {
    UsageError::new(format!("{}: {e}", path.display())).into()
}
