//! `/proc/PID/smaps`: resident and referenced memory of each mapping.

use std::path::Path;

use isotherm_core::AddrRange;

use super::{ProcError, pid_file, read_lines};

/// 65,530 areas by default, each with about 700 bytes and a name of any length.
const LIMIT: u64 = 256 << 20;

/// One area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaUsage {
    /// its addresses
    pub range: AddrRange,
    /// resident bytes
    pub resident: u64,
    /// bytes accessed since their bits were last cleared
    pub referenced: u64,
    /// its properties, as the kernel's `vm_flags`: locked, hugetlb, PFN mapping, I/O
    pub vm_flags: u64,
}

impl AreaUsage {
    /// Whether the process has locked it (`mlock`).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.vm_flags & vm_flag("lo") != 0
    }
}

/// The areas of `pid`. Takes about 16 ms per GiB of resident memory.
///
/// # Errors
/// If the file cannot be read or parsed.
pub fn usage(root: &Path, pid: i32) -> Result<Vec<AreaUsage>, ProcError> {
    let path = pid_file(root, pid, "smaps");
    let mut areas = Vec::new();
    read_lines(&path, LIMIT, |line| add(&mut areas, line))?;
    Ok(areas)
}

/// Parses the text of `/proc/PID/smaps`.
///
/// # Errors
/// The first line that cannot be parsed.
pub fn parse(text: &str) -> Result<Vec<AreaUsage>, String> {
    let mut areas = Vec::new();
    text.lines().try_for_each(|line| add(&mut areas, line).ok_or_else(|| line.to_owned()))?;
    Ok(areas)
}

/// Adds what a line says. None if it cannot be parsed.
fn add(areas: &mut Vec<AreaUsage>, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    if let Some(range) = addresses(word) {
        areas.push(AreaUsage { range, resident: 0, referenced: 0, vm_flags: 0 });
        return Some(());
    }
    let area = areas.last_mut()?;
    match word {
        "Rss:" => area.resident = kib(rest)?,
        "Referenced:" => area.referenced = kib(rest)?,
        "VmFlags:" => area.vm_flags = rest.split_whitespace().map(vm_flag).sum(),
        _ => {}
    }
    Some(())
}

fn addresses(word: &str) -> Option<AddrRange> {
    let (start, end) = word.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    Some(AddrRange::new(hex(start)?, hex(end)?))
}

/// Bytes of a value such as `   12 kB`.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The flag for two letters, which occur at most once in a line.
fn vm_flag(letters: &str) -> u64 {
    match letters {
        "pf" => 0x400,
        "lo" => 0x2000,
        "io" => 0x4000,
        "ht" => 0x40_0000,
        "mm" => 0x1000_0000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d8a1000000-55d8a1021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  40 kB
Referenced:           12 kB
VmFlags: rd wr mr mw me ac lo
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 
Rss:                2048 kB
Referenced:            0 kB
VmFlags: rd wr mr mw me ht
";

    #[test]
    fn areas() {
        let areas = parse(TEXT).unwrap();
        assert_eq!(areas.len(), 2);
        assert_eq!((areas[0].resident, areas[0].referenced), (40 << 10, 12 << 10));
        assert_eq!((areas[0].vm_flags, areas[1].vm_flags), (0x2000, 0x40_0000));
        assert_eq!(areas[1].range, AddrRange::new(0x7f00_0000_0000, 0x7f00_0020_0000));
    }

    #[test]
    fn nonsense_is_said() {
        assert_eq!(parse("Rss: 1 kB"), Err("Rss: 1 kB".into()));
        assert!(parse("1000-2000 r--p 0 0 0 \nRss:  many kB").is_err());
        assert!(parse("1000-2000 r--p 0 0 0 \nRss:  99999999999999999999 kB").is_err());
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn our_own() {
        let areas = usage("/".as_ref(), crate::walker::own_pid()).unwrap();
        assert!(areas.iter().map(|a| a.resident).sum::<u64>() > 0);
        assert!(areas.iter().all(|a| a.referenced <= a.resident));
    }
}
