//! What figures rest on, in words.

use std::time::Duration;

use crate::basis::Basis;
use crate::units::{self, bytes, percent};

/// A time given in milliseconds.
pub(super) fn span(ms: f64) -> String {
    units::time(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default())
}

/// Where hot ends and cold begins.
pub(super) fn thresholds(b: &Basis) -> String {
    format!(
        "hot: touched at {} or more; cold: untouched for {} or more; warm: the rest",
        units::hz(b.hot_hz),
        span(b.cold_ms)
    )
}

/// How much nobody knows.
pub(super) fn unknown(b: &Basis) -> String {
    let share = percent(b.unknown_bytes as f64, b.resident_bytes as f64);
    format!(
        "unknown: {} of {} resident ({share:.1} %)",
        bytes(b.unknown_bytes),
        bytes(b.resident_bytes)
    )
}

/// How accesses were looked at.
pub(super) fn look(look: &Basis) -> String {
    looked(&look.look)
}

/// As [`look`].
pub(super) fn looked(look: &str) -> String {
    match look {
        "" => "looked at: the record does not say how".to_owned(),
        look => format!("looked at by {look}"),
    }
}

/// The last lines of a report in text.
pub(super) fn footer(b: &Basis) -> String {
    format!("\n{}\n{}\n{}\n", thresholds(b), unknown(b), look(b))
}

/// The first lines of a report in text.
pub(super) fn head(title: &str, b: &Basis) -> String {
    let title = if title.is_empty() { String::new() } else { format!("{title}\n") };
    format!(
        "{title}{} to {} of the record, {} snapshot{}\n\n",
        span(b.from_ms),
        span(b.to_ms),
        units::count(b.snapshots),
        if b.snapshots == 1 { "" } else { "s" },
    )
}
