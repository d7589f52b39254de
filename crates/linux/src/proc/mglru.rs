//! `/sys/kernel/mm/lru_gen/enabled`: whether the multi-generational LRU is on.
//!
//! While it is on, `folio_mark_accessed()` of Linux 6.1 to 7.2 returns before it clears the idle bit of a
//! page that a system call has read or written. Kernel DAMON by physical address and idle page tracking use
//! that bit and page tables. So page cache that no process maps looks untouched to them, however often it is
//! read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file of the kernel.
pub const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";

/// Reads the setting at each call, because it may change at any time.
#[derive(Debug)]
pub enum Mglru {
    /// the kernel has no MGLRU
    Absent,
    /// the open file
    File(File),
    /// the file cannot be opened
    Hidden,
}

impl Mglru {
    /// Opens the file. `root` is `/`, or a tree for tests.
    #[must_use]
    pub fn open(root: &Path) -> Self {
        match File::open(root.join(MGLRU.trim_start_matches('/'))) {
            Ok(file) => Mglru::File(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Mglru::Absent,
            Err(_) => Mglru::Hidden,
        }
    }

    /// Whether accesses by system calls to page cache that no process maps leave no trace by page frame. True
    /// if the setting cannot be read.
    #[must_use]
    pub fn hides_reads(&self) -> bool {
        let mut text = [0; 32];
        match self {
            Mglru::Absent => false,
            Mglru::Hidden => true,
            Mglru::File(file) => {
                let read = file.read_at(&mut text, 0).ok();
                read.and_then(|n| is_on(text.get(..n)?)).unwrap_or(true)
            }
        }
    }
}

/// Bit 0 is the main switch: `Documentation/admin-guide/mm/multigen_lru.rst`.
fn is_on(text: &[u8]) -> Option<bool> {
    let digits = std::str::from_utf8(text).ok()?.trim().strip_prefix("0x")?;
    Some(u32::from_str_radix(digits, 16).ok()? & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{put, tree};

    #[test]
    fn reads_are_hidden_unless_it_is_known_to_be_off() {
        let hides = |text| {
            Mglru::open(tree([("sys/kernel/mm/lru_gen/enabled", text)]).path()).hides_reads()
        };
        assert_eq!(
            ["0x0007\n", "0x0001\n", "0x0000\n", "0x0006\n"].map(hides),
            [true, true, false, false]
        );
        assert!(
            ["", "7", "0x", "no"].map(hides).iter().all(|&hides| hides),
            "what is not understood"
        );
        assert!(!Mglru::open(tree([]).path()).hides_reads(), "no such kernel");
        let odd = tree([("sys/kernel/mm/lru_gen/enabled/x", "")]);
        assert!(Mglru::open(odd.path()).hides_reads(), "a directory cannot be read");
    }

    #[test]
    fn mglru_may_be_turned_on_and_off() {
        let root = tree([("sys/kernel/mm/lru_gen/enabled", "0x0000\n")]);
        let mglru = Mglru::open(root.path());
        assert!(!mglru.hides_reads());
        put(root.path(), "sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        assert!(mglru.hides_reads());
    }
}
