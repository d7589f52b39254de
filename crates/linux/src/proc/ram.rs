//! The physical addresses of System RAM.

use std::path::Path;

use super::{ProcError, read_limited};

const LIMIT: u64 = 16 << 20;

/// A half-open range of physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ram {
    /// first byte
    pub start: u64,
    /// first byte after the range
    pub end: u64,
}

/// System RAM from `/proc/iomem`. If that shows zeros because `CAP_SYS_ADMIN` is missing, from
/// `/sys/firmware/memmap`. Kubernetes hides that from a container; where the container sees the processes of the
/// machine, the first of them still shows it.
///
/// # Errors
/// If neither shows it.
pub fn system_ram(root: &Path) -> Result<Vec<Ram>, ProcError> {
    let path = root.join("proc/iomem");
    let ram = parse_iomem(&read_limited(&path, LIMIT)?);
    if !ram.is_empty() {
        return Ok(ram);
    }
    let firmware = ["sys/firmware/memmap", "proc/1/root/sys/firmware/memmap"]
        .iter()
        .map(|dir| from_firmware(&root.join(dir)))
        .find(|ram| !ram.is_empty());
    firmware.ok_or_else(|| {
        ProcError::parse(
            &path,
            "it shows no System RAM (this requires CAP_SYS_ADMIN), and neither does \
             /sys/firmware/memmap: run as root",
        )
    })
}

/// Memory that a driver has added (CXL, virtio-mem) has the driver's name in brackets.
fn parse_iomem(text: &str) -> Vec<Ram> {
    let lines = text.lines().filter_map(|line| line.split_once(" : System RAM"));
    let lines = lines.filter(|(_, by)| by.is_empty() || by.starts_with(" ("));
    lines.filter_map(|(addresses, _)| range(addresses)).collect()
}

/// `start-end`, both inclusive, in hexadecimal. Without the privilege the kernel shows 0-0, which gives
/// `None`.
fn range(text: &str) -> Option<Ram> {
    let (start, last) = text.trim().split_once('-')?;
    let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok();
    let (start, last) = (hex(start)?, hex(last)?);
    (last > start).then_some(Ram { start, end: last + 1 })
}

fn from_firmware(dir: &Path) -> Vec<Ram> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|e| {
            let field = |name| read_limited(&e.path().join(name), 64).ok();
            if field("type")?.trim() != "System RAM" {
                return None;
            }
            range(&format!("{}-{}", field("start")?.trim(), field("end")?.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iomem() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n  \
                    000f0000-000fffff : System ROM\n100000000-61fffffff : System RAM\n\
                    700000000-7ffffffff : dax0.0\n  \
                    700000000-7ffffffff : System RAM (kmem)\n";
        let ram = |start, end| Ram { start, end };
        let want = [
            ram(0x1000, 0x9fc00),
            ram(0x1_0000_0000, 0x6_2000_0000),
            ram(0x7_0000_0000, 0x8_0000_0000),
        ];
        assert_eq!(parse_iomem(text), want);
        assert_eq!(parse_iomem("00000000-00000000 : System RAM\n"), []);
    }

    #[test]
    fn firmware_when_iomem_hides() {
        for place in ["sys", "proc/1/root/sys"] {
            let root = tempfile::tempdir().unwrap();
            let entry = root.path().join(place).join("firmware/memmap/0");
            std::fs::create_dir_all(&entry).unwrap();
            std::fs::create_dir_all(root.path().join("proc")).unwrap();
            let iomem = root.path().join("proc/iomem");
            std::fs::write(iomem, "00000000-00000000 : System RAM\n").unwrap();
            assert!(system_ram(root.path()).unwrap_err().to_string().contains("run as root"));
            let fields = [("type", "System RAM\n"), ("start", "0x1000\n"), ("end", "0x2fff\n")];
            for (name, text) in fields {
                std::fs::write(entry.join(name), text).unwrap();
            }
            let ram = system_ram(root.path()).unwrap();
            assert_eq!(ram, [Ram { start: 0x1000, end: 0x3000 }], "{place}");
        }
    }
}
