//! A seccomp filter: system calls that no part of isotherm makes after its start.
//!
//! It takes tools from an intruder, but is no complete barrier: a filter cannot distinguish files. A thread of uid 0 with
//! `CAP_SYS_PTRACE` can open `/proc/PID/mem` and `/proc/PID/root` of other processes of root (SECURITY.md). The systemd
//! units permit only named calls instead. This filter also holds without systemd, in each command that drops privileges.

use std::cell::Cell;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, sock_filter,
};

/// The refused calls, by what they do.
const REFUSED: &[c_long] = &[
    // execute a program
    libc::SYS_execve,
    libc::SYS_execveat,
    // control another process, or take its descriptors
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // become another user, or enter other namespaces
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_chroot,
    // change what is mounted, or open files past their paths
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // give files to other users, or make devices
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_mknodat,
    // replace code of the kernel, or stop the machine
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    // use parts of the kernel that isotherm does not need and that often had faults
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_acct,
    libc::SYS_fanotify_init,
    // set clocks and names of the machine
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Those that only x86 has.
#[cfg(target_arch = "x86_64")]
const REFUSED_ON_X86: &[c_long] = &[
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_mknod,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_ON_X86: &[c_long] = &[];

/// Lets the refused calls of this thread, and of threads that it starts later, fail with EPERM. `no_new_privs` must be
/// set. A kernel without seccomp refuses nothing, nor does a container or unit whose own filter refuses another one.
///
/// # Errors
/// If there is no memory for the filter.
pub(super) fn refuse_calls() -> io::Result<()> {
    thread_local! {
        // The kernel would run a second filter as well.
        static REFUSES: Cell<bool> = const { Cell::new(false) };
    }
    if REFUSES.get() {
        return Ok(());
    }
    let applied = filter().and_then(|filter| match apply_filter(&filter) {
        Err(seccompiler::Error::Prctl(e) | seccompiler::Error::Seccomp(e)) => Err(e),
        applied => applied.map_err(io::Error::other),
    });
    REFUSES.set(applied.is_ok());
    let is_impossible = |e: &io::Error| {
        [libc::EINVAL, libc::ENOSYS, libc::EPERM, libc::EACCES]
            .map(Some)
            .contains(&e.raw_os_error())
    };
    applied.or_else(|e| if is_impossible(&e) { Ok(()) } else { Err(e) })
}

fn filter() -> io::Result<BpfProgram> {
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let calls = REFUSED.iter().chain(REFUSED_ON_X86).map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refused, target);
    let filter: BpfProgram = filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
    // It jumps by relative offsets, so that instructions may precede it.
    Ok(refused_x32().into_iter().chain(filter).collect())
}

/// Instructions that refuse all calls of the x32 ABI. `SeccompFilter` compares whole numbers, and the same call has
/// another number there: that of `execve` is 0x40000208. Kernels with `CONFIG_X86_X32_ABI` have these calls.
fn refused_x32() -> Vec<sock_filter> {
    /// `__X32_SYSCALL_BIT` of `arch/x86/include/uapi/asm/unistd.h`
    const X32: u32 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let instruction = |code: u32, jf, k| {
        let code = u16::try_from(code).unwrap_or_default();
        sock_filter { code, jt: 0, jf, k }
    };
    let errno = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    vec![
        // the number of the call, which is the first field of `seccomp_data`
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, errno),
    ]
}

/// Calls `task` in a thread in which one system call fails with EPERM.
#[cfg(test)]
pub(crate) fn without(call: c_long, task: impl FnOnce() + Send) {
    let target: TargetArch = std::env::consts::ARCH.try_into().unwrap();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let calls = [(call, Vec::new())].into();
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refused, target).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            apply_filter(&filter).unwrap();
            task();
        });
    });
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_call_of_the_list_is_refused() {
        let refused = thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            refuse_calls().unwrap();
            let all = REFUSED.iter().chain(REFUSED_ON_X86);
            // SAFETY: the filter lets none of these calls reach the kernel's code for it.
            let errno = |call: &c_long| unsafe {
                assert_eq!(libc::syscall(*call, 0, 0, 0, 0, 0, 0), -1, "{call}");
                io::Error::last_os_error().raw_os_error()
            };
            // Others still work, and a second time changes nothing.
            refuse_calls().unwrap();
            (all.map(errno).collect::<Vec<_>>(), thread::spawn(execute_fails).join().unwrap())
        });
        let (refused, later) = refused.join().unwrap();
        assert!(
            refused.len() > 50 && refused.iter().all(|e| *e == Some(libc::EPERM)),
            "{refused:?}"
        );
        assert!(later, "a thread that starts later has the filter");
        assert!(!execute_fails(), "a thread that started earlier has not");
    }

    /// Found by an audit: the filter compared only the numbers of the usual ABI.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_the_x32_abi_are_refused() {
        let refused = thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            refuse_calls().unwrap();
            // `getpid`, `execve` and `ptrace` of x32. Without the filter, kernels without this ABI return ENOSYS.
            [39, 520, 521].map(|call: c_long| {
                // SAFETY: the filter lets none of these calls reach the kernel's code for it.
                let done = unsafe { libc::syscall(0x4000_0000 | call, 0, 0, 0, 0, 0, 0) };
                (done, io::Error::last_os_error().raw_os_error())
            })
        });
        assert_eq!(refused.join().unwrap(), [(-1, Some(libc::EPERM)); 3]);
    }

    fn execute_fails() -> bool {
        let done = std::process::Command::new("true").status();
        done.is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
    }
}
