//! Takes fewer samples while there are many.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use isotherm_core::Nanos;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use perf_event_open_sys::ioctls;

use crate::storage::Storage;
use crate::thin_skel::{ThinSkel, ThinSkelBuilder};

/// A program in the kernel that takes one sample in a stride.
struct Program {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: ThinSkel<'static>,
    _storage: Storage,
}

impl Program {
    fn load() -> Result<Self, libbpf_rs::Error> {
        crate::log::quiet();
        // SAFETY: `Program` drops the skeleton, which has the only copy of the reference, before the storage.
        let (storage, place) = unsafe { Storage::new() };
        let skel = ThinSkelBuilder::default().open(place)?.load()?;
        Ok(Program { skel, _storage: storage })
    }
}

/// Takes one sample in a stride: in the kernel, or after the fact where BPF is not available.
pub(super) struct Thinner {
    program: Option<Program>,
    stride: u32,
    /// the stride before, and until when it was in force
    before: (u32, Nanos),
    /// number of samples that were to be thinned out here
    seen: u64,
}

impl Thinner {
    pub fn new() -> Self {
        Thinner { program: Program::load().ok(), stride: 1, before: (1, Nanos(0)), seen: 0 }
    }

    /// Lets the samples of an event be thinned out in the kernel; also of the threads that inherit it.
    pub fn attach(&self, event: &OwnedFd) -> io::Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        let program = u32::try_from(program.skel.progs.thin.as_fd().as_raw_fd()).unwrap_or(0);
        // SAFETY: both are descriptors that live, and the call accesses no memory of this process.
        let done = unsafe { ioctls::SET_BPF(event.as_raw_fd(), program) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes one sample in `stride`, at least 1, from now on.
    pub fn set(&mut self, stride: u32, now: Nanos) {
        if stride == self.stride {
            return;
        }
        self.before = (self.stride, now);
        self.stride = stride;
        let data = self.program.as_mut().and_then(|p| p.skel.maps.data_data.as_deref_mut());
        if let Some(data) = data {
            data.stride = stride;
        }
    }

    /// Number of samples that one at this time stands for; `None` if it is not to be taken.
    pub fn weight(&mut self, at: Nanos) -> Option<u64> {
        let (before, until) = self.before;
        let stride = if at < until { before } else { self.stride };
        self.seen += 1;
        let is_taken = self.program.is_some() || self.seen.is_multiple_of(u64::from(stride));
        is_taken.then_some(u64::from(stride))
    }
}
