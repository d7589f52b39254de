//! A process that follows orders, so that its accesses to memory are known.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

pub mod root;
pub mod settings;
pub mod swap;
pub mod words;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use isotherm_core::{AddrRange, Ask, Look, PAGE_SIZE, Seen, TargetId};
use isotherm_linux::{Hold, Vaddr};
#[allow(unused_imports, reason = "each test binary uses a part")]
pub(crate) use root::needs_root;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// Set in the environment of the test binary when it is to be the obedient process.
const ROLE: &str = "ISOTHERM_TEST_ROLE";

/// An obedient process, and an operations set that watches it.
pub fn attached() -> (Obedient, Vaddr, TargetId) {
    let process = Obedient::start();
    let mut ops = Vaddr::new().unwrap();
    let target = ops.attach(process.pid()).unwrap();
    (process, ops, target)
}

/// A watched process with `pages` pages of a kind, all of them touched.
pub fn with_memory(pages: u64, kind: &str) -> (Obedient, Vaddr, TargetId, AddrRange) {
    let (mut process, ops, target) = attached();
    let memory = process.map(pages, kind);
    process.touch(memory);
    (process, ops, target, memory)
}

/// `pages` pages of `range`, from the `first`th on.
pub fn part(range: AddrRange, first: u64, pages: u64) -> AddrRange {
    let start = range.start + first * PAGE_SIZE;
    AddrRange::new(start, start + pages * PAGE_SIZE)
}

/// The host's kdamond ages a few pages now and then: one in 200 may be missed.
pub fn about(found: u32, truth: u32) -> bool {
    found <= truth && found + truth / 200 + 1 >= truth
}

/// The process, ended when dropped.
pub struct Obedient {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Obedient {
    /// Starts this test binary again; its test `obey` must call [`obey`].
    pub fn start() -> Self {
        Self::from_command(&mut Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts it with another program that runs the rest of its command line.
    pub fn from_command(command: &mut Command) -> Self {
        let mut child = command
            .args(["--exact", "obey", "--nocapture", "--test-threads=1"])
            .env(ROLE, "obey")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut obedient = Obedient { child, to, from };
        obedient.answer();
        obedient
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a line, and waits for its answer.
    pub fn tell(&mut self, line: &str) -> u64 {
        writeln!(self.to, "{line}").unwrap();
        self.answer()
    }

    /// Skips lines of the test harness.
    fn answer(&mut self) -> u64 {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the obedient process ended");
            if let Some((_, value)) = line.trim_end().split_once("ANSWER ") {
                return value.parse().unwrap();
            }
        }
    }

    /// Maps `pages` pages of a kind: plain, small, huge, locked, hugetlb, shared, reserved.
    pub fn map(&mut self, pages: u64, kind: &str) -> AddrRange {
        let start = self.tell(&format!("map {pages} {kind}"));
        assert!(start != 0, "cannot map {kind} memory");
        AddrRange::new(start, start + pages * PAGE_SIZE)
    }

    /// Writes to all pages of a range.
    pub fn touch(&mut self, range: AddrRange) {
        self.tell(&format!("touch {} {}", range.start, range.len() / PAGE_SIZE));
    }

    /// Makes it touch every `step`-th page of `range` repeatedly, in addition to its other work. Returns its
    /// thread.
    pub fn keep_touching(&mut self, range: AddrRange, step: u64) -> u64 {
        let pages = (range.len() / PAGE_SIZE).div_ceil(step);
        self.tell(&format!("keep-touching {} {step} {pages}", range.start))
    }

    /// The number of resident pages, by `/proc/PID/pagemap`.
    pub fn resident(&self, range: AddrRange) -> u64 {
        self.resident_each(range, 1)
    }

    /// The number of resident pages among every `step`-th one.
    pub fn resident_each(&self, range: AddrRange, step: usize) -> u64 {
        let mut pagemap = isotherm_linux::proc::Pagemap::open("/".as_ref(), self.pid()).unwrap();
        pagemap.read(range).step_by(step).filter(|e| e.is_present()).count() as u64
    }

    /// Faults of one of its threads that waited for a disk, or for swap.
    pub fn major_faults(&self, thread: u64) -> u64 {
        let path = format!("/proc/{}/task/{thread}/stat", self.pid());
        let stat = std::fs::read_to_string(path).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(9).unwrap().parse().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A figure of `/proc/PID/smaps_rollup`, in KiB.
    pub fn rollup(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.pid());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|l| l.starts_with(&format!("{key}:"))).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Obedient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The obedient process. A test named `obey` must call this. Returns at once in an ordinary test run.
pub fn obey() {
    if std::env::var(ROLE).as_deref() != Ok("obey") {
        return;
    }
    // Uses one CPU, so that `settle` affects the right one.
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &cpus).unwrap();
    let mut out = std::io::stdout();
    let mut answer = |value: u64| {
        writeln!(out, "ANSWER {value}").unwrap();
        out.flush().unwrap();
    };
    answer(0);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        answer(match words[0] {
            "map" => map(number(1), words[2]),
            "touch" => {
                each_page(number(1), number(2), |p| unsafe { p.write_volatile(1) });
                settle()
            }
            "read" => each_page(number(1), number(2), |p| unsafe {
                std::hint::black_box(p.read_volatile());
            }),
            "keep-touching" => keep_touching(number(1), number(2), number(3)),
            "words" => words::start(number(1), number(2), number(3)),
            "wrong-words" => words::wrong(),
            "unmap" => unsafe {
                rustix::mm::munmap(number(1) as *mut _, number(2) as usize * 4096).unwrap();
                0
            },
            "drop" => unsafe {
                let len = number(2) as usize * 4096;
                let advice = Advice::LinuxDontNeed;
                rustix::mm::madvise(number(1) as *mut _, len, advice).unwrap();
                0
            },
            "protect-read" => unsafe {
                let len = number(2) as usize * 4096;
                rustix::mm::mprotect(number(1) as *mut _, len, MprotectFlags::READ).unwrap();
                0
            },
            "lock" => unsafe {
                rustix::mm::mlock(number(1) as *mut _, number(2) as usize * 4096).unwrap();
                0
            },
            "fork" => fork(|| {}),
            "fork-read" => fork(|| {
                each_page(number(1), number(2), |p| unsafe {
                    std::hint::black_box(p.read_volatile());
                });
            }),
            "reap" => unsafe {
                libc::kill(i32::try_from(number(1)).unwrap(), libc::SIGKILL);
                libc::waitpid(i32::try_from(number(1)).unwrap(), std::ptr::null_mut(), 0);
                0
            },
            "exec" => {
                use std::os::unix::process::CommandExt;
                let me = std::env::current_exe().unwrap();
                let error = Command::new(me)
                    .args(["--exact", "obey", "--nocapture", "--test-threads=1"])
                    .exec();
                panic!("{error}");
            }
            other => panic!("unknown word {other}"),
        });
    }
    std::process::exit(0);
}

fn each_page(start: u64, pages: u64, mut f: impl FnMut(*mut u8)) -> u64 {
    (0..pages).for_each(|i| f((start + i * PAGE_SIZE) as *mut u8));
    0
}

/// Reads every `step`-th page from `start` on repeatedly, in a thread of its own.
fn keep_touching(start: u64, step: u64, pages: u64) -> u64 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        loop {
            for i in 0..pages {
                let page = (start + i * step * PAGE_SIZE) as *const u8;
                std::hint::black_box(unsafe { page.read_volatile() });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    u64::from(told.recv().unwrap().as_raw_nonzero().get().unsigned_abs())
}

/// Up to 31 new pages wait on their CPU, and cannot be cleared until more follow. This creates more.
fn settle() -> u64 {
    let scratch = map(64, "small");
    each_page(scratch, 64, |p| unsafe { p.write_volatile(1) });
    unsafe { rustix::mm::munmap(scratch as *mut _, 64 * 4096).unwrap() };
    0
}

/// Zero if such memory is not available.
fn map(pages: u64, kind: &str) -> u64 {
    const HUGE: usize = 2 << 20;
    let len = pages as usize * 4096;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = match kind {
        "hugetlb" => MapFlags::PRIVATE | MapFlags::HUGETLB,
        "shared" => MapFlags::SHARED,
        "reserved" => MapFlags::PRIVATE | MapFlags::NORESERVE,
        _ => MapFlags::PRIVATE,
    };
    let extra = if kind == "huge" { HUGE } else { 0 };
    let at = std::ptr::null_mut();
    let base = match kind {
        // Its pages are in memory, but not mapped yet.
        "file" => {
            let mut file = File::from(memfd_create("file", MemfdFlags::CLOEXEC).unwrap());
            (0..pages).for_each(|_| file.write_all(&[1; 4096]).unwrap());
            unsafe { rustix::mm::mmap(at, len, prot, MapFlags::SHARED, file, 0) }
        }
        _ => unsafe { rustix::mm::mmap_anonymous(at, len + extra, prot, flags) },
    };
    let Ok(base) = base else { return 0 };
    let start = if kind == "huge" { (base as usize).next_multiple_of(HUGE) } else { base as usize };
    let done = unsafe {
        match kind {
            "huge" => rustix::mm::madvise(start as *mut _, len, Advice::LinuxHugepage).is_ok(),
            "locked" => rustix::mm::mlock(start as *mut _, len).is_ok(),
            "small" | "reserved" => {
                rustix::mm::madvise(start as *mut _, len, Advice::LinuxNoHugepage).is_ok()
            }
            _ => true,
        }
    };
    if done { start as u64 } else { 0 }
}

/// Forks a child that calls `first`, and then only waits. Returns its pid.
fn fork(first: impl FnOnce()) -> u64 {
    match unsafe { libc::fork() } {
        0 => {
            // The child must not outlive its parent if the test fails.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            first();
            loop {
                unsafe { libc::pause() };
            }
        }
        pid => u64::from(pid.unsigned_abs()),
    }
}

/// Looks at `pages` pages of `range`, from `first` on.
pub fn look(ops: &mut Vaddr, target: TargetId, range: AddrRange, clear: bool) -> Vec<Seen> {
    let asks: Vec<Ask> = windows(range).map(|range| Ask { target, range, clear }).collect();
    let mut seen = Vec::new();
    ops.look(&asks, &mut seen).unwrap();
    assert_eq!(seen.len(), asks.len());
    seen
}

/// The aligned windows of 64 KiB of `range`.
fn windows(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    const SIZE: u64 = 16 * PAGE_SIZE;
    (range.start / SIZE..range.end.div_ceil(SIZE))
        .filter_map(move |i| AddrRange::new(i * SIZE, (i + 1) * SIZE).intersect(&range))
}

/// The number of young pages over all windows.
pub fn young(seen: &[Seen]) -> u32 {
    seen.iter().map(|s| s.young).sum()
}
