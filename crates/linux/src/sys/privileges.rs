//! Capabilities of this process.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use super::refused_calls::refuse_calls;

/// The capabilities for watching by BPF after the start: run the program, read kernel memory with it, clear
/// accessed bits, access processes of other users.
const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE);

/// The capabilities to keep in addition to those for watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptCapabilities {
    /// the one to read files of other users (`CAP_DAC_READ_SEARCH`): `/proc/PID/pagemap` and `/proc/PID/fd`,
    /// unless isotherm looks only by BPF
    pub reading: bool,
    /// the one to write files of other users (`CAP_DAC_OVERRIDE`): a rotating record creates files, and each
    /// process that is attached later has a `clear_refs`
    pub writing: bool,
    /// the one to see page frames (`CAP_SYS_ADMIN`): a `pagemap` hides them from a process that opens it
    /// without this, and each child and each `exec` has a new `pagemap`
    pub frames: bool,
    /// the one to lock any amount of memory (`CAP_IPC_LOCK`): `protect` locks parts of files
    pub locking: bool,
}

/// Permanently drops every capability of this thread except those for watching and those in `kept`, and the system
/// calls that isotherm no longer needs: it can execute no program. The same is true of threads that it starts later.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_privileges(kept: KeptCapabilities) -> io::Result<()> {
    keep(WATCHING | kept.set())
}

/// Permanently drops every capability of this thread except those in `kept`, also those for watching, and the system
/// calls that isotherm no longer needs: it can execute no program. The same is true of threads that it starts later.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_watching(kept: KeptCapabilities) -> io::Result<()> {
    keep(kept.set())
}

impl KeptCapabilities {
    fn set(self) -> CapabilitySet {
        let when = |kept, capability| if kept { capability } else { CapabilitySet::empty() };
        when(self.reading, CapabilitySet::DAC_READ_SEARCH)
            | when(self.writing, CapabilitySet::DAC_OVERRIDE)
            | when(self.frames, CapabilitySet::SYS_ADMIN)
            | when(self.locking, CapabilitySet::IPC_LOCK)
    }
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    // Otherwise a program of root that is executed later has all capabilities again.
    set_no_new_privs(true)?;
    refuse_calls()
}

/// Whether this process has the capabilities to watch any process. If so, a refusal has another reason.
#[must_use]
pub(crate) fn may_look_at_all() -> bool {
    let have = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    let files = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    have.contains(CapabilitySet::SYS_PTRACE) && have.intersects(files)
}

/// The capabilities for watching that this process does not have.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let named = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
        (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    ];
    let have = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    // SYS_ADMIN includes BPF and PERFMON.
    let admin = have.contains(CapabilitySet::SYS_ADMIN);
    let covered = |c| admin && (c == CapabilitySet::BPF || c == CapabilitySet::PERFMON);
    let lacking = named.into_iter().filter(|&(c, _)| !have.contains(c) && !covered(c));
    lacking.map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of root without capabilities got all of them back by executing a program.
    #[test]
    fn capabilities_do_not_come_back() {
        let thread = std::thread::spawn(|| {
            drop_watching(KeptCapabilities::default()).unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            (status, std::process::Command::new("cat").status())
        });
        let (status, executed) = thread.join().unwrap();
        let value = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim();
        assert_eq!(value("CapPrm:"), "0000000000000000");
        assert_eq!(value("CapEff:"), "0000000000000000");
        assert_eq!(value("NoNewPrivs:"), "1");
        assert_eq!(value("Seccomp:"), "2");
        assert_eq!(executed.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
