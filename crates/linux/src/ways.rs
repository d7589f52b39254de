//! The ways to look at processes, the best first.

use std::path::Path;
use std::time::Duration;

use crate::ops::{Clearing, Idle, IdleError, Processes, Smaps, Vaddr};
use crate::proc::{self, ClearRefs, ProcError, Refs};
use crate::sys::{MemoryAdvice, missing_capabilities, supports_advice};
use crate::walker::{WalkError, WalkMethod, own_pid};

/// A way to look at processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// BPF with direct loads
    Bpf,
    /// BPF that copies each entry
    BpfProbe,
    /// a BPF task iterator
    BpfIter,
    /// page tables read by BPF, cleared by `clear_refs`
    ClearRefs,
    /// idle page tracking
    PageIdle,
    /// `clear_refs` and `smaps`
    Smaps,
}

/// The reason for which a way to look cannot be used here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WayError {
    /// from the walker
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// from idle page tracking
    #[error(transparent)]
    Idle(#[from] IdleError),
    /// no suitable `/proc`
    #[error(transparent)]
    Proc(ProcError),
    /// no `process_madvise`
    #[error(
        "cannot clear accessed bits by process_madvise: {0}. This requires Linux 5.10, and \
         CAP_SYS_NICE for other processes: run as root"
    )]
    NoAdvice(String),
    /// no `clear_refs`
    #[error(
        "cannot clear accessed bits: {0}. This requires a kernel with CONFIG_PROC_PAGE_MONITOR"
    )]
    NoRefs(#[from] ProcError),
    /// no way works
    #[error("there is no way to look at processes here:{}", list(.0))]
    None(Vec<(Way, WayError)>),
}

/// The best way that works.
pub struct Best {
    /// the way
    pub way: Way,
    /// an operations set that looks in this way
    pub ops: Box<dyn Processes>,
    /// the better ways, with the reasons for which they do not work
    pub passed: Vec<(Way, WayError)>,
}

fn list(tried: &[(Way, WayError)]) -> String {
    tried.iter().map(|(way, e)| format!("\n  {}: {e}", way.name())).collect()
}

impl Way {
    /// All ways, the best first.
    pub const ALL: [Way; 6] =
        [Way::Bpf, Way::BpfProbe, Way::BpfIter, Way::ClearRefs, Way::PageIdle, Way::Smaps];

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Bpf => "bpf",
            Way::BpfProbe => "bpf-probe",
            Way::BpfIter => "bpf-iter",
            Way::ClearRefs => "clear_refs",
            Way::PageIdle => "page_idle",
            Way::Smaps => "smaps",
        }
    }

    /// The way with this name.
    ///
    /// # Errors
    /// A text with all names.
    pub fn find(name: &str) -> Result<Way, String> {
        let way = Way::ALL.into_iter().find(|way| way.name() == name);
        way.ok_or_else(|| format!("no way to look: write {}", Way::ALL.map(Way::name).join(", ")))
    }

    /// Its method.
    #[must_use]
    pub fn how(self) -> &'static str {
        match self {
            Way::Bpf => "page tables read by BPF with direct loads, cleared by MADV_COLD",
            Way::BpfProbe => "page tables copied by BPF, cleared by MADV_COLD",
            Way::BpfIter => "page tables copied by a BPF task iterator, cleared by MADV_COLD",
            Way::ClearRefs => "page tables read by BPF, whole processes cleared by clear_refs",
            Way::PageIdle => "idle page tracking, by page frame",
            Way::Smaps => "clear_refs, then Referenced in smaps",
        }
    }

    /// Its resolution in space and time.
    #[must_use]
    pub fn resolution(self) -> &'static str {
        match self {
            Way::Bpf | Way::BpfProbe | Way::BpfIter => {
                "a page (2 MiB in huge pages), one sampling interval; memory mapped more than once or \
                 locked: a page, first touches 20 ms to 1 s or more after its bits are cleared, once \
                 in 1 to 60 s"
            }
            Way::ClearRefs => {
                "a page (2 MiB in huge pages), first touches 20 ms to 1 s or more after all bits are \
                 cleared, once in 1 to 60 s"
            }
            Way::PageIdle => {
                "a page (a folio in huge pages and large folios), one sampling interval"
            }
            Way::Smaps => {
                "a mapping, first touches within 100 ms or within 1 s or more after its bits are \
                 cleared, once in 1 to 60 s; rates above about 10 Hz cannot be distinguished"
            }
        }
    }

    /// The memory that it does not observe, or observes wrongly.
    #[must_use]
    pub fn blind_spots(self) -> &'static str {
        match self {
            Way::Bpf | Way::BpfProbe | Way::BpfIter => {
                "memory of KVM guests, of devices, hugetlb, parts of large folios; memory mapped more \
                 than once where a process that maps it is not watched and we touch nothing; \
                 processes of more than 8 GiB that share memory"
            }
            Way::ClearRefs => {
                "memory of KVM guests, of devices, hugetlb; processes of more than 8 GiB, which \
                 clearing would hold up for 0.1 s"
            }
            Way::PageIdle => {
                "memory of KVM guests, of devices, hugetlb, pages too new to be on an LRU list; \
                 pages in the TLB look idle until their entries are dropped"
            }
            Way::Smaps => {
                "memory of KVM guests, of devices, hugetlb; differences within a mapping; \
                 accesses of other processes to memory that is mapped more than once; where the \
                 kernel has soft-dirty bits, pages in the TLB look idle until their entries are \
                 dropped. Clearing and reading stall a process for 13 ms per GiB"
            }
        }
    }

    /// Name, method, resolution and blind spots in one line, for records.
    #[must_use]
    pub fn describe(self) -> String {
        format!(
            "{}: {}. Resolution: {}. Not seen: {}",
            self.name(),
            self.how(),
            self.resolution(),
            self.blind_spots()
        )
    }

    /// Suitable sampling and aggregation intervals.
    #[must_use]
    pub fn intervals(self) -> (Duration, Duration) {
        let (sample, aggr) = match self {
            Way::Bpf | Way::BpfProbe | Way::BpfIter => (20, 400),
            Way::ClearRefs => (20, 1000),
            Way::PageIdle | Way::Smaps => (100, 1000),
        };
        (Duration::from_millis(sample), Duration::from_millis(aggr))
    }

    /// Minimum sampling interval.
    #[must_use]
    pub fn shortest_sample(self) -> Duration {
        match self {
            Way::Smaps => self.intervals().0,
            Way::ClearRefs => Duration::from_millis(10),
            _ => Duration::ZERO,
        }
    }

    /// Whether it finds pages by their frames. That requires `CAP_SYS_ADMIN` each time that a process is
    /// attached or calls `exec`.
    #[must_use]
    pub fn requires_frames(self) -> bool {
        self == Way::PageIdle
    }

    /// Whether it reads files of `/proc` that only the owner of the process may read, while it looks. For
    /// processes of other users that requires `CAP_DAC_READ_SEARCH`.
    #[must_use]
    pub fn requires_files(self) -> bool {
        matches!(self, Way::PageIdle | Way::Smaps)
    }

    /// An operations set that looks in this way.
    ///
    /// # Errors
    /// The reason if that is not possible here, with a remedy.
    pub fn open(self) -> Result<Box<dyn Processes>, WayError> {
        let root = Path::new("/");
        // This check comes before any file of a process is opened, which may belong to another process.
        proc::check_namespace(root).map_err(WayError::Proc)?;
        let by_advice = |reading| -> Result<Box<dyn Processes>, WayError> {
            supports_advice(MemoryAdvice::Cold).map_err(|e| WayError::NoAdvice(e.to_string()))?;
            Ok(Box::new(Vaddr::with(reading, Clearing::Cold)?))
        };
        match self {
            Way::Bpf => by_advice(WalkMethod::Direct),
            Way::BpfProbe => by_advice(WalkMethod::Probe),
            Way::BpfIter => by_advice(WalkMethod::Iterator),
            Way::ClearRefs => {
                try_refs(root)?;
                Ok(Box::new(Vaddr::clearing(Clearing::Refs)?))
            }
            Way::PageIdle => Ok(Box::new(Idle::new(root)?)),
            Way::Smaps => {
                try_refs(root)?;
                proc::usage(root, own_pid())?;
                Ok(Box::new(Smaps::new(root)))
            }
        }
    }

    /// The best way that works here.
    ///
    /// # Errors
    /// If there is none: the reason for each way.
    pub fn best() -> Result<Best, WayError> {
        let mut passed = Vec::new();
        for way in Way::ALL {
            let opened = match way {
                // Permission for this process does not mean permission for others.
                Way::Bpf | Way::BpfProbe | Way::BpfIter
                    if missing_capabilities().contains(&"CAP_SYS_NICE") =>
                {
                    way.open()
                        .and_then(|_| Err(WayError::NoAdvice("CAP_SYS_NICE is missing".into())))
                }
                way => way.open(),
            };
            match opened {
                Ok(ops) => return Ok(Best { way, ops, passed }),
                Err(e) => passed.push((way, e)),
            }
        }
        Err(WayError::None(passed))
    }
}

/// Clears the bits of this process, which has no lasting effect.
fn try_refs(root: &Path) -> Result<(), WayError> {
    let path = || proc::pid_file(root, own_pid(), "clear_refs");
    let cleared = ClearRefs::open(root, own_pid())?.clear(Refs::Files);
    Ok(cleared.map_err(|source| ProcError::Read { path: path(), source })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished_and_described() {
        for (i, way) in Way::ALL.into_iter().enumerate() {
            assert!(Way::ALL.iter().skip(i + 1).all(|w| w.name() != way.name()));
            assert!(way.describe().starts_with(way.name()));
            let (sample, aggr) = way.intervals();
            assert!(sample * 2 <= aggr && way.shortest_sample() <= sample);
        }
    }

    /// This test needs no privilege.
    #[test]
    fn smaps_works_everywhere() {
        Way::Smaps.open().unwrap();
    }
}
