//! A disk: one arm, a queue, and streams that are served in turn.

use isotherm_core::PAGE_SIZE;

use super::spec::DiskSpec;
use crate::random::{below, mix};

/// After a sequential request, the time for which the disk waits for the next one of the same stream: CFQ's
/// `slice_idle`, in ns.
const IDLE_NS: u64 = 8_000_000;

/// The task that made the request.
pub(super) type Stream = usize;

/// Adjacent pages to read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskRequest {
    pub stream: Stream,
    /// the first page, counted from the start of the disk
    pub at: u64,
    pub pages: u64,
    /// whether more sequential requests will follow
    pub sequential: bool,
    /// time of the request, in ns
    pub asked: u64,
}

/// Counters of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct DiskStats {
    /// requests served
    pub requests: u64,
    /// requests for which the arm moved
    pub seeks: u64,
    /// pages read and written
    pub pages: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Disk {
    spec: DiskSpec,
    key: u64,
    /// position of the arm, in pages
    head: u64,
    free_at: u64,
    queue: Vec<DiskRequest>,
    slice: Option<Slice>,
    pub stats: DiskStats,
}

#[derive(Debug, Clone, Copy)]
struct Slice {
    stream: Stream,
    until: u64,
    /// worth waiting for
    sequential: bool,
}

impl Disk {
    pub fn new(spec: DiskSpec, key: u64) -> Self {
        let stats = DiskStats::default();
        Disk { spec, key, head: 0, free_at: 0, queue: Vec::new(), slice: None, stats }
    }

    pub fn ask(&mut self, request: DiskRequest) {
        self.queue.push(request);
    }

    /// When the disk starts to serve the next request, if there is one; `ready` returns when a stream that is
    /// not waiting can make its next request.
    pub fn next_at(&self, ready: impl Fn(Stream) -> Option<u64>) -> Option<u64> {
        let asked = self.queue.iter().map(|r| r.asked).min()?;
        let at = asked.max(self.free_at);
        // The stream whose turn it is may ask in time, or has asked while others had before.
        let awaited = self.slice.filter(|s| s.sequential && at < s.until).and_then(|s| {
            let queued = self.queue.iter().find(|r| r.stream == s.stream);
            let comes = queued.map_or_else(|| Some(ready(s.stream)? + 1), |r| Some(r.asked));
            comes.filter(|&t| t <= self.free_at + IDLE_NS)
        });
        Some(at.max(awaited.unwrap_or(0)))
    }

    /// Serves a request at `now`; returns it, and when it completes.
    pub fn serve(&mut self, now: u64) -> Option<(DiskRequest, u64)> {
        let slice = self.slice.filter(|s| now < s.until);
        let of_slice = slice.and_then(|s| self.nearest(|r| r.stream == s.stream && r.asked <= now));
        let chosen = of_slice.or_else(|| self.nearest(|r| r.asked <= now))?;
        let request = self.queue.swap_remove(chosen);
        let slice_ns = u64::from(self.spec.slice_ms) * 1_000_000;
        let until = match slice.filter(|s| s.stream == request.stream) {
            Some(slice) => slice.until,
            None => now + slice_ns,
        };
        self.slice = Some(Slice { stream: request.stream, until, sequential: request.sequential });
        let done = now + self.seek_ns(request.at) + self.transfer_ns(request.pages);
        self.head = request.at + request.pages;
        self.free_at = done;
        self.stats.requests += 1;
        self.stats.pages += request.pages;
        Some((request, done))
    }

    /// The nearest request ahead of the arm, or else the lowest one.
    fn nearest(&self, which: impl Fn(&DiskRequest) -> bool) -> Option<usize> {
        let all = self.queue.iter().enumerate().filter(|(_, r)| which(r));
        all.min_by_key(|(_, r)| (r.at < self.head, r.at, r.stream)).map(|(i, _)| i)
    }

    /// The time to reach a page: by moving the arm, or by passing the pages in between.
    fn seek_ns(&mut self, to: u64) -> u64 {
        let way = to.abs_diff(self.head);
        // Pages ahead of the head pass below it while the disk turns.
        let passing = if to >= self.head { self.transfer_ns(way) } else { u64::MAX };
        let seek = self.arm_ns(way) + self.turn_ns();
        self.stats.seeks += u64::from(seek < passing);
        seek.min(passing)
    }

    fn arm_ns(&self, way: u64) -> u64 {
        let s = &self.spec;
        let all = (u64::from(s.size_gib) << 18) as f64;
        let (track, full) = (f64::from(s.seek_track_us), f64::from(s.seek_full_us));
        // The square root is used because, unlike most functions, it gives the same result on every machine.
        let us = track + (full - track) * (way as f64 / all).min(1.0).sqrt();
        (us * 1e3) as u64
    }

    fn turn_ns(&self) -> u64 {
        below(mix(self.key, self.stats.requests), u64::from(self.spec.turn_us) * 1000)
    }

    fn transfer_ns(&self, pages: u64) -> u64 {
        pages * PAGE_SIZE * 1000 / u64::from(self.spec.transfer_mb_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(stream: Stream, at: u64, asked: u64) -> DiskRequest {
        DiskRequest { stream, at, pages: 32, sequential: true, asked }
    }

    fn disk() -> Disk {
        Disk::new(DiskSpec { turn_us: 0, ..DiskSpec::default() }, 1)
    }

    #[test]
    fn sequential_reads_have_no_seek() {
        let mut d = disk();
        d.ask(request(0, 0, 0));
        let (_, first) = d.serve(0).unwrap();
        assert_eq!(first, 32 * 4096 * 1000 / 132);
        d.ask(request(0, 32, first));
        assert_eq!(d.serve(first).unwrap().1, 2 * first);
        d.ask(request(0, 1 << 20, 2 * first));
        let (_, far) = d.serve(2 * first).unwrap();
        assert!(far > 3 * first + 1_000_000, "{far}");
        assert_eq!(d.stats, DiskStats { requests: 3, seeks: 1, pages: 96 });
    }

    #[test]
    fn a_stream_keeps_the_disk_for_its_slice_and_is_waited_for() {
        let mut d = disk();
        d.ask(request(0, 0, 0));
        let (_, done) = d.serve(0).unwrap();
        d.ask(request(1, 1 << 20, 0));
        // Stream 0 will ask soon: it is waited for; if it would not, the other is next.
        assert_eq!(d.next_at(|_| Some(done + 10)), Some(done + 11));
        assert_eq!(d.next_at(|_| None), Some(done));
        assert_eq!(d.next_at(|_| Some(done + IDLE_NS)), Some(done));
        d.ask(request(0, 32, done + 10));
        assert_eq!(d.next_at(|_| None), Some(done + 10), "it has asked, if later");
        assert_eq!(d.serve(done + 10).unwrap().0.stream, 0);
        let late = 200_000_000;
        d.ask(request(0, 64, late));
        assert_eq!(d.serve(late).unwrap().0.stream, 0, "the arm is there");
    }
}
