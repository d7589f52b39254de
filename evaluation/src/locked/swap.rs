//! Swap for a run: in compressed memory, or in a file on disk.

use std::fmt::{self, Display};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use isotherm_linux::swap::Swap;
use isotherm_linux::sys::{swap_off, swap_on};
use serde::{Deserialize, Serialize};

/// Where memory is swapped to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapKind {
    /// compressed memory
    Zram,
    /// a file on the disk of the folder of results
    Disk,
}

impl SwapKind {
    /// Both kinds.
    pub const ALL: [SwapKind; 2] = [SwapKind::Zram, SwapKind::Disk];
}

impl Display for SwapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == SwapKind::Zram { "zram" } else { "disk" })
    }
}

/// Swap, removed on drop.
#[derive(Debug)]
#[expect(dead_code, reason = "they are kept until they are dropped")]
pub(super) enum RunSwap {
    Zram(Swap),
    Disk(SwapFile),
}

impl RunSwap {
    /// Makes swap of `bytes`; a file in `folder`.
    pub(super) fn start(kind: SwapKind, bytes: u64, folder: &Path) -> Result<Self> {
        Ok(match kind {
            SwapKind::Zram => RunSwap::Zram(Swap::start(bytes)?),
            SwapKind::Disk => RunSwap::Disk(SwapFile::start(bytes, &folder.join("swap"))?),
        })
    }
}

/// A file with swap.
#[derive(Debug)]
pub(super) struct SwapFile(PathBuf);

impl SwapFile {
    fn start(bytes: u64, path: &Path) -> Result<Self> {
        // A run that was killed has left it.
        let _ = swap_off(path);
        let file = SwapFile(path.to_owned());
        write(bytes, path).with_context(|| format!("cannot write {}", path.display()))?;
        let made = Command::new("mkswap").arg(path).stdout(Stdio::null()).status();
        ensure!(made.context("cannot run mkswap")?.success(), "mkswap has failed");
        swap_on(path).with_context(|| format!("cannot swap to {}", path.display()))?;
        Ok(file)
    }
}

/// A file without holes, as the kernel requires.
fn write(bytes: u64, path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    let zeros = vec![0; 1 << 20];
    (0..bytes >> 20).try_for_each(|_| file.write_all(&zeros))?;
    Ok(file.sync_all()?)
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // A file that is not swap yet gives EINVAL.
        if let Err(e) = swap_off(&self.0)
            && !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound)
        {
            eprintln!("the swap file is still in use ({e}): swapoff {}", self.0.display());
            return;
        }
        let _ = std::fs::remove_file(&self.0);
    }
}
