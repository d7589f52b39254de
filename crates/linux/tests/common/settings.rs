//! Settings of the machine that a test changes and restores.

use std::sync::Mutex;

/// Held by tests that use or change the settings of huge pages.
pub static HUGE_PAGES: Mutex<()> = Mutex::new(());

/// Counters of the kernel for folios of 64 KiB.
pub fn mthp(stat: &str) -> Option<u64> {
    let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/{stat}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A changed file under `/sys` or `/proc/sys`, which is restored when dropped.
pub struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    pub fn set(path: &'static str, value: &str) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        // The selected one of several values is in brackets.
        let before = match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some((chosen, _)) => chosen.to_owned(),
            None => text.trim().to_owned(),
        };
        std::fs::write(path, value).ok()?;
        Some(Setting { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(self.path, &self.before);
    }
}

/// From now on, memory with advice has folios of 64 KiB and no huge pages. `None` if this kernel has no such
/// folios.
pub fn folios_of_64_kib() -> Option<[Setting; 2]> {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
    let settings = Setting::set(ENABLED, "madvise").zip(Setting::set(HUGE, "never"));
    if settings.is_none() {
        eprintln!("skipped: this kernel has no folios of 64 KiB");
    }
    settings.map(Into::into)
}
