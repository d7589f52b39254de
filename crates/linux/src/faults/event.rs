//! Events of `perf_event_open`: page faults and sampled allocations of one thread on one CPU.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::{
    self as sys, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_ADDR, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_RAW,
    PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};

use crate::allocations::Probe;

/// Maximum number of frames of a stack.
const MAX_FRAMES: u16 = 64;

/// Bytes to copy from the top of the stack.
const STACK_BYTES: u32 = 8192;

/// bp, sp and ip of x86-64, in the order of their bits.
const STACK_REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// The quantity that an event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// nothing: it only owns a ring
    Nothing,
    /// the faults that a BPF program selects, of all processes: it owns the ring that they go to
    Selected,
    /// page faults that did not wait for a disk
    Minor {
        /// one in this many is sampled; 1: a BPF program looks at each
        period: u64,
    },
    /// page faults that did; it also reports new threads, their ends and names, and mapped code
    Major {
        /// one in this many is sampled; 1: a BPF program looks at each
        period: u64,
    },
    /// calls of the function at which the preload library reports an allocation
    Allocations,
    /// and of the one at which it reports the release
    Releases,
}

/// The threads that an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventScope {
    /// a thread that exists, and the threads and processes that it starts
    Now,
    /// a thread that exists, and the threads of its process that it starts; since Linux 5.13
    Threads,
    /// the programs that this thread starts, from their `exec` on
    AtExec,
}

fn attr(counts: Counts, begins: EventScope) -> perf_event_attr {
    let mut a = perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0),
        config: u64::from(match counts {
            Counts::Nothing | Counts::Allocations | Counts::Releases => sys::PERF_COUNT_SW_DUMMY,
            Counts::Selected => sys::PERF_COUNT_SW_BPF_OUTPUT,
            Counts::Minor { .. } => sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
            Counts::Major { .. } => sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        }),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    a.set_use_clockid(1);
    let period = match counts {
        Counts::Nothing => return a,
        Counts::Minor { period } | Counts::Major { period } => period,
        Counts::Selected | Counts::Allocations | Counts::Releases => 1,
    };
    let stack = PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let thread = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
    let fields = match counts {
        // Kernels since 6.2 get all fields before the program decides that they are not needed.
        Counts::Minor { period: 1 } => PERF_SAMPLE_ADDR,
        Counts::Major { period: 1 } => thread | PERF_SAMPLE_ADDR,
        Counts::Selected => thread | PERF_SAMPLE_RAW | stack,
        // Its stack is of no interest, and thousands must fit into the ring.
        Counts::Releases => thread | PERF_SAMPLE_ADDR | PERF_SAMPLE_REGS_USER,
        _ => thread | PERF_SAMPLE_ADDR | stack,
    };
    a.sample_type = u64::from(fields);
    if fields & PERF_SAMPLE_CALLCHAIN != 0 {
        a.sample_max_stack = MAX_FRAMES;
        a.sample_stack_user = STACK_BYTES;
    }
    if fields & PERF_SAMPLE_REGS_USER != 0 {
        a.sample_regs_user = match counts {
            // di
            Counts::Releases => 1 << 5,
            // the arguments of a function, dx, si and di, and those below
            Counts::Allocations => 1 << 3 | 1 << 4 | 1 << 5 | STACK_REGISTERS,
            _ => STACK_REGISTERS,
        };
    }
    a.set_exclude_callchain_kernel(1);
    a.set_sample_id_all(1);
    // Without PERF_SAMPLE_PERIOD: with it, the kernel would sample every fault.
    a.sample_period = period;
    a.set_inherit(u64::from(counts != Counts::Selected));
    a.set_inherit_thread(u64::from(begins == EventScope::Threads));
    if matches!(counts, Counts::Major { .. }) {
        a.set_task(1);
        // of memory with code
        a.set_mmap(1);
        a.set_comm(1);
        a.set_comm_exec(1);
    }
    if begins == EventScope::AtExec {
        a.set_disabled(1);
        a.set_enable_on_exec(1);
    }
    a
}

/// Opens the event of the sampled allocations on a CPU, or of their releases, of all processes.
pub(super) fn open_probe(counts: Counts, probe: &Probe, cpu: i32) -> io::Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let path = CString::new(format!("/proc/self/fd/{}", probe.file.as_raw_fd()))?;
    let mut attr = attr(counts, EventScope::Now);
    attr.set_inherit(0);
    attr.type_ = kind.trim().parse().map_err(io::Error::other)?;
    attr.config = 0;
    // The kernel reads the path during the call.
    attr.__bindgen_anon_3.config1 = path.as_ptr().addr() as u64;
    attr.__bindgen_anon_4.config2 = match counts {
        Counts::Releases => probe.released,
        _ => probe.allocated,
    };
    open_attr(&mut attr, -1, cpu)
}

/// Opens the event of a thread on a CPU; 0 is the calling thread, -1 are all.
pub(super) fn open(
    counts: Counts,
    begins: EventScope,
    (tid, cpu): (i32, i32),
) -> io::Result<OwnedFd> {
    let mut attr = attr(counts, begins);
    open_attr(&mut attr, tid, cpu).or_else(|e| match e.raw_os_error() {
        // Without CAP_PERFMON, only faults in user space may be observed.
        Some(libc::EACCES | libc::EPERM) => {
            attr.set_exclude_kernel(1);
            open_attr(&mut attr, tid, cpu)
        }
        _ => Err(e),
    })
}

fn open_attr(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let flags = libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is initialized, states its own size, and lives until the call returns.
    let fd = unsafe { perf_event_open(attr, tid, cpu, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets `event` write its samples into the ring of `owner`, an event on the same CPU.
pub(super) fn redirect(event: &OwnedFd, owner: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are events, and the call accesses no memory of this process.
    let done = unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
