//! The table.

use isotherm_sim::{Blocks, Delay, KindScores, MachineKind, ScoreStatistics};

use super::Row;

const COLUMNS: [&str; 20] = [
    "workload",
    "machine",
    "monitor",
    "hot: precision",
    "hot: recall",
    "warm: precision",
    "warm: recall",
    "cold: precision",
    "cold: recall",
    "log2 error of the rate",
    "delay in s",
    "left out MiB: hot, cold",
    "unknown MiB",
    "regions",
    "clears/s",
    "own CPU",
    "lost",
    "bytes a region",
    "2 MiB: log2 error, correlation; hot: precision, recall; warm: precision, recall; 95 % right; hot seen after s",
    "F1 each 100 ms: hot, warm",
];

/// The heading of the table.
pub fn head(seed: u64) -> String {
    format!(
        "Seed {seed}. Shares and errors: over all snapshots, mean and (worst) snapshot. Delays: mean (worst), changes seen + missed.\n\n| {} |\n|{}",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len()),
    )
}

/// A row.
pub fn line(r: &Row) -> String {
    let a = &r.accuracy;
    let machine = match a.machine {
        MachineKind::Real => "real",
        MachineKind::Simulated => "simulated",
    };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let mut cells = vec![a.workload.clone(), machine.to_owned(), r.monitor.clone()];
    cells.extend([&a.hot, &a.warm, &a.cold].into_iter().flat_map(kind));
    cells.extend([
        figures(&a.rate_error, 2),
        delay(&a.delay),
        format!("{:.1}, {:.1}", mib(a.hot.left_out_bytes), mib(a.cold.left_out_bytes)),
        format!("{:.1}", mib(a.unknown_bytes)),
        format!("{:.0}", a.regions),
        format!("{:.1}", a.clears_per_second),
        r.own_cpu_percent.map_or("-".to_owned(), |p| format!("{p:.2} %")),
        format!("{:.2} %", a.lost_percent),
        r.bytes_a_region.map_or("-".to_owned(), |b| format!("{b:.1}")),
        blocks(&a.blocks, &a.heating),
        [a.over_time.all.hot, a.over_time.all.warm].map(share).join(", "),
    ]);
    format!("| {} |", cells.join(" | "))
}

fn blocks(b: &Blocks, heating: &Delay) -> String {
    let number = |f: &ScoreStatistics, digits: usize| match f.run {
        Some(run) => format!("{run:.digits$}"),
        None => "-".to_owned(),
    };
    let kind = |k: &KindScores| format!("{}, {}", number(&k.precision, 3), number(&k.recall, 3));
    let right = b.intervals_right.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    format!(
        "{}, {}; {}; {}; {right}; {}",
        number(&b.log2_error, 2),
        number(&b.correlation, 3),
        kind(&b.hot),
        kind(&b.warm),
        delay(heating),
    )
}

fn share(x: Option<f64>) -> String {
    x.map_or("-".to_owned(), |x| format!("{x:.3}"))
}

fn kind(k: &KindScores) -> [String; 2] {
    [figures(&k.precision, 3), figures(&k.recall, 3)]
}

fn figures(f: &ScoreStatistics, digits: usize) -> String {
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
