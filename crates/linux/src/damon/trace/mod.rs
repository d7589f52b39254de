//! Results from the tracepoint `damon:damon_aggregated`, in isotherm's own instance of tracefs.

mod bursts;
mod format;
mod page;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Nanos;

use super::results::AggregationResult;
use bursts::{Bursts, Traced};
use format::Format;
use page::Page;

/// The reason why the tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// tracefs is missing, or isotherm may not use it.
    #[error("{what} {path}: {source}")]
    Io {
        /// failed operation
        what: &'static str,
        /// file or directory
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The format of the event lacks this field.
    #[error("the tracepoint damon_aggregated of this kernel has no {0}")]
    Format(&'static str),
    /// The ring buffer is too small for one result.
    #[error(
        "the trace buffers of {cpus} CPUs, in {} MiB together, do not hold a result of {regions} regions",
        MAX_KIB_FOR_TWO >> 10
    )]
    TooBig {
        /// number of CPUs
        cpus: u64,
        /// maximal number of regions
        regions: u32,
    },
}

/// Possible places of tracefs, the usual one first.
const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
const INSTANCES: &str = "instances";
const EVENT: &str = "events/damon/damon_aggregated";
/// Prefix of the names of isotherm's instances.
const OURS: &str = "isotherm-";
/// Bytes per event. An event with its header needs 52 bytes; the rest covers the unused ends of pages.
const EVENT_BYTES: u64 = 64;
/// Number of results that the buffer should hold, so that a late reader loses none.
const RESULTS: u64 = 8;
/// Limits of the buffers of all CPUs together, in KiB: for `RESULTS` results, and for two results per CPU,
/// because all events may come from one CPU.
const MAX_KIB: u64 = 64 << 10;
const MAX_KIB_FOR_TWO: u64 = 256 << 10;
/// Maximal number of pages per read.
const MAX_PAGES: usize = 4096;

/// A trace instance, removed when dropped.
#[derive(Debug)]
pub(super) struct Trace {
    // An instance with open files cannot be removed, so the files are dropped first.
    cpus: Vec<File>,
    dir: Dir,
    format: Format,
    page: Vec<u8>,
    bursts: Bursts,
}

#[derive(Debug)]
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes an instance if its name shows that it is isotherm's; leaves others untouched.
pub(super) fn remove(dir: &Path) {
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let within = dir.parent().is_some_and(|p| p.ends_with(INSTANCES));
    if within && name.starts_with(OURS) {
        let _ = fs::write(dir.join(EVENT).join("enable"), "0");
        let _ = fs::remove_dir(dir);
    }
}

/// The path of the instance of process `pid`.
pub(super) fn place(root: &Path, pid: i32) -> Option<PathBuf> {
    let all = PLACES.iter().map(|p| root.join(p).join(INSTANCES)).find(|p| p.is_dir())?;
    Some(all.join(format!("{OURS}{pid}")))
}

impl Trace {
    /// Creates the instance `dir` for results of at most `max_regions` regions.
    pub fn open(dir: Option<&Path>, max_regions: u32) -> Result<Self, TraceError> {
        let Some(dir) = dir else {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(failed("there is no tracefs at", Path::new("/sys/kernel/tracing"), source));
        };
        fs::create_dir(dir).map_err(|e| failed("cannot make the trace instance", dir, e))?;
        let dir = Dir(dir.to_owned());
        let path = dir.0.join(EVENT).join("format");
        let text = fs::read_to_string(&path).map_err(|e| failed("cannot read", &path, e))?;
        let format = Format::parse(&text).map_err(TraceError::Format)?;
        let cpus = open_cpus(&dir.0)?;
        let nr_cpus = cpus.len() as u64;
        let too_big = TraceError::TooBig { cpus: nr_cpus, regions: max_regions };
        let kib = buffer_kib(max_regions, nr_cpus).ok_or(too_big)?;
        dir.write("trace_clock", "mono")?;
        dir.write("buffer_size_kb", &kib.to_string())?;
        dir.write(&format!("{EVENT}/enable"), "1")?;
        let page = vec![0; dir.page_size()];
        Ok(Trace { cpus, dir, format, page, bursts: Bursts::default() })
    }

    /// The next result that is complete by `now`; results come every `interval`.
    pub fn next(
        &mut self,
        now: Nanos,
        interval: Duration,
    ) -> Result<Option<AggregationResult>, TraceError> {
        let ready = self.bursts.next(now, interval);
        if ready.is_some() {
            return Ok(ready);
        }
        self.read()?;
        Ok(self.bursts.next(now, interval))
    }

    /// Drops all events so far.
    pub fn forget(&mut self) -> Result<(), TraceError> {
        self.read()?;
        self.bursts.forget();
        Ok(())
    }

    fn read(&mut self) -> Result<(), TraceError> {
        (0..self.cpus.len()).try_for_each(|i| self.read_cpu(i))
    }

    /// Number of results that were dropped because of lost events.
    pub fn dropped(&self) -> u64 {
        self.bursts.dropped
    }

    fn read_cpu(&mut self, i: usize) -> Result<(), TraceError> {
        let Some(cpu) = self.cpus.get_mut(i) else { return Ok(()) };
        for _ in 0..MAX_PAGES {
            let len = match cpu.read(&mut self.page) {
                Ok(0) => break,
                Ok(len) => len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed("cannot read events from", &self.dir.0, e)),
            };
            let Some(page) = self.page.get(..len).and_then(Page::new) else { continue };
            let mut after_loss = page.missed;
            let events = page.filter_map(|(at, bytes)| Some((at, self.format.decode(bytes)?)));
            self.bursts.add(events.map(|(at, event)| Traced {
                at,
                event,
                after_loss: std::mem::take(&mut after_loss),
            }));
        }
        Ok(())
    }
}

impl Dir {
    fn write(&self, name: &str, text: &str) -> Result<(), TraceError> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|e| failed("cannot write", &path, e))
    }

    /// Page size of the ring buffer in bytes; since Linux 6.8 it may be larger than 4 KiB.
    fn page_size(&self) -> usize {
        let kib = fs::read_to_string(self.0.join("buffer_subbuf_size_kb")).ok();
        let kib = kib.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(4);
        kib.clamp(4, 1024) << 10
    }
}

/// Buffer size per CPU in KiB; `None` if it cannot hold even one result.
fn buffer_kib(max_regions: u32, cpus: u64) -> Option<u64> {
    let result = (u64::from(max_regions) * EVENT_BYTES).div_ceil(1024).max(4);
    let many = (result * RESULTS).min(MAX_KIB / cpus.max(1));
    let kib = many.max((result * 2).min(MAX_KIB_FOR_TWO / cpus.max(1)));
    (kib >= result).then_some(kib)
}

fn open_cpus(dir: &Path) -> Result<Vec<File>, TraceError> {
    let all = dir.join("per_cpu");
    let cpus = fs::read_dir(&all).map_err(|e| failed("cannot read", &all, e))?;
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    cpus.flatten()
        .map(|cpu| {
            let path = cpu.path().join("trace_pipe_raw");
            let file = OpenOptions::new().read(true).custom_flags(nonblock).open(&path);
            file.map_err(|e| failed("cannot open", &path, e))
        })
        .collect()
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> TraceError {
    TraceError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_results_within_limits() {
        assert_eq!(buffer_kib(1000, 2), Some(63 * 8));
        assert_eq!(buffer_kib(3, 2), Some(32));
        assert_eq!(buffer_kib(1000, 1024), Some(126), "two results each");
        assert_eq!(buffer_kib(100_000, 128), None, "not even one");
    }
}
