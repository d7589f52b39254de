//! The BPF page table reader: loads and runs it.

mod answer;
mod blocks;
mod error;
mod files;
mod help;
mod kernel_layout;
mod task_iter;

use std::time::Duration;

use isotherm_core::AddrRange;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ProgramInput, ProgramMut};

pub use self::answer::{Batch, Glance, Identity, MapChanges, WindowAnswer, fitting};
use self::answer::{glance, identity, pages_in};
pub(crate) use self::blocks::{Plain, RawBlock, Span, SpanReader, in_blocks, pages_in_block};
pub use self::error::WalkError;
pub(crate) use self::help::bpf_help;
use self::task_iter::TaskIter;
pub(crate) use self::task_iter::written;
use crate::proc::{self, Ram};
use crate::proof;
use crate::skel::{WalkSkel, WalkSkelBuilder, types};
use crate::storage::Storage;
use crate::sys::{missing_capabilities, monotonic};

/// Maximal number of windows in one run.
pub const MAX_WINDOWS: usize = 512;
/// Maximal number of pages over all windows in one run.
pub const MAX_ENTRIES: usize = 8192;
const MAX_VMAS: usize = 64;
/// If a process is changing its mappings, its flags are requested again for this long, with this pause.
const VMA_PATIENCE: Duration = Duration::from_millis(4);
const VMA_PAUSE: Duration = Duration::from_micros(200);
/// As in `walk.bpf.c`.
const VMA_IS_BUSY: u64 = 1 << 62;
const MAX_RAM: usize = 16;

/// How the program reads kernel memory and finds the process. isotherm tries the ways in this order, the
/// fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WalkMethod {
    /// direct loads, in a program of type `syscall` (since Linux 6.10)
    Direct,
    /// `bpf_probe_read_kernel`, in a program of type `syscall`
    Probe,
    /// `bpf_probe_read_kernel`, in a task iterator (since Linux 6.1)
    Iterator,
}

/// The pages whose folios are requested. The numbers are those of `enum want` in `walk.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Want {
    /// none
    Entries = 0,
    /// all pages of a window with a young page: only such pages can be cleared
    FoliosIfYoung = 1,
    /// all pages
    Folios = 2,
}

/// Reads page table entries of processes in isotherm's own pid namespace.
pub struct Walker {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: WalkSkel<'static>,
    _storage: Storage,
    reading: WalkMethod,
    tasks: TaskIter,
    five_levels: bool,
    direct_map: u64,
    vmemmap: u64,
    zero_frames: Vec<u64>,
    /// Whether data about large folios is correct; assumed until the proof.
    large_folios: bool,
    /// The same for the number of entries that map each of their pages. For a huge page that is mapped as a
    /// whole, the number is always known.
    counts_pages: bool,
    /// Whether `MADV_COLD` keeps large folios in page tables whole; assumed until the proof.
    keeps_folios: bool,
    /// buffer for the next reading
    blocks: Vec<RawBlock>,
}

// SAFETY: the skeleton holds raw pointers to maps and programs of its own object, which has no other user.
// libbpf objects may be used from any thread, but only from one at a time: every method that uses them takes
// `&mut self`.
unsafe impl Send for Walker {}

impl Walker {
    /// Loads the program for this way of reading, finds the kernel's structures, and proves that reading is
    /// correct with isotherm's own pages.
    ///
    /// # Errors
    /// The missing feature, the reason, and a remedy.
    pub fn load(reading: WalkMethod) -> Result<Self, WalkError> {
        let mut walker = Self::open(reading)?;
        let ram = proc::system_ram("/".as_ref())?;
        walker.set_ram(&ram);
        walker.find_direct_map()?;
        walker.find_struct_pages()?;
        let proven = proof::prove(&mut walker)?;
        walker.zero_frames = proven.zero_frames;
        walker.large_folios = proven.large_folios;
        walker.counts_pages = proven.counts_pages;
        walker.keeps_folios = walker.anchors()?.keeps_folios != 0;
        Ok(walker)
    }

    /// Loads the fastest program that works here.
    ///
    /// # Errors
    /// If none works: the reason why the fastest one does not.
    pub fn fastest() -> Result<Self, WalkError> {
        Self::load(WalkMethod::Direct).or_else(|e| {
            Self::load(WalkMethod::Probe)
                .or_else(|_| Self::load(WalkMethod::Iterator))
                .map_err(|_| e)
        })
    }

    /// A signal, such as for the end of a child, interrupts the verifier (EAGAIN): then loading is tried again,
    /// up to 5 times in total.
    fn open(reading: WalkMethod) -> Result<Self, WalkError> {
        const MAX_TRIES: u32 = 5;
        let mut opened = Self::try_open(reading);
        for _ in 1..MAX_TRIES {
            if !matches!(opened, Err(WalkError::Interrupted)) {
                break;
            }
            opened = Self::try_open(reading);
        }
        opened
    }

    fn try_open(reading: WalkMethod) -> Result<Self, WalkError> {
        crate::log::quiet();
        // SAFETY: `Walker` drops the skeleton, which has the only copy of the reference, before the storage.
        let (guard, place) = unsafe { Storage::new() };
        let load_error = |e: libbpf_rs::Error| match e.kind() {
            libbpf_rs::ErrorKind::WouldBlock | libbpf_rs::ErrorKind::Interrupted => {
                WalkError::Interrupted
            }
            _ => {
                // Without capabilities, libbpf's guess at the reason is misleading.
                let guesses = !missing_capabilities().is_empty();
                let reason = if guesses { e.to_string() } else { crate::log::reason(&e) };
                let help = bpf_help();
                WalkError::Load { reason, help, log: crate::log::last_messages() }
            }
        };
        let mut skel = WalkSkelBuilder::default().open(place).map_err(load_error)?;
        skel.progs.do_order.set_autoload(reading != WalkMethod::Iterator);
        skel.progs.do_order_for.set_autoload(reading == WalkMethod::Iterator);
        if let Some(constants) = skel.maps.rodata_data.as_deref_mut() {
            constants.direct_loads = reading == WalkMethod::Direct;
        }
        let skel = skel.load().map_err(load_error)?;
        Ok(Walker {
            skel,
            _storage: guard,
            reading,
            tasks: TaskIter::default(),
            five_levels: false,
            direct_map: 0,
            vmemmap: 0,
            zero_frames: Vec::new(),
            large_folios: true,
            counts_pages: true,
            keeps_folios: true,
            blocks: Vec::new(),
        })
    }

    /// An empty buffer for blocks, to be [given back](Self::give_back) after use.
    pub(crate) fn room(&mut self) -> Vec<RawBlock> {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        blocks
    }

    /// Keeps the buffer for the next reading.
    pub(crate) fn give_back(&mut self, blocks: Vec<RawBlock>) {
        self.blocks = blocks;
    }

    /// Frames of the zero pages: they are mapped, but are not memory of the process. For the huge zero page,
    /// its first frame.
    #[must_use]
    pub fn zero_frames(&self) -> &[u64] {
        &self.zero_frames
    }

    /// Whether the walker returns the number of entries that map each page. If not, pagemap has to be read.
    #[must_use]
    pub fn counts_pages(&self) -> bool {
        self.counts_pages
    }

    /// The way of reading.
    #[must_use]
    pub fn reading(&self) -> WalkMethod {
        self.reading
    }

    /// Reads windows (page-aligned, each within one 2 MiB block) of process `pid`, at most as many as
    /// [`fitting`] returns.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn read(
        &mut self,
        pid: i32,
        windows: impl Iterator<Item = (AddrRange, Want)>,
    ) -> Result<Batch<'_>, WalkError> {
        let bss = self.bss()?;
        let (mut first, mut count) = (0, 0);
        for (slot, (range, want)) in bss.windows.iter_mut().zip(windows) {
            let pages = pages_in(range);
            *slot = types::window { addr: range.start, pages, first, want: want as u32, unused: 0 };
            first += pages;
            count += 1;
        }
        let windows = u32::try_from(count).unwrap_or(0);
        self.run_order(types::order { job: READ_WINDOWS, windows, ..self.order(pid) })?;
        let Walker { large_folios, counts_pages, keeps_folios, .. } = *self;
        let bss = self.bss()?;
        Ok(Batch {
            identity: identity(bss),
            bss,
            windows: count,
            large_folios,
            counts_pages,
            keeps_folios,
        })
    }

    /// The identity of process `pid`, and the change counts of its mappings.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn glance(&mut self, pid: i32) -> Result<Glance, WalkError> {
        self.run_order(types::order { job: READ_WINDOWS, ..self.order(pid) })?;
        Ok(glance(self.bss()?))
    }

    /// The `vm_flags` of the areas that contain `addrs`; `None` where there is no area, or where the process
    /// was changing its mappings for all of `VMA_PATIENCE`.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn vma_flags(&mut self, pid: i32, addrs: &[u64]) -> Result<Vec<Option<u64>>, WalkError> {
        let mut out = Vec::with_capacity(addrs.len());
        let until = monotonic() + VMA_PATIENCE;
        for part in addrs.chunks(MAX_VMAS) {
            let nr_vmas = u32::try_from(part.len()).unwrap_or(0);
            if let Some(slots) = self.bss()?.vma_addrs.get_mut(..part.len()) {
                slots.copy_from_slice(part);
            }
            let order = types::order { job: READ_VMA_FLAGS, nr_vmas, ..self.order(pid) };
            self.run_order(order)?;
            let flags =
                |bss: &types::bss| bss.vma_flags.get(..part.len()).unwrap_or_default().to_vec();
            let mut reported = flags(self.bss()?);
            while reported.contains(&VMA_IS_BUSY) && monotonic() < until {
                std::thread::sleep(VMA_PAUSE);
                self.run_order(order)?;
                for (told, again) in reported.iter_mut().zip(flags(self.bss()?)) {
                    if *told == VMA_IS_BUSY {
                        *told = again;
                    }
                }
            }
            out.extend(reported.iter().map(|&f| (f >> 63 == 1).then_some(f & !(1 << 63))));
        }
        Ok(out)
    }

    fn order(&self, pid: i32) -> types::order {
        types::order {
            pid,
            five_levels: u32::from(self.five_levels),
            direct_map: self.direct_map,
            vmemmap: self.vmemmap,
            ..types::order::default()
        }
    }

    fn run_order(&mut self, order: types::order) -> Result<(), WalkError> {
        let bss = self.bss()?;
        bss.order = order;
        bss.status = NO_TASK;
        match self.reading {
            WalkMethod::Iterator => self.tasks.run(&self.skel.progs.do_order_for, order.pid)?,
            WalkMethod::Direct | WalkMethod::Probe => run(&self.skel.progs.do_order)?,
        }
        check(self.bss()?.status, order.pid)
    }

    fn bss(&mut self) -> Result<&mut types::bss, WalkError> {
        let missing = || WalkError::Run("its memory is not mapped".into());
        self.skel.maps.bss_data.as_deref_mut().ok_or_else(missing)
    }

    /// Sets the ranges of RAM. If there are more than the program can hold, it gets the largest ones, and does
    /// not follow page tables in the others.
    fn set_ram(&mut self, ram: &[Ram]) {
        let mut ram = ram.to_vec();
        ram.sort_by_key(|r| std::cmp::Reverse(r.end - r.start));
        ram.truncate(MAX_RAM);
        if let Ok(bss) = self.bss() {
            for (slot, r) in bss.ram.iter_mut().zip(&ram) {
                *slot = types::ram { start: r.start, end: r.end };
            }
        }
    }
}

/// isotherm's own pid, as BPF resolves it when isotherm runs the program.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn run(program: &ProgramMut<'_>) -> Result<(), WalkError> {
    let output = program.test_run(ProgramInput::default());
    output.map_err(|e| match passing(e.kind()) {
        Some(errno) => {
            let source = std::io::Error::from_raw_os_error(errno);
            WalkError::Short { what: "reading page tables", source }
        }
        None => WalkError::Run(crate::log::reason(&e)),
    })?;
    Ok(())
}

/// The error number of a temporary failure; `None` for other failures.
fn passing(kind: libbpf_rs::ErrorKind) -> Option<i32> {
    match kind {
        libbpf_rs::ErrorKind::OutOfMemory => Some(libc::ENOMEM),
        libbpf_rs::ErrorKind::WouldBlock => Some(libc::EAGAIN),
        libbpf_rs::ErrorKind::Interrupted => Some(libc::EINTR),
        _ => None,
    }
}

/// `enum job` in `walk.bpf.c`.
const READ_WINDOWS: u32 = 0;
const READ_VMA_FLAGS: u32 = 1;
const READ_BLOCKS: u32 = 2;
/// A value of `enum status` in `walk.bpf.c`.
const NO_TASK: u32 = 1;

fn check(status: u32, pid: i32) -> Result<(), WalkError> {
    match status {
        0 => Ok(()),
        NO_TASK => Err(WalkError::NoTask(pid)),
        2 => Err(WalkError::NoMemory(pid)),
        3 => Err(WalkError::Namespace),
        4 => Err(WalkError::NoFunction),
        other => Err(WalkError::Run(format!("it answered {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// A start may use 0.1 s of CPU time, and this would use half of it. A function that the verifier follows on
    /// each path that leads to it took 232,000 instructions, and 0.14 s.
    const MAX_VERIFIED: u64 = 20_000;

    #[test]
    fn loading_is_cheap_in_each_way() {
        if !missing_capabilities().is_empty() {
            eprintln!("skipped loading_is_cheap_in_each_way: it requires root");
            return;
        }
        for reading in [WalkMethod::Direct, WalkMethod::Probe, WalkMethod::Iterator] {
            let Ok(walker) = Walker::open(reading) else { continue };
            let progs = &walker.skel.progs;
            let program = match reading {
                WalkMethod::Iterator => progs.do_order_for.as_fd(),
                _ => progs.do_order.as_fd(),
            };
            let info = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
            let info = std::fs::read_to_string(info).unwrap();
            // Since Linux 5.16.
            let reported = info.lines().find_map(|line| line.strip_prefix("verified_insns:"));
            let verified: u64 = reported.unwrap().trim().parse().unwrap();
            assert!((500..MAX_VERIFIED).contains(&verified), "{reading:?}: {verified}");
        }
    }

    /// Found by an audit: each folder gave another program.
    #[test]
    fn the_programs_do_not_contain_the_folder_of_their_sources() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let has = |path: &str| program.windows(path.len()).any(|part| part == path.as_bytes());
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf/");
        assert!(has(&["./src/bpf", "walk.bpf.c"].join("/")));
        assert!(!has(sources.to_str().unwrap()), "{}", sources.display());
    }
}
