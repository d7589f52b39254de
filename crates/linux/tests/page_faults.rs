//! Sampling of the page faults of a real process.

mod common;

use common::{attached, needs_root, obey as be_obedient, part};
use isotherm_core::AddrRange;
use isotherm_linux::faults::{FaultNews, FaultSampler, Sampled};

#[test]
fn obey() {
    be_obedient();
}

fn drained(sampler: &mut FaultSampler, range: AddrRange) -> Vec<Sampled> {
    let faults = sampler.drain().into_iter().filter_map(|news| match news {
        FaultNews::Fault(s) if range.contains(s.address) => Some(s),
        _ => None,
    });
    faults.collect()
}

#[test]
fn samples_stand_for_all_faults_and_have_stacks() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref()).unwrap();
    sampler.attach(process.pid()).unwrap();
    sampler.attach(process.pid()).unwrap();
    let memory = process.map(20_000, "small");
    process.touch(memory);
    let faults = drained(&mut sampler, memory);
    let pages: u64 = faults.iter().map(|s| s.weight).sum();
    assert!((19_000..=20_200).contains(&pages), "{pages} in {} samples", faults.len());
    // A sampler that takes every fault would cost the process too much.
    assert!(faults.len() < 15_000, "{}", faults.len());
    assert!(faults.iter().all(|s| s.pid == process.pid() && !s.major && !s.frames.is_empty()));
    assert!(faults.is_sorted_by_key(|s| s.at));
    assert_eq!(sampler.lost(), 0);
    // Touched again, the pages do not fault.
    process.touch(part(memory, 0, 1000));
    assert_eq!(drained(&mut sampler, memory), []);
    assert!(faults.iter().all(|s| !s.thread.is_empty()));
    // A detached process is not sampled.
    sampler.detach(process.pid());
    let more = process.map(1000, "small");
    process.touch(more);
    assert_eq!(drained(&mut sampler, more), []);
}

/// A thread that starts later inherits its events.
#[test]
fn new_threads_are_sampled_once() {
    needs_root!();
    let (mut process, _ops, _target) = attached();
    let mut sampler = FaultSampler::open("/".as_ref()).unwrap();
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
    assert!((19_000..=20_200).contains(&pages), "{pages}");
}
