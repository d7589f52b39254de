//! Frames, and the lists that they are on: active and inactive, of processes and of files.

/// The number of a frame, over all zones.
pub type FrameId = u32;

const NONE: FrameId = FrameId::MAX;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LruType {
    /// memory of a process, to be swapped out
    Anon,
    /// a part of a file, to be dropped
    File,
}

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ListKind {
    /// of a process, and not used lately
    InactiveAnon,
    /// of a process
    ActiveAnon,
    /// of a file, and not used lately or once only
    InactiveFile,
    /// of a file
    ActiveFile,
    /// in use, on none of them: it stays
    Unevictable,
    /// in nobody's use
    Free,
}

impl ListKind {
    /// The lists of a `Lruvec`, in the order in which they are scanned.
    pub const LRU: [ListKind; 4] = [
        ListKind::InactiveAnon,
        ListKind::ActiveAnon,
        ListKind::InactiveFile,
        ListKind::ActiveFile,
    ];

    /// That of pages of this kind.
    #[must_use]
    pub fn of(kind: LruType, active: bool) -> ListKind {
        match (kind, active) {
            (LruType::Anon, false) => ListKind::InactiveAnon,
            (LruType::Anon, true) => ListKind::ActiveAnon,
            (LruType::File, false) => ListKind::InactiveFile,
            (LruType::File, true) => ListKind::ActiveFile,
        }
    }

    /// Whose pages are on it, if it is a list of a `Lruvec`.
    #[must_use]
    pub fn lru_type(self) -> Option<LruType> {
        match self {
            ListKind::InactiveAnon | ListKind::ActiveAnon => Some(LruType::Anon),
            ListKind::InactiveFile | ListKind::ActiveFile => Some(LruType::File),
            _ => None,
        }
    }

    /// Whether it is one of those in use.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, ListKind::ActiveAnon | ListKind::ActiveFile)
    }
}

/// Used once since it was last asked: `PG_referenced`.
pub(crate) const REFERENCED: u8 = 1;
/// To be written.
pub(crate) const DIRTY: u8 = 2;
/// To be taken back as soon as it is written: `PG_reclaim`.
pub(crate) const RECLAIM: u8 = 4;
/// In page tables: whoever owns it knows whether it was accessed.
pub(crate) const MAPPED: u8 = 8;

/// A frame of a page.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    next: FrameId,
    prev: FrameId,
    /// whatever the caller knows it by
    pub owner: u64,
    /// when it was given out
    pub born: u64,
    pub zone: u16,
    pub list: ListKind,
    pub flags: u8,
}

impl Frame {
    pub fn new(zone: u16) -> Self {
        Frame { next: NONE, prev: NONE, owner: 0, born: 0, zone, list: ListKind::Free, flags: 0 }
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Clears a flag, and says whether it was set.
    pub fn take(&mut self, flag: u8) -> bool {
        let had = self.has(flag);
        self.flags &= !flag;
        had
    }
}

/// A list that goes through the frames themselves.
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

    /// The one that is to be scanned next.
    pub fn tail(&self) -> Option<FrameId> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub fn push_head(&mut self, frames: &mut [Frame], id: FrameId) {
        let frame = &mut frames[id as usize];
        (frame.prev, frame.next) = (NONE, self.head);
        match self.head {
            NONE => self.tail = id,
            head => frames[head as usize].prev = id,
        }
        self.head = id;
        self.len += 1;
    }

    pub fn push_tail(&mut self, frames: &mut [Frame], id: FrameId) {
        let frame = &mut frames[id as usize];
        (frame.prev, frame.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = id,
            tail => frames[tail as usize].next = id,
        }
        self.tail = id;
        self.len += 1;
    }

    pub fn remove(&mut self, frames: &mut [Frame], id: FrameId) {
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

    /// Those on it, from the head on.
    pub fn iter<'a>(&self, frames: &'a [Frame]) -> impl Iterator<Item = FrameId> + use<'a> {
        let some = |id: FrameId| (id != NONE).then_some(id);
        std::iter::successors(some(self.head), move |&id| some(frames[id as usize].next))
    }
}

/// The lists of a zone, or of a node, and what scanning them has found.
#[derive(Debug, Clone)]
pub(crate) struct Lruvec {
    pub lists: [List; 4],
    /// scanned lately, of processes and of files
    pub scanned: [i64; 2],
    /// found in use of these
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

    /// Whether the inactive list is too short to tell what is in use: `inactive_list_is_low`. Of
    /// files, the active list may be as long; of processes, longer with the root of its size.
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
