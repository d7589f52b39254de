//! Operations on single pages: use, write, free, moves between lists.

use crate::lru::{DIRTY, FrameId, ListKind, LruType, MAPPED, RECLAIM, REFERENCED};
use crate::memory::Memory;
use crate::rules::LruScope;
use crate::zone::Zone;

impl Memory {
    /// Marks a file page as used: `mark_page_accessed`. The second use activates the page.
    #[inline]
    pub fn mark_accessed(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame as usize];
        if !f.list.is_active() && f.has(REFERENCED) {
            f.set(REFERENCED, false);
            self.activate(frame);
        } else {
            f.set(REFERENCED, true);
        }
    }

    /// Marks a file page as dirty.
    pub fn set_dirty(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame as usize];
        if !f.has(DIRTY) {
            f.set(DIRTY, true);
            self.zones[usize::from(f.zone)].dirty += 1;
        }
    }

    /// Marks a page as written. If reclaim has waited for it, it is reclaimed next.
    pub fn set_clean(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame as usize];
        if f.take(DIRTY) {
            self.zones[usize::from(f.zone)].dirty -= 1;
        }
        if f.take(RECLAIM) && f.list == ListKind::InactiveFile {
            let lruvec = self.lruvec_of(self.zone_of(frame));
            let list = &mut self.lruvecs[lruvec].lists[ListKind::InactiveFile as usize];
            list.remove(&mut self.frames, frame);
            list.push_tail(&mut self.frames, frame);
        }
    }

    /// Whether the page is dirty.
    #[must_use]
    pub fn is_dirty(&self, frame: FrameId) -> bool {
        self.frames[frame as usize].has(DIRTY)
    }

    /// Sets whether the page is mapped: for a mapped page, reclaim calls `PageOwner::take_accessed`.
    pub fn set_mapped(&mut self, frame: FrameId, mapped: bool) {
        self.frames[frame as usize].set(MAPPED, mapped);
    }

    /// Frees a page on a CPU. A free page stays unchanged.
    pub fn free(&mut self, cpu: u32, frame: FrameId) {
        let f = &mut self.frames[frame as usize];
        if f.list == ListKind::Free {
            return;
        }
        if f.take(DIRTY) {
            self.zones[usize::from(f.zone)].dirty -= 1;
        }
        self.take_off_list(frame);
        let f = &mut self.frames[frame as usize];
        (f.list, f.flags) = (ListKind::Free, 0);
        let zone = &mut self.zones[usize::from(f.zone)];
        zone.free_frames.push(frame);
        zone.free.add(cpu % self.cpus, 1);
        zone.scanned_in_vain = 0;
        zone.stats.freed += 1;
    }

    /// Index of the lists for pages of a zone.
    pub(crate) fn lruvec_of(&self, zone: usize) -> usize {
        match self.rules.lru {
            LruScope::Zone => zone,
            LruScope::Node => self.zones.get(zone).map_or(0, |z| z.node),
        }
    }

    /// Adds a frame that is on no list to a list.
    pub(crate) fn put_on_list(&mut self, frame: FrameId, list: ListKind) {
        let zone = self.zone_of(frame);
        self.frames[frame as usize].list = list;
        let Some(kind) = list.lru_type() else { return };
        *self.zones[zone].of_kind(kind) += 1;
        let lruvec = self.lruvec_of(zone);
        self.lruvecs[lruvec].lists[list as usize].push_head(&mut self.frames, frame);
    }

    fn take_off_list(&mut self, frame: FrameId) {
        let zone = self.zone_of(frame);
        let list = self.frames[frame as usize].list;
        let Some(kind) = list.lru_type() else { return };
        *self.zones[zone].of_kind(kind) -= 1;
        let lruvec = self.lruvec_of(zone);
        self.lruvecs[lruvec].lists[list as usize].remove(&mut self.frames, frame);
    }

    pub(crate) fn activate(&mut self, frame: FrameId) {
        let zone = self.zone_of(frame);
        let list = self.frames[frame as usize].list;
        let Some(kind) = list.lru_type().filter(|_| !list.is_active()) else { return };
        self.move_to(frame, ListKind::of(kind, true));
        self.zones[zone].stats.activated += 1;
        let lruvec = self.lruvec_of(zone);
        self.lruvecs[lruvec].rotated[kind as usize] += 1;
        self.lruvecs[lruvec].scanned[kind as usize] += 1;
    }

    /// Moves a frame to the head of a list.
    pub(crate) fn move_to(&mut self, frame: FrameId, list: ListKind) {
        let lruvec = self.lruvec_of(self.zone_of(frame));
        let old = std::mem::replace(&mut self.frames[frame as usize].list, list);
        let lists = &mut self.lruvecs[lruvec].lists;
        lists[old as usize].remove(&mut self.frames, frame);
        lists[list as usize].push_head(&mut self.frames, frame);
    }
}

impl Zone {
    fn of_kind(&mut self, kind: LruType) -> &mut i64 {
        match kind {
            LruType::Anon => &mut self.anon,
            LruType::File => &mut self.file,
        }
    }
}
