use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use super::*;

const ROOT: &str = "/";

/// A child process, killed on drop.
struct Started(Child);

impl Started {
    fn new(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        Started(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn heap(&self) -> Option<AddrRange> {
        let all = proc::mappings(Path::new(ROOT), self.pid()).unwrap();
        all.iter().find(|m| &*m.name == "[heap]").map(|m| m.range)
    }

    /// Its heap, once the program has one.
    fn wait_for_heap(&self) -> AddrRange {
        std::iter::repeat_with(|| {
            std::thread::yield_now();
            self.heap()
        })
        .flatten()
        .next()
        .unwrap()
    }

    fn request(&self, request: InjectedCall) -> io::Result<()> {
        let (mut results, made) = self.requests(&[request]);
        made.unwrap();
        results.remove(0)
    }

    fn requests(&self, all: &[InjectedCall]) -> (Vec<io::Result<()>>, Result<(), InjectError>) {
        let root = Path::new(ROOT);
        match Thread::now(root, self.pid()) {
            Some(process) => request(root, process, all),
            None => (Vec::new(), Err(InjectError::Ended(self.pid()))),
        }
    }

    fn locked(&self) -> u64 {
        proc::locked(Path::new(ROOT), self.pid()).unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_range_is_locked_and_unlocked_while_the_process_waits() {
    let mut cat = Started::new("cat", &[]);
    let heap = cat.wait_for_heap();
    cat.request(InjectedCall::Lock(heap)).unwrap();
    assert_eq!(cat.locked(), heap.len());
    cat.request(InjectedCall::Unlock(heap)).unwrap();
    assert_eq!(cat.locked(), 0);
    cat.request(InjectedCall::LockNow(heap)).unwrap();
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", cat.pid())).unwrap();
    let (_, of_heap) = smaps.split_once("[heap]").unwrap();
    let resident = of_heap.lines().find(|line| line.starts_with("Rss:")).unwrap();
    assert_eq!(resident.split_whitespace().nth(1).unwrap(), (heap.len() / 1024).to_string());
    assert_eq!(cat.locked(), heap.len());
    // The call to read that was interrupted has been started again.
    cat.0.stdin.as_mut().unwrap().write_all(b"on").unwrap();
    drop(cat.0.stdin.take());
    let mut said = String::new();
    cat.0.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "on");
    assert!(cat.0.wait().unwrap().success());
}

#[test]
fn a_sleep_lasts_as_long_as_before() {
    let since = std::time::Instant::now();
    let mut sleep = Started::new("sleep", &["1"]);
    let heap = sleep.wait_for_heap();
    for _ in 0..20 {
        sleep.request(InjectedCall::Lock(heap)).unwrap();
    }
    assert!(sleep.0.wait().unwrap().success());
    assert!(since.elapsed() >= std::time::Duration::from_secs(1));
}

#[test]
fn a_computing_process_computes_the_same() {
    let script = "n=0; for i in $(seq 200000); do n=$((n + i)); done; echo $n";
    let mut shell = Started::new("sh", &["-c", script]);
    let heap = shell.wait_for_heap();
    let mut times = 0;
    while shell.0.try_wait().unwrap().is_none() {
        match shell.requests(&[InjectedCall::Lock(heap), InjectedCall::Unlock(heap)]).1 {
            Ok(()) => times += 1,
            Err(InjectError::Ended(_) | InjectError::Proc(_) | InjectError::NoInstruction(_)) => {}
            Err(e) => panic!("{e}"),
        }
    }
    let mut said = String::new();
    shell.0.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.trim(), "20000100000");
    assert!(shell.0.wait().unwrap().success(), "its parent still learns how it ended");
    assert!(times > 0);
}

/// Its parent learns of the end of a process only after the tracer has.
#[test]
fn the_parent_of_a_process_that_is_killed_in_a_stop_learns_of_it() {
    for calls in [false, true] {
        let script = "sleep 1000 & echo $!; wait $!; echo $?";
        let mut shell = Started::new("sh", &["-c", script]);
        let mut said = BufReader::new(shell.0.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let (root, pid) = (Path::new(ROOT), line.trim().parse().unwrap());
        let mut tracee = Tracee::stop(root, pid, pid).unwrap();
        if calls {
            let at = instruction(root, pid).unwrap();
            tracee.call(at, nothing().syscall()).unwrap().unwrap();
        }
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let _ = tracee.release();
        line.clear();
        said.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "137", "{calls}");
        assert!(shell.0.wait().unwrap().success());
    }
}

#[test]
fn the_kernel_s_answer_is_returned() {
    let cat = Started::new("cat", &[]);
    let hole = AddrRange::new(0x1000, 0x2000);
    cat.wait_for_heap();
    let said = cat.request(InjectedCall::Lock(hole)).unwrap_err();
    assert_eq!(said.raw_os_error(), Some(libc::ENOMEM));
}

/// Found by a review: the process counted as one that had ended, so that it got no advice, or kept its locks.
#[test]
fn a_name_that_is_cut_within_a_character_is_no_end() {
    let script = "printf 'aaaaaaaaaaaaaa\\303\\244' > /proc/$$/comm; read line";
    let shell = Started::new("sh", &["-c", script]);
    let heap = shell.wait_for_heap();
    let name = || std::fs::read(format!("/proc/{}/comm", shell.pid())).unwrap();
    while name() != b"aaaaaaaaaaaaaa\xc3\n" {
        std::thread::yield_now();
    }
    shell.request(InjectedCall::Lock(heap)).unwrap();
    assert!(shell.locked() > 0);
}

#[test]
fn a_stopped_process_is_left_alone() {
    let cat = Started::new("cat", &[]);
    let heap = cat.wait_for_heap();
    let pid = rustix::process::Pid::from_child(&cat.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", cat.pid())).unwrap();
    while !stat().contains(") T ") {
        std::thread::yield_now();
    }
    let (_, said) = cat.requests(&[InjectedCall::Lock(heap)]);
    assert!(matches!(said, Err(InjectError::Stopped(_))), "{said:?}");
    assert!(stat().contains(") T "), "{}", stat());
}

/// A child process, killed on drop.
struct Forked(i32);

impl Forked {
    /// A child that runs `child`, which makes system calls and uses this flag, and nothing else.
    fn new(child: impl FnOnce(&AtomicU8)) -> (Self, &'static AtomicU8) {
        let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which stays. The child only makes system calls and writes to it.
        unsafe {
            let flag = libc::mmap(none, 4096, protection, shared, -1, 0);
            assert_ne!(flag, libc::MAP_FAILED);
            let flag: &'static AtomicU8 = AtomicU8::from_ptr(flag.cast());
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    child(flag);
                    loop {
                        std::hint::spin_loop();
                    }
                }
                pid => {
                    assert_ne!(pid, -1);
                    (Forked(pid), flag)
                }
            }
        }
    }

    /// A child whose system calls the kernel turns into SIGSYS: Syscall User Dispatch.
    fn dispatching() -> Self {
        let (child, selector) = Forked::new(|selector| {
            // SAFETY: PR_SET_SYSCALL_USER_DISPATCH and PR_SYS_DISPATCH_ON, with a flag that stays.
            let done = unsafe { libc::prctl(59, 1, 0, 0, selector.as_ptr()) };
            // SYSCALL_DISPATCH_FILTER_BLOCK, or the end of the test
            selector.store(if done == 0 { 1 } else { 2 }, Ordering::Release);
        });
        while selector.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(selector.load(Ordering::Acquire), 1, "Linux 5.11");
        child
    }

    fn request(&self, call: InjectedCall) -> Result<(), InjectError> {
        let root = Path::new(ROOT);
        let process = Thread::now(root, self.0).unwrap();
        request(root, process, &[call]).1
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: the child was not awaited yet, so the pid is its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Unlocks no memory.
fn nothing() -> InjectedCall {
    InjectedCall::Unlock(AddrRange::new(0x1000, 0x1000))
}

/// Found by a review: `isotherm exec` waited for ever, also after SIGTERM.
#[test]
fn a_thread_in_an_uninterruptible_wait_is_not_awaited() {
    let (child, ends) = Forked::new(|ends| {
        let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
        // SAFETY: without CLONE_VM it is a fork after which the parent waits for the end of the child.
        if unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } == 0 {
            // SAFETY: it ends with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            while ends.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
    });
    while state(Path::new(ROOT), child.0, child.0) != Some('D') {
        std::thread::yield_now();
    }
    let said = child.request(nothing());
    assert!(matches!(said, Err(InjectError::Waiting(_))), "{said:?}");
    ends.store(1, Ordering::Release);
    // The kernel may still be ending the thread that traced it.
    while let Err(e) = child.request(nothing()) {
        assert!(matches!(e, InjectError::Waiting(_) | InjectError::Trace { .. }), "{e}");
    }
}

/// Found by a review: the signal ended a program under Wine.
#[test]
fn a_process_that_dispatches_its_calls_lives() {
    let child = Forked::dispatching();
    for _ in 0..2 {
        let said = child.request(nothing());
        assert!(matches!(said, Err(InjectError::Filtered(_))), "{said:?}");
    }
}
