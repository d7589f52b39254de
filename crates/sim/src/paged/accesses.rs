//! Accesses of tasks to pages: reads and writes of files, touches of processes.

use isotherm_mm::{AllocRequest, FrameId, LruType, OutOfMemory, ZoneKind};

use super::owners::{Entry, Owner};
use super::system::{Actor, PagedMachine};

impl PagedMachine {
    /// The position of a page of a file on the disk.
    pub(super) fn place(&self, file: usize, page: usize) -> u64 {
        self.file_at[file] + page as u64
    }

    /// Reads a page of a file if it is in memory; returns whether it is.
    pub(super) fn read_cached(&mut self, actor: &mut Actor, file: usize, page: usize) -> bool {
        let Some(frame) = self.owners.cached(file, page) else { return false };
        self.counts.reads += 1;
        self.memory.mark_accessed(frame);
        self.copy(actor, frame);
        true
    }

    /// Allocates memory for up to `window` pages of a file that are not in memory, starting at `page`. Returns
    /// how many must be read from the disk.
    pub(super) fn make_room(
        &mut self,
        actor: &mut Actor,
        file: usize,
        page: usize,
        window: usize,
    ) -> Result<usize, OutOfMemory> {
        let end = (page + window.max(1)).min(self.owners.file_len(file));
        let mut next = page;
        while next < end && self.owners.cached(file, next).is_none() {
            let owner = Owner::File(file, next);
            match self.allocate(actor, Some(LruType::File), owner, false) {
                Ok(frame) => self.owners.cache(file, next, frame),
                Err(e) if next == page => return Err(e),
                Err(_) => break,
            }
            next += 1;
        }
        self.counts.fetched += (next - page) as u64;
        Ok(next - page)
    }

    /// Writes a whole page of a file.
    pub(super) fn write(
        &mut self,
        actor: &mut Actor,
        file: usize,
        page: usize,
    ) -> Result<(), OutOfMemory> {
        let frame = match self.owners.cached(file, page) {
            Some(frame) => frame,
            None => {
                let owner = Owner::File(file, page);
                let frame = self.allocate(actor, Some(LruType::File), owner, true)?;
                self.owners.cache(file, page, frame);
                frame
            }
        };
        self.counts.writes += 1;
        self.memory.mark_accessed(frame);
        if self.dirty[file].insert(page) && !self.memory.is_dirty(frame) {
            self.dirty_pages += 1;
        }
        self.memory.set_dirty(frame);
        self.copy(actor, frame);
        Ok(())
    }

    /// Marks a page of a file as written to the disk.
    pub(super) fn written(&mut self, file: usize, page: usize) {
        let again = self.dirty[file].contains(page);
        if let Some(frame) = self.owners.cached(file, page).filter(|_| !again) {
            self.dirty_pages -= i64::from(self.memory.is_dirty(frame));
            self.memory.set_clean(frame);
        }
    }

    /// An access of a process to a page of its own.
    #[inline]
    pub(super) fn touch(
        &mut self,
        actor: &mut Actor,
        process: usize,
        page: usize,
    ) -> Result<(), OutOfMemory> {
        let entry = &mut self.owners.processes[process][page];
        self.counts.touches += 1;
        entry.accessed = true;
        if !entry.is_present() {
            self.fault(actor, process, page)?;
        }
        let node = usize::from(self.owners.processes[process][page].node);
        actor.now = self.bus.line(actor.cpu, node, actor.now);
        Ok(())
    }

    fn fault(&mut self, actor: &mut Actor, process: usize, page: usize) -> Result<(), OutOfMemory> {
        self.counts.faults += 1;
        actor.now += u64::from(self.spec.costs.fault_ns);
        let owner = Owner::Process(process, page);
        let frame = self.allocate(actor, Some(LruType::Anon), owner, false)?;
        let was_swapped = self.owners.processes[process][page].swapped;
        if let Some(swap) = self.owners.swap.as_mut().filter(|_| was_swapped) {
            actor.now += swap.bring();
        }
        self.memory.set_mapped(frame, true);
        let node = self.memory.zones()[self.memory.zone_of(frame)].node;
        self.owners.processes[process][page] = Entry::new(frame, node);
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        actor: &mut Actor,
        kind: Option<LruType>,
        owner: Owner,
        write: bool,
    ) -> Result<FrameId, OutOfMemory> {
        let before = self.memory.stats().passes;
        let request = AllocRequest {
            cpu: actor.cpu,
            node: self.bus.node_of(actor.cpu),
            class: ZoneKind::Movable,
            kind,
            write,
            owner: owner.encode(),
        };
        let allocated = self.memory.allocate(request, &mut self.owners)?;
        let passes = self.memory.stats().passes - before;
        let costs = self.spec.costs;
        let stalled = self.scan_ns(allocated.stalled) + self.swap_debt();
        self.counts.stalled_ns += stalled;
        actor.now += u64::from(costs.allocation_ns) + passes * u64::from(costs.pass_ns) + stalled;
        Ok(allocated.frame)
    }

    fn copy(&mut self, actor: &mut Actor, frame: FrameId) {
        let node = self.memory.zones()[self.memory.zone_of(frame)].node;
        let now = actor.now + u64::from(self.spec.costs.page_ns);
        actor.now = self.bus.page(actor.cpu, node, now);
    }
}
