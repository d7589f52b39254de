//! The table.

use isotherm_sim::{Delay, Figures, Kind, MachineKind};

use super::Row;

const HEAD: &str = "\
| workload | machine | hot: precision | hot: recall | warm: precision | warm: recall | cold: precision | cold: recall | log2 error of the rate | delay in s | left out MiB: hot, cold | unknown MiB | regions | clears/s | own CPU | bytes a region |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// What stands above the rows.
#[must_use]
pub fn head(seed: u64) -> String {
    format!(
        "Seed {seed}. Shares and errors: over all snapshots, mean and (worst) snapshot. Delays: mean (worst), changes seen + missed.\n\n{HEAD}"
    )
}

/// A row.
#[must_use]
pub fn line(r: &Row) -> String {
    let a = &r.accuracy;
    let machine = match a.machine {
        MachineKind::Real => "real",
        MachineKind::Simulated => "simulated",
    };
    let kinds = [&a.hot, &a.warm, &a.cold];
    let shares: Vec<String> = kinds.into_iter().flat_map(kind).collect();
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    format!(
        "| {} | {machine} | {} | {} | {} | {:.1}, {:.1} | {:.1} | {:.0} | {:.0} | {} | {} |",
        a.workload,
        shares.join(" | "),
        figures(&a.rate_error, 2),
        delay(&a.delay),
        mib(a.hot.left_out_bytes),
        mib(a.cold.left_out_bytes),
        mib(a.unknown_bytes),
        a.regions,
        a.clears_per_second,
        r.own_cpu_percent.map_or("-".to_owned(), |p| format!("{p:.1} %")),
        r.bytes_a_region.map_or("-".to_owned(), |b| format!("{b:.1}")),
    )
}

fn kind(k: &Kind) -> [String; 2] {
    [figures(&k.precision, 3), figures(&k.recall, 3)]
}

fn figures(f: &Figures, digits: usize) -> String {
    let (Some(run), Some(mean), Some(worst)) = (f.run, f.mean, f.worst) else {
        return "-".to_owned();
    };
    format!("{run:.digits$} {mean:.digits$} ({worst:.digits$})")
}

fn delay(d: &Delay) -> String {
    let (Some(mean), Some(worst)) = (d.mean, d.worst) else {
        return if d.missed > 0 { format!("0 + {}", d.missed) } else { "-".to_owned() };
    };
    format!("{mean:.2} ({worst:.2}), {} + {}", d.seen, d.missed)
}
