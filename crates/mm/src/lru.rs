//! Frames and their lists: active and inactive, for process pages and file pages.

/// The number of a frame, unique over all zones.
pub type FrameId = u32;

const NONE: FrameId = FrameId::MAX;

/// The kind of data in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LruType {
    /// process memory, which reclaim swaps out
    Anon,
    /// file data, which reclaim drops
    File,
}

/// The list of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ListKind {
    /// process pages, not recently used
    InactiveAnon,
    /// process pages, recently used
    ActiveAnon,
    /// file pages, not recently used or used only once
    InactiveFile,
    /// file pages, used at least twice
    ActiveFile,
    /// pages in permanent use, on no LRU list
    Unevictable,
    /// free frames
    Free,
}

impl ListKind {
    /// The lists of a `Lruvec`, in scan order.
    pub const LRU: [ListKind; 4] = [
        ListKind::InactiveAnon,
        ListKind::ActiveAnon,
        ListKind::InactiveFile,
        ListKind::ActiveFile,
    ];

    /// The list for pages of this kind.
    #[must_use]
    pub fn of(kind: LruType, active: bool) -> ListKind {
        match (kind, active) {
            (LruType::Anon, false) => ListKind::InactiveAnon,
            (LruType::Anon, true) => ListKind::ActiveAnon,
            (LruType::File, false) => ListKind::InactiveFile,
            (LruType::File, true) => ListKind::ActiveFile,
        }
    }

    /// The kind of the pages on this list; `None` if it is not a list of a `Lruvec`.
    #[must_use]
    pub fn lru_type(self) -> Option<LruType> {
        match self {
            ListKind::InactiveAnon | ListKind::ActiveAnon => Some(LruType::Anon),
            ListKind::InactiveFile | ListKind::ActiveFile => Some(LruType::File),
            _ => None,
        }
    }

    /// Whether it is an active list.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, ListKind::ActiveAnon | ListKind::ActiveFile)
    }
}

/// Used once since the last check: `PG_referenced`.
pub(crate) const REFERENCED: u8 = 1;
/// Dirty: must be written.
pub(crate) const DIRTY: u8 = 2;
/// Must be reclaimed as soon as it is written: `PG_reclaim`.
pub(crate) const RECLAIM: u8 = 4;
/// Mapped: its owner knows whether it was accessed.
pub(crate) const MAPPED: u8 = 8;

/// The state of a frame.
#[derive(Debug, Clone)]
pub(crate) struct PageFrame {
    next: FrameId,
    prev: FrameId,
    /// the caller's identifier
    pub owner: u64,
    /// time of the allocation
    pub born: u64,
    pub zone: u16,
    pub list: ListKind,
    pub flags: u8,
}

impl PageFrame {
    pub fn new(zone: u16) -> Self {
        PageFrame {
            next: NONE,
            prev: NONE,
            owner: 0,
            born: 0,
            zone,
            list: ListKind::Free,
            flags: 0,
        }
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Clears a flag; returns whether it was set.
    pub fn take(&mut self, flag: u8) -> bool {
        let had = self.has(flag);
        self.flags &= !flag;
        had
    }
}

/// A doubly linked list through the frames.
#[derive(Debug, Clone)]
pub(crate) struct List {
    head: FrameId,
    tail: FrameId,
    len: i64,
}

impl List {
    fn new() -> Self {
        List { head: NONE, tail: NONE, len: 0 }
    }

    pub fn len(&self) -> i64 {
        self.len
    }

    /// The frame that is scanned next.
    pub fn tail(&self) -> Option<FrameId> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub fn push_head(&mut self, frames: &mut [PageFrame], id: FrameId) {
        let frame = &mut frames[id as usize];
        (frame.prev, frame.next) = (NONE, self.head);
        match self.head {
            NONE => self.tail = id,
            head => frames[head as usize].prev = id,
        }
        self.head = id;
        self.len += 1;
    }

    pub fn push_tail(&mut self, frames: &mut [PageFrame], id: FrameId) {
        let frame = &mut frames[id as usize];
        (frame.prev, frame.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = id,
            tail => frames[tail as usize].next = id,
        }
        self.tail = id;
        self.len += 1;
    }

    pub fn remove(&mut self, frames: &mut [PageFrame], id: FrameId) {
        let (prev, next) = (frames[id as usize].prev, frames[id as usize].next);
        match prev {
            NONE => self.head = next,
            prev => frames[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => frames[next as usize].prev = prev,
        }
        self.len -= 1;
    }

    /// The frames on the list, from the head on.
    pub fn iter<'a>(&self, frames: &'a [PageFrame]) -> impl Iterator<Item = FrameId> + use<'a> {
        let some = |id: FrameId| (id != NONE).then_some(id);
        std::iter::successors(some(self.head), move |&id| some(frames[id as usize].next))
    }
}

/// The lists of a zone or node, and statistics of their scans.
#[derive(Debug, Clone)]
pub(crate) struct Lruvec {
    pub lists: [List; 4],
    /// recently scanned pages, by kind
    pub scanned: [i64; 2],
    /// of these, pages found in use
    pub rotated: [i64; 2],
}

impl Lruvec {
    pub fn new() -> Self {
        let lists = std::array::from_fn(|_| List::new());
        Lruvec { lists, scanned: [0; 2], rotated: [0; 2] }
    }

    pub fn len(&self, kind: ListKind) -> i64 {
        self.lists[kind as usize].len()
    }

    /// Whether the inactive list is too short to detect pages in use: `inactive_list_is_low`. For file pages,
    /// the active list may have the same length; for process pages, the permitted ratio grows with the square
    /// root of the size.
    pub fn inactive_is_low(&self, kind: LruType) -> bool {
        let len = |active| self.len(ListKind::of(kind, active));
        match kind {
            LruType::File => len(true) > len(false),
            LruType::Anon => {
                let gib = (len(true) + len(false)) >> 18;
                len(false) * (10 * gib).isqrt().max(1) < len(true)
            }
        }
    }
}
