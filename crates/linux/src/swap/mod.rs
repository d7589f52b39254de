//! Swap in compressed memory, made and removed by isotherm.
//!
//! isotherm adds a zram device for it, so that devices of other programs stay untouched. A file notes each
//! device, so that a later isotherm can remove it: permanent swap on request, and other swap if its process was
//! killed.

mod content;
mod error;
mod notes;
mod zram;

use std::path::Path;

pub use content::{SwapContent, SwappedProcess, is_compressed, time_of_fault};
pub use error::SwapError;
pub use notes::{Restore, restore, restore_left, set_up};

use self::notes::SwapNote;
use self::zram::Zram;
use crate::proc::meminfo;

/// Smallest swap, in bytes.
const MIN_SWAP_BYTES: u64 = 1 << 20;

/// Swap that exists while this value lives. If its process is killed, [`restore_left`] removes the swap.
#[derive(Debug)]
pub struct Swap {
    zram: Zram,
    note: SwapNote,
    is_there: bool,
}

impl Swap {
    /// Makes swap of `bytes`, rounded down to whole pages. The kernel uses it before all other swap.
    ///
    /// # Errors
    /// If the size is out of range, the kernel has no zram or refuses, or `/run/isotherm` cannot be written.
    pub fn start(bytes: u64) -> Result<Self, SwapError> {
        let root = Path::new("/");
        let bytes = checked(root, bytes)?;
        let (note, zram) = SwapNote::add(root, bytes)?;
        zram.swap_on(bytes).map_err(|e| note.given_up(&zram, e))?;
        Ok(Swap { zram, note, is_there: true })
    }

    /// The name of its device, such as `zram1`.
    #[must_use]
    pub fn device(&self) -> String {
        format!("zram{}", self.zram.number)
    }

    /// Removes the swap now, after bringing its content back to memory.
    ///
    /// # Errors
    /// If there is not enough memory, or the kernel refuses for another reason. Dropping then tries once more.
    pub fn end(mut self) -> Result<(), SwapError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), SwapError> {
        // After its removal, another device may get its number.
        if self.is_there {
            self.zram.remove()?;
            self.is_there = false;
            self.note.forget();
        }
        Ok(())
    }

    /// The command to run if the process is killed before it can clean up.
    pub const HOW_TO_REMOVE: &str = "isotherm system swap restore";
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Checks that the size is useful: compressed memory holds only a few times its own size.
fn checked(root: &Path, bytes: u64) -> Result<u64, SwapError> {
    let longest = meminfo(root)?.total.saturating_mul(2);
    match bytes {
        MIN_SWAP_BYTES.. if bytes <= longest => Ok(bytes),
        _ => Err(SwapError::Size { bytes, shortest: MIN_SWAP_BYTES, longest }),
    }
}
