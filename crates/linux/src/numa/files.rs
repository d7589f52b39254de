//! Small files of sysfs.

use std::io;
use std::path::Path;
use std::str::FromStr;

use super::error::NumaError;
use crate::sys::MAX_KERNEL_NODES;

/// The text of a kernel file; none if the file is missing.
pub(super) fn text(path: &Path) -> Result<Option<String>, NumaError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NumaError::File { what: "read", path: path.to_owned(), source }),
    }
}

/// The number in a file; none if it is missing or is no number.
pub(super) fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path).ok()??.parse().ok()
}

/// Parses a list of nodes in the kernel's format, such as `0-2,5`.
pub(super) fn list(path: &Path, text: &str) -> Result<Vec<u32>, NumaError> {
    parse_list(text)
        .ok_or_else(|| NumaError::Parse { path: path.to_owned(), text: text.to_owned() })
}

/// Parses a list of nodes in the kernel's format, such as `0-2,5`; none if the text has another format.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MAX_KERNEL_NODES {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        for bad in ["x", "2-1", "0-", "0-99999999", "1,,x"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }
}
