//! The message at the end of a recording.

use std::path::Path;

use isotherm::record::Recorded;
use isotherm::session::SessionEnd;
use isotherm::stacks::SampleCounts;
use isotherm_core::MonitorKind;
use isotherm_report::{bytes, counted};

/// The length, size and cost of the recording, and the next command to type.
pub fn last_lines(
    Recorded { end, summary: s, seconds, cost, watched, monitor, samples }: &Recorded,
    path: &Path,
) -> String {
    let because = match end {
        SessionEnd::TargetsGone => "all targets have ended",
        SessionEnd::Full => "the record has reached --max-size",
        SessionEnd::Stopped(why) => why,
    };
    let to_stdout = path == Path::new("-");
    let name = if to_stdout { "standard output".to_owned() } else { path.display().to_string() };
    let recorded = format!(
        "recorded {seconds:.1} s ({because}): {watched} in {}",
        counted(s.snapshots, "snapshot"),
    );
    if s.snapshots == 0 {
        let kept = if s.in_place { "" } else { ", which is unchanged" };
        return format!(
            "{recorded}\nit was too short for a snapshot in {name}{kept}: record for longer, or with a shorter {}",
            interval_option(*monitor)
        );
    }
    let report = if samples.is_some() { "code" } else { "heatmap" };
    let next = if to_stdout {
        String::new()
    } else {
        format!("\nnext: isotherm report {report} -i {name}")
    };
    let samples = samples.map(sampled).unwrap_or_default();
    format!("{recorded}, {} in {name}{samples}; {}{next}", bytes(s.bytes), cost)
}

fn sampled(n: SampleCounts) -> String {
    let faults = counted(n.faults, "sampled page fault");
    let allocations = match n.allocations {
        None => String::new(),
        Some(0) => {
            ", no sampled allocation (is the program statically linked, or set-user-id?)".to_owned()
        }
        Some(n) => format!(", {}", counted(n, "sampled allocation")),
    };
    let lost = if n.lost > 0 { format!(", {} lost", n.lost) } else { String::new() };
    format!("; {faults}{allocations}{lost}")
}

/// The option that determines the time to the first snapshot.
fn interval_option(monitor: MonitorKind) -> &'static str {
    match monitor {
        MonitorKind::Exposure => "--interval",
        MonitorKind::Regions | MonitorKind::Pages => "--aggr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_monitor_in_use_is_named() {
        use clap::CommandFactory;
        let mut record = crate::cli::Cli::command();
        let record = record.find_subcommand_mut("record").unwrap();
        let help = record.render_long_help().to_string();
        let (of_regions, of_all) = (help.find("--aggr").unwrap(), help.find("--interval").unwrap());
        assert_ne!(of_regions, of_all);
        assert_eq!(interval_option(MonitorKind::Exposure), "--interval");
        assert_eq!(interval_option(MonitorKind::Pages), "--aggr");
    }
}
