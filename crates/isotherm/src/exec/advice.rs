//! The output of `isotherm report advice --json`, as advice for another run of the program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use isotherm_core::is_shared_memory;
use serde::Deserialize;

/// Maximum length of a file of advice, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The version of the keys that this module reads.
const KEYS_VERSION: u32 = 1;

/// The reason why a file is no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviceError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// Its content is something else.
    #[error("{path} is no advice ({why}): write it with isotherm report advice --json > {path}")]
    Parse {
        /// the file
        path: PathBuf,
        /// the reason
        why: String,
    },
}

/// The action for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RangeAction {
    Lock,
    Hugepage,
    /// pageout, cold: for memory that is idle now, not for that of another run
    #[serde(other)]
    Other,
}

/// Advice for a program and its descendants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgramAdvice {
    /// each process of the recorded run, in the order of the record
    pub(super) programs: Vec<Program>,
    /// bytes that the recorded run needed in addition to the ranges to lock
    beside: u64,
}

/// Advice for a process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    /// its name; `None`: any process that maps this memory, which is shared
    pub(super) name: Option<String>,
    /// in the order of addresses
    pub(super) mappings: Vec<AdvisedMapping>,
}

/// Advice for a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AdvisedMapping {
    /// its name in reports
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) parts: Vec<MappingPart>,
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MappingPart {
    pub(super) action: RangeAction,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) rate_hz: f64,
}

#[derive(Deserialize)]
struct Report {
    schema_version: u32,
    targets: Vec<Target>,
    ranges: Vec<Range>,
    #[serde(default)]
    sizing: Vec<Needed>,
}

/// Needed memory; that of all targets together comes first.
#[derive(Deserialize)]
struct Needed {
    needed_p95_bytes: u64,
}

#[derive(Deserialize)]
struct Target {
    target: u32,
    label: String,
}

#[derive(Deserialize)]
struct Range {
    action: RangeAction,
    target: u32,
    mapping: String,
    mapping_range: [String; 2],
    offset_bytes: u64,
    size_bytes: u64,
    rate_hz: f64,
}

impl Range {
    fn mapping(&self) -> Option<(u64, u64)> {
        let [start, end] = &self.mapping_range;
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let is_inside =
            self.offset_bytes.checked_add(self.size_bytes)? <= end.checked_sub(start)?;
        is_inside.then_some((start, end))
    }

    fn part(&self) -> MappingPart {
        let Range { action, offset_bytes, size_bytes, rate_hz, .. } = *self;
        MappingPart { action, offset: offset_bytes, bytes: size_bytes, rate_hz }
    }
}

impl ProgramAdvice {
    /// Reads the output of `isotherm report advice --json`.
    ///
    /// # Errors
    /// If the file cannot be read, or contains something else.
    pub fn read(path: &Path) -> Result<Self, AdviceError> {
        let failed = |source| AdviceError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
            .map_err(failed)?;
        ProgramAdvice::parse(&text).map_err(|why| AdviceError::Parse { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let report: Report = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if report.schema_version != KEYS_VERSION {
            return Err(format!(
                "its keys have version {}, not {KEYS_VERSION}",
                report.schema_version
            ));
        }
        let mut all: BTreeMap<u32, BTreeMap<(u64, u64), AdvisedMapping>> = BTreeMap::new();
        for range in report.ranges.iter().filter(|r| r.action != RangeAction::Other) {
            let (start, end) = range
                .mapping()
                .ok_or_else(|| format!("a range lies outside its mapping {}", range.mapping))?;
            let new = || AdvisedMapping {
                name: range.mapping.clone(),
                bytes: end - start,
                parts: Vec::new(),
            };
            let mapping = all.entry(range.target).or_default().entry((start, end));
            mapping.or_insert_with(new).parts.push(range.part());
        }
        let program = |target: Target| Program {
            name: Some(name_of(&target.label).to_owned()),
            mappings: all.remove(&target.target).unwrap_or_default().into_values().collect(),
        };
        let programs = report.targets.into_iter().map(program).collect();
        let needed = report.sizing.first().map_or(0, |all| all.needed_p95_bytes);
        let mut advice = ProgramAdvice { programs, beside: 0 };
        advice.separate_shared_memory();
        advice.beside = needed.saturating_sub(advice.lock_bytes());
        Ok(advice)
    }

    /// All processes that share memory lock the same pages, so any one of them suffices.
    fn separate_shared_memory(&mut self) {
        let mut shared: BTreeMap<(String, u64), Vec<MappingPart>> = BTreeMap::new();
        for program in &mut self.programs {
            for mapping in program.mappings.extract_if(.., |m| m.is_shared()) {
                shared.entry((mapping.name, mapping.bytes)).or_default().extend(mapping.parts);
            }
        }
        self.programs.extend(shared.into_iter().map(|((name, bytes), parts)| Program {
            name: None,
            mappings: vec![AdvisedMapping { name, bytes, parts: disjoint(parts) }],
        }));
    }

    /// The same advice with the hottest ranges to lock, up to `budget` bytes.
    #[must_use]
    pub fn within(mut self, budget: u64) -> Self {
        let parts =
            self.programs.iter_mut().flat_map(|p| &mut p.mappings).flat_map(|m| &mut m.parts);
        let mut locks: Vec<&mut MappingPart> =
            parts.filter(|p| p.action == RangeAction::Lock).collect();
        locks.sort_by(|a, b| b.rate_hz.total_cmp(&a.rate_hz));
        let mut left = budget / isotherm_core::PAGE_SIZE * isotherm_core::PAGE_SIZE;
        for part in locks {
            part.bytes = part.bytes.min(left);
            left -= part.bytes;
        }
        for program in &mut self.programs {
            program.mappings.iter_mut().for_each(|m| m.parts.retain(|p| p.bytes > 0));
            program.mappings.retain(|m| !m.parts.is_empty());
        }
        self
    }

    /// Bytes that the recorded run needed in addition to the ranges to lock.
    #[must_use]
    pub fn needed_beside(&self) -> u64 {
        self.beside
    }

    /// Bytes to lock.
    #[must_use]
    pub fn lock_bytes(&self) -> u64 {
        let parts = self.programs.iter().flat_map(|p| &p.mappings).flat_map(|m| &m.parts);
        parts.filter(|p| p.action == RangeAction::Lock).map(|p| p.bytes).sum()
    }
}

impl AdvisedMapping {
    /// Whether it is memory that a program shares with its descendants or with others.
    pub(super) fn is_shared(&self) -> bool {
        is_shared_memory(&self.name)
    }
}

/// The same parts, without the ranges that a hotter part of the same action covers.
fn disjoint(mut parts: Vec<MappingPart>) -> Vec<MappingPart> {
    parts.sort_by(|a, b| b.rate_hz.total_cmp(&a.rate_hz));
    let mut kept: Vec<MappingPart> = Vec::new();
    for part in parts {
        let mut rest = vec![part];
        for other in kept.iter().filter(|k| k.action == part.action) {
            rest = rest.into_iter().flat_map(|part| part.without(other)).collect();
        }
        kept.extend(rest);
    }
    kept
}

impl MappingPart {
    /// The remaining parts before and after another part.
    fn without(self, other: &MappingPart) -> impl Iterator<Item = MappingPart> + use<> {
        let (start, end) = (self.offset, self.offset + self.bytes);
        let pieces = [(start, end.min(other.offset)), (start.max(other.offset + other.bytes), end)];
        let piece = move |(start, end): (u64, u64)| {
            (start < end).then(|| MappingPart { offset: start, bytes: end - start, ..self })
        };
        pieces.into_iter().filter_map(piece)
    }
}

/// `redis-server` of `redis-server (pid 1234)`.
fn name_of(label: &str) -> &str {
    label.rsplit_once(" (pid ").map_or(label, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ranges: &str) -> Result<ProgramAdvice, String> {
        let targets =
            r#"[{"target":0,"label":"a (b) (pid 7)"},{"target":3,"label":"a (b) (pid 8)"}]"#;
        let text = format!(
            r#"{{"schema_version":1,"more":0,"targets":{targets},"ranges":[{ranges}],"sizing":[{{"needed_p95_bytes":94208}}]}}"#
        );
        ProgramAdvice::parse(&text)
    }

    fn range(action: &str, target: u32, name: &str, at: (u64, u64), rate: f64) -> String {
        format!(
            r#"{{"action":"{action}","target":{target},"mapping":"{name}","mapping_range":["0x10000","0x20000"],
            "offset_bytes":{},"size_bytes":{},"rate_hz":{rate},"call":""}}"#,
            at.0, at.1
        )
    }

    fn parts(advice: &ProgramAdvice) -> Vec<(usize, u64, u64)> {
        let each = advice.programs.iter().enumerate();
        let mappings = each.flat_map(|(i, p)| p.mappings.iter().map(move |m| (i, m)));
        mappings.flat_map(|(i, m)| m.parts.iter().map(move |p| (i, p.offset, p.bytes))).collect()
    }

    #[test]
    fn ranges_belong_to_their_mappings_and_processes() {
        let ranges = [
            range("lock", 0, "anonymous", (0x1000, 0x2000), 5.0),
            range("hugepage", 0, "anonymous", (0, 0x8000), 5.0),
            range("pageout", 0, "anonymous", (0x9000, 0x1000), 0.0),
            range("lock", 3, "[heap]", (0, 0x10000), 9.0),
        ];
        let advice = report(&ranges.join(",")).unwrap();
        assert_eq!(parts(&advice), [(0, 0x1000, 0x2000), (0, 0, 0x8000), (1, 0, 0x10000)]);
        assert!(advice.programs.iter().all(|p| p.name.as_deref() == Some("a (b)")));
        assert_eq!((advice.lock_bytes(), advice.needed_beside()), (0x12000, 0x5000));
    }

    #[test]
    fn the_hottest_ranges_fill_the_budget() {
        let ranges = [
            range("lock", 0, "anonymous", (0, 0x4000), 5.0),
            range("lock", 3, "anonymous", (0, 0x4000), 9.0),
            range("lock", 3, "anonymous", (0x8000, 0x4000), 1.0),
            range("hugepage", 3, "anonymous", (0, 0x8000), 1.0),
        ];
        let advice = report(&ranges.join(",")).unwrap().within(0x6fff);
        assert_eq!(parts(&advice), [(0, 0, 0x2000), (1, 0, 0x4000), (1, 0, 0x8000)]);
        assert_eq!(advice.lock_bytes(), 0x6000);
        assert_eq!(advice.within(0).lock_bytes(), 0);
    }

    #[test]
    fn memory_that_processes_share_is_locked_once() {
        let name = "/dev/zero (deleted)";
        let ranges = [
            range("lock", 0, name, (0x2000, 0x1000), 5.0),
            range("lock", 3, name, (0, 0x4000), 1.0),
        ];
        let advice = report(&ranges.join(",")).unwrap();
        assert_eq!(parts(&advice), [(2, 0x2000, 0x1000), (2, 0, 0x2000), (2, 0x3000, 0x1000)]);
        assert_eq!(advice.programs[2].name, None);
        let own = ranges.map(|range| range.replace(name, "anonymous"));
        assert_eq!(parts(&report(&own.join(",")).unwrap()).len(), 2);
    }

    #[test]
    fn what_is_no_advice_is_refused() {
        for (text, said) in [
            (String::new(), "EOF"),
            (r#"{"schema_version":2,"targets":[],"ranges":[]}"#.to_owned(), "version 2"),
            (r#"{"schema_version":1,"targets":[]}"#.to_owned(), "ranges"),
        ] {
            let why = ProgramAdvice::parse(&text).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        let why = report(&range("lock", 0, "anonymous", (0xf000, 0x2000), 1.0)).unwrap_err();
        assert!(why.contains("outside"), "{why}");
    }
}
