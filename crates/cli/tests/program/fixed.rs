//! Memory that `io_uring` has fixed for devices, memory of virtual machines, and huge pages: their accesses
//! cannot be observed, so they stay.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "system calls on a ring and memory of our own"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::alone::Alone;
use crate::churn::Reserved;
use crate::load::{Load, MIB};
use crate::reclaim::Service;
use crate::run::{has_or_skip, root_or_skip, until};
use crate::schemes::swapped;
use crate::schemes_quota::range;

/// A ring with one fixed buffer, in the second entry of its table. The first entry is empty.
pub struct Ring(OwnedFd);

impl Ring {
    pub fn fix(buffer: AddrRange) -> io::Result<Self> {
        // `struct io_uring_params` without any request.
        let mut params = [0u64; 15];
        let fd = done(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })?;
        let ring = Ring(unsafe { OwnedFd::from_raw_fd(fd) });
        let iov_len = usize::try_from(buffer.len()).unwrap();
        let buffers = [
            libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            libc::iovec { iov_base: buffer.start as *mut _, iov_len },
        ];
        ring.register(IORING_REGISTER_BUFFERS, buffers.as_ptr(), 2)?;
        Ok(ring)
    }

    pub fn free(&self) -> io::Result<()> {
        self.register(IORING_UNREGISTER_BUFFERS, std::ptr::null(), 0)
    }

    fn register(&self, what: i32, buffers: *const libc::iovec, n: i32) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        done(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, what, buffers, n) }).map(drop)
    }
}

const IORING_REGISTER_BUFFERS: i32 = 0;
const IORING_UNREGISTER_BUFFERS: i32 = 1;

/// A virtual machine of KVM, without CPUs or memory yet.
fn make_guest() -> io::Result<OwnedFd> {
    const KVM_CREATE_VM: libc::Ioctl = 0xae01;
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    let fd = done(unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0) }.into())?;
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(returned: libc::c_long) -> io::Result<i32> {
    i32::try_from(returned).ok().filter(|n| *n >= 0).ok_or_else(io::Error::last_os_error)
}

/// Resident bytes of `range`, by the kernel.
fn resident(pid: i32, range: AddrRange) -> u64 {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let mut entries = vec![[0; 8]; usize::try_from(range.len() / PAGE_SIZE).unwrap()];
    pagemap.read_exact_at(entries.as_flattened_mut(), range.start / PAGE_SIZE * 8).unwrap();
    let is_present = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) >> 63 == 1;
    entries.iter().filter(is_present).count() as u64 * PAGE_SIZE
}

#[test]
fn device_memory_and_hugetlb_stay_and_are_reported() {
    const NAME: &str = "device_memory_and_hugetlb_stay_and_are_reported";
    if !root_or_skip(NAME) {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _pages = Reserved::more(2);
    // The capabilities of the service suffice to see the descriptors of another user.
    let dir = tempfile::TempDir::new().unwrap();
    let mut load = Load::by_nobody(dir.path(), (16, 4), Stdio::inherit());
    let (pid, huge) = (load.pid(), load.hugetlb(2));
    // Both have the same age, and lie in the same mapping.
    let (mapping, fixed) = match load.fix(4 * MIB) {
        Ok(ranges) => ranges,
        Err(why) => {
            has_or_skip(false, NAME, format_args!("io_uring: {why}"));
            return;
        }
    };
    let around =
        [AddrRange::new(mapping.start, fixed.start), AddrRange::new(fixed.end, mapping.end)];
    let service = Service::as_the_unit(&["--pid", &pid.to_string(), "--log", "log"]);
    until("what is cold around it", || around.iter().all(|&r| resident(pid, r) == 0));
    assert_eq!([fixed, huge].map(|r| resident(pid, r)), [fixed.len(), huge.len()]);
    let by = &service.status()["total"]["unknown_by"];
    // For a region that was not looked at for a while, this is an estimate.
    for (why, range) in [("dma", fixed), ("hugetlb", huge)] {
        let reported = by[why].as_u64().unwrap_or_default();
        assert!(reported.abs_diff(range.len()) <= range.len() / 8, "{why}: {by}");
    }
    let log = service.log();
    assert!(log.iter().any(|line| around.iter().any(|r| r.intersect(&range(line)).is_some())));
    // A region may lie across the border of a mapping.
    for line in log {
        let here = range(&line);
        let inside = [fixed, huge].into_iter().filter_map(|r| r.intersect(&here));
        let outside = here.len() - inside.map(|r| r.len()).sum::<u64>();
        assert!(line["applied"].as_u64().unwrap() <= outside, "{line}");
    }
    // That was the only reason.
    load.free();
    until("what is fixed no longer", || resident(pid, fixed) == 0);
    assert_eq!(service.status()["total"]["unknown_by"]["dma"], serde_json::Value::Null);
    assert_eq!(resident(pid, huge), huge.len());
}

#[test]
fn virtual_machines_are_left_alone() {
    const NAME: &str = "virtual_machines_are_left_alone";
    if !root_or_skip(NAME) {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let guest = match make_guest() {
        Ok(guest) => Stdio::from(guest),
        Err(why) => {
            // Not every machine that runs all tests supports guests.
            eprintln!("skipped {NAME}: KVM: {why}");
            return;
        }
    };
    let dir = tempfile::TempDir::new().unwrap();
    let load = Load::by_nobody(dir.path(), (16, 4), guest);
    let other = Load::start(16, 4);
    let pids = [&load, &other].map(|l| l.pid().to_string());
    let service = Service::as_the_unit(&["--pid", &pids[0], "--pid", &pids[1]]);
    let cold = |l: &Load| AddrRange::new(l.memory.start, l.hot.start);
    until("what is cold of the other", || resident(other.pid(), cold(&other)) < MIB / 4);
    assert_eq!(resident(load.pid(), load.memory), load.memory.len());
    assert_eq!(swapped(load.pid()), 0);
    let by = &service.status()["total"]["unknown_by"];
    assert!(by["kvm"].as_u64().unwrap_or_default() >= load.memory.len(), "{by}");
}
