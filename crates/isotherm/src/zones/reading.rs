//! The kernel's figures of its zones at one time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::proc::{
    Counters, FreeBlocks, Pageblocks, ProcError, ZoneInfo, buddyinfo, children, pagetypeinfo, stat,
    vmstat, zoneinfo,
};
use isotherm_linux::sys;

/// The parent of all kernel threads.
const KTHREADD: i32 = 2;

/// One reading of all files.
#[derive(Debug, Clone)]
pub struct ZoneSample {
    /// when it was taken
    pub at: Nanos,
    /// `/proc/zoneinfo`
    pub zones: ZoneInfo,
    /// `/proc/vmstat`
    pub vmstat: Counters,
    /// `/proc/buddyinfo`
    pub free_blocks: Vec<FreeBlocks>,
    /// empty if not root
    pub pageblocks: Vec<Pageblocks>,
    /// settings `vm.*`
    pub sysctl: Sysctl,
    /// CPU time of each kswapd, by node
    pub kswapd: BTreeMap<u32, Duration>,
    /// files that could not be read, and why
    pub missing: Vec<String>,
}

/// Settings `vm.*`; `None` if the kernel does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sysctl {
    pub min_free_kbytes: Option<i64>,
    /// since Linux 4.6
    pub watermark_scale_factor: Option<u32>,
}

impl ZoneSample {
    /// Reads all files. Only `zoneinfo` is required.
    pub fn take(root: &Path) -> Result<Self, ProcError> {
        let zones = zoneinfo(root)?;
        let mut missing = Vec::new();
        let mut or_say = Missing(&mut missing);
        Ok(ZoneSample {
            at: sys::monotonic(),
            zones,
            vmstat: or_say.or_say(vmstat(root)),
            free_blocks: or_say.or_say(buddyinfo(root)),
            pageblocks: or_say.or_say(pagetypeinfo(root)),
            sysctl: Sysctl {
                min_free_kbytes: number(root, "min_free_kbytes"),
                watermark_scale_factor: number(root, "watermark_scale_factor"),
            },
            kswapd: kswapd(root),
            missing,
        })
    }
}

struct Missing<'a>(&'a mut Vec<String>);

impl Missing<'_> {
    fn or_say<T: Default>(&mut self, read: Result<T, ProcError>) -> T {
        read.unwrap_or_else(|e| {
            self.0.push(e.to_string());
            T::default()
        })
    }
}

fn number<T: std::str::FromStr>(root: &Path, name: &str) -> Option<T> {
    std::fs::read_to_string(root.join("proc/sys/vm").join(name)).ok()?.trim().parse().ok()
}

/// CPU time of each kswapd; `kswapd0` belongs to node 0.
fn kswapd(root: &Path) -> BTreeMap<u32, Duration> {
    let of = |pid| {
        let node = stat(root, pid).ok()?.comm.strip_prefix("kswapd")?.parse().ok()?;
        Some((node, sys::process_cpu(pid)?))
    };
    children(root, KTHREADD).into_iter().filter_map(of).collect()
}
