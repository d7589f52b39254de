//! Streams that read and write files: a file describes them (`docs/abi/testing/lab.md`).

use serde::{Deserialize, Serialize};

use crate::paged::StreamOrder;
use crate::workload::Op;

const MAX_PHASES: usize = 16;
const MAX_THREADS: u32 = 64;
const MAX_COUNTS: usize = 16;
const MAX_SIZE: f64 = 16.0;
/// Maximum number of pages of all files: 256 GiB.
const MAX_PAGES: f64 = (64 << 20) as f64;
const MAX_NAME: usize = 64;

/// Files that are read and written, as tiobench does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// description, in one line
    pub about: String,
    /// size of all files together, as a multiple of the memory
    pub size: f64,
    /// numbers of threads. Each thread has its own file, and each number is run on a machine of its own
    pub threads: Vec<u32>,
    /// phases in order of time
    #[serde(rename = "phase")]
    pub phases: Vec<StreamPhase>,
}

/// A phase in which all threads do the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamPhase {
    /// name, for people
    pub name: String,
    /// read, or write and wait until all pages are on the disk
    pub op: Op,
    /// order of the pages
    pub order: StreamOrder,
    /// number of pages over all threads; `None`: all pages of the files
    pub pages: Option<u64>,
    /// whether to drop cached pages of the files first
    #[serde(default)]
    pub drop_caches: bool,
}

/// Why a file is not a valid description of streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamsError {
    /// no TOML, or other keys than there are
    #[error("the workload cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// a number
    #[error("{what} cannot be {found}: choose {hint}")]
    Number {
        /// of what
        what: &'static str,
        /// how much
        found: f64,
        /// what it may be
        hint: &'static str,
    },
    /// a name
    #[error("{0:?} cannot be the name of a phase: choose one of 1 to {MAX_NAME} bytes")]
    Name(String),
}

impl Streams {
    /// Parses a file.
    ///
    /// # Errors
    /// If it is not valid: the place of the error, and what to do.
    pub fn parse(text: &str) -> Result<Self, StreamsError> {
        let streams: Streams = toml::from_str(text)?;
        streams.check()?;
        Ok(streams)
    }

    /// Pages of each file, on a machine with `memory` pages and `threads` threads.
    #[must_use]
    pub fn file_pages(&self, memory: i64, threads: u32) -> usize {
        let all = (memory as f64 * self.size).min(MAX_PAGES);
        ((all / f64::from(threads.max(1))) as usize).max(1)
    }

    fn check(&self) -> Result<(), StreamsError> {
        let number = |what, found, ok: bool, hint| {
            if ok { Ok(()) } else { Err(StreamsError::Number { what, found, hint }) }
        };
        let size = self.size > 0.0 && self.size <= MAX_SIZE;
        number("size", self.size, size, "above 0 and up to 16 times the memory")?;
        let n = self.threads.len();
        number(
            "the number of numbers of threads",
            n as f64,
            (1..=MAX_COUNTS).contains(&n),
            "1 to 16",
        )?;
        for &t in &self.threads {
            number("the number of threads", t.into(), (1..=MAX_THREADS).contains(&t), "1 to 64")?;
        }
        let n = self.phases.len();
        number("the number of phases", n as f64, (1..=MAX_PHASES).contains(&n), "1 to 16")?;
        for phase in &self.phases {
            if phase.name.is_empty() || phase.name.len() > MAX_NAME {
                return Err(StreamsError::Name(phase.name.clone()));
            }
            let pages = phase.pages.unwrap_or(1);
            let some = (1..=MAX_PAGES as u64).contains(&pages);
            number("the number of pages", pages as f64, some, "1 to 67108864")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_refused() {
        let phase = "[[phase]]\nname = 'a'\nop = 'read'\norder = 'random'\n";
        let text = |size: &str, threads: &str, more: &str| {
            format!("about = ''\nsize = {size}\nthreads = {threads}\n{phase}{more}")
        };
        assert!(Streams::parse(&text("2.0", "[1]", "")).is_ok());
        for (size, threads, more, word) in [
            ("0.0", "[1]", "", "size"),
            ("nan", "[1]", "", "size"),
            ("1.0", "[]", "", "numbers of threads"),
            ("1.0", "[65]", "", "1 to 64"),
            ("1.0", "[1]", "pages = 0", "pages"),
            ("1.0", "[1]", "cold = true", "unknown field"),
        ] {
            let e = Streams::parse(&text(size, threads, more)).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
    }

    #[test]
    fn files_share_the_size() {
        let text = include_str!("../../../lab/tiobench.toml");
        let streams = Streams::parse(text).unwrap();
        assert_eq!(streams.file_pages(1000, 1), 2000);
        assert_eq!(streams.file_pages(1000, 16), 125);
    }
}
