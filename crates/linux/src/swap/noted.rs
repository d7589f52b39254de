//! Swap that stays until it is taken away, noted in a file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use isotherm_core::{PAGE_SIZE, align_down};
use serde::{Deserialize, Serialize};

use super::checked;
use super::error::SwapError;
use super::zram::Zram;
use crate::state::{self, boot_id};

const PATH: &str = "run/isotherm/swap.json";
const SIZE: usize = 4096;
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    version: u32,
    boot_id: String,
    number: u32,
    bytes: u64,
}

/// Makes swap of `bytes`, rounded down to whole pages, used before all other; returns its device. It
/// stays when isotherm ends.
///
/// # Errors
/// If there is some of isotherm's already, the kernel has no zram, or refuses.
pub fn set_up(root: &Path, bytes: u64) -> Result<PathBuf, SwapError> {
    let bytes = align_down(checked(root, bytes)?, PAGE_SIZE);
    let path = root.join(PATH);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(|e| failed("make", dir, e))?;
    }
    let file = lock(&path, true)?.ok_or(SwapError::Busy)?;
    let boot_id = boot_id(root).map_err(|e| failed("mark", &path, e))?;
    if let Some(earlier) = read(&file, &path)?.filter(|n| n.boot_id == boot_id) {
        let zram = Zram::known(root, earlier.number);
        if zram.bytes().is_some() {
            return Err(SwapError::InUse { device: zram.device(), bytes: earlier.bytes });
        }
    }
    let zram = Zram::add(root).inspect_err(|_| forget(&path))?;
    let noted = Noted { version: VERSION, boot_id, number: zram.number, bytes };
    // Noted before it is used: a crash in between leaves something that can be taken away.
    let done = state::write(&file, SIZE, &noted)
        .map_err(|e| failed("write", &path, e))
        .and_then(|()| zram.swap_on(bytes));
    if let Err(e) = done {
        let e = zram.given_up(e);
        // What is left stays noted.
        if !matches!(e, SwapError::Left { .. }) {
            forget(&path);
        }
        return Err(e);
    }
    Ok(zram.device())
}

/// Takes away what [`set_up`] has made, also if that was broken off; returns the device, none if there
/// is none of isotherm's.
///
/// # Errors
/// If the device is somebody else's by now, memory is too short for what it holds, or the kernel refuses.
pub fn restore(root: &Path) -> Result<Option<PathBuf>, SwapError> {
    let path = root.join(PATH);
    let Some(file) = lock(&path, false)? else { return Ok(None) };
    let boot_id = boot_id(root).map_err(|e| failed("mark", &path, e))?;
    let noted = read(&file, &path)?.filter(|n| n.boot_id == boot_id);
    let zram = noted.as_ref().map(|n| Zram::known(root, n.number));
    let Some((noted, zram, bytes)) = noted.zip(zram).and_then(|(n, z)| {
        let bytes = z.bytes()?;
        Some((n, z, bytes))
    }) else {
        forget(&path);
        return Ok(None);
    };
    if bytes != 0 && bytes != noted.bytes {
        return Err(SwapError::NotOurs { device: zram.device(), bytes, noted: path });
    }
    zram.remove()?;
    forget(&path);
    Ok(Some(zram.device()))
}

/// The file, locked; none if there is none.
fn lock(path: &Path, create: bool) -> Result<Option<File>, SwapError> {
    match state::lock(path, create) {
        Ok(Some(file)) => Ok(Some(file)),
        Ok(None) => Err(SwapError::Busy),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("lock", path, e)),
    }
}

/// What is noted; none in a file that was just made.
fn read(mut file: &File, path: &Path) -> Result<Option<Noted>, SwapError> {
    let mut text = String::new();
    let read = (&mut file).take(SIZE as u64).read_to_string(&mut text);
    read.map_err(|e| failed("read", path, e))?;
    match serde_json::from_str::<Noted>(&text) {
        Ok(noted) if noted.version == VERSION => Ok(Some(noted)),
        _ if text.trim().is_empty() => Ok(None),
        _ => Err(SwapError::Noted(path.to_owned())),
    }
}

fn forget(path: &Path) {
    let _ = fs::remove_file(path);
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> SwapError {
    SwapError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{put, tree};

    /// A machine on which isotherm has made `/dev/zram7` of 4 MiB, of which the device says `disksize`.
    fn machine(disksize: &str, noted: &str) -> tempfile::TempDir {
        tree([
            ("proc/sys/kernel/random/boot_id", "this\n"),
            ("proc/meminfo", "MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n"),
            ("sys/block/zram7/disksize", disksize),
            (PATH, noted),
        ])
    }

    fn noted(boot_id: &str) -> String {
        let boot_id = boot_id.to_owned();
        let noted = Noted { version: VERSION, boot_id, number: 7, bytes: 4 << 20 };
        serde_json::to_string(&noted).unwrap()
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let root = machine("8388608\n", &noted("this"));
        let said = restore(root.path()).unwrap_err().to_string();
        assert!(said.contains("left alone") && said.contains("zram7"), "{said}");
        assert!(root.path().join(PATH).exists());
        let said = set_up(root.path(), 4 << 20).unwrap_err();
        assert!(matches!(said, SwapError::InUse { .. }), "{said}");
    }

    #[test]
    fn what_was_before_the_last_boot_is_forgotten() {
        let root = machine("4194304\n", &noted("another"));
        assert_eq!(restore(root.path()).unwrap(), None);
        assert!(!root.path().join(PATH).exists());
        assert_eq!(restore(root.path()).unwrap(), None, "nothing is noted");
    }

    #[test]
    fn nonsense_is_told_and_kept() {
        let root = machine("4194304\n", "{\"version\": 99}");
        for said in [restore(root.path()).unwrap_err(), set_up(root.path(), 4 << 20).unwrap_err()] {
            assert!(matches!(said, SwapError::Noted(_)), "{said}");
        }
        assert!(root.path().join(PATH).exists());
    }

    #[test]
    fn sizes_that_make_no_sense() {
        let root = machine("0\n", "");
        for bytes in [0, 4096, u64::MAX] {
            let said = set_up(root.path(), bytes).unwrap_err().to_string();
            assert!(said.contains("makes no sense"), "{said}");
        }
        let said = set_up(root.path(), 4 << 20).unwrap_err().to_string();
        assert!(said.contains("modprobe zram"), "{said}");
        assert!(!root.path().join(PATH).exists());
    }

    /// The device comes, takes no size, and does not go.
    #[test]
    fn why_there_is_none_is_told_with_what_is_left() {
        let root = machine("0\n", "");
        put(root.path(), "sys/class/zram-control/hot_add", "8\n");
        let said = set_up(root.path(), 4 << 20).unwrap_err().to_string();
        for part in ["zram8/disksize", "cannot take back", "hot_remove"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert!(root.path().join(PATH).exists(), "what is left is noted");
    }
}
