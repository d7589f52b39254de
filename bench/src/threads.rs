//! CPU time of the threads of a process.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// CPU time that each thread of a process has used so far, in the scheduler's nanoseconds.
#[derive(Debug, Clone)]
pub struct Threads {
    pid: u32,
    used: BTreeMap<u32, Duration>,
}

/// CPU time of a process between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// of its main thread
    pub main: Duration,
    /// of its other threads, as long as they exist
    pub others: Duration,
}

impl Threads {
    /// Reads the CPU times of process `pid`.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut used = BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = entry?.path();
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            // A thread may have ended since.
            let Ok(text) = std::fs::read_to_string(path.join("schedstat")) else { continue };
            let nanos = text.split(' ').next().and_then(|ns| ns.parse().ok());
            let (Some(id), Some(nanos)) = (id, nanos) else {
                return Err(io::Error::other(format!("{} has no CPU time", path.display())));
            };
            used.insert(id, Duration::from_nanos(nanos));
        }
        Ok(Threads { pid, used })
    }

    /// CPU time from this reading until now.
    pub fn since(&self) -> io::Result<Spent> {
        let mut spent = Spent { main: Duration::ZERO, others: Duration::ZERO };
        for (id, now) in Threads::of(self.pid)?.used {
            let new = now - self.used.get(&id).copied().unwrap_or_default().min(now);
            *if id == self.pid { &mut spent.main } else { &mut spent.others } += new;
        }
        Ok(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart() {
        let before = Threads::of(std::process::id()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let waste: u64 = (0..50_000_000u64).map(std::hint::black_box).sum();
            send.send(waste).unwrap();
            std::thread::park();
        });
        receive.recv().unwrap();
        let spent = before.since().unwrap();
        assert!(spent.others > spent.main, "{spent:?}");
    }
}
