//! Finds the addresses of the kernel's direct map, which contains the page tables, and of its struct pages.

use isotherm_core::AddrRange;

use super::{WalkError, Walker, Want, own_pid, run};
use crate::skel::types;
use crate::sys::OwnPages;
use crate::x86::Level;

const GIB: u64 = 1 << 30;

impl Walker {
    fn is_ram(&mut self, address: u64) -> bool {
        self.bss().is_ok_and(|b| b.ram.iter().any(|r| (r.start..r.end).contains(&address)))
    }

    pub(super) fn anchors(&mut self) -> Result<types::anchors, WalkError> {
        run(&self.skel.progs.find_anchors)?;
        Ok(self.bss()?.anchors)
    }

    fn peek(&mut self, address: u64) -> Result<u64, WalkError> {
        self.bss()?.order.address = address;
        run(&self.skel.progs.peek)?;
        Ok(self.bss()?.peeked)
    }

    /// The direct map begins at a multiple of 1 GiB, below isotherm's own page table, which lies in it. A
    /// candidate is right if isotherm's page tables, read through it, lead to a page of its own that contains a
    /// unique word.
    pub(super) fn find_direct_map(&mut self) -> Result<(), WalkError> {
        const MAX_TRIES: u64 = 1 << 16; // 64 TiB
        let word = magic();
        let mut page = OwnPages::map(1)?;
        page.write(0, word);
        let pid = own_pid();
        let pgd = self.anchors()?.pgd;
        // /proc/cpuinfo reports the abilities of the CPU, not the choice of the kernel. The layout shows the
        // choice: with four levels, no kernel address lies below this one.
        self.five_levels = pgd < 0xffff_8000_0000_0000;
        for k in 0..MAX_TRIES.min(pgd / GIB) {
            self.direct_map = (pgd / GIB - k) * GIB;
            let entry = {
                let batch = self.read(pid, std::iter::once((page.range(0, 1), Want::Entries)))?;
                batch.answers().next().filter(|a| a.level == Level::Pte).map(|a| a.entry(0))
            };
            let Some(entry) = entry.filter(|e| e.is_resident()) else { continue };
            // If the candidate is wrong, the entry is garbage.
            let address = entry.frame() * 4096;
            if self.is_ram(address) && self.peek(self.direct_map.wrapping_add(address))? == word {
                return Ok(());
            }
        }
        Err(WalkError::Bearings {
            what: "the direct map",
            detail: format!("tried {MAX_TRIES} places below {pgd:#x}"),
        })
    }

    /// See `find_anchors` in `walk.bpf.c`. Two pages must yield the same address.
    pub(super) fn find_struct_pages(&mut self) -> Result<(), WalkError> {
        let a = self.anchors()?;
        let missing = |detail: String| WalkError::Bearings { what: "the struct pages", detail };
        if a.stack_pages.contains(&0) {
            return Err(missing("the kernel stack is not in virtually mapped pages".into()));
        }
        let windows = [0, 4096].map(|o| AddrRange::new(a.stack + o, a.stack + o + 4096));
        let frames: Vec<u64> = {
            let batch =
                self.read(own_pid(), windows.into_iter().zip(std::iter::repeat(Want::Entries)))?;
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
            _ => Err(missing(format!("the pages of the kernel stack give {bases:x?}"))),
        }
    }
}

/// A word that most likely occurs nowhere else in memory.
fn magic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seed = (now.tv_nsec.unsigned_abs() << 32) ^ now.tv_sec.unsigned_abs();
    (seed ^ u64::from(own_pid().unsigned_abs()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}
