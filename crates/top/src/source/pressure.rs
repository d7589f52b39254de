//! Pressure stall information of the machine and of the control groups of the watched processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm::ROOT;
use isotherm_core::Attribution;
use isotherm_linux::cgroup::{Cgroup, machine_pressure};

/// Time between two readings: averages over 10 s change slowly.
const READ_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of groups that are read.
const MAX_GROUPS: usize = 256;

/// Reads pressures at its own pace.
#[derive(Default)]
pub struct Pressures {
    groups: BTreeSet<Arc<str>>,
    next: Option<Instant>,
}

impl Pressures {
    /// A process is in a control group, whose pressure is read from now on.
    pub fn attribution(&mut self, a: &Attribution) {
        for group in a.groups().filter(|group| group.len() > 1) {
            if self.groups.len() < MAX_GROUPS && !self.groups.contains(group) {
                self.groups.insert(group.into());
            }
        }
    }

    /// The pressures, if it is time to read them. Groups that have no pressure, or no longer exist, are left out.
    pub fn read(&mut self) -> Option<BTreeMap<Arc<str>, f32>> {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + READ_INTERVAL);
        let root = Path::new(ROOT);
        let mut all = BTreeMap::new();
        if let Some(p) = machine_pressure(root) {
            all.insert("/".into(), p.some.avg10 as f32);
        }
        self.groups.retain(|group| {
            let Ok(found) = Cgroup::find(root, Path::new(group.trim_start_matches('/'))) else {
                return false;
            };
            if let Ok(p) = found.memory_pressure() {
                all.insert(Arc::clone(group), p.some.avg10 as f32);
            }
            true
        });
        Some(all)
    }
}
