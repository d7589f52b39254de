//! The basis of figures as text, and names made safe for printing.

use std::time::Duration;

use isotherm_core::Missing;

use crate::basis::{Basis, GapFigures};
use crate::code::CodeMemory;
use crate::units::{self, bytes, percent};

/// Whether a character only prints: it neither controls the terminal nor ends the line or changes its
/// direction.
#[must_use]
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name of a program, a file or a control group, with unprintable characters replaced.
#[must_use]
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The name of the memory, which is not called resident if the record does not contain that.
pub(super) fn memory_name(all: &CodeMemory) -> &'static str {
    if all.resident.is_some() { "resident memory" } else { "memory" }
}

/// A time given in milliseconds.
pub(super) fn span(ms: f64) -> String {
    units::time(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default())
}

/// The limits of hot and cold.
pub(super) fn thresholds(b: &Basis) -> String {
    format!(
        "hot: touched at {} or more; cold: untouched for {} or more; warm: the rest",
        units::hz(b.hot_hz),
        span(b.cold_ms)
    )
}

/// The amount of unknown memory, and the figures that the record does not have.
pub(super) fn unknown(b: &Basis) -> String {
    let of = b.resident_bytes.map_or(String::new(), |resident| {
        let share = percent(b.unknown_bytes as f64, resident as f64);
        format!(" of {} resident ({share:.1} %)", bytes(resident))
    });
    let (first, missing) = (bytes(b.unknown_bytes), missing(b.missing));
    format!("unknown: {first}{of}{}{missing}", if missing.is_empty() { "" } else { "; " })
}

/// The figures that the record does not have; empty if it has all.
pub(super) fn missing(missing: Missing) -> &'static str {
    match (missing.residency, missing.ages) {
        (false, false) => "",
        (true, false) => "not in the record: which memory is resident",
        (false, true) => "not in the record: ages, except for lower bounds",
        (true, true) => {
            "not in the record: which memory is resident; ages, except for lower bounds"
        }
    }
}

/// A size, or `?` if the record does not contain it.
pub(super) fn size(size: Option<u64>) -> String {
    size.map_or_else(|| "?".to_owned(), bytes)
}

/// Maximum number of gaps that are listed.
const NAMED_GAPS: usize = 4;

/// The gaps of a damaged record; empty if there are none.
pub(super) fn gaps(gaps: &[GapFigures]) -> String {
    if gaps.is_empty() {
        return String::new();
    }
    let seconds = |ms: f64| format!("{:.1}", ms / 1e3);
    let place = |g: &GapFigures| format!("{} s to {} s", seconds(g.from_ms), seconds(g.to_ms));
    let mut places: Vec<String> = gaps.iter().take(NAMED_GAPS).map(place).collect();
    if gaps.len() > NAMED_GAPS {
        places.push(format!("{} more gaps", gaps.len() - NAMED_GAPS));
    }
    let missing = gaps.iter().map(|g| g.snapshots).sum();
    format!(
        "the record is damaged: {} snapshot{} missing, {}",
        units::count(missing),
        if missing == 1 { " is" } else { "s are" },
        places.join(", ")
    )
}

/// The gaps as a line of its own.
pub(super) fn gaps_line(all: &[GapFigures]) -> String {
    let text = gaps(all);
    if text.is_empty() { text } else { text + "\n" }
}

/// The way to look.
pub(super) fn look(look: &Basis) -> String {
    looked(&look.look)
}

/// As [`look`].
pub(super) fn looked(look: &str) -> String {
    match look {
        "" => "looked at: the record does not say how".to_owned(),
        look => format!("looked at by {}", printable(look)),
    }
}

/// The last lines of a report in text.
pub(super) fn footer(b: &Basis) -> String {
    format!("\n{}{}\n{}\n{}\n", gaps_line(&b.gaps), thresholds(b), unknown(b), look(b))
}

/// The first line of a report in text, if it has a title.
pub(super) fn heading(title: &str) -> String {
    if title.is_empty() { String::new() } else { printable(title) + "\n" }
}

/// The first lines of a report in text.
pub(super) fn head(title: &str, b: &Basis) -> String {
    format!(
        "{}{} to {} of the record, {} snapshot{}\n\n",
        heading(title),
        span(b.from_ms),
        span(b.to_ms),
        units::count(b.snapshots),
        if b.snapshots == 1 { "" } else { "s" },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use isotherm_core::TargetId;

    use super::*;
    use crate::scene::{mapping, region, snapshot, target};
    use crate::{
        AccessBuilder, Choice, Extent, Grid, GridSize, Options, Raw, Style, Summarizer,
        access_text, raw_head_text, raw_text, summary_text, terminal,
    };

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(printable("/a/bé [heap] 漢"), "/a/bé [heap] 漢");
        let hostile = "/a\u{1b}]0;x\u{7}\n\r\t\u{9b}2J\u{202e}b";
        assert_eq!(printable(hostile).chars().count(), hostile.chars().count());
        assert!(printable(hostile).chars().all(is_printable));
        assert_eq!(printable(hostile).replace(char::REPLACEMENT_CHARACTER, ""), "/a]0;x2Jb");
    }

    #[test]
    fn no_report_prints_them_as_they_are() {
        let hostile = "/x/\u{1b}]0;a\u{7}\nEND";
        let options = Options {
            title: hostile.into(),
            labels: [(TargetId(0), hostile.into()), (TargetId(1), hostile.into())].into(),
            look: hostile.into(),
            ..Options::default()
        };
        let view = |id| {
            let maps = vec![mapping(0, 0x10_0000, hostile)];
            target(id, maps, vec![region(0, 0x10_0000, 50.0)])
        };
        let s = Arc::new(snapshot(0, 1.0, vec![view(0), view(1)]));
        let mut summary = Summarizer::new(options.clone());
        let mut access = AccessBuilder::new(options.clone(), Choice::default());
        let mut extent = Extent::new(options.clone());
        let mut raw = Raw::new(options);
        summary.push(&s);
        access.push(&s);
        extent.push(&s);
        let mut grid = Grid::new(extent, &GridSize::terminal(80, 24)).unwrap();
        grid.push(&s);
        for text in [
            summary_text(&summary.finish().unwrap(), 10),
            access_text(&access.finish().unwrap()),
            terminal(&grid.finish(), Style::Plain),
            raw_head_text(&raw.head()) + &raw_text(&raw.snapshot(&s).unwrap()),
        ] {
            assert!(text.contains('\u{fffd}'), "{text}");
            assert!(text.lines().all(|line| line.chars().all(is_printable)), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("END")), "{text}");
        }
    }
}
