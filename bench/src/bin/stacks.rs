//! What `--stacks` costs a program and isotherm, and how many major faults the samples stand for.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use isotherm::Selection;
use isotherm::stacks::{StackNews, StackOptions, Stacks};
use isotherm_bench::bootstrap::median_of;
use isotherm_bench::program::ChildGuard;
use isotherm_bench::{cpus, usage};
use isotherm_core::{FaultKind, Nanos, TargetId};
use isotherm_linux::sys::{monotonic, own_cpu};
use isotherm_record::TargetInfo;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_ADDR, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};
use perf_event_open_sys::perf_event_open;
use rustix::fs::{Advice, fadvise};
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Measures a program with and without sampling, alternately. The program has a CPU of its own.
#[derive(Parser)]
struct Options {
    /// pairs of slices, one with sampling and one without
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// length of a slice in s, after a warm-up of the same length
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// faults a second of the program that touches new memory; the maximum is as fast as it can
    #[arg(long, default_values_t = [262_144, u64::MAX])]
    rate: Vec<u64>,
    /// only programs of this kind: new, steady or returns
    #[arg(long)]
    only: Option<String>,
    /// run as this program instead of measuring it
    #[arg(long, hide = true, num_args = 2)]
    be: Vec<String>,
}

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    let o = Options::parse();
    if let [kind, rate] = &o.be[..] {
        return be(kind, rate.parse()?);
    }
    let allowed = cpus::allowed()?;
    let (own, its) = match allowed[..] {
        [own, its, ..] => (own, its),
        _ => bail!("the program and isotherm need a CPU each, and there is one"),
    };
    cpus::pin(&[own])?;
    println!(
        "{:<38} {:>10} {:>24} {:>9} {:>9}",
        "", "faults/s", "CPU time of the program", "samples/s", "own CPU"
    );
    // One program at a time: they share a CPU.
    let figures = |kind, rate, by| compare(&start(kind, rate, its)?, by, &o);
    let wants = |kind| o.only.as_deref().is_none_or(|only| only == kind);
    for &rate in o.rate.iter().filter(|_| wants("new")) {
        let pages = format!("{} new pages a second", words(rate));
        show(&pages, &figures("new", rate, By::Stacks)?);
        show("    an event that samples none of them", &figures("new", rate, By::IdleEvent)?);
    }
    for (name, kind, rate) in [
        ("64 MiB touched again and again", "steady", 0),
        ("1000 pages a second from a file", "returns", 1000),
    ] {
        if wants(kind) {
            show(name, &figures(kind, rate, By::Stacks)?);
        }
    }
    Ok(())
}

/// What observes a program in the slices that are compared with those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Stacks,
    /// An event of page faults that never samples one: the least that it costs to see each of them.
    IdleEvent,
}

/// Opens such an event for the threads of a process that has one thread. It counts until it is dropped.
fn idle_event(pid: i32) -> Result<OwnedFd> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<perf_event_attr>())?,
        config: PERF_COUNT_SW_PAGE_FAULTS_MIN.into(),
        sample_type: PERF_SAMPLE_ADDR.into(),
        ..perf_event_attr::default()
    };
    attr.sample_period = 1 << 62;
    let flags = libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is initialized, states its own size, and lives until the call returns.
    let fd = unsafe { perf_event_open(&mut attr, pid, -1, -1, flags) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("cannot open an event of page faults");
    }
    // SAFETY: the call has returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn words(rate: u64) -> String {
    if rate == u64::MAX { "all possible".to_owned() } else { rate.to_string() }
}

/// Starts a program under `SCHED_FIFO`.
fn start(kind: &str, rate: u64, cpu: usize) -> Result<ChildGuard> {
    let me = std::env::current_exe()?;
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "chrt", "--fifo", "1"]).arg(me);
    let program = ChildGuard(command.args(["--be", kind, &rate.to_string()]).spawn()?);
    // It fills its memory first.
    std::thread::sleep(Duration::from_secs(2));
    Ok(program)
}

/// What happened in a slice.
#[derive(Debug, Clone, Copy)]
struct Slice {
    seconds: f64,
    faults: u64,
    major: u64,
    /// CPU time of the program in s
    cpu: f64,
    /// CPU time of the sampler in s
    own: f64,
    samples: u64,
    /// major faults that the samples stand for
    represented: u64,
}

fn compare(program: &ChildGuard, by: By, o: &Options) -> Result<Vec<(Slice, Slice)>> {
    let pair = |i: usize| -> Result<(Slice, Slice)> {
        let seconds = Duration::from_secs(o.seconds);
        if i.is_multiple_of(2) {
            let with = slice(program, Some(by), seconds)?;
            Ok((with, slice(program, None, seconds)?))
        } else {
            let without = slice(program, None, seconds)?;
            Ok((slice(program, Some(by), seconds)?, without))
        }
    };
    (0..o.pairs).map(pair).collect()
}

fn slice(program: &ChildGuard, by: Option<By>, time: Duration) -> Result<Slice> {
    let pid = program.pid();
    let target = Selection::pid(pid);
    let _event = (by == Some(By::IdleEvent)).then(|| idle_event(pid)).transpose()?;
    let with_stacks = by == Some(By::Stacks);
    let mut stacks =
        with_stacks.then(|| Stacks::open(&target, StackOptions::default())).transpose()?;
    let fact = TargetInfo { id: TargetId(0), pid: Some(program.0.id()), command: String::new() };
    stacks.as_mut().map_or(Ok(()), |stacks| stacks.target(&fact))?;
    // In the warm-up, the sampler spends what it may take of a burst.
    let _ = run(stacks.as_mut(), monotonic() + time);
    let (begin, before, own) = (monotonic(), usage::of(pid)?, own_cpu());
    let (samples, represented) = run(stacks.as_mut(), begin + time);
    let (after, own) = (usage::of(pid)?, own_cpu().saturating_sub(own));
    Ok(Slice {
        seconds: monotonic().since(begin).as_secs_f64(),
        faults: after.minor_faults - before.minor_faults,
        major: after.major_faults - before.major_faults,
        cpu: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
        own: own.as_secs_f64(),
        samples,
        represented,
    })
}

/// Samples until a time. Returns the number of samples, and of the major faults that they stand for.
fn run(mut stacks: Option<&mut Stacks>, until: Nanos) -> (u64, u64) {
    let (mut samples, mut represented) = (0, 0);
    loop {
        let now = monotonic();
        let next = stacks.as_ref().map_or(until, |stacks| stacks.by().min(until));
        std::thread::sleep(next.since(now));
        let now = monotonic();
        for news in stacks.as_mut().map(|stacks| stacks.turn(now)).unwrap_or_default() {
            if let StackNews::Fault(f) = news
                && f.kind.is_touch()
            {
                samples += 1;
                let is_whole = f.kind == FaultKind::Major && !f.frames.is_empty();
                represented += if is_whole { f.weight } else { 0 };
            }
        }
        if now >= until {
            return (samples, represented);
        }
    }
}

fn show(name: &str, pairs: &[(Slice, Slice)]) {
    let mean = |of: fn(&Slice) -> f64| {
        pairs.iter().map(|(with, _)| of(with)).sum::<f64>() / pairs.len() as f64
    };
    let faults = |s: &Slice| s.faults + s.major;
    // Per fault where the program does nothing else, else per second.
    let each = |s: &Slice| s.cpu / if s.faults > 10_000 { faults(s) as f64 } else { s.seconds };
    let more: Vec<f64> =
        pairs.iter().map(|(with, without)| 100.0 * (each(with) / each(without) - 1.0)).collect();
    let more = median_of(&more, 1);
    let more = more.map_or_else(String::new, |m| {
        format!("{:+.2} % ({:+.2}..{:+.2})", m.median, m.low, m.high)
    });
    println!(
        "{name:<38} {:>10.0} {more:>24} {:>9.0} {:>7.2} %",
        mean(|s| (s.faults + s.major) as f64 / s.seconds),
        mean(|s| s.samples as f64 / s.seconds),
        mean(|s| 100.0 * s.own / s.seconds)
    );
    let major: u64 = pairs.iter().map(|(with, _)| with.major).sum();
    let represented: u64 = pairs.iter().map(|(with, _)| with.represented).sum();
    if major > 0 {
        println!(
            "    samples with a stack stand for {represented} of {major} major faults: {:.1} %",
            100.0 * represented as f64 / major as f64
        );
    }
}

/// Runs as a program until it is killed.
fn be(kind: &str, rate: u64) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match kind {
        "new" => touch_new(rate),
        "steady" => touch_again(),
        "returns" => touch_file(rate),
        _ => bail!("there is no program {kind}"),
    }
}

/// Anonymous memory, without huge pages.
fn map(len: usize) -> Result<*mut u8> {
    let (rw, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses changes no other memory.
    let at = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, rw, private)? };
    // SAFETY: the advice changes no content, and the mapping is new.
    unsafe { mm::madvise(at, len, mm::Advice::LinuxNoHugepage)? };
    Ok(at.cast())
}

fn touch(memory: *mut u8, offset: usize) {
    // SAFETY: callers stay inside of their mapping, which no other thread accesses.
    unsafe { memory.add(offset).write_volatile(1) };
}

fn touch_new(rate: u64) -> Result<()> {
    let len = 64 * MIB;
    let begin = monotonic();
    for round in 1u64.. {
        let memory = map(len)?;
        (0..len).step_by(PAGE).for_each(|offset| touch(memory, offset));
        // SAFETY: the mapping is this function's own, and is not used again.
        unsafe { mm::munmap(memory.cast(), len)? };
        let due = u128::from(round) * (len / PAGE) as u128 * 1_000_000_000 / u128::from(rate);
        let due = Duration::from_nanos(u64::try_from(due)?);
        std::thread::sleep(due.saturating_sub(monotonic().since(begin)));
    }
    Ok(())
}

fn touch_again() -> Result<()> {
    let len = 64 * MIB;
    let memory = map(len)?;
    loop {
        (0..len).step_by(64).for_each(|offset| touch(memory, offset));
    }
}

/// Reads one page of a file at a time through a mapping, each of them from the disk.
fn touch_file(rate: u64) -> Result<()> {
    let file = tempfile::tempfile_in(".").context("cannot create a file here")?;
    let (len, pause) = (64 * MIB, Duration::from_nanos(1_000_000_000 / rate));
    std::io::copy(&mut std::io::Read::take(std::io::repeat(7), len as u64), &mut &file)?;
    file.sync_all()?;
    let mut next = monotonic();
    loop {
        drop_from_cache(&file)?;
        // SAFETY: a new mapping at an address that the kernel chooses changes no other memory.
        let at = unsafe {
            mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)?
        };
        // SAFETY: the advice changes no content.
        unsafe { mm::madvise(at, len, mm::Advice::Random)? };
        for offset in (0..len).step_by(PAGE) {
            // SAFETY: the address lies in the mapping, and nothing truncates the file.
            let _ = unsafe { at.cast::<u8>().add(offset).read_volatile() };
            next = next + pause;
            std::thread::sleep(next.since(monotonic()));
        }
        // SAFETY: the mapping is this function's own, and is not used again.
        unsafe { mm::munmap(at, len)? };
    }
}

fn drop_from_cache(file: &File) -> Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)?;
    ensure!(file.metadata()?.len() > 0, "the file is empty");
    Ok(())
}
