//! Recording files: the accuracy of the heat of their parts, and the cost for their readers.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use io_uring::{IoUring, opcode, types};
use isotherm_bench::bootstrap::middle;
use isotherm_bench::program::{self, ChildGuard, Helper, asked, dependent};
use isotherm_core::{BLOCK_SIZE, PAGE_SIZE, Snapshot};
use isotherm_linux::sys::{process_cpu, thread_cpu};
use isotherm_record::{Event, Reader};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;

/// Measures `isotherm record --file` while a program accesses known parts of a file at known rates.
#[derive(Parser)]
struct Options {
    /// create the file in this folder
    #[arg(long, default_value = ".")]
    within: PathBuf,
    /// seconds of a recording, and seconds before its snapshots count
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[arg(long, default_value_t = 10)]
    lead_in: u64,
    /// pairs of a time with and a time without a recorder, for the cost
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// reads per second; 0: as many as possible
    #[arg(long, default_values_t = [200_000, 0])]
    reads: Vec<u64>,
    /// threads that share these reads
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// only one of both: heat or cost
    #[arg(long)]
    only: Option<String>,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

/// The argument with which this program starts itself as the load.
const ARGUMENT: &str = "--be-a-load";
const MIB: u64 = 1 << 20;
const FILE_MIB: u64 = 1024;
/// From this rate on, in Hz, a page is hot.
const HOT_HZ: f64 = 10.0;
/// A rate of a touched block below this, in Hz, counts as this.
const MIN_HZ: f64 = 0.02;
/// A thread of the load works, and then waits, for this time.
const TICK: Duration = Duration::from_millis(4);
/// Accesses after which a thread reports what it has done, also if it is late.
const BATCH_ACCESSES: u64 = 1000;
/// The smallest share of the asked rate with which a figure is valid.
const MIN_RATE_SHARE: f64 = 0.95;

/// Parts of the file: kind of access, first MiB, MiB, accesses to each page per second.
const ZONES: [&str; 12] = [
    "pread:32:16:20",
    "pread:64:32:2",
    "pread:128:64:0.25",
    "mmap:256:16:20",
    "mmap:288:32:2",
    "mmap:352:64:0.25",
    "uring:480:16:20",
    "uring:512:32:2",
    "uring:576:64:0.25",
    "sendfile:704:16:20",
    "sendfile:736:32:2",
    "sendfile:800:64:0.25",
];

fn main() -> Result<ExitCode> {
    if let Some(mut words) = asked(ARGUMENT)? {
        let path = words.next().context("no path")?;
        let zones = words.map(|zone| zone.parse()).collect::<Result<Vec<Zone>>>()?;
        return be_a_load(Path::new(&path), &zones);
    }
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(program::beside, Ok)?;
    let dir = tempfile::tempdir_in(&o.within)?;
    let path = dir.path().join("file");
    create(&path)?;
    let is_wanted = |part: &str| o.only.as_deref().is_none_or(|only| only == part);
    let mut holds = true;
    if is_wanted("heat") {
        holds &= heat(&isotherm, &path, &o)?;
    }
    if is_wanted("cost") {
        for reads in &o.reads {
            holds &= cost(&isotherm, &path, *reads, &o)?;
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All of it is in the cache, in folios of a page as random reads make them.
fn create(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    (0..FILE_MIB).try_for_each(|_| file.write_all(&vec![7; MIB as usize]))?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut page = [0; PAGE_SIZE as usize];
    Ok((0..FILE_MIB * MIB / PAGE_SIZE)
        .try_for_each(|i| file.read_exact_at(&mut page, i * PAGE_SIZE))?)
}

/// A part of the file, and how it is accessed.
#[derive(Debug, Clone, Copy)]
struct Zone {
    kind: Kind,
    first: u64,
    pages: u64,
    hz: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Pread,
    Mmap,
    Uring,
    Sendfile,
}

impl FromStr for Zone {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let [kind, first, mib, hz] = text.split(':').collect::<Vec<_>>()[..] else {
            bail!("{text}: not a zone");
        };
        let kind = match kind {
            "pread" => Kind::Pread,
            "mmap" => Kind::Mmap,
            "uring" => Kind::Uring,
            "sendfile" => Kind::Sendfile,
            _ => bail!("{kind}: not a kind of access"),
        };
        let pages = |mib: &str| -> Result<u64> { Ok(mib.parse::<u64>()? * MIB / PAGE_SIZE) };
        Ok(Zone { kind, first: pages(first)?, pages: pages(mib)?, hz: hz.parse()? })
    }
}

/// The load. It answers each line with the accesses and the CPU time of each zone so far.
struct Load(Helper);

/// Accesses and CPU seconds of a zone.
type Done = (f64, f64);

impl Load {
    fn start(path: &Path, zones: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Load(Helper::start(command.arg(ARGUMENT).arg(path).args(zones))?))
    }

    fn done(&mut self) -> Result<Vec<Done>> {
        let line = self.0.ask("")?;
        let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        Ok(numbers.as_chunks().0.iter().map(|&[accesses, cpu]| (accesses, cpu)).collect())
    }
}

fn be_a_load(path: &Path, zones: &[Zone]) -> Result<ExitCode> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let all: Vec<Arc<[AtomicU64; 2]>> = zones.iter().map(|_| Arc::default()).collect();
    for ((zone, done), seed) in zones.iter().copied().zip(&all).zip(1..) {
        let (file, done) = (file.try_clone()?, Arc::clone(done));
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        std::thread::spawn(move || access(&zone, &file, random, &done));
    }
    for line in std::io::stdin().lines() {
        let _ = line?;
        let number = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let done = all.iter().map(|d| format!("{} {}", number(&d[0]), number(&d[1]) as f64 / 1e9));
        println!("{}", done.collect::<Vec<_>>().join(" "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Accesses pages of the zone at random, at its rate or without a pause.
fn access(
    zone: &Zone,
    file: &File,
    mut random: Xoshiro256PlusPlus,
    done: &[AtomicU64; 2],
) -> Result<()> {
    let mut accessor = Accessor::open(zone.kind, file)?;
    let per_second = zone.hz * zone.pages as f64;
    let begin = Instant::now();
    let mut count = 0_u64;
    loop {
        let due = match per_second {
            0.0 => u64::MAX,
            _ => (begin.elapsed().as_secs_f64() * per_second) as u64,
        };
        let end = due.min(count + BATCH_ACCESSES);
        while count < end {
            let page = zone.first + random.next_u64() % zone.pages;
            accessor.access(file, page)?;
            count += 1;
        }
        done[0].store(count, Ordering::Relaxed);
        done[1].store(u64::try_from(thread_cpu().as_nanos())?, Ordering::Relaxed);
        if count >= due {
            std::thread::sleep(TICK);
        }
    }
}

/// What an access requires.
enum Accessor {
    Pread(Box<[u8; PAGE_SIZE as usize]>),
    Mmap(*const u8),
    Uring(Box<IoUring>, Box<[u8; PAGE_SIZE as usize]>),
    Sendfile(File),
}

impl Accessor {
    fn open(kind: Kind, file: &File) -> Result<Self> {
        let page = || Box::new([0; PAGE_SIZE as usize]);
        Ok(match kind {
            Kind::Pread => Accessor::Pread(page()),
            Kind::Uring => Accessor::Uring(Box::new(IoUring::new(8)?), page()),
            Kind::Sendfile => Accessor::Sendfile(File::options().write(true).open("/dev/null")?),
            Kind::Mmap => {
                let (size, read) = ((FILE_MIB * MIB) as usize, libc::PROT_READ);
                // SAFETY: a new shared mapping at an address of the kernel's choice; it is never unmapped.
                let start = unsafe {
                    libc::mmap(
                        std::ptr::null_mut(),
                        size,
                        read,
                        libc::MAP_SHARED,
                        file.as_raw_fd(),
                        0,
                    )
                };
                ensure!(start != libc::MAP_FAILED, "cannot map the file");
                // SAFETY: the range was just mapped. A failure changes only how pages come in.
                unsafe { libc::madvise(start, size, libc::MADV_RANDOM) };
                Accessor::Mmap(start.cast())
            }
        })
    }

    fn access(&mut self, file: &File, page: u64) -> Result<()> {
        let at = page * PAGE_SIZE;
        match self {
            Accessor::Pread(buffer) => file.read_exact_at(&mut buffer[..], at)?,
            // SAFETY: the page is within the file, all of which is mapped, and no process makes the file shorter.
            Accessor::Mmap(start) => _ = unsafe { start.add(at as usize).read_volatile() },
            Accessor::Uring(ring, buffer) => {
                let fd = types::Fd(file.as_raw_fd());
                let read = opcode::Read::new(fd, buffer.as_mut_ptr(), PAGE_SIZE as u32).offset(at);
                // SAFETY: the buffer and the descriptor live until the read has completed, which is waited for.
                unsafe { ring.submission().push(&read.build()) }?;
                ring.submit_and_wait(1)?;
                let result = ring.completion().next().context("no completion")?.result();
                ensure!(
                    i64::from(result) == PAGE_SIZE.cast_signed(),
                    "io_uring has read {result} bytes"
                );
            }
            Accessor::Sendfile(null) => {
                let mut offset = i64::try_from(at)?;
                let (to, from) = (null.as_raw_fd(), file.as_raw_fd());
                // SAFETY: `offset` is a local variable, and both descriptors are open.
                let sent = unsafe { libc::sendfile(to, from, &mut offset, PAGE_SIZE as usize) };
                ensure!(
                    sent.cast_unsigned() == PAGE_SIZE as usize,
                    "sendfile has sent {sent} bytes"
                );
            }
        }
        Ok(())
    }
}

fn recorder(isotherm: &Path, path: &Path, record: &Path) -> Result<ChildGuard> {
    let mut command = dependent(isotherm);
    command.arg("record").arg("--file").arg(path).arg("-o").arg(record);
    Ok(ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// Ends the recorder. Ctrl-C would not do: a shell in the background makes its programs ignore it.
fn end(recorder: ChildGuard) -> Result<()> {
    ensure!(recorder.stop(Signal::TERM)?.success(), "the recorder has failed");
    Ok(())
}

/// Compares the rate of each 2 MiB with the truth.
fn heat(isotherm: &Path, path: &Path, o: &Options) -> Result<bool> {
    let zones = ZONES.map(str::to_owned);
    let mut load = Load::start(path, &zones)?;
    let record = path.with_file_name("rec");
    let recorder = recorder(isotherm, path, &record)?;
    std::thread::sleep(Duration::from_secs(o.lead_in));
    let (begin, before) = (Instant::now(), load.done()?);
    std::thread::sleep(Duration::from_secs(o.seconds));
    let (time, after) = (begin.elapsed().as_secs_f64(), load.done()?);
    end(recorder)?;
    let zones = ZONES.iter().map(|zone| zone.parse()).collect::<Result<Vec<Zone>>>()?;
    let mut truth = vec![0.0; (FILE_MIB * MIB / BLOCK_SIZE) as usize];
    for (zone, (before, after)) in zones.iter().zip(before.iter().zip(&after)) {
        let hz = (after.0 - before.0) / time / zone.pages as f64;
        let block = |page: u64| (page * PAGE_SIZE / BLOCK_SIZE) as usize;
        truth[block(zone.first)..block(zone.first + zone.pages)].fill(hz);
    }
    let snapshots = snapshots(&record, o.lead_in, o.seconds)?;
    println!("| accesses | true Hz | measured Hz | log2 error |\n|---|---|---|---|");
    for (zone, name) in zones.iter().zip(ZONES) {
        let first = (zone.first * PAGE_SIZE / BLOCK_SIZE) as usize;
        let blocks = first..first + (zone.pages * PAGE_SIZE / BLOCK_SIZE) as usize;
        let all: Vec<f64> = snapshots.iter().flat_map(|s| s[blocks.clone()].to_vec()).collect();
        let error = all.iter().map(|hz| error(*hz, truth[first])).sum::<f64>() / all.len() as f64;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        println!("| {name} | {:.2} | {mean:.2} | {error:.2} |", truth[first]);
    }
    let (mut right, mut found, mut hot, mut errors, mut touched) = (0, 0, 0, 0.0, 0);
    for (hz, truth) in snapshots.iter().flat_map(|s| s.iter().zip(&truth)) {
        right += u32::from(*hz >= HOT_HZ && *truth >= HOT_HZ);
        found += u32::from(*hz >= HOT_HZ);
        hot += u32::from(*truth >= HOT_HZ);
        if *truth > 0.0 {
            errors += error(*hz, *truth);
            touched += 1;
        }
    }
    let (precision, recall) =
        (f64::from(right) / f64::from(found), f64::from(right) / f64::from(hot));
    let error = errors / f64::from(touched);
    let nr = snapshots.len();
    println!(
        "{nr} snapshots: hot precision {precision:.3}, recall {recall:.3}, log2 error {error:.2}"
    );
    Ok(precision >= 0.95 && recall >= 0.95 && error <= 0.6)
}

fn error(measured: f64, truth: f64) -> f64 {
    (measured.max(MIN_HZ) / truth).log2().abs()
}

/// The rate of each block, by snapshot.
fn snapshots(record: &Path, lead_in: u64, seconds: u64) -> Result<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for event in Reader::open(record)? {
        if let Event::Snapshot(s) = event? {
            all.push(s);
        }
    }
    let count = usize::try_from(seconds)?.min(all.len());
    let from = usize::try_from(lead_in)?.min(all.len() - count);
    Ok(all[from..from + count].iter().map(|s| blocks(s)).collect())
}

fn blocks(s: &Snapshot) -> Vec<f64> {
    let mut hz = vec![0.0; (FILE_MIB * MIB / BLOCK_SIZE) as usize];
    for r in s.targets.iter().flat_map(|t| &t.regions) {
        let mut at = r.range.start;
        while at < r.range.end {
            let end = ((at / BLOCK_SIZE + 1) * BLOCK_SIZE).min(r.range.end);
            let share = (end - at) as f64 / BLOCK_SIZE as f64 * f64::from(r.touched_bp) / 1e4;
            if let Some(block) = hz.get_mut((at / BLOCK_SIZE) as usize) {
                *block += f64::from(r.rate.hz) * share;
            }
            at = end;
        }
    }
    hz
}

fn sum(zones: &[Done]) -> Done {
    zones.iter().fold((0.0, 0.0), |sum, zone| (sum.0 + zone.0, sum.1 + zone.1))
}

/// CPU time of a read with and without a recorder, in pairs, and the recorder's CPU.
fn cost(isotherm: &Path, path: &Path, reads: u64, o: &Options) -> Result<bool> {
    const SETTLE: Duration = Duration::from_secs(2);
    const SLICE: Duration = Duration::from_secs(3);
    let pages = FILE_MIB * MIB / PAGE_SIZE;
    let hz = (reads / o.threads.max(1)) as f64 / pages as f64;
    let zones: Vec<_> = (0..o.threads).map(|_| format!("pread:0:{FILE_MIB}:{hz}")).collect();
    let mut load = Load::start(path, &zones)?;
    let record = path.with_file_name("rec");
    let mut slice = || -> Result<(f64, f64)> {
        let (begin, before) = (Instant::now(), sum(&load.done()?));
        std::thread::sleep(SLICE);
        let (time, after) = (begin.elapsed().as_secs_f64(), sum(&load.done()?));
        let reads = after.0 - before.0;
        Ok(((after.1 - before.1) / reads * 1e9, reads / time))
    };
    let [mut slower, mut control, mut own, mut rates, mut times] = [const { Vec::new() }; 5];
    for _ in 0..o.pairs {
        let before = slice()?;
        let recorder = recorder(isotherm, path, &record)?;
        let pid = recorder.pid();
        std::thread::sleep(SETTLE);
        let cpu = process_cpu(pid).context("the recorder has ended")?;
        let with = slice()?;
        let used = process_cpu(pid).context("the recorder has ended")?.saturating_sub(cpu);
        end(recorder)?;
        let after = slice()?;
        let without = f64::midpoint(before.0, after.0);
        slower.push((with.0 / without - 1.0) * 100.0);
        control.push((after.0 / before.0 - 1.0) * 100.0);
        own.push(used.as_secs_f64() / SLICE.as_secs_f64() * 100.0);
        rates.push(with.1);
        times.push(without);
    }
    let [slower, control, own, rate, time] =
        [slower, control, own, rates, times].map(|all| middle(all).unwrap_or(f64::NAN));
    println!(
        "{rate:.0} preads a second, {time:.0} ns each: {slower:.2} % slower (control {control:.2} %), own CPU \
         {own:.2} % (medians of {})",
        o.pairs
    );
    let is_reached = rate >= reads as f64 * MIN_RATE_SHARE;
    if !is_reached {
        println!("not valid: this machine does not make {reads} preads a second");
    }
    Ok(is_reached && slower <= 1.0 && own <= 1.0)
}
