//! What happens to single pages: used, written, given back, moved from list to list.

use crate::lru::{DIRTY, FrameId, ListKind, LruType, MAPPED, RECLAIM, REFERENCED};
use crate::memory::Memory;
use crate::rules::LruScope;
use crate::zone::Zone;

impl Memory {
    /// A page of a file was used: `mark_page_accessed`. The second use makes it active.
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

    /// A page of a file is to be written.
    pub fn set_dirty(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame as usize];
        if !f.has(DIRTY) {
            f.set(DIRTY, true);
            self.zones[usize::from(f.zone)].dirty += 1;
        }
    }

    /// It was written. One that reclaim has waited for is the next to go.
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

    /// Whether it is to be written.
    #[must_use]
    pub fn is_dirty(&self, frame: FrameId) -> bool {
        self.frames[frame as usize].has(DIRTY)
    }

    /// Whether it is in page tables: then reclaim asks `Backing::take_accessed`.
    pub fn set_mapped(&mut self, frame: FrameId, mapped: bool) {
        self.frames[frame as usize].set(MAPPED, mapped);
    }

    /// Gives a page back on a CPU. Of one that is free, nothing happens.
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

    /// The number of the lists that pages of a zone are on.
    pub(crate) fn lruvec_of(&self, zone: usize) -> usize {
        match self.rules.lru {
            LruScope::Zone => zone,
            LruScope::Node => self.zones.get(zone).map_or(0, |z| z.node),
        }
    }

    /// Puts a frame that is on no list on one.
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

    /// To the head of a list, from whichever it is on.
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
