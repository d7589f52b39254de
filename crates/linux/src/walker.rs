//! The BPF page-table reader: loading it, finding its bearings, and running it.

use std::io;
use std::mem::MaybeUninit;

use isotherm_core::AddrRange;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput, ProgramMut};

use crate::proc::{self, ProcError, Ram};
use crate::proof;
use crate::skel::{WalkSkel, WalkSkelBuilder, types};
use crate::sys::{OwnPages, missing_capabilities};
use crate::x86::{Entry, Folio, Level};

/// Most windows, and most pages over all windows, in one run.
pub const MAX_WINDOWS: usize = 512;
/// See [`MAX_WINDOWS`].
pub const MAX_ENTRIES: usize = 8192;
const MAX_VMAS: usize = 64;
const MAX_RAM: usize = 16;
const GIB: u64 = 1 << 30;

/// Why page tables cannot be read by BPF here.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// load
    #[error("the kernel does not load the BPF program that reads page tables: {reason}. {help}")]
    Load {
        /// what libbpf or the kernel said
        reason: String,
        /// what may help
        help: String,
    },
    /// signals
    #[error("the kernel was interrupted while it checked the BPF program: try again")]
    Interrupted,
    /// run
    #[error("the BPF program does not run: {0}")]
    Run(String),
    /// calibration
    #[error(
        "cannot find {what} in kernel memory ({detail}): this kernel lays its memory out in a way isotherm does not know; reading page tables by BPF is not possible here"
    )]
    Bearings {
        /// what is missing
        what: &'static str,
        /// how it was sought
        detail: String,
    },
    /// proof
    #[error(
        "reading page tables by BPF does not give the truth on this kernel, so it is not used: {0}"
    )]
    Proof(#[from] proof::ProofError),
    /// which memory is System RAM
    #[error(
        "cannot tell which physical addresses are System RAM, so no page table is followed: {0}"
    )]
    Ram(#[from] ProcError),
    /// the target has no such task
    #[error("no process {0} in this pid namespace")]
    NoTask(i32),
    /// kernel threads
    #[error("process {0} has no memory of its own: it is a kernel thread, or it has just ended")]
    NoMemory(i32),
    /// old kernels in containers
    #[error(
        "this kernel (before 6.14) finds processes by BPF in the initial pid namespace only, and this is another one: run isotherm outside of the container"
    )]
    Namespace,
    /// system calls on own pages
    #[error("own test pages: {0}")]
    OwnPages(#[from] io::Error),
}

/// Who was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// nanoseconds since boot when the task started
    pub start_boottime: u64,
    /// which address space: changes with `exec`
    pub mm: u64,
}

/// The answer for one window.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// where the walk ended
    pub level: Level,
    /// one entry a page for [`Level::Pte`], one in all otherwise
    pub entries: &'a [u64],
    folios: &'a [u32],
}

impl Answer<'_> {
    /// The entry for the page at `index` of the window.
    #[must_use]
    pub fn entry(&self, index: usize) -> Entry {
        let index = if self.level == Level::Pte { index } else { 0 };
        Entry(self.entries.get(index).copied().unwrap_or(0))
    }

    /// The folio behind a young page, if that was asked for.
    #[must_use]
    pub fn folio(&self, index: usize) -> Option<Folio> {
        self.folios.get(index).and_then(|&raw| Folio::from_raw(raw))
    }
}

/// The answers of one run, in the order of the windows asked for.
#[derive(Debug)]
pub struct Batch<'a> {
    /// whose page tables they are
    pub identity: Identity,
    bss: &'a types::bss,
    windows: usize,
}

impl Batch<'_> {
    /// Window by window.
    pub fn answers(&self) -> impl Iterator<Item = Answer<'_>> {
        self.bss.windows.iter().zip(&self.bss.levels).take(self.windows).map(|(w, &level)| {
            let level = Level::from_raw(level);
            let (first, pages) = (w.first as usize, w.pages as usize);
            let n = if level == Level::Pte { pages } else { 1 };
            Answer {
                level,
                entries: self.bss.entries.get(first..first + n).unwrap_or_default(),
                folios: self.bss.folios.get(first..first + n).unwrap_or_default(),
            }
        })
    }
}

/// How many of `ranges`, from the first on, fit one run.
#[must_use]
pub fn fitting(ranges: impl Iterator<Item = AddrRange>) -> usize {
    let mut pages = 0;
    ranges
        .take(MAX_WINDOWS)
        .take_while(|r| {
            pages += pages_in(*r) as usize;
            pages <= MAX_ENTRIES
        })
        .count()
}

fn pages_in(range: AddrRange) -> u32 {
    u32::try_from(range.len() / isotherm_core::PAGE_SIZE).unwrap_or(u32::MAX)
}

/// Reads page-table entries of processes in our own pid namespace.
pub struct Walker {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: WalkSkel<'static>,
    _storage: Storage,
    five_levels: bool,
    direct_map: u64,
    vmemmap: u64,
    zero_frames: Vec<u64>,
}

/// The memory in which libbpf's object lives; freed when dropped.
struct Storage(*mut MaybeUninit<OpenObject>);

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` in `Walker::open`, and the skeleton that
        // referred to it is dropped before (it is declared first in `Walker`).
        drop(unsafe { Box::from_raw(self.0) });
    }
}

// SAFETY: the skeleton holds raw pointers to maps and programs of its own object, which no one else
// has; libbpf objects may be used from another thread as long as it is one at a time, and every
// method that uses them takes `&mut self`.
unsafe impl Send for Walker {}

impl Walker {
    /// Loads the program, finds its bearings, and has it prove itself on pages of our own.
    ///
    /// # Errors
    /// Says what is missing here, why, and what would help.
    pub fn load() -> Result<Self, WalkError> {
        let mut walker = Self::open()?;
        let ram = proc::system_ram("/".as_ref())?;
        walker.set_ram(&ram);
        walker.find_direct_map()?;
        walker.find_struct_pages()?;
        walker.zero_frames = proof::prove(&mut walker)?;
        Ok(walker)
    }

    /// The verifier gives up when a signal comes (EAGAIN), as when a child ends: then once more.
    fn open() -> Result<Self, WalkError> {
        const TRIES: u32 = 5;
        let mut opened = Self::try_open();
        for _ in 1..TRIES {
            if !matches!(opened, Err(WalkError::Interrupted)) {
                break;
            }
            opened = Self::try_open();
        }
        opened
    }

    fn try_open() -> Result<Self, WalkError> {
        crate::log::quiet();
        let storage = Box::into_raw(Box::new(MaybeUninit::uninit()));
        let guard = Storage(storage);
        // SAFETY: the box stays where it is and alive as long as `guard`, which `Walker` drops
        // after the skeleton; nobody else has the pointer.
        let place: &'static mut MaybeUninit<OpenObject> = unsafe { &mut *storage };
        let load_error = |e: libbpf_rs::Error| match e.kind() {
            libbpf_rs::ErrorKind::WouldBlock | libbpf_rs::ErrorKind::Interrupted => {
                WalkError::Interrupted
            }
            // What libbpf guesses at without capabilities leads astray.
            _ if !missing_capabilities().is_empty() => {
                WalkError::Load { reason: e.to_string(), help: crate::doctor::bpf_help() }
            }
            _ => {
                WalkError::Load { reason: crate::log::reason(&e), help: crate::doctor::bpf_help() }
            }
        };
        let skel = WalkSkelBuilder::default().open(place).map_err(load_error)?;
        let skel = skel.load().map_err(load_error)?;
        Ok(Walker {
            skel,
            _storage: guard,
            five_levels: false,
            direct_map: 0,
            vmemmap: 0,
            zero_frames: Vec::new(),
        })
    }

    /// Frames of the zero pages: mapped, but no memory of the process. That of a huge page is the
    /// first of its frames.
    #[must_use]
    pub fn zero_frames(&self) -> &[u64] {
        &self.zero_frames
    }

    /// Reads `windows` (page-aligned, each within one 2 MiB) of process `pid`, at most as many as
    /// [`fitting`] says. With `folios`, also what folio stands behind each young page.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn read(
        &mut self,
        pid: i32,
        windows: impl Iterator<Item = AddrRange>,
        folios: bool,
    ) -> Result<Batch<'_>, WalkError> {
        let mut order = self.order(pid);
        order.want_folios = u32::from(folios);
        let bss = self.bss()?;
        let (mut first, mut count) = (0, 0);
        for (slot, range) in bss.windows.iter_mut().zip(windows) {
            let pages = pages_in(range);
            *slot = types::window { addr: range.start, pages, first };
            first += pages;
            count += 1;
        }
        order.windows = u32::try_from(count).unwrap_or(0);
        let program = &self.skel.progs.read_windows;
        status(run(program, &mut order)?, pid)?;
        let bss = self.bss()?;
        Ok(Batch { identity: identity(bss), bss, windows: count })
    }

    /// The `vm_flags` of the areas that hold `addrs`, `None` where there is none or the process
    /// was busy mapping.
    ///
    /// # Errors
    /// If there is no such process or it has no memory.
    pub fn vma_flags(&mut self, pid: i32, addrs: &[u64]) -> Result<Vec<Option<u64>>, WalkError> {
        let mut out = Vec::with_capacity(addrs.len());
        for part in addrs.chunks(MAX_VMAS) {
            let mut order = self.order(pid);
            order.nr_vmas = u32::try_from(part.len()).unwrap_or(0);
            if let Some(slots) = self.bss()?.vma_addrs.get_mut(..part.len()) {
                slots.copy_from_slice(part);
            }
            let program = &self.skel.progs.read_vma_flags;
            status(run(program, &mut order)?, pid)?;
            let flags = self.bss()?.vma_flags.iter().take(part.len());
            out.extend(flags.map(|&f| (f >> 63 == 1).then_some(f & !(1 << 63))));
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

    fn bss(&mut self) -> Result<&mut types::bss, WalkError> {
        let missing = || WalkError::Run("its memory is not mapped".into());
        self.skel.maps.bss_data.as_deref_mut().ok_or_else(missing)
    }

    /// The biggest ranges, if there are more than the program can hold: the rest is not followed.
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

    fn is_ram(&mut self, address: u64) -> bool {
        self.bss().is_ok_and(|b| b.ram.iter().any(|r| (r.start..r.end).contains(&address)))
    }

    fn anchors(&mut self) -> Result<types::anchors, WalkError> {
        let mut order = self.order(0);
        run(&self.skel.progs.find_anchors, &mut order)?;
        Ok(self.bss()?.anchors)
    }

    fn peek(&mut self, address: u64) -> Result<u64, WalkError> {
        let mut order = self.order(0);
        order.address = address;
        run(&self.skel.progs.peek, &mut order)?;
        Ok(self.bss()?.peeked)
    }

    /// The direct map begins at a multiple of 1 GiB, below our own page table, which lies in it.
    /// The right beginning is the one under which our page tables lead to a page of ours that holds
    /// a word nobody else has.
    fn find_direct_map(&mut self) -> Result<(), WalkError> {
        const TRIES: u64 = 1 << 16; // 64 TiB
        let word = magic();
        let mut page = OwnPages::map(1)?;
        page.write(0, word);
        let pid = own_pid();
        let pgd = self.anchors()?.pgd;
        // /proc/cpuinfo tells what the CPU could do. What the kernel does shows in the layout: with
        // four levels there are no addresses of the kernel below these.
        self.five_levels = pgd < 0xffff_8000_0000_0000;
        for k in 0..TRIES.min(pgd / GIB) {
            self.direct_map = (pgd / GIB - k) * GIB;
            let entry = {
                let batch = self.read(pid, std::iter::once(page.range(0, 1)), false)?;
                batch.answers().next().filter(|a| a.level == Level::Pte).map(|a| a.entry(0))
            };
            let Some(entry) = entry.filter(|e| e.is_resident()) else { continue };
            // Under a wrong guess the entry is garbage.
            let address = entry.frame() * 4096;
            if self.is_ram(address) && self.peek(self.direct_map.wrapping_add(address))? == word {
                return Ok(());
            }
        }
        Err(WalkError::Bearings {
            what: "the direct map",
            detail: format!("tried {TRIES} places below {pgd:#x}"),
        })
    }

    /// See `find_anchors` in `walk.bpf.c`. Two pages must give the same answer.
    fn find_struct_pages(&mut self) -> Result<(), WalkError> {
        let a = self.anchors()?;
        let missing = |detail: String| WalkError::Bearings { what: "the struct pages", detail };
        if a.stack_pages.contains(&0) {
            return Err(missing("the kernel stack is not in virtually mapped pages".into()));
        }
        let windows = [0, 4096].map(|o| AddrRange::new(a.stack + o, a.stack + o + 4096));
        let frames: Vec<u64> = {
            let batch = self.read(own_pid(), windows.into_iter(), false)?;
            batch
                .answers()
                .map(|w| w.entry(0))
                .filter(|e| e.is_resident())
                .map(|e| e.frame())
                .collect()
        };
        let bases: Vec<u64> = frames
            .iter()
            .zip(a.stack_pages)
            .map(|(frame, page)| page.wrapping_sub(frame.wrapping_mul(a.page_size)))
            .collect();
        match bases[..] {
            [x, y] if x == y => {
                self.vmemmap = x;
                Ok(())
            }
            _ => Err(missing(format!("the pages of the kernel stack say {bases:x?}"))),
        }
    }
}

fn identity(bss: &types::bss) -> Identity {
    Identity { start_boottime: bss.identity.start_boottime, mm: bss.identity.mm }
}

/// Our own pid, as BPF run by us resolves it.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// A word that stands nowhere else in memory, most likely.
fn magic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seed = (now.tv_nsec.unsigned_abs() << 32) ^ now.tv_sec.unsigned_abs();
    (seed ^ u64::from(own_pid().unsigned_abs()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn run(program: &ProgramMut<'_>, order: &mut types::order) -> Result<u32, WalkError> {
    // SAFETY: `order` is a plain C struct without padding between its members (i32 and five u32, then u64s),
    // borrowed exclusively as long as the slice lives.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            std::ptr::from_mut(order).cast::<u8>(),
            size_of::<types::order>(),
        )
    };
    let input = ProgramInput { context_in: Some(bytes), ..Default::default() };
    let output = program.test_run(input).map_err(|e| WalkError::Run(crate::log::reason(&e)))?;
    Ok(output.return_value)
}

/// `enum status` in `walk.bpf.c`.
fn status(value: u32, pid: i32) -> Result<(), WalkError> {
    match value {
        0 => Ok(()),
        1 => Err(WalkError::NoTask(pid)),
        2 => Err(WalkError::NoMemory(pid)),
        3 => Err(WalkError::Namespace),
        other => Err(WalkError::Run(format!("it answered {other}"))),
    }
}
