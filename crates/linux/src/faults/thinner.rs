//! Selects the faults that are sampled.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use perf_event_open_sys::ioctls;

use super::event::Counts;
use crate::storage::Storage;
use crate::thin_skel::{ThinSkel, ThinSkelBuilder};

/// The greatest sample of pages is one page in 2^6.
const MIN_SHIFT: u32 = 6;
/// One major fault in this many is sampled, and fewer with a stride. The number is prime, so that faults in a regular
/// order are not always sampled at the same place of it.
const MAJOR: u32 = 13;
/// Maximum stride. The program in the kernel multiplies it by up to 1024.
const MAX_STRIDE: u32 = 1 << 16;

/// A program in the kernel that selects faults.
struct Program {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: ThinSkel<'static>,
    cpus: u32,
    /// It also takes the faults that map a sampled page beside the touched one.
    around: bool,
    _storage: Storage,
}

impl Program {
    fn load(room: [u32; 2], cpus: u32, around: bool) -> Result<Self, libbpf_rs::Error> {
        crate::log::quiet();
        // SAFETY: `Program` drops the skeleton, which has the only copy of the reference, before the storage.
        let (storage, place) = unsafe { Storage::new() };
        let mut skel = ThinSkelBuilder::default().open(place)?;
        skel.progs.at_minor.set_autoload(!around);
        skel.progs.at_major.set_autoload(!around);
        skel.progs.at_minor_around.set_autoload(around);
        skel.progs.at_major_around.set_autoload(around);
        skel.maps.outputs.set_max_entries(2 * cpus)?;
        if let Some(data) = skel.maps.rodata_data.as_deref_mut() {
            (data.room, data.cpus) = (room, cpus);
        }
        Ok(Program { skel: skel.load()?, cpus, around, _storage: storage })
    }
}

/// The rings that faults go to, in the order of the program's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Minor,
    Major,
}

impl Event {
    /// What the events of a thread count if faults are sampled without a program.
    pub(super) fn at_random(self) -> Counts {
        match self {
            Event::Minor => Counts::Minor { period: 61 },
            Event::Major => Counts::Major { period: MAJOR.into() },
        }
    }
}

/// Selects faults: in the kernel, or at random and after the fact where BPF is not available.
pub(super) struct Thinner {
    program: Option<Program>,
    stride: u32,
    /// number of samples that were to be thinned out here
    seen: u64,
}

impl Thinner {
    /// `room` is the number of samples that a ring for minor and for major faults holds. CPUs have numbers below `cpus`.
    pub fn new(room: [u32; 2], cpus: u32) -> Self {
        let load = |around| Program::load(room, cpus, around);
        let program = load(true).or_else(|_| load(false)).ok();
        let mut thinner = Thinner { program, stride: 1, seen: 0 };
        thinner.set(1);
        thinner
    }

    /// Continues without BPF.
    pub fn without_program(self) -> Self {
        Thinner { program: None, ..self }
    }

    /// Whether a program selects the faults.
    pub fn has_program(&self) -> bool {
        self.program.is_some()
    }

    /// Lets the program write the samples of a CPU into the ring of `owner`.
    pub fn output(&self, event: Event, cpu: i32, owner: &OwnedFd) -> io::Result<()> {
        let Some(Program { skel, cpus, .. }) = &self.program else { return Ok(()) };
        let cpu = u32::try_from(cpu).map_err(io::Error::other)?;
        let key = (event as u32 * cpus + cpu).to_ne_bytes();
        let fd = owner.as_raw_fd().to_ne_bytes();
        skel.maps.outputs.update(&key, &fd, MapFlags::ANY).map_err(io::Error::other)
    }

    /// Lets the program select among the faults of an event; also of the threads that inherit it.
    pub fn attach(&self, event: Event, fd: &OwnedFd) -> io::Result<()> {
        let Some(Program { skel, around, .. }) = &self.program else { return Ok(()) };
        let program = match (event, around) {
            (Event::Minor, false) => &skel.progs.at_minor,
            (Event::Minor, true) => &skel.progs.at_minor_around,
            (Event::Major, false) => &skel.progs.at_major,
            (Event::Major, true) => &skel.progs.at_major_around,
        };
        let program = u32::try_from(program.as_fd().as_raw_fd()).unwrap_or(0);
        // SAFETY: both are descriptors that live, and the call accesses no memory of this process.
        let done = unsafe { ioctls::SET_BPF(fd.as_raw_fd(), program) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes only one sample in `stride`, a power of two, from now on.
    pub fn set(&mut self, stride: u32) {
        self.stride = stride.clamp(1, MAX_STRIDE);
        let shift = self.shift();
        if let Some(data) = self.program.as_mut().and_then(|p| p.skel.maps.data_data.as_deref_mut())
        {
            (data.shift, data.stride) = (shift, MAJOR * self.stride);
        }
    }

    /// One page in 2 to this power is sampled.
    pub fn shift(&self) -> u32 {
        MIN_SHIFT + self.stride.ilog2()
    }

    /// The number by which to multiply the weight of a sample from a ring; `None` if it is not to be taken.
    pub fn weight(&mut self) -> Option<u64> {
        if self.program.is_some() {
            return Some(1);
        }
        self.seen += 1;
        self.seen.is_multiple_of(self.stride.into()).then_some(self.stride.into())
    }

    /// Notes that the rings were read.
    pub fn read(&mut self) {
        if let Some(data) = self.program.as_mut().and_then(|p| p.skel.maps.data_data.as_deref_mut())
        {
            data.reads = data.reads.wrapping_add(1);
        }
    }
}
