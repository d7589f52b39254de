//! Capabilities of this process.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What watching takes once it has begun: run BPF, read kernel memory by it, clear accessed bits,
/// reach processes of other users and their files in `/proc`.
const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Gives up, for good, every capability that watching does not take; with `writing`, the one to write
/// files of others is kept: a rotating record makes new ones, and processes attached later have a
/// `clear_refs` each.
///
/// # Errors
/// If the kernel refuses, which leaves them as they were.
pub fn drop_privileges(writing: bool) -> io::Result<()> {
    let extra = if writing { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let kept = WATCHING | extra;
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// The capabilities that watching takes and this process does not have.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let named = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
        (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
        (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    ];
    let have = capabilities(None).map(|c| c.effective).unwrap_or(CapabilitySet::empty());
    // SYS_ADMIN stands for BPF and PERFMON.
    let admin = have.contains(CapabilitySet::SYS_ADMIN);
    let covered = |c| admin && (c == CapabilitySet::BPF || c == CapabilitySet::PERFMON);
    let lacking = named.into_iter().filter(|&(c, _)| !have.contains(c) && !covered(c));
    lacking.map(|(_, name)| name).collect()
}
