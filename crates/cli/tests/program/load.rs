//! A process with known accesses.

#![allow(clippy::undocumented_unsafe_blocks, reason = "memory of our own, mapped for this")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous};

use crate::fixed::Ring;
use crate::run::copy_program;
use crate::{churn, words};

pub const MIB: u64 = 1 << 20;
/// Environment variable that makes the test binary the load; it holds the sizes in MiB.
const SIZES: &str = "ISOTHERM_TEST_LOAD";

/// Touches a part of its memory hundreds of times a second, and after the start no other memory. Ends on
/// request, or with the test.
pub struct Load {
    child: Child,
    to: Option<ChildStdin>,
    from: Box<dyn BufRead>,
    /// all memory that it has mapped in one piece
    pub memory: AddrRange,
    /// the part that it touches
    pub hot: AddrRange,
    /// locked by `mlock`, and touched as often
    pub locked: AddrRange,
}

impl Load {
    pub fn start(total_mib: u64, hot_mib: u64) -> Self {
        Load::from_command(&mut Load::command(total_mib, hot_mib))
    }

    /// Starts it as an unprivileged user. `dir` is for a copy of the program, which the user may run. `err`
    /// is its standard error.
    pub fn by_nobody(dir: &Path, (total_mib, hot_mib): (u64, u64), err: Stdio) -> Self {
        let program = dir.join("load");
        copy_program(std::env::current_exe().unwrap(), &program);
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.args(HARNESS).env(SIZES, sizes(total_mib, hot_mib)).uid(65534).gid(65534);
        Load::from_command(command.stderr(err))
    }

    /// A command for another program to start: see [`Load::words`].
    pub fn command(total_mib: u64, hot_mib: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(HARNESS).env(SIZES, sizes(total_mib, hot_mib));
        command
    }

    /// Starts it with another name: `program` is a copy of the test binary. It has a low priority.
    pub fn by(program: &Path, total_mib: u64, hot_mib: u64) -> Self {
        let mut command = Command::new("nice");
        command.arg(program).args(HARNESS).env(SIZES, sizes(total_mib, hot_mib));
        Load::from_command(&mut command)
    }

    /// Adds the command of the load to `starter`, a program that runs the rest of its command line.
    pub fn words(starter: &mut Command, total_mib: u64, hot_mib: u64) {
        starter.arg(std::env::current_exe().unwrap()).args(HARNESS);
        starter.env(SIZES, sizes(total_mib, hot_mib));
    }

    /// Starts `command`, which becomes the load.
    pub fn from_command(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take();
        let from = Box::new(BufReader::new(child.stdout.take().unwrap()));
        let nowhere = AddrRange::default();
        let mut load = Load { child, to, from, memory: nowhere, hot: nowhere, locked: nowhere };
        load.read_ranges();
        load
    }

    /// The started process: the load, or its parent.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Makes it become a load of other sizes, by exec.
    pub fn exec(&mut self, total_mib: u64, hot_mib: u64) {
        self.tell(&format!("exec {}", sizes(total_mib, hot_mib)));
        self.read_ranges();
    }

    /// Makes it start a child that only waits. Returns its pid.
    pub fn fork(&mut self) -> u32 {
        self.tell("fork");
        self.answer("FORKED").parse().unwrap()
    }

    /// Its capabilities, as `/proc/self/status` has them.
    pub fn capabilities(&mut self) -> String {
        self.tell("capabilities");
        self.answer("CAPABILITIES")
    }

    /// Makes it change its mappings all the time, in other memory.
    pub fn churn(&mut self) {
        self.tell("churn");
    }

    /// The number of these changes.
    pub fn changes(&mut self) -> u64 {
        self.tell("changes");
        self.answer("CHANGES").parse().unwrap()
    }

    /// Makes it check all words of `pages` pages, and write others, for `rounds` rounds.
    pub fn check_words(&mut self, pages: u64, rounds: u64) {
        self.tell(&format!("words {pages} {rounds}"));
    }

    /// The number of wrong words; `None` while it checks.
    pub fn wrong_words(&mut self) -> Option<u64> {
        self.tell("wrong");
        self.answer("WRONG").parse::<u64>().unwrap().checked_sub(1)
    }

    /// Makes it map and touch pages of hugetlb, of 2 MiB each.
    pub fn hugetlb(&mut self, pages: u64) -> AddrRange {
        self.tell(&format!("hugetlb {pages}"));
        let start = self.answer("HUGETLB").parse().unwrap();
        AddrRange::new(start, start + pages * 2 * MIB)
    }

    /// Makes it map three times as much, and `io_uring` fix the middle third. Returns all of it, and the
    /// middle.
    pub fn fix(&mut self, bytes: u64) -> Result<(AddrRange, AddrRange), String> {
        self.tell(&format!("fix {bytes}"));
        let reported = self.answer("FIXED");
        let start: u64 = reported.parse().map_err(|_| reported)?;
        let fixed = AddrRange::new(start + bytes, start + 2 * bytes);
        Ok((AddrRange::new(start, start + 3 * bytes), fixed))
    }

    /// Makes `io_uring` release that.
    pub fn free(&mut self) {
        self.tell("free");
        self.answer("FREED");
    }

    /// Makes it touch each page of `range` once.
    pub fn touch(&mut self, range: AddrRange) {
        self.tell(&format!("touch {} {}", range.start, range.end));
        self.answer("TOUCHED");
    }

    /// Makes it end.
    pub fn end(&mut self, status: u8) {
        self.tell(&format!("end {status}"));
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    fn read_ranges(&mut self) {
        let text = self.answer("RANGES");
        let mut ends = text.split(' ').map(|n| n.parse::<u64>().unwrap());
        let mut range = || AddrRange::new(ends.next().unwrap(), ends.next().unwrap());
        (self.memory, self.hot, self.locked) = (range(), range(), range());
    }

    /// Skips lines of the test harness.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the load ended");
            if let Some((_, rest)) = line.trim_end().split_once(&format!("{word} ")) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The end of its input ends it, even if it is a grandchild.
        self.to = None;
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HARNESS: [&str; 4] = ["--exact", "obey", "--nocapture", "--test-threads=1"];

fn sizes(total_mib: u64, hot_mib: u64) -> String {
    format!("{total_mib} {hot_mib}")
}

/// The load itself.
pub fn obey() {
    let Ok(sizes) = std::env::var(SIZES) else { return };
    let (total, hot) = sizes.split_once(' ').unwrap();
    let memory = map(total.parse::<u64>().unwrap() * MIB);
    // It begins at an odd page, so that no result is right only by alignment.
    let first = memory.start + memory.len() / 3 / MIB * MIB + 3 * PAGE_SIZE;
    let hot = AddrRange::new(first, first + hot.parse::<u64>().unwrap() * MIB);
    let locked = map(4 * MIB);
    unsafe { mlock(locked.start as *mut _, 4 << 20).unwrap() };
    touch(memory);
    touch(locked);
    std::thread::spawn(move || {
        loop {
            touch(hot);
            touch(locked);
            std::thread::sleep(Duration::from_millis(4));
        }
    });
    let ends = [memory, hot, locked].map(|r| format!("{} {}", r.start, r.end));
    say(&format!("RANGES {}", ends.join(" ")));
    let mut children = Vec::new();
    let mut ring = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("exec", sizes) => {
                let me = std::env::current_exe().unwrap();
                panic!("{}", Command::new(me).args(HARNESS).env(SIZES, sizes).exec());
            }
            ("fork", _) => {
                // The child ends with this process, as its input does.
                let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
                say(&format!("FORKED {}", child.id()));
                children.push(child);
            }
            ("capabilities", _) => {
                say(&format!("CAPABILITIES {}", capabilities(Path::new("/proc/self"))));
            }
            ("touch", ends) => {
                let (start, end) = ends.split_once(' ').unwrap();
                touch(AddrRange::new(start.parse().unwrap(), end.parse().unwrap()));
                say("TOUCHED all");
            }
            ("churn", _) => churn::start(),
            ("changes", _) => say(&format!("CHANGES {}", churn::changes())),
            ("words", how) => {
                let (pages, rounds) = how.split_once(' ').unwrap();
                let pages = pages.parse().unwrap();
                words::start(map(pages * PAGE_SIZE).start, pages, rounds.parse().unwrap());
            }
            ("wrong", _) => say(&format!("WRONG {}", words::wrong())),
            ("hugetlb", pages) => {
                let start = churn::map_hugetlb(pages.parse().unwrap()).start;
                say(&format!("HUGETLB {start}"));
            }
            ("fix", bytes) => {
                let bytes: u64 = bytes.parse().unwrap();
                let mapping = map(3 * bytes);
                touch(mapping);
                let fixed = AddrRange::new(mapping.start + bytes, mapping.start + 2 * bytes);
                let made = Ring::fix(fixed).map(|made| ring = Some(made));
                say(&format!(
                    "FIXED {}",
                    made.map_or_else(|e| e.to_string(), |()| mapping.start.to_string())
                ));
            }
            ("free", _) => {
                ring.as_ref().unwrap().free().unwrap();
                say("FREED it");
            }
            ("end", status) => std::process::exit(status.parse().unwrap()),
            other => panic!("unknown words {other:?}"),
        }
    }
    std::process::exit(0);
}

/// Writes a whole line at once, because the harness prints as well.
fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Memory without huge pages.
fn map(len: u64) -> AddrRange {
    let size = usize::try_from(len).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let start = unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), size, prot, MapFlags::PRIVATE).unwrap();
        madvise(start, size, Advice::LinuxNoHugepage).unwrap();
        start as u64
    };
    AddrRange::new(start, start + len)
}

fn touch(range: AddrRange) {
    for page in (range.start..range.end).step_by(4096) {
        let byte = page as *mut u8;
        unsafe { byte.write_volatile(byte.read_volatile().wrapping_add(1)) };
    }
}

/// Effective, permitted and inheritable capabilities of a process or thread, by its directory.
pub fn capabilities(proc: &Path) -> String {
    ["CapEff:", "CapPrm:", "CapInh:"].map(|name| status(proc, name)).join(" ")
}

/// A value of the status of a process or thread, by its directory.
pub fn status(proc: &Path, name: &str) -> String {
    let status = std::fs::read_to_string(proc.join("status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned()
}
