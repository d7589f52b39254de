//! The monitors to compare.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use isotherm_core::{Attrs, MonitorKind};
use isotherm_linux::Way;
use isotherm_sim::MachineKind;

/// A monitor, its way to look and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorSetup {
    /// name in the table
    pub name: String,
    /// way to look on the real machine
    pub look: Way,
    /// attributes of the monitor
    pub attrs: Attrs,
}

/// The monitors that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Compared {
    /// the region sampler by the kernel's rules, at 5 ms and 100 ms
    Kernel,
    /// the region sampler at its own defaults
    Regions,
    /// the exposure monitor
    Exposure,
    /// all pages, in each interval
    Pages,
    /// the region sampler over `clear_refs` and `smaps`
    Smaps,
}

/// The monitors to compare.
#[derive(Debug, Clone, Args)]
pub struct Setups {
    /// Compare this monitor; repeatable
    #[arg(long, value_name = "KIND", default_values = ["kernel", "regions", "exposure", "smaps"])]
    monitor: Vec<Compared>,
    /// Budget of the exposure monitor in percent of a CPU; repeatable
    #[arg(long, value_name = "PERCENT", default_values_t = [1.0])]
    budget: Vec<f64>,
    /// Interval of the exposure monitor in ms, 0 for auto; repeatable
    #[arg(long, value_name = "MS", default_values_t = [0])]
    interval: Vec<u64>,
    /// Maximum number of TLB shootdowns per second of the exposure monitor; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    ipis: u32,
    /// Report windows instead of regions
    #[arg(long)]
    windows: bool,
    /// Way to look on the real machine, except for smaps
    #[arg(long, value_name = "WAY", default_value = "bpf", value_parser = Way::find)]
    look: Way,
    /// Sampling interval of the region sampler in ms [default: that of the way to look]
    #[arg(long)]
    sample: Option<u64>,
    /// Aggregation interval of the region sampler in ms [default: that of the way to look]
    #[arg(long)]
    aggr: Option<u64>,
    /// Parts of a split
    #[arg(long, default_value_t = 4)]
    parts: u32,
    /// Sampling intervals between clears
    #[arg(long, default_value_t = 8)]
    every: u32,
    /// Split uniform regions too
    #[arg(long)]
    uniform: bool,
    /// Window in KiB
    #[arg(long, default_value_t = 64)]
    window: u64,
}

impl Setups {
    /// The monitors that can watch on a machine.
    pub fn on(&self, machine: MachineKind) -> Result<Vec<MonitorSetup>> {
        let possible = |m: &&Compared| machine == MachineKind::Real || **m != Compared::Smaps;
        let setups = self.monitor.iter().filter(possible).flat_map(|m| self.of(*m));
        setups.map(|s| Ok(MonitorSetup { attrs: s.attrs.checked()?, ..s })).collect()
    }

    fn of(&self, compared: Compared) -> Vec<MonitorSetup> {
        let one =
            |name: &str, look, attrs| vec![MonitorSetup { name: name.to_owned(), look, attrs }];
        match compared {
            Compared::Kernel => one("kernel's rules", self.look, kernels_rules()),
            Compared::Regions => one("regions", self.look, self.regions(self.look)),
            Compared::Smaps => one("clear_refs, smaps", Way::Smaps, self.regions(Way::Smaps)),
            Compared::Pages => {
                one("pages", self.look, Attrs { monitor: MonitorKind::Pages, ..self.common() })
            }
            Compared::Exposure => self.exposures(),
        }
    }

    fn common(&self) -> Attrs {
        Attrs { window: self.window << 10, ..Attrs::default() }
    }

    fn regions(&self, look: Way) -> Attrs {
        let (sample, aggr) = look.intervals();
        Attrs {
            sample: self.sample.map_or(sample, Duration::from_millis),
            aggr: self.aggr.map_or(aggr, Duration::from_millis),
            split_parts: self.parts,
            clear_every: self.every,
            split_uniform: self.uniform,
            monitor: MonitorKind::Regions,
            ..self.common()
        }
    }

    fn exposures(&self) -> Vec<MonitorSetup> {
        let each = self.budget.iter().flat_map(|b| self.interval.iter().map(move |i| (*b, *i)));
        let setup = |(budget, interval): (f64, u64)| MonitorSetup {
            name: format!("exposure, {budget} %{}", every(interval)),
            look: self.look,
            attrs: Attrs {
                monitor: MonitorKind::Exposure,
                budget_ppm: (budget * 1e4).round() as u32,
                max_clears: self.ipis,
                interval: Duration::from_millis(interval),
                windows: self.windows,
                ..self.common()
            },
        };
        each.map(setup).collect()
    }
}

fn every(interval: u64) -> String {
    if interval == 0 { String::new() } else { format!(", {interval} ms") }
}

/// See `docs/concepts/monitor.md`, "The kernel's rules".
pub fn kernels_rules() -> Attrs {
    let attrs = Attrs {
        sample: Duration::from_millis(5),
        aggr: Duration::from_millis(100),
        min_regions: 10,
        max_regions: 1000,
        ..Attrs::default()
    };
    attrs.by_the_kernels_rules()
}
