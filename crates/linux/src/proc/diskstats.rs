//! How long reads from disks take, from `/proc/diskstats`.

use std::path::Path;
use std::time::Duration;

/// Sectors of a page.
const PAGE_SECTORS: u64 = 8;

/// Mean time to read a page of 4 KiB from a disk, over all reads since the start of the machine. Pages that one request
/// reads share its time. `None` if the file cannot be read, or nothing was read.
#[must_use]
pub fn time_of_read(root: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(root.join("proc/diskstats")).ok()?;
    let (mut pages, mut ms) = (0, 0);
    for line in text.lines() {
        // major, minor, name, reads, merged reads, sectors read, ms
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, name, _, _, sectors, time, ..] = fields[..] else { continue };
        // Memory, and devices whose reads appear again as those of the disk below.
        if ["zram", "ram", "loop", "dm-", "md"].iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        pages += sectors.parse::<u64>().ok()? / PAGE_SECTORS;
        ms += time.parse::<u64>().ok()?;
    }
    (pages > 0 && ms > 0).then(|| Duration::from_millis(ms).div_f64(pages as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn pages_share_the_time_of_a_request() {
        let text = " 254 0 vda 100 5 8000 250 9 9 9 9 0 1 1 0 0 0 0 1 1\n\
                    \u{20}  7 0 loop0 100 5 8000 9999 9 9 9 9 0 1 1\n 253 0 zram0 900 0 9000 1 0 0 0 0\n";
        let of = |text: &str| time_of_read(tree([("proc/diskstats", text)]).path());
        assert_eq!(of(text), Some(Duration::from_micros(250)));
        assert_eq!(of(" 254 0 vda 0 0 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(of("nonsense"), None);
    }
}
