//! The machine whose memory may run short, at work.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use isotherm_core::{
    Act, Action, AddrRange, Attrs, Budget, Failure, Heat, OpsError, TargetId, Thresholds, Work,
};
use isotherm_mm::{Fair, ListKind};
use isotherm_sim::paged::{
    MachineSpec, PagedMachine, Populate, Stream, StreamOrder, Task, Toucher, Watcher, addresses,
    target,
};
use isotherm_sim::workload::{Op, Owner, Workload, WorkloadLayout};

const ONE_NODE: &str = "about = '160 MB'\ncpus = 2\n[[node]]\nzones = [{ kind = 'dma32', pages = 15000 }, \
                        { kind = 'normal', pages = 25000 }]\n";
const SWAP: &str = "[swap]\npages = 40000\ncompressed_percent = 30\nout_ns = 5000\nin_ns = 3000\n";

fn machine(more: &str) -> PagedMachine {
    let spec = MachineSpec::parse(&format!("{ONE_NODE}{more}")).unwrap();
    PagedMachine::new(&spec, Fair::Landed.rules(), 1).unwrap()
}

fn stream(m: &mut PagedMachine, file: usize, op: Op, order: StreamOrder, pages: u64) -> f64 {
    let before = m.now();
    let task = Stream::new(m, file, op, order, pages);
    m.run(&mut [Box::new(task) as Box<dyn Task>]).unwrap();
    (m.now() - before) as f64 / 1e9
}

#[test]
fn cached_pages_are_not_read_again() {
    let mut m = machine("");
    let file = m.add_file(10_000);
    let cold = stream(&mut m, file, Op::Read, StreamOrder::Sequential, 10_000);
    let warm = stream(&mut m, file, Op::Read, StreamOrder::Sequential, 10_000);
    assert!((0.31..0.4).contains(&cold), "41 MB at 132 MB/s: {cold}");
    assert!(warm < cold / 10.0, "{warm}");
    assert_eq!((m.counts().reads, m.counts().fetched), (20_000, 10_000));
    m.drop_caches();
    assert_eq!(m.memory().list_len(ListKind::InactiveFile), 0);
    let again = stream(&mut m, file, Op::Read, StreamOrder::Sequential, 10_000);
    assert!((again / cold - 1.0).abs() < 0.1, "{again} {cold}");
}

#[test]
fn random_reads_seek_each_time() {
    let mut m = machine("");
    let file = m.add_file(1 << 20);
    let seconds = stream(&mut m, file, Op::Read, StreamOrder::Random, 500);
    let each = seconds / 500.0;
    assert!((0.004..0.012).contains(&each), "{each}");
    assert!(m.disk().seeks >= 490);
}

#[test]
fn all_that_was_written_is_on_the_disk_in_the_end() {
    let mut m = machine("");
    let file = m.add_file(100_000);
    let seconds = stream(&mut m, file, Op::Write, StreamOrder::Sequential, 100_000);
    assert!(seconds > 100_000.0 * 4096.0 / 132e6, "{seconds}");
    assert_eq!(m.disk().pages, 100_000);
    assert!(m.memory().zones().iter().all(|z| z.dirty == 0));
}

#[test]
fn each_of_several_files_is_written_back() {
    for n in 1..=9 {
        let mut m = machine("");
        let files: Vec<_> = (0..n).map(|_| m.add_file(4000)).collect();
        let task = |&file: &usize| {
            Box::new(Stream::new(&m, file, Op::Write, StreamOrder::Sequential, 4000))
                as Box<dyn Task>
        };
        let mut tasks: Vec<_> = files.iter().map(task).collect();
        m.run(&mut tasks).unwrap();
        assert_eq!(m.counts().writes, 4000 * n, "{n} files");
        assert!(m.memory().zones().iter().all(|z| z.dirty == 0), "{n} files");
    }
}

#[test]
fn writers_wait_before_memory_is_full_of_dirty_pages() {
    let mut m = machine("");
    let files = [m.add_file(50_000), m.add_file(50_000)];
    let task = |m: &PagedMachine, file| {
        Box::new(Stream::new(m, file, Op::Write, StreamOrder::Random, 30_000)) as Box<dyn Task>
    };
    let mut tasks = [task(&m, files[0]), task(&m, files[1])];
    m.run(&mut tasks).unwrap();
    assert_eq!(m.memory().stats().failures, 0);
    assert_eq!(m.counts().writes, 60_000);
}

#[test]
fn readers_share_the_disk_in_turn() {
    let mut m = machine("");
    let files = [m.add_file(30_000), m.add_file(30_000)];
    let task = |m: &PagedMachine, file| {
        Box::new(Stream::new(m, file, Op::Read, StreamOrder::Sequential, 30_000)) as Box<dyn Task>
    };
    let mut tasks = [task(&m, files[0]), task(&m, files[1])];
    let ended = m.run(&mut tasks).unwrap();
    assert!(ended[0].abs_diff(ended[1]) < 300_000_000, "{ended:?}");
    // 20 turns of 100 ms, and not one for each of 1900 windows.
    assert!((10..100).contains(&m.disk().seeks), "{:?}", m.disk());
}

fn workload(mib: u32) -> Workload {
    let text = format!(
        "about = 'x'\nislands = 0\nregion = [{{ name = 'r', size = '{mib}M', gap = '0' }}]\n\
         [[phase]]\nname = 'p'\nduration = '2s'\n\
         access = [{{ region = 'r', rate = 20 }}]\n"
    );
    Workload::parse(&text).unwrap()
}

fn touched(more: &str, mib: u32) -> Option<PagedMachine> {
    let (w, mut m) = (workload(mib), machine(more));
    let layout = WorkloadLayout::new(&w, 1);
    let process = m.add_process(usize::try_from(layout.len() / 4096).unwrap());
    m.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>]).ok()?;
    let access = &w.phases[0].accesses[0];
    let length = Duration::from_secs(2);
    let task = Toucher::new(&m, process, (&w, &layout), (access, 0), length);
    m.run(&mut [Box::new(task) as Box<dyn Task>]).ok()?;
    let pages = layout.len() / 4096;
    let region = u64::from(mib) * 256;
    assert!(m.counts().touches > pages + region * 30, "{:?}", m.counts());
    assert!(m.counts().touches <= pages + region * 41, "{:?}", m.counts());
    Some(m)
}

#[test]
fn a_process_that_fits_faults_once_for_each_page() {
    let m = touched("", 64).unwrap();
    assert!(m.counts().faults < 64 * 256 + 2000, "{:?}", m.counts());
}

#[test]
fn one_that_does_not_takes_swap() {
    assert!(touched("", 160).is_none(), "there is none");
    let mut m = touched(SWAP, 160).unwrap();
    let (used, out, back) = m.swapped();
    assert!(used > 0 && out == used + back, "{used} {out} {back}");
    assert!(back > 1000, "{back}");
    let stays = m.memory().zones().iter().map(|z| z.managed - z.free.exact() - z.anon - z.file);
    let pool = u64::try_from(stays.sum::<i64>()).unwrap();
    assert!(pool.abs_diff(used * 30 / 100) < 200, "{pool} {used}");
    m.end_process(0);
    let free: i64 = m.memory().zones().iter().map(|z| z.free.exact()).sum();
    assert_eq!(free, 40_000);
}

#[test]
fn memory_of_other_nodes_is_further_away() {
    let seconds = |cpus: u32| {
        let text = format!(
            "about = 'x'\ncpus = {cpus}\n[[node]]\nzones = [{{ kind = 'normal', pages = 2000 }}]\n\
             distances = [10, 40]\nlatency_ns = 1000\n\
             [[node]]\nzones = [{{ kind = 'normal', pages = 30000 }}]\n\
             distances = [40, 10]\nlatency_ns = 1000\n"
        );
        let spec = MachineSpec::parse(&text).unwrap();
        let mut m = PagedMachine::new(&spec, Fair::NodeLru.rules(), 1).unwrap();
        let process = m.add_process(20_000);
        m.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>]).unwrap();
        let before = m.now();
        m.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>]).unwrap();
        (m.now() - before, m.memory().stats().remote)
    };
    let (time, remote) = seconds(2);
    assert!(remote > 17_000, "{remote}");
    assert!(time > 17_000 * 4000 + 2000 * 1000, "{time}");
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let spec = MachineSpec::parse(ONE_NODE).unwrap();
        let mut m = PagedMachine::new(&spec, Fair::Baseline.rules(), seed).unwrap();
        let file = m.add_file(60_000);
        stream(&mut m, file, Op::Write, StreamOrder::Random, 20_000);
        stream(&mut m, file, Op::Read, StreamOrder::Random, 300);
        (m.now(), m.counts(), *m.memory().stats(), m.zone_stats(), m.disk())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

/// 16 MiB hot in 127 MB, which fit until another process wants 64 MB.
#[test]
fn a_monitor_watches_a_process_short_of_memory() {
    let text = "about = 'hot, and not'\nislands = 0\nregion = [{ name = 'hot', size = '16M', gap = '64M' }, \
                { name = 'last', size = '1M', gap = '32M' }]\n\
                phase = [{ name = 'p', duration = '20s', access = [{ region = 'hot', rate = 50 }] }]\n";
    let workload = Workload::parse(text).unwrap();
    let layout = WorkloadLayout::new(&workload, 1);
    let mut m = machine(SWAP);
    let pages = usize::try_from(layout.len() / 4096).unwrap();
    let process = m.add_process(pages);
    m.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>]).unwrap();

    let other = m.add_process(16_000);
    let length = Duration::from_secs(20);
    let access = (&workload.phases[0].accesses[0], 0);
    let toucher = Toucher::new(&m, process, (&workload, &layout), access, length);
    let (watcher, watched) = Watcher::new(&m, &[process], Attrs::default(), length).unwrap();
    let tasks =
        [Box::new(toucher) as Box<dyn Task>, Box::new(Populate::new(other)), Box::new(watcher)];
    m.run(&mut { tasks }).unwrap();

    let watched = watched.borrow();
    assert!(watched.failed.is_none(), "{:?}", watched.failed);
    let last = watched.snapshots.last().unwrap();
    let t = Thresholds::default();
    let after = last.bytes(&t);
    assert!(watched.snapshots.len() >= 45, "{}", watched.snapshots.len());
    assert!((15 << 20..24 << 20).contains(&after.hot), "{after:?}");
    let (swapped, ..) = m.swapped();
    // The other's memory was all used a moment ago, so that what went is this one's. Shares are estimates.
    let absent = swapped * 4096;
    assert!(absent > 16 << 20 && after.absent.abs_diff(absent) < 4 << 20, "{absent} {after:?}");
    let hot = layout.range(Owner::Region(0));
    let hot = addresses(usize::try_from(hot.start / 4096).unwrap(), 4096);
    let found: u64 = last.targets[0]
        .regions
        .iter()
        .filter(|r| r.heat(&t) == Heat::Hot)
        .filter_map(|r| r.range.intersect(&hot))
        .map(|r| r.len())
        .sum();
    assert!(found >= 15 << 20, "{found}");
}

fn page_out(m: &mut PagedMachine, range: AddrRange, recheck: Duration) -> isotherm_core::Applied {
    let budget = Budget { bytes: 40 << 20, time: Duration::from_secs(1) };
    let (action, target) = (&Action::PageOut, target(0));
    let work = Work { action, target, range, budget, filters: &[], recheck, cause: None };
    let mut done = Vec::new();
    m.pager().apply(&[work], &mut done).unwrap();
    done[0]
}

#[test]
fn paged_out_memory_is_free_until_touched() {
    let mut m =
        machine("[swap]\npages = 3000\ncompressed_percent = 0\nout_ns = 5000\nin_ns = 3000\n");
    let process = m.add_process(8000);
    let populate = |m: &mut PagedMachine| {
        m.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>]).unwrap();
    };
    let free = |m: &PagedMachine| m.memory().zones().iter().map(|z| z.free.exact()).sum::<i64>();
    populate(&mut m);
    let before = free(&m);
    let touched = page_out(&mut m, addresses(0, 2000), Duration::from_millis(1));
    assert_eq!((touched.tried, touched.passed), (0, 2000 << 12), "all was touched just now");
    m.clear_accessed(process);
    let done = page_out(&mut m, addresses(0, 2000), Duration::from_millis(1));
    assert_eq!((done.applied, done.failure), (2000 << 12, None));
    assert_eq!((done.took, m.swapped().0), (Duration::from_millis(10), 2000));
    assert_eq!(free(&m), before + 2000);
    let full = page_out(&mut m, addresses(1000, 5000), Duration::ZERO);
    assert_eq!((full.passed, full.applied), (1000 << 12, 1000 << 12));
    assert_eq!(full.failure, Some(Failure::NoRoom));
    let faults = m.counts().faults;
    populate(&mut m);
    assert_eq!((m.counts().faults - faults, m.swapped()), (3000, (0, 3000, 3000)));
    assert_eq!(free(&m), before);
    m.end_process(process);
    let gone = page_out(&mut m, addresses(0, 10), Duration::ZERO);
    assert_eq!((gone.applied, gone.failure), (0, Some(Failure::Gone)));
    let (action, range) = (&Action::PageOut, addresses(0, 10));
    let budget = Budget { bytes: 0, time: Duration::ZERO };
    let nobody = TargetId(7);
    let work = Work {
        action,
        target: nobody,
        range,
        budget,
        filters: &[],
        recheck: Duration::ZERO,
        cause: None,
    };
    assert_eq!(m.pager().apply(&[work], &mut Vec::new()), Err(OpsError::NoTarget(nobody)));
}
