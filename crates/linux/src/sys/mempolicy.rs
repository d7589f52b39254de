//! `set_mempolicy(2)`, `get_mempolicy(2)` and `mbind(2)`.

use std::io;
use std::ptr;

use isotherm_core::AddrRange;

use super::NodeMask;

/// A mode of a memory policy, with any flags. It may be any number, to test the kernel's own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyMode(pub i32);

impl PolicyMode {
    /// memory of the node of the current CPU
    pub const DEFAULT: Self = PolicyMode(0);
    /// memory of this node as long as it has some
    pub const PREFERRED: Self = PolicyMode(1);
    /// only memory of these nodes
    pub const BIND: Self = PolicyMode(2);
    /// memory of each node in turn
    pub const INTERLEAVE: Self = PolicyMode(3);
    /// memory of the node of the current CPU
    pub const LOCAL: Self = PolicyMode(4);
    /// memory of these nodes as long as they have some
    pub const PREFERRED_MANY: Self = PolicyMode(5);
    /// memory of each node in turn, by weight; since Linux 6.9
    pub const WEIGHTED_INTERLEAVE: Self = PolicyMode(6);

    const STATIC_NODES: i32 = 1 << 15;
    const RELATIVE_NODES: i32 = 1 << 14;

    /// The mode with two flags that the kernel does not accept together.
    #[must_use]
    pub fn static_and_relative(self) -> Self {
        PolicyMode(self.0 | Self::STATIC_NODES | Self::RELATIVE_NODES)
    }
}

/// The effect of `mbind` on memory that is already allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// no effect
    Leave,
    /// fail if memory lies on another node
    Strict,
    /// move pages that only this process maps
    Move,
    /// also move pages that other processes map; requires `CAP_SYS_NICE`
    MoveAll,
    /// flags that the kernel does not know
    Invalid,
}

impl Existing {
    fn raw(self) -> libc::c_uint {
        match self {
            Existing::Leave => 0,
            Existing::Strict => 1,
            Existing::Move => 1 << 1,
            Existing::MoveAll => 1 << 2,
            Existing::Invalid => 1 << 30,
        }
    }
}

/// A mask of nodes and the number of its bits, as the kernel reads them.
type Raw = (*const u64, libc::c_ulong);
/// An address in the kernel's half of the address space.
const UNREADABLE: Raw = (ptr::without_provenance(usize::MAX & !0xfff), 64);

/// Sets the policy of the calling thread. Its later threads and processes inherit it.
///
/// # Errors
/// Those of the kernel: EINVAL for an unknown mode, or for nodes that do not fit the mode, do not exist or
/// are not allowed.
pub fn set_policy(mode: PolicyMode, nodes: &NodeMask) -> io::Result<()> {
    // SAFETY: the mask lives until the call returns, and is as long as it says.
    unsafe { set_raw(mode, nodes.raw()) }
}

/// Sets a policy with a mask of nodes at an address that cannot be read.
///
/// # Errors
/// EFAULT, always.
pub fn set_policy_unreadable(mode: PolicyMode) -> io::Result<()> {
    // SAFETY: no memory of a program is at this address, so the kernel reads nothing.
    unsafe { set_raw(mode, UNREADABLE) }
}

/// # Safety
/// The kernel reads the mask. It must have the stated length, or be at an address without memory.
unsafe fn set_raw(mode: PolicyMode, (mask, bits): Raw) -> io::Result<()> {
    // SAFETY: the caller guarantees it for the mask.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode.0, mask, bits) })
}

/// The policy of the calling thread.
///
/// # Errors
/// ENOSYS on a kernel without NUMA.
pub fn policy() -> io::Result<(PolicyMode, NodeMask)> {
    let mut mode: libc::c_int = 0;
    let mut nodes = NodeMask::default();
    get(&raw mut mode, &mut nodes, 0, 0)?;
    Ok((PolicyMode(mode), nodes))
}

/// The policy of our memory at an address.
///
/// # Errors
/// EFAULT if there is no memory.
pub fn policy_at(addr: u64) -> io::Result<(PolicyMode, NodeMask)> {
    const ADDR: libc::c_ulong = 1 << 1;
    let mut mode: libc::c_int = 0;
    let mut nodes = NodeMask::default();
    get(&raw mut mode, &mut nodes, addr, ADDR)?;
    Ok((PolicyMode(mode), nodes))
}

/// The nodes that this thread may use: those of its cpuset.
///
/// # Errors
/// ENOSYS on a kernel without NUMA.
pub fn allowed_nodes() -> io::Result<NodeMask> {
    const MEMS_ALLOWED: libc::c_ulong = 1 << 2;
    let mut nodes = NodeMask::default();
    get(ptr::null_mut(), &mut nodes, 0, MEMS_ALLOWED)?;
    Ok(nodes)
}

fn get(
    mode: *mut libc::c_int,
    nodes: &mut NodeMask,
    addr: u64,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let (mask, bits) = nodes.raw_mut();
    // SAFETY: the kernel writes the mode, if requested, and the mask. Both live until the call returns, and
    // the mask has the stated length. The kernel does not read the memory at the address.
    check(unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, mask, bits, addr, flags) })
}

/// Sets the policy of a range of our own memory. The content does not change.
///
/// # Errors
/// Those of the kernel: EINVAL, EFAULT for a hole, EIO if memory lies on another node with
/// [`Existing::Strict`].
pub fn bind(
    range: AddrRange,
    mode: PolicyMode,
    nodes: &NodeMask,
    existing: Existing,
) -> io::Result<()> {
    // SAFETY: the mask lives until the call returns, and is as long as it says.
    unsafe { bind_raw(range, mode, nodes.raw(), existing) }
}

/// Sets a policy of a range with a mask of nodes at an address that cannot be read.
///
/// # Errors
/// EFAULT, always.
pub fn bind_unreadable(range: AddrRange, mode: PolicyMode) -> io::Result<()> {
    // SAFETY: no memory of a program is at this address, so the kernel reads nothing.
    unsafe { bind_raw(range, mode, UNREADABLE, Existing::Leave) }
}

/// # Safety
/// The kernel reads the mask. It must have the stated length, or be at an address without memory.
unsafe fn bind_raw(
    range: AddrRange,
    mode: PolicyMode,
    (mask, bits): Raw,
    existing: Existing,
) -> io::Result<()> {
    let flags = existing.raw();
    // SAFETY: the caller guarantees it for the mask. A program cannot observe in its memory on which node a
    // page lies.
    check(unsafe {
        libc::syscall(libc::SYS_mbind, range.start, range.len(), mode.0, mask, bits, flags)
    })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::OwnPages;

    fn first() -> NodeMask {
        allowed_nodes().unwrap().nodes().take(1).collect()
    }

    /// Each test runs in a thread of its own, and so has a policy of its own.
    #[test]
    fn a_policy_is_that_of_the_thread() {
        set_policy(PolicyMode::BIND, &first()).unwrap();
        assert_eq!(policy().unwrap(), (PolicyMode::BIND, first()));
        let other = std::thread::spawn(|| policy().unwrap().0);
        assert_eq!(other.join().unwrap(), PolicyMode::BIND, "who is started inherits it");
        set_policy(PolicyMode::DEFAULT, &NodeMask::default()).unwrap();
        assert_eq!(policy().unwrap().0, PolicyMode::DEFAULT);
    }

    #[test]
    fn invalid_values_are_refused() {
        let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        let none = NodeMask::default();
        assert_eq!(errno(set_policy(PolicyMode(99), &first())), Some(libc::EINVAL));
        assert_eq!(errno(set_policy(PolicyMode::BIND, &none)), Some(libc::EINVAL));
        let absent = [1000].into_iter().collect();
        assert_eq!(errno(set_policy(PolicyMode::BIND, &absent)), Some(libc::EINVAL));
        let hole = AddrRange::new(4096, 8192);
        let refused = bind(hole, PolicyMode::BIND, &first(), Existing::Leave);
        assert_eq!(errno(refused), Some(libc::EFAULT));
        assert_eq!(errno(set_policy_unreadable(PolicyMode::BIND)), Some(libc::EFAULT));
        let own = OwnPages::map(1).unwrap();
        let refused = bind_unreadable(own.range(0, 1), PolicyMode::BIND);
        assert_eq!(errno(refused), Some(libc::EFAULT));
    }

    #[test]
    fn a_range_is_bound() {
        let mut own = OwnPages::map(4).unwrap();
        let range = own.range(0, 4);
        bind(range, PolicyMode::BIND, &first(), Existing::Leave).unwrap();
        assert_eq!(policy_at(range.start).unwrap(), (PolicyMode::BIND, first()));
        own.write(0, 7);
        bind(range, PolicyMode::BIND, &first(), Existing::Move).unwrap();
        assert_eq!(own.read(0), 7);
    }
}
