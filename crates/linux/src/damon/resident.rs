//! The resident part of a region, and the part of it that DAMON can observe: DAMON itself does not know which
//! pages are resident.

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, Unknown, UnknownPages};

use crate::proc::{FrameContent, KPageFlags, Pagemap};

/// Resident bytes of a range, and those of them that are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Presence {
    pub resident: u64,
    pub unknown: UnknownPages<u64>,
}

impl Presence {
    /// Resident bytes whose accesses DAMON observes.
    pub fn seen(&self) -> u64 {
        self.resident.saturating_sub(self.unknown.total())
    }

    /// The same range, if DAMON has not looked at its observable part.
    pub fn unseen(mut self) -> Self {
        let seen = self.seen();
        self.unknown.0[Unknown::Unseen.index()] += seen;
        self
    }

    /// `bytes` without any information.
    fn unknown_use(bytes: u64) -> Self {
        Presence { resident: bytes, ..Presence::default() }.unseen()
    }
}

impl std::ops::AddAssign for Presence {
    fn add_assign(&mut self, o: Presence) {
        self.resident += o.resident;
        self.unknown.0.iter_mut().zip(o.unknown.0).for_each(|(sum, n)| *sum += n);
    }
}

/// Reports which memory of a range is resident.
pub(super) trait Present {
    /// The presence in `range`, which lies within mapped memory.
    fn presence(&self, range: AddrRange) -> Presence;
}

/// Maximal number of resident ranges of one process: each needs 24 bytes.
const MAX_RANGES: usize = 1 << 20;

/// Resident memory of a process.
#[derive(Debug, Default)]
pub(super) struct Resident {
    ranges: Vec<AddrRange>,
    /// resident bytes before each range
    before: Vec<u64>,
    /// address from which on there was no space for ranges
    untold_from: Option<u64>,
    /// mappings that DAMON cannot observe
    hidden: Vec<(AddrRange, Unknown)>,
}

impl Resident {
    /// Reads the resident memory again.
    pub fn read(&mut self, pagemap: &mut Pagemap, mappings: &[Mapping]) {
        self.ranges.clear();
        for mapping in mappings {
            pagemap.resident(mapping.range, MAX_RANGES, &mut self.ranges);
        }
        self.index(mappings, MAX_RANGES);
    }

    /// Prepares lookups. If there are `limit` ranges, further ones may have been omitted.
    fn index(&mut self, mappings: &[Mapping], limit: usize) {
        let last = self.ranges.last().filter(|_| self.ranges.len() >= limit);
        self.untold_from = last.map(|r| r.end);
        let mut sum = 0;
        self.before.clear();
        self.before.extend(self.ranges.iter().map(|r| {
            sum += r.len();
            sum - r.len()
        }));
        let hidden = mappings.iter().filter_map(|m| Some((m.range, m.unknown?)));
        self.hidden = hidden.collect();
    }

    fn bytes(&self, range: AddrRange) -> u64 {
        self.below(range.end).saturating_sub(self.below(range.start))
    }

    /// Resident bytes at addresses below `addr`.
    fn below(&self, addr: u64) -> u64 {
        let i = self.ranges.partition_point(|r| r.start < addr);
        let last = i.checked_sub(1).and_then(|i| self.ranges.get(i).zip(self.before.get(i)));
        last.map_or(0, |(r, before)| before + addr.min(r.end).saturating_sub(r.start))
    }
}

impl Present for Resident {
    fn presence(&self, range: AddrRange) -> Presence {
        let mut presence = Presence { resident: self.bytes(range), ..Presence::default() };
        let first = self.hidden.partition_point(|(h, _)| h.end <= range.start);
        let hidden = self.hidden.iter().skip(first).take_while(|(h, _)| h.start < range.end);
        for (part, why) in hidden.filter_map(|(h, why)| Some((h.intersect(&range)?, why))) {
            presence.unknown.0[why.index()] += self.bytes(part);
        }
        if let Some(from) = self.untold_from {
            presence +=
                Presence::unknown_use(AddrRange::new(range.start.max(from), range.end).len());
        }
        presence
    }
}

/// Physical memory, estimated from a sample of its page frames. DAMON observes pages on LRU lists.
#[derive(Debug)]
pub(super) struct Frames(pub KPageFlags);

/// Sampled page frames per range: the error of a share is mostly at most a quarter of the range.
const FRAMES: u64 = 16;

impl Present for Frames {
    fn presence(&self, range: AddrRange) -> Presence {
        let (start, len) = (range.start / PAGE_SIZE, range.len() / PAGE_SIZE);
        let n = len.clamp(1, FRAMES);
        // The middle of each of n equal parts.
        let frames: Vec<u64> = (0..n).map(|i| start + (len * (2 * i + 1)) / (2 * n)).collect();
        let bytes = range.len() / n;
        let mut presence = Presence::default();
        let Ok(contents) = self.0.contents(&frames) else {
            return Presence::unknown_use(range.len());
        };
        for content in contents {
            match content {
                FrameContent::Nothing => {}
                FrameContent::Seen(_) => presence.resident += bytes,
                FrameContent::Unknown(why) => {
                    presence.resident += bytes;
                    presence.unknown.0[why.index()] += bytes;
                }
            }
        }
        presence
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::MappingKind;

    use super::*;

    #[test]
    fn resident_bytes_of_any_range() {
        let range = |start, end| AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE);
        let resident = Resident {
            ranges: vec![range(2, 4), range(6, 10), range(20, 21)],
            before: vec![0, 2 * PAGE_SIZE, 6 * PAGE_SIZE],
            hidden: vec![(range(8, 12), Unknown::Dma)],
            untold_from: None,
        };
        let pages = |start, end| {
            let p = resident.presence(range(start, end));
            (
                p.resident / PAGE_SIZE,
                p.unknown.0[Unknown::Dma.index()] / PAGE_SIZE,
                p.seen() / PAGE_SIZE,
            )
        };
        assert_eq!(pages(0, 100), (7, 2, 5));
        assert_eq!(pages(0, 2), (0, 0, 0));
        assert_eq!(pages(3, 7), (2, 0, 2));
        assert_eq!(pages(9, 11), (1, 1, 0));
        assert_eq!(pages(12, 12), (0, 0, 0));
    }

    #[test]
    fn behind_the_last_range_that_has_room_nothing_is_known() {
        let range = |start, end| AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE);
        let ranges = || vec![range(2, 4), range(6, 10)];
        let pages = |limit, start, end| {
            let mut resident = Resident { ranges: ranges(), ..Resident::default() };
            resident.index(&[], limit);
            let p = resident.presence(range(start, end));
            (p.resident / PAGE_SIZE, p.seen() / PAGE_SIZE)
        };
        assert_eq!([pages(3, 0, 20), pages(2, 0, 20), pages(2, 0, 8)], [(6, 6), (16, 6), (4, 4)]);
        assert_eq!(pages(2, 15, 20), (5, 0));
    }

    /// Our own memory, page by page as it was touched.
    #[test]
    fn resident_memory_of_a_process() {
        let mut own = crate::sys::OwnPages::map(64).unwrap();
        (10..20).for_each(|page| own.write(page, 1));
        let mut pagemap = Pagemap::open("/".as_ref(), crate::walker::own_pid()).unwrap();
        let mapping = Mapping {
            range: own.range(0, 64),
            kind: MappingKind::Anonymous,
            name: "".into(),
            unknown: None,
        };
        let mut resident = Resident::default();
        resident.read(&mut pagemap, &[mapping]);
        let pages = |first, pages| resident.presence(own.range(first, pages)).resident / PAGE_SIZE;
        assert_eq!((pages(0, 64), pages(0, 10), pages(15, 49)), (10, 0, 5));
    }

    #[test]
    fn physical_memory_by_the_use_of_its_frames() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let (lru, free, head, tail) = (1u64 << 5, 1 << 10, 1 << 15, 1 << 16);
        // 4 pages on a list, 4 free, 4 of the kernel, and a folio of 4 of which only the first is flagged
        let words = [[lru; 4], [free; 4], [0; 4], [head | lru, tail, tail, tail]].concat();
        let bytes: Vec<[u8; 8]> = words.iter().map(|w| w.to_ne_bytes()).collect();
        std::fs::write(root.path().join("proc/kpageflags"), bytes.concat()).unwrap();
        let frames = Frames(KPageFlags::open(root.path()).unwrap());
        let p = frames.presence(AddrRange::new(0, 16 * PAGE_SIZE));
        assert_eq!(p.resident, 12 * PAGE_SIZE);
        assert_eq!(p.unknown.0[Unknown::Special.index()], 4 * PAGE_SIZE);
        assert_eq!(
            frames.presence(AddrRange::new(1 << 40, (1 << 40) + PAGE_SIZE)),
            Presence::default()
        );
        let file = root.path().join("proc/kpageflags");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let unreadable = Frames(KPageFlags::open(root.path()).unwrap());
        let p = unreadable.presence(AddrRange::new(0, 16 * PAGE_SIZE));
        assert_eq!((p.resident, p.seen()), (16 * PAGE_SIZE, 0), "a directory cannot be read");
    }
}
