//! A zram device.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use isotherm_core::PAGE_SIZE;

use super::error::SwapError;
use crate::sys::{swap_off, swap_on};

const CONTROL: &str = "sys/class/zram-control";
/// A program that has the device open for a moment, such as udev, prevents its removal: isotherm tries again
/// this often, with this pause.
const WAITS: u32 = 100;
const WAIT: Duration = Duration::from_millis(20);

/// Number of attempts of swapoff. The kernel also returns ENOMEM if a process reads back a page at the same
/// moment (`unuse_pte_range` in mm/swapfile.c then finds no folio), even with enough memory. Each attempt keeps
/// the progress of the previous ones.
const MAX_TRIES: u32 = 20;

fn swap_off_at_last(device: &Path) -> io::Result<()> {
    for _ in 1..MAX_TRIES {
        match swap_off(device) {
            Err(e) if e.kind() == ErrorKind::OutOfMemory => sleep(WAIT),
            off => return off,
        }
    }
    swap_off(device)
}

/// A device that isotherm has added.
#[derive(Debug, Clone)]
pub(super) struct Zram {
    root: PathBuf,
    pub number: u32,
}

impl Zram {
    /// Adds a device without a size.
    pub fn add(root: &Path) -> Result<Self, SwapError> {
        let path = root.join(CONTROL).join("hot_add");
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => SwapError::NoZram { path: path.clone() },
            _ => SwapError::File { what: "read", path: path.clone(), source },
        })?;
        let unlike = || io::Error::new(ErrorKind::InvalidData, "it holds no number");
        let number = text.trim().parse().map_err(|_| unlike());
        let number = number.map_err(|source| SwapError::File { what: "use", path, source })?;
        Ok(Zram { root: root.to_owned(), number })
    }

    /// The numbers of all devices, sorted.
    pub fn numbers(root: &Path) -> Vec<u32> {
        let entries = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let mut numbers: Vec<u32> =
            names.filter_map(|name| name.to_str()?.strip_prefix("zram")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// A device that was added earlier.
    pub fn known(root: &Path, number: u32) -> Self {
        Zram { root: root.to_owned(), number }
    }

    pub fn device(&self) -> PathBuf {
        self.root.join(format!("dev/zram{}", self.number))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(format!("sys/block/zram{}", self.number)).join(name)
    }

    /// Its size in bytes; none if it does not exist.
    pub fn bytes(&self) -> Option<u64> {
        fs::read_to_string(self.file("disksize")).ok()?.trim().parse().ok()
    }

    /// Sets the size, rounded down to whole pages, and uses the device for swap.
    pub fn swap_on(&self, bytes: u64) -> Result<(), SwapError> {
        let (pages, device) = (bytes / PAGE_SIZE, self.device());
        write(&self.file("disksize"), &(pages * PAGE_SIZE).to_string())?;
        let begin = OpenOptions::new().write(true).open(&device);
        begin
            .and_then(|file| file.write_all_at(&header(pages), 0))
            .map_err(|source| SwapError::File { what: "write", path: device.clone(), source })?;
        swap_on(&device).map_err(|source| SwapError::On { device, source })
    }

    /// Brings its content back to memory, and removes the device.
    pub fn remove(&self) -> Result<(), SwapError> {
        let device = self.device();
        match swap_off_at_last(&device) {
            // The device is not used for swap.
            Err(e) if e.kind() == ErrorKind::InvalidInput => {}
            off => off.map_err(|source| SwapError::Off { device, source })?,
        }
        let control = self.root.join(CONTROL).join("hot_remove");
        let mut removed = write(&control, &self.number.to_string());
        for _ in 0..WAITS {
            match &removed {
                Err(SwapError::File { source, .. }) if source.kind() == ErrorKind::ResourceBusy => {
                }
                _ => break,
            }
            sleep(WAIT);
            removed = write(&control, &self.number.to_string());
        }
        removed
    }

    /// Removes a device that cannot be used, and returns `why`. If the removal fails, the result contains both
    /// errors.
    pub fn given_up(&self, why: SwapError) -> SwapError {
        match self.remove() {
            Ok(()) => why,
            Err(removal) => {
                let (why, removal) = (Box::new(why), Box::new(removal));
                SwapError::Left { why, removal, how: self.how_to_remove() }
            }
        }
    }

    fn how_to_remove(&self) -> String {
        let (device, number) = (self.device(), self.number);
        format!("swapoff {}; echo {number} > /{CONTROL}/hot_remove", device.display())
    }
}

fn write(path: &Path, text: &str) -> Result<(), SwapError> {
    fs::write(path, text).map_err(|source| SwapError::File {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

/// The first page of swap of `pages` pages: `union swap_header` of `include/linux/swap.h`, version 1.
fn header(pages: u64) -> [u8; PAGE_SIZE as usize] {
    let mut page = [0; PAGE_SIZE as usize];
    let last = u32::try_from(pages.saturating_sub(1)).unwrap_or(u32::MAX);
    for (at, bytes) in
        [(1024, &1u32.to_ne_bytes()[..]), (1028, &last.to_ne_bytes()), (4086, b"SWAPSPACE2")]
    {
        if let Some(place) = page.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_version_1() {
        let page = header(256);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!((page[1024], page[1028]), (1, 255));
        assert_eq!(page.iter().filter(|b| **b != 0).count(), 12);
    }

    #[test]
    fn without_the_module_it_says_what_to_load() {
        let root = tempfile::tempdir().unwrap();
        let said = Zram::add(root.path()).unwrap_err().to_string();
        assert!(said.contains("modprobe zram"), "{said}");
    }
}
