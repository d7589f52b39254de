//! Takes fewer samples while there are many.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use isotherm_core::Nanos;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use perf_event_open_sys::ioctls;

use crate::storage::Storage;
use crate::thin_skel::{ThinSkel, ThinSkelBuilder};

/// Maximum stride. The program in the kernel multiplies it by up to 1024.
const MAX_STRIDE: u32 = 1 << 20;
/// Entries of the log of a CPU, and bytes of one: a time and a stride. As in `struct thinning` of `thin.bpf.c`.
const LOG_ENTRIES: usize = 64;
const ENTRY_BYTES: usize = 16;

/// A program in the kernel that takes one sample in a stride.
struct Program {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: ThinSkel<'static>,
    _storage: Storage,
}

impl Program {
    fn load(room: [u32; 2]) -> Result<Self, libbpf_rs::Error> {
        crate::log::quiet();
        // SAFETY: `Program` drops the skeleton, which has the only copy of the reference, before the storage.
        let (storage, place) = unsafe { Storage::new() };
        let mut skel = ThinSkelBuilder::default().open(place)?;
        if let Some(data) = skel.maps.rodata_data.as_deref_mut() {
            data.room = room;
        }
        Ok(Program { skel: skel.load()?, _storage: storage })
    }

    /// The log of each CPU: the strides of an event, and since when each was in force.
    fn logs(&self, event: Event) -> Vec<Vec<(Nanos, u64)>> {
        let key = (event as u32).to_ne_bytes();
        let read = self.skel.maps.thinnings.lookup_percpu(&key, MapFlags::ANY);
        let of_cpus = read.ok().flatten().unwrap_or_default();
        of_cpus.iter().map(|bytes| log(bytes)).collect()
    }
}

/// The changes of a stride, in the order of time, from the value of a CPU in the map of the program.
fn log(value: &[u8]) -> Vec<(Nanos, u64)> {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let entries = value.chunks_exact(ENTRY_BYTES).take(LOG_ENTRIES);
    let changes = entries.map(|e| e.split_at(ENTRY_BYTES / 2));
    let changes = changes.map(|(at, stride)| (Nanos(word(at)), word(stride)));
    let mut changes: Vec<(Nanos, u64)> = changes.filter(|&(_, stride)| stride > 0).collect();
    changes.sort_unstable();
    changes
}

/// The stride in force at a time. Before the first remaining entry, it is that of this entry.
fn in_force(log: &[(Nanos, u64)], at: Nanos) -> u64 {
    let after = log.partition_point(|&(since, _)| since <= at);
    log.get(after.saturating_sub(1)).map_or(1, |&(_, stride)| stride)
}

/// The events that are thinned out, in the order of the program's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Minor,
    Major,
}

/// Takes one sample in a stride: in the kernel, or after the fact where BPF is not available.
pub(super) struct Thinner {
    program: Option<Program>,
    stride: u32,
    /// number of samples that were to be thinned out here
    seen: u64,
}

impl Thinner {
    /// `room` is the number of samples that a ring for minor and for major faults holds.
    pub fn new(room: [u32; 2]) -> Self {
        Thinner { program: Program::load(room).ok(), stride: 1, seen: 0 }
    }

    /// Lets the samples of an event be thinned out in the kernel; also of the threads that inherit it.
    pub fn attach(&self, event: Event, fd: &OwnedFd) -> io::Result<()> {
        let Some(Program { skel, .. }) = &self.program else { return Ok(()) };
        let program = match event {
            Event::Minor => &skel.progs.thin_minor,
            Event::Major => &skel.progs.thin_major,
        };
        let program = u32::try_from(program.as_fd().as_raw_fd()).unwrap_or(0);
        // SAFETY: both are descriptors that live, and the call accesses no memory of this process.
        let done = unsafe { ioctls::SET_BPF(fd.as_raw_fd(), program) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes one sample in `stride`, at least 1, from now on.
    pub fn set(&mut self, stride: u32) {
        self.stride = stride.min(MAX_STRIDE);
        if let Some(data) = self.program.as_mut().and_then(|p| p.skel.maps.data_data.as_deref_mut())
        {
            data.stride = self.stride;
        }
    }

    /// Whether a sample from a ring is to be taken.
    pub fn takes_next(&mut self) -> bool {
        self.seen += 1;
        self.program.is_some() || self.seen.is_multiple_of(u64::from(self.stride))
    }

    /// Notes that the rings were read. Returns the number of samples that one of an event, on a CPU and at a time,
    /// represents.
    pub fn read(&mut self) -> impl Fn(Event, i32, Nanos) -> u64 + use<> {
        let mut logs = HashMap::new();
        if let Some(program) = &mut self.program {
            logs = [Event::Minor, Event::Major].map(|e| (e, program.logs(e))).into();
            if let Some(data) = program.skel.maps.data_data.as_deref_mut() {
                data.reads = data.reads.wrapping_add(1);
            }
        }
        let stride = u64::from(self.stride);
        move |event, cpu, at| {
            let of_cpu = usize::try_from(cpu).ok().and_then(|cpu| logs.get(&event)?.get(cpu));
            of_cpu.map_or(stride, |log| in_force(log, at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_a_sample_follows_from_its_time() {
        let mut value = vec![0; LOG_ENTRIES * ENTRY_BYTES + 24];
        for (i, (at, stride)) in [(500u64, 4u64), (100, 1), (300, 2)].into_iter().enumerate() {
            value[i * 16..][..8].copy_from_slice(&at.to_ne_bytes());
            value[i * 16 + 8..][..8].copy_from_slice(&stride.to_ne_bytes());
        }
        let log = log(&value);
        assert_eq!(log, [(Nanos(100), 1), (Nanos(300), 2), (Nanos(500), 4)]);
        let strides = [50, 100, 299, 300, 499, 500, 900].map(|at| in_force(&log, Nanos(at)));
        assert_eq!(strides, [1, 1, 1, 2, 2, 4, 4]);
        assert_eq!(in_force(&[], Nanos(7)), 1);
    }
}
