//! Sampling of the page faults of a real process.

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Obedient, attached, needs_root, obey as be_obedient, part, root};
use isotherm_core::{AddrRange, BLOCK_SIZE, PAGE_SIZE, sample_level};
use isotherm_linux::faults::{FaultNews, FaultSampler, SampleKind, Sampled};
use isotherm_linux::proc::Pagemap;

#[test]
fn obey() {
    be_obedient();
}

/// The sampled faults of small pages. Others may be of huge pages.
fn drained(sampler: &mut FaultSampler, range: AddrRange) -> Vec<Sampled> {
    let is_small = |s: &Sampled| sample_level(s.address / PAGE_SIZE) >= s.weight.ilog2();
    let faults = sampler.drain().into_iter().filter_map(|news| match news {
        FaultNews::Fault(s) if range.contains(s.address) && is_small(&s) => Some(s),
        _ => None,
    });
    faults.collect()
}

#[test]
fn samples_stand_for_all_faults_and_have_stacks() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    assert!(sampler.attach(process.pid()).unwrap());
    assert!(!sampler.attach(process.pid()).unwrap());
    let memory = process.map(20_000, "small");
    process.touch(memory);
    let faults = drained(&mut sampler, memory);
    let pages: u64 = faults.iter().map(|s| s.weight).sum();
    assert!((19_000..=20_600).contains(&pages), "{pages} in {} samples", faults.len());
    // A sampler that takes every fault would cost the process too much.
    assert!(faults.len() < 15_000, "{}", faults.len());
    assert!(
        faults
            .iter()
            .all(|s| s.pid == process.pid() && s.kind == SampleKind::Minor && !s.frames.is_empty())
    );
    assert!(faults.is_sorted_by_key(|s| s.at));
    assert_eq!(sampler.lost(), 0);
    // Touched again, the pages do not fault.
    process.touch(part(memory, 0, 1000));
    assert_eq!(drained(&mut sampler, memory), []);
    assert!(faults.iter().all(|s| !s.thread.is_empty()));
    // A detached process is not sampled. Its events end only when no child of another test has a copy of them, that is,
    // when each child that was forked before has begun its program.
    sampler.detach(process.pid());
    let begin = Instant::now();
    loop {
        let more = process.map(1000, "small");
        process.touch(more);
        if drained(&mut sampler, more).is_empty() {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it is still sampled");
    }
}

/// Which pages are sampled depends on their addresses alone, so the faults of a sampled page are seen all or not at all.
#[test]
fn a_page_that_is_filled_again_is_sampled_again() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(10_000, "small");
    let mut pages = |stride| -> BTreeSet<u64> {
        sampler.set_stride(stride);
        process.tell(&format!("drop {} 10000", memory.start));
        process.touch(memory);
        let faults = drained(&mut sampler, memory);
        assert!(faults.iter().all(|s| s.weight == 64 * u64::from(stride)));
        faults.iter().map(|s| s.address / PAGE_SIZE).collect()
    };
    let first = pages(1);
    assert!((150..=162).contains(&first.len()), "{}", first.len());
    assert_eq!(pages(1), first);
    let finer = pages(4);
    assert!(finer.is_subset(&first) && (36..=42).contains(&finer.len()), "{finer:?}");
    assert_eq!(pages(1), first);
}

/// With a stride, fewer samples stand for the same faults, also those of a thread that inherits its events.
#[test]
fn a_stride_gives_fewer_samples() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    sampler.set_stride(8);
    let memory = process.map(20_000, "small");
    process.touch(memory);
    let of_thread = process.map(20_000, "small");
    process.keep_touching(of_thread, 1);
    while process.resident(of_thread) < 20_000 {}
    let all = AddrRange::new(memory.start.min(of_thread.start), memory.end.max(of_thread.end));
    let faults = drained(&mut sampler, all);
    // 39 of 312 samples
    for part in [memory, of_thread] {
        let n = faults.iter().filter(|s| part.contains(s.address)).count();
        assert!((36..=42).contains(&n), "{n}");
    }
    assert!(faults.iter().all(|s| s.weight == 512), "{faults:?}");
    sampler.set_stride(1);
    let memory = process.map(20_000, "small");
    process.touch(memory);
    let pages: u64 = drained(&mut sampler, memory).iter().map(|s| s.weight).sum();
    assert!((19_000..=20_600).contains(&pages), "{pages}");
}

/// A burst that is longer than the ring is sampled to its end: 200,000 faults would fill it six times.
#[test]
fn the_end_of_a_burst_is_sampled_too() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(200_000, "small");
    process.touch(memory);
    let faults = drained(&mut sampler, memory);
    assert_eq!(sampler.lost(), 0);
    // One of the last samples stands for 2048 pages: a smaller part would have too few.
    for n in 0..5 {
        let fifth = part(memory, n * 40_000, 40_000);
        let of_fifth = faults.iter().filter(|s| fifth.contains(s.address)).map(|s| s.weight);
        let pages: u64 = of_fifth.sum();
        assert!((30_000..=50_000).contains(&pages), "{pages} of 40000 in fifth {n}");
    }
    let weights: BTreeSet<u64> = faults.iter().map(|s| s.weight).collect();
    assert!(weights.len() >= 3 && weights.iter().all(|w| w % 64 == 0), "{weights:?}");
    // The next burst is sampled as it comes again.
    let memory = process.map(6000, "small");
    process.touch(memory);
    let faults = drained(&mut sampler, memory);
    assert!(faults.len() >= 90 && faults.iter().all(|s| s.weight == 64), "{faults:?}");
}

/// A thread that starts later inherits its events.
#[test]
fn new_threads_are_sampled_once() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(20_000, "small");
    let thread = process.keep_touching(memory, 1);
    let mut faults = Vec::new();
    while process.resident(memory) < 20_000 {
        faults.extend(drained(&mut sampler, memory));
    }
    faults.extend(drained(&mut sampler, memory));
    assert!(faults.iter().all(|s| s.tid as u64 == thread), "{faults:?}");
    let pages: u64 = faults.iter().map(|s| s.weight).sum();
    assert!((19_000..=20_600).contains(&pages), "{pages}");
}

/// A daemon whose parent had ended was not sampled, because it seemed to inherit events.
#[test]
fn a_child_is_sampled_after_its_parent_has_ended() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(64, "shared");
    let mut fork = |sampler: &mut FaultSampler| {
        let child = process.tell(&format!("fork-read {} 64", memory.start));
        sampler.drain();
        i32::try_from(child).unwrap()
    };
    let [first, second] = [(); 2].map(|()| fork(&mut sampler));
    assert!(!sampler.attach(first).unwrap(), "it inherits the events");
    sampler.detach(process.pid());
    assert!(!sampler.attach(process.pid()).unwrap(), "its own are open too");
    sampler.detach(process.pid());
    assert!(!sampler.attach(second).unwrap(), "they are open, because the first child needs them");
    [first, second].into_iter().for_each(|child| sampler.detach(child));
    assert!(sampler.attach(first).unwrap() && sampler.attach(second).unwrap());
    [first, second].into_iter().for_each(|child| {
        process.tell(&format!("reap {child}"));
    });
}

/// Unwatched children took a part of the samples.
#[test]
fn without_children_only_the_process_itself_is_sampled() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap().without_children();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(20_000, "shared");
    process.touch(memory);
    assert!(drained(&mut sampler, memory).len() > 100);
    let child = process.tell(&format!("fork-read {} 20000", memory.start));
    let child = i32::try_from(child).unwrap();
    let mut pagemap = Pagemap::open("/".as_ref(), child).unwrap();
    let begin = Instant::now();
    while pagemap.read(memory).filter(|page| page.is_present()).count() < 20_000 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(drained(&mut sampler, memory), []);
    assert!(sampler.attach(child).unwrap(), "it inherits nothing");
    process.tell(&format!("reap {child}"));
}

/// Two processes that have filled the same huge page one after the other had one sample.
#[test]
fn a_huge_page_of_each_process_is_sampled() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(128 * 512, "shared");
    let is_sampled = |number| sample_level(number) >= 6;
    // The process and its children use one CPU.
    let mut blocks = memory.start.div_ceil(BLOCK_SIZE)..memory.end / BLOCK_SIZE;
    let block = blocks.find(|block| is_sampled(*block)).unwrap() * BLOCK_SIZE;
    let mut pages = (block..block + BLOCK_SIZE).step_by(4096);
    let page = pages.find(|page| !is_sampled(page / PAGE_SIZE)).unwrap();
    process.touch(AddrRange::new(page, page + PAGE_SIZE));
    let child = process.tell(&format!("fork-read {page} 1"));
    let mut pids = BTreeSet::new();
    let begin = Instant::now();
    while pids.len() < 2 && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        pids.extend(sampler.drain().into_iter().filter_map(|news| match news {
            FaultNews::Fault(s) if s.address / PAGE_SIZE == page / PAGE_SIZE => Some(s.pid),
            _ => None,
        }));
    }
    assert_eq!(pids.len(), 2, "{pids:?}");
    process.tell(&format!("reap {child}"));
}

/// One fault maps 16 pages of shared memory, and all but one of them had no sample.
#[test]
fn pages_that_are_mapped_around_a_fault_are_sampled() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(20_000, "shared");
    process.touch(memory);
    // Each page had a fault of its own.
    let written = drained(&mut sampler, memory);
    let all = 19_000..=20_600;
    let pages = |samples: &[Sampled]| samples.iter().map(|s| s.weight).sum::<u64>();
    assert!(all.contains(&pages(&written)), "{} in {} samples", pages(&written), written.len());
    assert!(written.iter().all(|s| s.kind == SampleKind::Minor));
    let of = |samples: &[Sampled]| -> BTreeSet<u64> {
        samples.iter().map(|s| s.address / PAGE_SIZE).collect()
    };
    // Another process maps what this one has filled.
    let child = process.tell(&format!("fork-read {} 20000", memory.start));
    let (mut read, begin) = (Vec::new(), Instant::now());
    while !all.contains(&pages(&read)) && begin.elapsed() < Duration::from_secs(60) {
        read.extend(drained(&mut sampler, memory));
    }
    assert!(all.contains(&pages(&read)), "{} in {} samples", pages(&read), read.len());
    // At the end of a burst, a part of the sample of pages is enough. Two samples by chance would have one page in 64
    // in common.
    let common = of(&written).intersection(&of(&read)).count();
    assert!(common * 3 >= read.len(), "{common} of {}", read.len());
    assert_eq!(read.len(), of(&read).len(), "each is sampled once: {read:?}");
    let around = read.iter().filter(|s| s.kind == SampleKind::Around).count();
    assert!(around > read.len() * 8 / 10, "{around} of {}", read.len());
    let is_right = |s: &Sampled| s.pid as u64 == child && s.weight >= 64 && !s.frames.is_empty();
    assert!(read.iter().all(is_right), "{read:?}");
    process.tell(&format!("reap {child}"));
}

/// While a CPU knew private memory, a file that replaced it had no sample.
#[test]
fn a_file_in_the_place_of_private_memory_is_sampled() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let mut read = |kind| {
        let memory = process.map(20_000, kind);
        process.tell(&format!("read {} 20000", memory.start));
        process.tell(&format!("unmap {} 20000", memory.start));
        memory
    };
    let (private, memory) = (read("small"), read("file"));
    assert_eq!(memory, private, "the kernel takes the place that fits");
    let of_file =
        drained(&mut sampler, memory).into_iter().filter(|s| s.kind == SampleKind::Around);
    let pages: u64 = of_file.map(|s| s.weight).sum();
    // One page in 16 has a fault of its own.
    assert!((15_500..=19_700).contains(&pages), "{pages}");
}

/// A program that ran in the same process before hid the faults of the next one at its addresses for 4 s.
#[test]
fn pages_of_the_next_program_at_the_same_addresses_are_sampled() {
    needs_root!();
    let same_addresses = ["-R".into(), std::env::current_exe().unwrap().into_os_string()];
    let mut process = Obedient::from_command(Command::new("setarch").args(same_addresses));
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let mut read = |process: &mut Obedient| {
        let memory = process.map(20_000, "file");
        process.tell(&format!("read {} 20000", memory.start));
        let around = drained(&mut sampler, memory).into_iter();
        let weights = around.filter(|s| s.kind == SampleKind::Around).map(|s| s.weight);
        (memory, weights.sum::<u64>())
    };
    let (before, pages) = read(&mut process);
    assert!((15_500..=19_700).contains(&pages), "{pages}");
    process.tell("exec");
    let (after, pages) = read(&mut process);
    assert_eq!(after, before);
    assert!((15_500..=19_700).contains(&pages), "{pages}");
}

/// A page of a file that was dropped and mapped again within 4 s had no sample, although its earlier one was of no use.
#[test]
fn a_page_of_a_file_that_was_dropped_is_sampled_again() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref(), false).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(20_000, "file");
    let mut read_again = |sampler: &mut FaultSampler| {
        process.tell(&format!("read {} 20000", memory.start));
        let around = drained(sampler, memory).into_iter();
        let around: Vec<_> = around.filter(|s| s.kind == SampleKind::Around).collect();
        process.tell(&format!("drop {} 20000", memory.start));
        around
    };
    let before = read_again(&mut sampler);
    before.iter().for_each(|s| sampler.unmapped(s.program, s.address));
    let after = read_again(&mut sampler);
    let pages = |samples: &[Sampled]| samples.iter().map(|s| s.weight).sum::<u64>();
    assert!((15_500..=19_700).contains(&pages(&before)), "{}", pages(&before));
    assert!((15_500..=19_700).contains(&pages(&after)), "{}", pages(&after));
}
