//! Tasks that read or write a file, from beginning to end or at random.

use isotherm_mm::OutOfMemory;
use serde::{Deserialize, Serialize};

use super::engine::{Next, Task};
use super::system::{Actor, PagedMachine};
use crate::random::{below, mix};
use crate::workload::Op;

/// Pages in a step.
const STEP_PAGES: u64 = 32;
/// Size in pages of the first window of readahead; each further one is twice as large.
const FIRST_WINDOW: usize = 4;

/// The order of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StreamOrder {
    /// from the first to the last
    Sequential,
    /// any page
    Random,
}

/// Reads or writes pages of a file, one after the other; with fsync after writing.
#[derive(Debug)]
pub struct Stream {
    file: usize,
    op: Op,
    order: StreamOrder,
    left: u64,
    at: usize,
    window: usize,
    most: usize,
    key: u64,
    synced: bool,
}

impl Stream {
    /// A task over `pages` pages of a file of the machine.
    #[must_use]
    pub fn new(
        machine: &PagedMachine,
        file: usize,
        op: Op,
        order: StreamOrder,
        pages: u64,
    ) -> Self {
        let most = machine.spec.disk.readahead_kib as usize / 4;
        let key = mix(mix(machine.seed, 2), mix(file as u64, machine.now));
        let mut stream = Stream {
            file,
            op,
            order,
            left: pages,
            at: 0,
            window: FIRST_WINDOW.min(most),
            most,
            key,
            synced: op == Op::Read,
        };
        stream.find(machine.owners.file_len(file));
        stream
    }

    /// Determines the next page.
    fn find(&mut self, len: usize) {
        if self.order == StreamOrder::Random {
            let page = below(mix(self.key, self.left), len as u64);
            self.at = usize::try_from(page).unwrap_or(0);
        } else if self.at >= len {
            self.at = 0;
        }
    }

    fn advance(&mut self, len: usize) {
        self.left -= 1;
        self.at += 1;
        self.find(len);
    }

    fn read(&mut self, m: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        let len = m.owners.file_len(self.file);
        for _ in 0..self.left.min(STEP_PAGES) {
            if !m.read_cached(actor, self.file, self.at) {
                let sequential = self.order == StreamOrder::Sequential;
                let window = if sequential { self.window } else { 1 };
                self.window = (self.window * 2).min(self.most);
                let pages = m.make_room(actor, self.file, self.at, window)?;
                return Ok(Next::Read { file: self.file, page: self.at, pages, sequential });
            }
            self.advance(len);
        }
        Ok(Next::Go)
    }

    fn write(&mut self, m: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        let len = m.owners.file_len(self.file);
        for _ in 0..self.left.min(STEP_PAGES) {
            m.write(actor, self.file, self.at)?;
            self.advance(len);
        }
        Ok(Next::Balance)
    }
}

impl Task for Stream {
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        match (self.left, self.op) {
            (0, _) if self.synced => Ok(Next::End),
            (0, _) => {
                self.synced = true;
                Ok(Next::Sync { file: self.file })
            }
            (_, Op::Read) => self.read(machine, actor),
            (_, Op::Write) => self.write(machine, actor),
        }
    }
}
