//! Memory over time, sampled every second of a run.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_linux::proc::{children, resident};
use serde::{Deserialize, Serialize};

use super::machine::{compressed, used};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Memory in bytes, at a time or as a mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// memory in use on the machine, minus that before the run
    pub used: f64,
    /// resident memory of all processes of the workload: anonymous memory of each, plus shared memory and
    /// memory of files of the process with most of it
    pub resident: f64,
    /// in swap, before compression
    pub held: f64,
    /// memory that swap requires
    pub zram: f64,
}

/// The processes whose memory is sampled.
#[derive(Debug, Clone)]
pub struct SampledProcesses {
    /// its process, which is sampled with all descendants
    pub pid: i32,
    /// memory in use on the machine before the run
    pub before: u64,
    /// its swap device
    pub device: String,
}

/// Takes samples until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    taken: Arc<Mutex<Vec<MemoryFigures>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Takes the first at once.
    pub fn start(watched: SampledProcesses) -> Self {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (to, end) = (Arc::clone(&taken), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut next = Instant::now();
            while !end.load(Relaxed) {
                if Instant::now() >= next {
                    next += SAMPLE_INTERVAL;
                    let sample = watched.sample();
                    to.lock().unwrap_or_else(PoisonError::into_inner).extend(sample);
                }
                std::thread::sleep(POLL);
            }
        });
        Sampler { taken, over, thread: Some(thread) }
    }

    /// How many there are so far.
    pub fn len(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mean of the samples with these indices; if there are none, the last sample before them.
    pub fn mean(&self, which: Range<usize>) -> MemoryFigures {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let known = taken.get(..which.end.min(taken.len())).unwrap_or_default();
        let counted = known.get(which.start..).filter(|rest| !rest.is_empty());
        mean(counted.or(known.last().map(std::slice::from_ref)).unwrap_or_default())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl SampledProcesses {
    /// `None` once its processes have ended.
    fn sample(&self) -> Option<MemoryFigures> {
        let root = Path::new("/");
        let resident = resident_of(root, self.pid);
        let (used, zram) = (used(root).ok()?, compressed(root, &self.device).ok()?);
        (resident > 0).then_some(MemoryFigures {
            used: used as f64 - self.before as f64,
            resident: resident as f64,
            held: zram.held as f64,
            zram: zram.used as f64,
        })
    }
}

/// A process and all its descendants.
pub(super) fn with_children(root: &Path, pid: i32) -> Vec<i32> {
    let (mut pids, mut next) = (vec![pid], 0);
    while let Some(&pid) = pids.get(next) {
        let new = children(root, pid).into_iter().filter(|p| !pids.contains(p));
        let new: Vec<i32> = new.collect();
        pids.extend(new);
        next += 1;
    }
    pids
}

/// Resident bytes of a process and all its descendants.
fn resident_of(root: &Path, pid: i32) -> u64 {
    let pids = with_children(root, pid);
    let each = pids.iter().filter_map(|&pid| resident(root, pid).ok());
    let (own, common) = each.fold((0, 0), |(own, common), r| {
        (own + r.all.saturating_sub(r.files), r.files.max(common))
    });
    own + common
}

fn mean(samples: &[MemoryFigures]) -> MemoryFigures {
    let n = samples.len().max(1) as f64;
    let of = |figure: fn(&MemoryFigures) -> f64| samples.iter().map(figure).sum::<f64>() / n;
    MemoryFigures {
        used: of(|m| m.used),
        resident: of(|m| m.resident),
        held: of(|m| m.held),
        zram: of(|m| m.zram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_figure() {
        let at = |used, resident| MemoryFigures { used, resident, ..MemoryFigures::default() };
        assert_eq!(mean(&[at(1.0, 10.0), at(3.0, 30.0)]), at(2.0, 20.0));
        assert_eq!(mean(&[]), MemoryFigures::default());
    }

    /// Counted are those of a parent and of its child, and once only what both share.
    #[test]
    fn a_process_and_those_below_it() {
        let root = tempfile::tempdir().unwrap();
        for (pid, child, statm) in [(5, "6 ", "100 10 4 0 0 0 0"), (6, "", "100 20 6 0 0 0 0")] {
            let task = root.path().join(format!("proc/{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("children"), child).unwrap();
            std::fs::write(root.path().join(format!("proc/{pid}/statm")), statm).unwrap();
        }
        assert_eq!(resident_of(root.path(), 5), (6 + 14 + 6) * 4096);
        assert_eq!(resident_of(root.path(), 7), 0);
    }
}
