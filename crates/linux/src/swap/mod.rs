//! Swap in compressed memory, made by isotherm and taken away again.
//!
//! A zram device is added for it, so that none of anybody else's is touched. What was made is noted in a
//! file, so that a later isotherm can take it away: what was made for good when asked to, the rest when
//! its process was killed.

mod content;
mod error;
mod noted;
mod zram;

use std::path::Path;

pub use content::{Content, Holder};
pub use error::SwapError;
pub use noted::{Restore, restore, restore_left, set_up};

use self::noted::SwapNote;
use self::zram::Zram;
use crate::proc::meminfo;

/// Swap is at least so long.
const SHORTEST: u64 = 1 << 20;

/// Swap that is there as long as this lives; [`restore_left`] takes it away if its process is killed.
#[derive(Debug)]
pub struct Swap {
    zram: Zram,
    note: SwapNote,
    is_there: bool,
}

impl Swap {
    /// Makes swap of `bytes`, rounded down to whole pages, used before all other.
    ///
    /// # Errors
    /// If so much makes no sense, the kernel has no zram, or refuses, or it cannot be noted in
    /// `/run/isotherm`.
    pub fn start(bytes: u64) -> Result<Self, SwapError> {
        let root = Path::new("/");
        let bytes = checked(root, bytes)?;
        let zram = Zram::add(root)?;
        let note = SwapNote::by_us(root, &zram, bytes).map_err(|e| zram.given_up(e))?;
        zram.swap_on(bytes).map_err(|e| note.given_up(&zram, e))?;
        Ok(Swap { zram, note, is_there: true })
    }

    /// The name of its device, as `zram1`.
    #[must_use]
    pub fn device(&self) -> String {
        format!("zram{}", self.zram.number)
    }

    /// Takes it away now: all that is in it is brought back.
    ///
    /// # Errors
    /// If there is no room for that, or the kernel refuses otherwise; it is tried once more then.
    pub fn end(mut self) -> Result<(), SwapError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), SwapError> {
        // Its number may be somebody else's once it is gone.
        if self.is_there {
            self.zram.remove()?;
            self.is_there = false;
            self.note.forget();
        }
        Ok(())
    }

    /// What to type if its process is killed before it can clean up.
    pub const HOW_TO_REMOVE: &str = "isotherm system swap restore";
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Whether there is sense in so much: in compressed memory fits a few times what there is of it.
fn checked(root: &Path, bytes: u64) -> Result<u64, SwapError> {
    let longest = meminfo(root)?.total.saturating_mul(2);
    match bytes {
        SHORTEST.. if bytes <= longest => Ok(bytes),
        _ => Err(SwapError::Size { bytes, shortest: SHORTEST, longest }),
    }
}
