//! Owners of pages: files in the page cache and processes, and which of their pages are in swap.

use isotherm_mm::{FrameId, PageOwner};

use super::spec::SwapSpec;

/// No page.
const ABSENT: FrameId = FrameId::MAX;
/// The allocator's key of a page: the owner in the upper half, the page's index in the lower half.
const PROCESS: u64 = 1 << 63;
const INDEX_BITS: u32 = 40;

/// A part of a file or of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    File(usize, usize),
    Process(usize, usize),
}

impl Owner {
    pub fn encode(self) -> u64 {
        let (flag, id, index) = match self {
            Owner::File(id, index) => (0, id, index),
            Owner::Process(id, index) => (PROCESS, id, index),
        };
        flag | (id as u64) << INDEX_BITS | index as u64
    }

    fn decode(code: u64) -> Self {
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let id = number((code & !PROCESS) >> INDEX_BITS);
        let index = number(code & ((1 << INDEX_BITS) - 1));
        if code & PROCESS == 0 { Owner::File(id, index) } else { Owner::Process(id, index) }
    }
}

/// A page of a process: its entry in the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    frame: FrameId,
    /// node of the frame
    pub node: u8,
    pub accessed: bool,
    pub swapped: bool,
}

impl Entry {
    const NONE: Entry = Entry { frame: ABSENT, node: 0, accessed: false, swapped: false };

    pub fn new(frame: FrameId, node: usize) -> Self {
        let node = u8::try_from(node).unwrap_or(u8::MAX);
        Entry { frame, node, accessed: true, swapped: false }
    }

    pub fn is_present(&self) -> bool {
        self.frame != ABSENT
    }

    pub fn frame(&self) -> Option<FrameId> {
        self.is_present().then_some(self.frame)
    }
}

/// Page tables and the page cache.
#[derive(Debug, Default)]
pub(super) struct Owners {
    files: Vec<Vec<FrameId>>,
    pub processes: Vec<Vec<Entry>>,
    pub swap: Option<Swap>,
}

/// Pages of processes that are in swap.
#[derive(Debug)]
pub(super) struct Swap {
    spec: SwapSpec,
    /// pages in swap
    pub used: u64,
    /// pages written so far; `back`: pages read back so far
    pub out: u64,
    pub back: u64,
    /// time for writing pages to swap that was not charged to any task yet, in ns
    pub owed_ns: u64,
    /// frames that hold the compressed pages
    pub pool: Vec<FrameId>,
}

impl Swap {
    pub fn new(spec: SwapSpec) -> Self {
        Swap { spec, used: 0, out: 0, back: 0, owed_ns: 0, pool: Vec::new() }
    }

    /// Number of frames that the compressed pages require.
    pub fn pool_wanted(&self) -> u64 {
        (self.used * u64::from(self.spec.compressed_percent)).div_ceil(100)
    }

    fn put(&mut self) -> bool {
        let room = self.used < self.spec.pages;
        if room {
            self.used += 1;
            self.out += 1;
            self.owed_ns += u64::from(self.spec.out_ns);
        }
        room
    }

    /// Reads a page back; returns the time for it, in ns.
    pub fn bring(&mut self) -> u64 {
        self.used -= 1;
        self.back += 1;
        self.spec.in_ns.into()
    }
}

impl Owners {
    pub fn add_file(&mut self, pages: usize) -> usize {
        self.files.push(vec![ABSENT; pages]);
        self.files.len() - 1
    }

    pub fn add_process(&mut self, pages: usize) -> usize {
        self.processes.push(vec![Entry::NONE; pages]);
        self.processes.len() - 1
    }

    pub fn file_len(&self, file: usize) -> usize {
        self.files[file].len()
    }

    #[inline]
    pub fn cached(&self, file: usize, page: usize) -> Option<FrameId> {
        let frame = self.files[file][page];
        (frame != ABSENT).then_some(frame)
    }

    pub fn cache(&mut self, file: usize, page: usize, frame: FrameId) {
        self.files[file][page] = frame;
    }

    /// Removes all pages of a file from the cache, and returns their frames.
    pub fn drop_file(&mut self, file: usize) -> Vec<FrameId> {
        let pages = self.files[file].iter_mut().map(|f| std::mem::replace(f, ABSENT));
        pages.filter(|&f| f != ABSENT).collect()
    }

    /// Removes all pages of a process from memory and from swap, and returns their frames.
    pub fn drop_process(&mut self, process: usize) -> Vec<FrameId> {
        let entries = std::mem::take(&mut self.processes[process]);
        let swapped = entries.iter().filter(|e| e.swapped).count() as u64;
        if let Some(swap) = &mut self.swap {
            swap.used -= swapped;
        }
        entries.iter().filter_map(Entry::frame).collect()
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }
}

impl PageOwner for Owners {
    fn take_accessed(&mut self, owner: u64) -> bool {
        match Owner::decode(owner) {
            Owner::File(..) => false,
            Owner::Process(id, page) => {
                let entry = &mut self.processes[id][page];
                std::mem::take(&mut entry.accessed)
            }
        }
    }

    fn give_up(&mut self, owner: u64, _frame: FrameId) -> bool {
        match Owner::decode(owner) {
            Owner::File(file, page) => {
                self.files[file][page] = ABSENT;
                true
            }
            Owner::Process(id, page) => {
                let stored = self.swap.as_mut().is_some_and(Swap::put);
                if stored {
                    self.processes[id][page] = Entry { swapped: true, ..Entry::NONE };
                }
                stored
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_distinguished() {
        for owner in [Owner::File(0, 0), Owner::File(3, 1 << 33), Owner::Process(7, 5)] {
            assert_eq!(Owner::decode(owner.encode()), owner);
        }
    }
}
