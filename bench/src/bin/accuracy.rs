//! How right the monitors are about workloads, simulated and real. One table, and JSON.

use anyhow::{Context, Result};
use clap::Parser;
use isotherm_bench::accuracy::{Options, head, line, row, watch};
use isotherm_bench::output::save_json;
use isotherm_sim::workload::{NAMED, Named, Workload};

fn main() -> Result<()> {
    let o = Options::parse();
    let mut rows = Vec::new();
    println!("{}", head(o.seed));
    for (name, workload) in chosen(&o)? {
        for &machine in o.machines() {
            for setup in o.setups.on(machine)? {
                let watched = watch(&o, &setup, machine, &name, &workload);
                let row = row(&setup.name, &watched.with_context(|| name.clone())?, o.settle);
                println!("{}", line(&row));
                rows.push(row);
            }
        }
    }
    o.json.as_deref().map_or(Ok(()), |path| save_json(path, &rows))
}

/// Workloads with their names or files.
fn chosen(o: &Options) -> Result<Vec<(String, Workload)>> {
    let all = || NAMED.iter().map(|n| n.name.to_owned()).collect();
    let names = if o.workload.is_empty() { all() } else { o.workload.clone() };
    names.into_iter().map(|name| Ok((name.clone(), find(&name)?))).collect()
}

fn find(name: &str) -> Result<Workload> {
    if let Some(named) = Named::find(name) {
        return Ok(named.workload()?);
    }
    let names = NAMED.map(|n| n.name).join(", ");
    let text = std::fs::read_to_string(name).with_context(|| {
        format!("{name} is no workload: name one ({names}), or a file that describes one")
    })?;
    Ok(Workload::parse(&text)?)
}
