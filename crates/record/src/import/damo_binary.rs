//! damo's binary records, versions 0 to 2, which damo wrote until version 2.0.2.
//!
//! All numbers are little-endian. Versions 1 and 2 begin with `damon_recfmt_ver` and the version (i32). Then
//! follow results: end as seconds and nanoseconds (i64 each), and number of targets (u32). Each target has its id
//! (version 1: i32, the pid; else u64) and its number of regions (u32). Each region has start and end (u64) and
//! the count of accesses (u32). There are neither ages nor intervals.

use std::io::Read;

use super::fault::Fault;
use super::series::{NO_AGE, Name, Region, Results};

/// First bytes of versions 1 and 2.
pub(super) const MAGIC: &[u8; 16] = b"damon_recfmt_ver";
/// The bytes of a result before its targets.
const HEAD: usize = 20;
/// Maximal number of targets of a result.
const MAX_TARGETS: u32 = 10_000;
/// The count of accesses in the trailing result that damo adds to a record of one result.
const NO_ACCESSES: u32 = u32::MAX;

/// Whether a file may be of version 0, which has no header: the first bytes are a plausible result.
pub(super) fn is_version_0(first: &[u8]) -> bool {
    let Some(head) = first.first_chunk::<HEAD>() else { return false };
    let (sec, nsec, targets) = parse(head);
    (0..1 << 33).contains(&sec)
        && (0..1_000_000_000).contains(&nsec)
        && (1..=MAX_TARGETS).contains(&targets)
}

fn parse(head: &[u8; HEAD]) -> (i64, i64, u32) {
    let i64_at = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    (i64_at(0), i64_at(8), u32::from_le_bytes(std::array::from_fn(|i| head[16 + i])))
}

pub(super) fn read(input: impl Read, version_0: bool) -> Result<Results, Fault> {
    let mut results = Results::default();
    let mut bytes = Bytes { input, at: 0 };
    let version = if version_0 {
        0
    } else {
        bytes.array::<16>()?;
        i32::from_le_bytes(bytes.array()?)
    };
    if !(0..=2).contains(&version) {
        return Err(Fault::at(16, format!("its version is {version}, and only 0 to 2 are known")));
    }
    while let Some(head) = bytes.next::<HEAD>()? {
        let (at, (sec, nsec, targets)) = (bytes.at, parse(&head));
        let end = u64::try_from(sec).ok().zip(u64::try_from(nsec).ok());
        let end = end.and_then(|(s, ns)| s.checked_mul(1_000_000_000)?.checked_add(ns));
        let end = end.ok_or_else(|| Fault::at(at, "a time is negative or too large"))?;
        if targets > MAX_TARGETS {
            return Err(Fault::at(at, "a result has more targets than any has"));
        }
        for _ in 0..targets {
            let name = match version {
                1 => Name::Pid(u32::from_le_bytes(bytes.array()?)),
                _ => Name::Target(0, 0, u64::from_le_bytes(bytes.array()?)),
            };
            let series = results.series_of(name, false, bytes.at)?;
            let mut trailing = false;
            for _ in 0..u32::from_le_bytes(bytes.array()?) {
                let region = Region {
                    start: u64::from_le_bytes(bytes.array()?),
                    end: u64::from_le_bytes(bytes.array()?),
                    nr_accesses: u32::from_le_bytes(bytes.array()?),
                    age: NO_AGE,
                };
                trailing |= region.nr_accesses == NO_ACCESSES;
                results.region(series, region, bytes.at)?;
            }
            if trailing {
                results.drop_open(series);
            } else {
                results.close(series, (None, end), 0, bytes.at)?;
            }
        }
    }
    Ok(results)
}

struct Bytes<R> {
    input: R,
    at: u64,
}

impl<R: Read> Bytes<R> {
    /// The next `N` bytes; `None` at the end of the input.
    fn next<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        let (mut bytes, mut len) = ([0; N], 0);
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if len == 0 => return Ok(None),
                Ok(0) => return Err(Fault::at(self.at, "the file ends within a result")),
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.at += N as u64;
        Ok(Some(bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.next()?.ok_or_else(|| Fault::at(self.at, "the file ends within a result"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of `version` with results of two targets, and the trailing result that damo adds.
    fn record(version: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        if version > 0 {
            bytes.extend(MAGIC);
            bytes.extend(version.to_le_bytes());
        }
        let mut result = |sec: i64, targets: &[(u64, u64, u64, u32)]| {
            bytes.extend(sec.to_le_bytes());
            bytes.extend(5i64.to_le_bytes());
            bytes.extend(u32::try_from(targets.len()).unwrap().to_le_bytes());
            for (id, start, end, nr) in targets {
                let id = id.to_le_bytes();
                bytes.extend(if version == 1 { &id[..4] } else { &id[..] });
                bytes.extend(1u32.to_le_bytes());
                bytes.extend(start.to_le_bytes());
                bytes.extend(end.to_le_bytes());
                bytes.extend(nr.to_le_bytes());
            }
        };
        result(1, &[(70, 0, 4096, 3), (71, 0, 4096, 0)]);
        result(2, &[(70, 0, 0, NO_ACCESSES)]);
        bytes
    }

    #[test]
    fn each_version_is_read() {
        for version in 0..=2 {
            let bytes = record(version);
            assert_eq!(is_version_0(&bytes), version == 0);
            let results = read(&bytes[..], version == 0).unwrap();
            let names: Vec<Name> = results.series.iter().map(|s| s.name).collect();
            let name =
                |n: u32| if version == 1 { Name::Pid(n) } else { Name::Target(0, 0, n.into()) };
            assert_eq!(names, [name(70), name(71)]);
            assert_eq!(results.series[0].spans.len(), 1, "the trailing result is dropped");
            assert_eq!(results.series[0].spans[0].end, 1_000_000_005);
            let region = Region { start: 0, end: 4096, nr_accesses: 3, age: NO_AGE };
            assert_eq!(results.series[0].regions(0), [region]);
        }
    }

    #[test]
    fn a_cut_file_has_an_offset() {
        let bytes = record(2);
        for len in 21..bytes.len() {
            // where the first result ends
            if len == 20 + 20 + 2 * 32 {
                continue;
            }
            let Err(Fault::At { at, .. }) = read(&bytes[..len], false) else { panic!("{len}") };
            assert!(at <= len as u64, "{at} of {len}");
        }
    }
}
