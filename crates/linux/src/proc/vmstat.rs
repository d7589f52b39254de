//! `/proc/vmstat`: counters of the whole machine.

use std::path::Path;

use super::zoneinfo::Counters;
use super::{ProcError, read_limited};

/// Enough: kernels have some hundred counters.
const LIMIT: u64 = 1 << 20;

/// Reads `/proc/vmstat`. Kernels differ in their counters.
///
/// # Errors
/// If the file does not exist, or has no counter.
pub fn vmstat(root: &Path) -> Result<Counters, ProcError> {
    let path = root.join("proc/vmstat");
    let text = read_limited(&path, LIMIT)?;
    let counters = parse(&text);
    if counters.is_empty() { Err(ProcError::parse(&path, &text)) } else { Ok(counters) }
}

/// Skips lines that are no counters: some gauges may be below zero for a moment.
fn parse(text: &str) -> Counters {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_kernels() {
        for (text, normal) in [
            (include_str!("../../tests/fixtures/vmstat/6.1"), 1663),
            (include_str!("../../tests/fixtures/vmstat/7.2"), 3619),
        ] {
            let counters = parse(text);
            assert_eq!(counters["pgalloc_normal"], normal);
            assert_eq!(counters.len(), text.lines().count());
        }
        assert_eq!(parse("nr_dirty -3\nno\n\nnr_free 2\n").len(), 1);
    }

    #[test]
    fn this_machine() {
        assert!(vmstat("/".as_ref()).unwrap()["pgfree"] > 0);
    }
}
