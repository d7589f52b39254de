//! Swap in compressed memory, made by isotherm and taken away again.
//!
//! A zram device is added for it, so that none of anybody else's is touched. What was made for good is
//! noted in a file, so that a later isotherm can take it away.

mod error;
mod noted;
mod zram;

use std::path::Path;

pub use error::SwapError;
pub use noted::{restore, set_up};

use self::zram::Zram;
use crate::proc::meminfo;

/// Swap is at least so long.
const SHORTEST: u64 = 1 << 20;

/// Swap that is there as long as this lives.
#[derive(Debug)]
pub struct Swap(Zram);

impl Swap {
    /// Makes swap of `bytes`, rounded down to whole pages, used before all other.
    ///
    /// # Errors
    /// If the kernel has no zram, or refuses.
    pub fn start(bytes: u64) -> Result<Self, SwapError> {
        let root = Path::new("/");
        let bytes = checked(root, bytes)?;
        let zram = Zram::add(root)?;
        match zram.swap_on(bytes) {
            Ok(()) => Ok(Swap(zram)),
            Err(e) => Err(zram.given_up(e)),
        }
    }

    /// The name of its device, as `zram1`.
    #[must_use]
    pub fn device(&self) -> String {
        format!("zram{}", self.0.number)
    }

    /// Takes it away now: all that is in it is brought back.
    ///
    /// # Errors
    /// If there is no room for that, or the kernel refuses otherwise; it is tried once more then.
    pub fn end(self) -> Result<(), SwapError> {
        let ended = self.0.remove();
        if ended.is_ok() {
            // Its number may be somebody else's by now.
            std::mem::forget(self);
        }
        ended
    }

    /// What to type if this process is killed before it can clean up.
    #[must_use]
    pub fn how_to_remove(&self) -> String {
        self.0.how_to_remove()
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = self.0.remove();
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
