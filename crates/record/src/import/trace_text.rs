//! Text of tracepoints: `perf script`, `trace-cmd report`, and the kernel's `trace` file.
//!
//! ```text
//! kdamond.0  4452 [000] 82820.952659: damon:damon_aggregated: target_id=0 nr_regions=8 4096-8192: 0 5
//! kdamond.0-4452  [000] 82820.952659: damon_aggregated: target_id=0 nr_regions=8 4096-8192: 0 5
//! ```
//! A line has one region, and `nr_regions` such lines of a target are its result. The last number, the age, is
//! missing before Linux 5.16. All other lines are ignored.

use std::io::{BufRead, Read};

use super::events::{self, Event, Events};
use super::fault::Fault;
use super::series::{NO_AGE, Name, Region, Results};

/// Maximal length of a line.
const MAX_LINE: u64 = 64 << 10;
const AGGREGATED: &str = "damon_aggregated:";
const BEFORE_APPLY: &str = "damos_before_apply:";
const INTERVALS_TUNED: &str = "damon_monitor_intervals_tune:";

pub(super) fn read(mut input: impl BufRead) -> Result<Results, Fault> {
    let mut events = Events::default();
    let (mut line, mut at) = (Vec::new(), 0);
    loop {
        line.clear();
        let n = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
        if n == 0 {
            return events.finish(at);
        }
        if n == MAX_LINE {
            return Err(Fault::at(at, "a line is longer than any is"));
        }
        // A line that is no text is of another event.
        match str::from_utf8(&line).map(parse) {
            Ok(Some(Ok(Line::Region(event)))) => events.push(event, at)?,
            Ok(Some(Ok(Line::Tuned(kdamond, us)))) => events.tuned(kdamond, us, at)?,
            Ok(Some(Err(why))) => return Err(Fault::at(at, why)),
            Ok(None) | Err(_) => {}
        }
        at += n;
    }
}

enum Line {
    Region(Event),
    /// a kdamond, and its sampling interval in us
    Tuned(i64, u32),
}

/// `None`: the line is of another event.
fn parse(line: &str) -> Option<Result<Line, &'static str>> {
    if let Some((head, rest)) = line.split_once(INTERVALS_TUNED) {
        let tuned = value(rest, "sample_us").map(|us| Line::Tuned(kdamond(head), us));
        return Some(tuned.ok_or("sample_us is missing"));
    }
    let (head, rest, of_scheme) = match line.split_once(AGGREGATED) {
        Some((head, rest)) => (head, rest, false),
        None => line.split_once(BEFORE_APPLY).map(|(head, rest)| (head, rest, true))?,
    };
    Some(region(head, rest, of_scheme))
}

fn region(head: &str, rest: &str, of_scheme: bool) -> Result<Line, &'static str> {
    let name = if of_scheme {
        let index = |name, why| value(rest, name).map(|i: u32| i.into()).ok_or(why);
        let context = index("ctx_idx", "ctx_idx is missing")?;
        let scheme = index("scheme_idx", "scheme_idx is missing")?;
        let target = index("target_idx", "target_idx is missing")?;
        Name::Scheme(kdamond(head), context, scheme, target)
    } else {
        Name::Target(kdamond(head), 0, value(rest, "target_id").ok_or("target_id is missing")?)
    };
    let nr_regions = value(rest, "nr_regions").ok_or("nr_regions is missing")?;
    let mut words = rest.split_whitespace().skip_while(|word| word.contains('='));
    let range = words.next().and_then(|word| word.strip_suffix(':')?.split_once('-'));
    let (start, end) = range.ok_or("the addresses of the region are missing")?;
    let mut next = || words.next().map(|word| word.parse().map_err(|_| "a number is no number"));
    let nr_accesses = next().ok_or("the count of accesses is missing")??;
    let age = next().transpose()?.unwrap_or(NO_AGE);
    let address = |word: &str| word.parse().map_err(|_| "an address is no number");
    let region = Region { start: address(start)?, end: address(end)?, nr_accesses, age };
    let end = time(head).ok_or("there is no time before the name of the event")?;
    Ok(Line::Region(Event { name, nr_regions, region, end }))
}

/// The number of the kdamond; 0 if the thread has another name.
fn kdamond(head: &str) -> i64 {
    head.split_whitespace().next().and_then(events::kdamond).unwrap_or(0)
}

/// The value of `name=value`.
fn value<T: std::str::FromStr>(text: &str, name: &str) -> Option<T> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// The time before the name of an event, in ns: `82820.952659: damon:`.
fn time(head: &str) -> Option<u64> {
    let head = head.strip_suffix("damon:").unwrap_or(head).trim_end().strip_suffix(':')?;
    let (sec, fraction) = head.split_whitespace().next_back()?.split_once('.')?;
    if !(1..=9).contains(&fraction.len()) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let nanos = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    sec.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::series::Series;

    fn read_text(text: &str) -> Result<Results, Fault> {
        read(text.as_bytes())
    }

    #[test]
    fn lines_of_three_tools_are_the_same() {
        let region = Region { start: 4096, end: 8192, nr_accesses: 3, age: 5 };
        for head in [
            "   kdamond.0  4452 [000] 82820.952659: damon:damon_aggregated:",
            "kdamond.0 4452 82820.952659: damon:damon_aggregated:",
            "       kdamond.0-4452  [000] 82820.952659: damon_aggregated:    ",
            " kdamond.0-4452 [000] ..... 82820.952659: damon_aggregated:",
        ] {
            let text = format!(
                "cpus=2\n{head} target_id=18446623435582458880 nr_regions=1 4096-8192: 3 5\n"
            );
            let results = read_text(&text).unwrap();
            let series = &results.series[0];
            assert_eq!(series.name, Name::Target(0, 0, 18_446_623_435_582_458_880));
            assert_eq!(series.spans[0].end, 82_820_952_659_000);
            assert_eq!(series.regions(0), [region]);
        }
    }

    #[test]
    fn old_kernels_have_no_age_and_schemes_have_indices() {
        let text = "k 1 [0] 1.5: damon:damon_aggregated: target_id=0 nr_regions=1 0-1: 3\n\
            k 1 [0] 1.6: damon:damon_monitor_intervals_tune: sample_us=7000\n\
            k 1 [0] 1.7: damon:damos_before_apply: ctx_idx=0 scheme_idx=1 target_idx=2 nr_regions=9 8-9: 1 2\n\
            k 1 [0] 1.7: damon:damos_before_apply: ctx_idx=0 scheme_idx=1 target_idx=2 nr_regions=9 9-10: 1 2\n\
            k 1 [0] 1.8: damon:damos_before_apply: ctx_idx=0 scheme_idx=1 target_idx=2 nr_regions=9 8-9: 1 2\n";
        let results = read_text(text).unwrap();
        assert_eq!(results.series[0].regions(0)[0].age, NO_AGE);
        let scheme = &results.series[1];
        assert_eq!(scheme.name, Name::Scheme(0, 0, 1, 2));
        assert_eq!((scheme.spans.len(), scheme.regions(0).len()), (2, 2));
        assert_eq!(scheme.spans[0].sample_us, 7000);
    }

    /// Found by an audit: kdamonds shared one tuned interval.
    #[test]
    fn each_kdamond_has_its_tuned_interval() {
        let line =
            |kdamond, sec, event: &str| format!("kdamond.{kdamond} 1 [0] {sec}.5: damon:{event}\n");
        let result = "damon_aggregated: target_id=0 nr_regions=1 0-1: 3 4";
        let text = [
            line(0, 1, "damon_monitor_intervals_tune: sample_us=7000"),
            line(0, 2, result),
            line(1, 3, result),
        ];
        let results = read_text(&text.concat()).unwrap();
        let tuned = |s: &Series| (s.name, s.spans[0].sample_us);
        let found: Vec<_> = results.series.iter().map(tuned).collect();
        assert_eq!(found, [(Name::Target(0, 0, 0), 7000), (Name::Target(1, 0, 0), 0)]);
    }

    /// Found by an audit: the events of schemes of two kdamonds were one result.
    #[test]
    fn schemes_of_two_kdamonds_are_two() {
        let line = |kdamond, start: u32| {
            let event = "damos_before_apply: ctx_idx=0 scheme_idx=0 target_idx=0 nr_regions=9";
            format!("kdamond.{kdamond} 1 [0] 1.5: damon:{event} {start}-{}: 1 2\n", start + 1)
        };
        let text = [line(0, 1), line(1, 7), line(0, 2), line(1, 8)].concat();
        let results = read_text(&text).unwrap();
        let found = |s: &Series| (s.name, s.spans.len(), s.regions(0).len());
        let found: Vec<_> = results.series.iter().map(found).collect();
        assert_eq!(found, [(Name::Scheme(0, 0, 0, 0), 1, 2), (Name::Scheme(1, 0, 0, 0), 1, 2)]);
    }

    #[test]
    fn a_wrong_line_has_its_offset() {
        let good = "k 1 [0] 1.5: damon:damon_aggregated: target_id=0 nr_regions=2 0-1: 3 4\n";
        for bad in [
            "damon_aggregated: target_id=0 nr_regions=1 0-1: 3",
            "k 1.5: damon_aggregated: nr_regions=1 0-1: 3",
            "k 1.5: damon_aggregated: target_id=0 nr_regions=1 0-1 3",
            "k 1.5: damon_aggregated: target_id=0 nr_regions=1 5-1: 3",
            "k 1.5: damon_aggregated: target_id=0 nr_regions=1 0-1: x",
            "k 99999999999.5: damon_aggregated: target_id=0 nr_regions=1 0-1: 3",
        ] {
            let fault = read_text(&format!("{good}{bad}\n")).unwrap_err();
            let Fault::At { at, .. } = fault else { panic!("{fault:?}") };
            assert_eq!(at, good.len() as u64, "{bad}");
        }
    }

    #[test]
    fn a_result_that_breaks_off_is_counted() {
        let text = "k 1 [0] 1.5: damon:damon_aggregated: target_id=0 nr_regions=2 0-1: 3 4\n";
        let results = read_text(text).unwrap();
        assert_eq!((results.series[0].spans.len(), results.incomplete), (0, 1));
    }
}
