//! What the recorder says at its end.

use std::path::Path;

use isotherm_record::{Summary, Why};
use isotherm_report::bytes;

use crate::commands::watch::Status;

/// What was recorded and what it cost; and what to type next.
pub fn last_lines(
    status: &Status,
    (why, note): &(Why, String),
    s: &Summary,
    watched: &str,
    path: &Path,
) -> String {
    let because = match why {
        Why::TargetsGone => "all targets have ended",
        Why::MaxSize => "the record has reached --max-size",
        _ => note,
    };
    let name = path.display();
    let seconds = status.seconds();
    let count = |n: u64, one, many| format!("{n} {}", if n == 1 { one } else { many });
    let recorded = format!(
        "recorded {seconds:.1} s ({because}): {watched} in {}",
        count(s.snapshots, "snapshot", "snapshots"),
    );
    if s.snapshots == 0 {
        let kept = if s.in_place { "" } else { ", which is as it was before" };
        return format!(
            "{recorded}\nit was too short for a snapshot in {name}{kept}: record for longer than --aggr"
        );
    }
    format!(
        "{recorded}, {} in {name}; {}\nnext: isotherm report heatmap -i {name}",
        bytes(s.bytes),
        status.cost(),
    )
}
