//! Capabilities of this process.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What watching by BPF takes once it has begun: run it, read kernel memory by it, clear accessed bits,
/// reach processes of other users.
const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE);

/// What is kept beyond what watching takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// the capability to read files of others: `/proc/PID/pagemap` and `/proc/PID/fd`, for those who do not
    /// look by BPF alone
    pub reading: bool,
    /// the capability to write files of others: a rotating record makes new ones, and processes attached
    /// later have a `clear_refs` each
    pub writing: bool,
    /// the one to see page frames (`CAP_SYS_ADMIN`): they are hidden from whoever lacks it when opening
    /// a `pagemap`, of which each child and each `exec` brings a new one
    pub frames: bool,
}

/// Gives up, for good, every capability but those that watching takes and those to be `kept`.
///
/// # Errors
/// If the kernel refuses, which leaves them as they were.
pub fn drop_privileges(kept: Kept) -> io::Result<()> {
    let when = |kept, capability| if kept { capability } else { CapabilitySet::empty() };
    let kept = WATCHING
        | when(kept.reading, CapabilitySet::DAC_READ_SEARCH)
        | when(kept.writing, CapabilitySet::DAC_OVERRIDE)
        | when(kept.frames, CapabilitySet::SYS_ADMIN);
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Whether this process has what it takes to look at any process: what refuses one is no lack of these.
#[must_use]
pub(crate) fn may_look_at_all() -> bool {
    let have = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    let files = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    have.contains(CapabilitySet::SYS_PTRACE) && have.intersects(files)
}

/// The capabilities that watching takes and this process does not have.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let named = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
        (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    ];
    let have = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    // SYS_ADMIN stands for BPF and PERFMON.
    let admin = have.contains(CapabilitySet::SYS_ADMIN);
    let covered = |c| admin && (c == CapabilitySet::BPF || c == CapabilitySet::PERFMON);
    let lacking = named.into_iter().filter(|&(c, _)| !have.contains(c) && !covered(c));
    lacking.map(|(_, name)| name).collect()
}
