//! How right the monitor is about each named workload, simulated and real. One table, and JSON.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;
use isotherm_bench::accuracy::{Options, Row, head, line, row, watch};
use isotherm_sim::workload::{NAMED, Named};

fn main() -> Result<()> {
    let o = Options::parse();
    let mut rows = Vec::new();
    println!("{}", head(o.seed));
    for named in chosen(&o)? {
        let workload = named.workload()?;
        for &machine in o.machines() {
            let watched = watch(&o, machine, named.name, &workload).context(named.name)?;
            let row = row(&watched);
            println!("{}", line(&row));
            rows.push(row);
        }
    }
    o.json.as_deref().map_or(Ok(()), |path| write(path, &rows))
}

fn chosen(o: &Options) -> Result<Vec<Named>> {
    if o.workload.is_empty() {
        return Ok(NAMED.to_vec());
    }
    let names = || NAMED.map(|n| n.name).join(", ");
    let find = |name: &String| {
        Named::find(name).with_context(|| format!("{name} is no workload: choose of {}", names()))
    };
    o.workload.iter().map(find).collect()
}

fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(serde_json::to_writer_pretty(file, rows)?)
}
