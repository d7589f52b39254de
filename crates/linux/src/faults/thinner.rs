//! Selects the faults that are sampled.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use isotherm_core::{PAGE_SIZE, sample_hash};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use perf_event_open_sys::ioctls;

use super::event::Counts;
use crate::storage::Storage;
use crate::thin_skel::{ThinSkel, ThinSkelBuilder};

/// The greatest sample of pages is one page in 2^6.
const MIN_SHIFT: u32 = 6;
/// One major fault in this many is sampled, and fewer with a stride. At 1000 faults a second, these samples and those of
/// pages cost less than 0.1 % of a CPU (`BENCH stacks`). The number is prime, so that faults in a regular order are not
/// always sampled at the same place of it.
const MAJOR: u32 = 37;
/// Maximum stride. The program in the kernel multiplies it by up to 1024.
const MAX_STRIDE: u32 = 1 << 16;

/// Pages in the window that the kernel maps around a fault.
const FAULT_AROUND_PAGES: u64 = 16;

/// By the first bits of the hash of a window's first page, the two places in the window where its sampled page may be:
/// the first one in the four low bits, the second one in the others, and 0 if there is none.
///
/// Example: hashes are fractions of 1, a page in 64 is sampled if its fraction is below 1/64, and each page adds 0.618.
/// If the fraction of the first page is 0.384, that of the next one is 0.002, so it is sampled, and place 1 is in the
/// number of 24/64.
fn places() -> [u8; 1 << MIN_SHIFT] {
    std::array::from_fn(|bits| {
        // All hashes with these bits are in `bits * width..=bits * width + width - 1`.
        let width = 1_u64 << (64 - MIN_SHIFT);
        let lowest = bits as u64 * width;
        let mut may_be = (0..FAULT_AROUND_PAGES).filter(|i| {
            let of_lowest = lowest.wrapping_add(sample_hash(*i));
            of_lowest < width || of_lowest.wrapping_add(width - 1) < width
        });
        let [first, second] = std::array::from_fn(|_| may_be.next().unwrap_or(0));
        (first | second << 4) as u8
    })
}

/// `shift` in `struct page` of `thin.bpf.c`.
const SHIFT_BYTES: Range<usize> = 4..6;

/// `struct page_id` of `thin.bpf.c`.
fn page_id(program: u64, address: u64) -> Vec<u8> {
    [program, address / PAGE_SIZE].map(u64::to_ne_bytes).concat()
}

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
            (data.room, data.cpus, data.places) = (room, cpus, places());
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

    /// Notes that a page is not mapped any more, so that the next fault near it may sample it.
    pub fn unmapped(&self, program: u64, address: u64) {
        let Some(Program { skel, .. }) = &self.program else { return };
        let _is_noted = skel.maps.mapped.delete(&page_id(program, address));
    }

    /// Notes that a page that was left out is sampled now.
    pub fn sampled(&self, program: u64, address: u64) {
        let Some(Program { skel, .. }) = &self.program else { return };
        let _is_noted = skel.maps.pages.delete(&page_id(program, address));
    }

    /// Notes that the sample of this shift still leaves out a page: its last fault has not filled it.
    pub fn left_out(&self, program: u64, address: u64, shift: u32) {
        let Some(Program { skel, .. }) = &self.program else { return };
        let id = page_id(program, address);
        let Ok(Some(mut page)) = skel.maps.pages.lookup(&id, MapFlags::ANY) else { return };
        if let (Some(place), Ok(shift)) = (page.get_mut(SHIFT_BYTES), u16::try_from(shift)) {
            place.copy_from_slice(&shift.to_ne_bytes());
            let _is_noted = skel.maps.pages.update(&id, &page, MapFlags::EXIST);
        }
    }

    /// The shift of the sample when a page of the greatest sample was filled last; `None` if that is not known.
    pub fn filled(&self, program: u64, address: u64) -> Option<u32> {
        let Some(Program { skel, .. }) = &self.program else { return None };
        let page = skel.maps.pages.lookup(&page_id(program, address), MapFlags::ANY).ok()??;
        let shift = u16::from_ne_bytes(page.get(SHIFT_BYTES)?.try_into().ok()?);
        (shift > 0).then_some(shift.into())
    }

    /// Notes that the rings were read.
    pub fn read(&mut self) {
        if let Some(data) = self.program.as_mut().and_then(|p| p.skel.maps.data_data.as_deref_mut())
        {
            data.reads = data.reads.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::sample_level;

    use super::*;

    #[test]
    fn the_sampled_page_of_each_window_is_in_one_of_two_places() {
        let places = places();
        let mut windows = 0;
        for first in
            (0..1 << 20).chain((1 << 36) - (1 << 16)..1 << 36).step_by(FAULT_AROUND_PAGES as usize)
        {
            let may_be = places[(sample_hash(first) >> (64 - MIN_SHIFT)) as usize];
            let found = [may_be & 15, may_be >> 4].map(|i| first + u64::from(i));
            let sampled =
                (first..first + FAULT_AROUND_PAGES).find(|page| sample_level(*page) >= MIN_SHIFT);
            assert_eq!(found.into_iter().find(|page| sample_level(*page) >= MIN_SHIFT), sampled);
            windows += u32::from(sampled.is_some());
        }
        assert!((17_000..18_000).contains(&windows), "{windows}");
    }
}
