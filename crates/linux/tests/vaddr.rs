//! The operations set for processes, on a real process.

mod common;

use common::settings::{HUGE_PAGES, Setting, folios_of_64_kib, mthp};
use common::{
    Obedient, about, attached, look, needs_root, obey as be_obedient, part, root, with_memory,
    young,
};
use isotherm_core::{AddrRange, Liveness, PAGE_SIZE, Space, Unknown};
use isotherm_linux::{AttachError, Hold, Vaddr, WalkMethod, Walker};

#[test]
fn obey() {
    be_obedient();
}

fn unknown(seen: &[isotherm_core::Seen], why: Unknown) -> u32 {
    seen.iter().map(|s| s.unknown.0[why.index()]).sum()
}

#[test]
fn observes_exactly_the_touched_pages() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(part(memory, 0, 900));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let first = look(&mut ops, target, memory, true);
    assert_eq!(first.iter().map(|s| s.pages).sum::<u32>(), 1000);
    assert_eq!(first.iter().map(|s| s.present).sum::<u32>(), 900, "absent pages are not resident");
    assert!(about(young(&first), 900), "{}", young(&first));
    assert_eq!(young(&look(&mut ops, target, memory, false)), 0, "cleared");
    process.touch(part(memory, 123, 77));
    process.tell(&format!("read {} 3", part(memory, 500, 3).start));
    let again = look(&mut ops, target, memory, false);
    assert!(about(young(&again), 80), "{}", young(&again));
    assert!(again.iter().all(|s| s.unknown.total() == 0), "nothing is unknown");
    assert!(first.iter().zip(&again).all(|(a, b)| a.cleared_at <= b.read_at));
}

#[test]
fn mappings_are_read_when_they_may_have_changed() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let glance = Walker::fastest().unwrap().glance(process.pid()).unwrap();
    let threads = isotherm_linux::proc::threads("/".as_ref(), process.pid(), 100).len();
    assert_eq!(glance.threads as usize, threads);
    if glance.changes.is_none() {
        eprintln!("skipped: this kernel does not count changes (Linux 6.4, CONFIG_PER_VMA_LOCK)");
        return;
    }
    let file = std::fs::read(format!("/proc/{}/maps", process.pid())).unwrap().len() as u64;
    // Bytes that this thread has read from files.
    let read_so_far = || {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let bytes = text.lines().find_map(|l| l.strip_prefix("rchar: ")).unwrap();
        bytes.parse::<u64>().unwrap()
    };
    let mut mappings = Vec::new();
    let mut read = |ops: &mut Vaddr| {
        let before = read_so_far();
        assert_eq!(ops.mappings(target, &mut mappings).unwrap(), Liveness::Alive);
        (mappings.clone(), read_so_far() - before)
    };
    let (first, bytes) = read(&mut ops);
    assert!(bytes >= file, "{bytes} of {file}");
    for _ in 0..5 {
        let (again, bytes) = read(&mut ops);
        // The file that was read so far is read, too.
        assert!(again == first && bytes < file, "{bytes} of {file}");
    }
    let new = process.map(10, "small");
    let (more, _) = read(&mut ops);
    assert!(more.iter().any(|m| m.range.intersect(&new) == Some(new)), "{new:?}: {more:?}");
}

#[test]
fn huge_pages_are_never_split() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let pages = 32 * 512;
    let (mut process, mut ops, target, memory) = with_memory(pages, "huge");
    let before = process.rollup("AnonHugePages");
    assert!(before >= 32 * 2048 - 4 * 2048, "no huge pages to be had: {before} KiB");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (mut looks, mut found) = (0, 0);
    while looks < 10_000 {
        // Windows within huge pages, at all offsets; each 64 KiB in turn.
        let seen = look(&mut ops, target, memory, true);
        looks += seen.len();
        found += young(&seen);
        process.touch(part(memory, (looks as u64 * 7) % pages, 1));
    }
    assert!(found >= 20 * 512, "they were young, and cleared: {found}");
    assert_eq!(process.rollup("AnonHugePages"), before);
    // One touched page makes its whole huge page young: that is the resolution. (The host's kdamond ages one
    // of a few huge pages more often than one of many small ones. Then this tries again.)
    let mut one_page = |_: i32| {
        look(&mut ops, target, memory, true);
        process.touch(part(memory, 512, 1));
        young(&look(&mut ops, target, memory, false))
    };
    let seen: Vec<u32> = (0..10).map(&mut one_page).collect();
    assert!(seen.contains(&512) && seen.iter().all(|&n| n == 0 || n == 512), "{seen:?}");
}

#[test]
fn large_folios_are_never_split() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let Some(_settings) = folios_of_64_kib() else { return };
    let (mut process, mut ops, target) = attached();
    let before_alloc = mthp("anon_fault_alloc").unwrap();
    let memory = process.map(64 * 16, "huge");
    process.touch(memory);
    assert!(mthp("anon_fault_alloc").unwrap() >= before_alloc + 60, "no folios of 64 KiB came");
    let splits = mthp("split").unwrap();
    ops.mappings(target, &mut Vec::new()).unwrap();
    let mut found = 0;
    for _ in 0..160 {
        // Also windows that begin in the middle of a folio: the folio is cleared as a whole.
        found += young(&look(&mut ops, target, part(memory, 0, 1000), true));
        process.touch(part(memory, 40, 8));
    }
    assert!(found > 1000, "{found}");
    assert_eq!(mthp("split").unwrap(), splits);
    assert_eq!(young(&look(&mut ops, target, part(memory, 0, 32), false)), 0, "and really cleared");
    // Half of a folio is unmapped: the rest cannot be cleared without splitting it.
    process.tell(&format!("unmap {} 8", part(memory, 16, 8).start));
    process.touch(part(memory, 24, 8));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let seen = look(&mut ops, target, part(memory, 24, 8), true);
    assert_eq!(unknown(&seen, Unknown::Partial), 8, "{seen:?}");
    assert_eq!(mthp("split").unwrap(), splits);
}

#[test]
fn pages_mapped_more_than_once_are_unknown() {
    needs_root!();
    let (mut process, mut ops, target, memory) = with_memory(256, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let seen = look(&mut ops, target, memory, true);
    assert_eq!(unknown(&seen, Unknown::Shared), 0);
    let child = process.tell("fork");
    // If no page is young and no shared memory is known yet, windows are queried only now and then.
    (0..3).for_each(|_| drop(look(&mut ops, target, memory, false)));
    process.touch(part(memory, 0, 64)); // copied: these are its own again
    let seen = look(&mut ops, target, memory, true);
    assert_eq!(unknown(&seen, Unknown::Shared), 192, "{seen:?}");
    assert!(about(young(&seen), 64));
    let seen = look(&mut ops, target, memory, false);
    assert_eq!((unknown(&seen, Unknown::Shared), young(&seen)), (192, 0), "also when read again");
    process.tell(&format!("reap {child}"));
    let seen = look(&mut ops, target, memory, true);
    assert_eq!(unknown(&seen, Unknown::Shared), 0, "the child has gone");
}

#[test]
fn locked_memory_is_unknown() {
    needs_root!();
    let (_process, mut ops, target, memory) = with_memory(64, "locked");
    let mut mappings = Vec::new();
    ops.mappings(target, &mut mappings).unwrap();
    let of = mappings.iter().find(|m| m.range.contains(memory.start)).unwrap();
    assert_eq!(of.unknown, Some(Unknown::Mlocked));
    let seen = look(&mut ops, target, memory, true);
    assert_eq!((unknown(&seen, Unknown::Mlocked), young(&seen)), (64, 0));
}

#[test]
fn hugetlb_memory_is_unknown() {
    needs_root!();
    const POOL: &str = "/proc/sys/vm/nr_hugepages";
    let before: u64 = std::fs::read_to_string(POOL).unwrap().trim().parse().unwrap();
    let _pages = Setting::set(POOL, &(before + 4).to_string()).expect("hugetlb");
    let (process, mut ops, target, memory) = with_memory(2 * 512, "hugetlb");
    let mut mappings = Vec::new();
    ops.mappings(target, &mut mappings).unwrap();
    let of = mappings.iter().find(|m| m.range.contains(memory.start)).unwrap();
    assert_eq!(of.unknown, Some(Unknown::Hugetlb));
    let seen = look(&mut ops, target, memory, true);
    assert_eq!((unknown(&seen, Unknown::Hugetlb), young(&seen)), (1024, 0));
    drop(process);
}

#[test]
fn the_zero_page_is_not_resident() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(64, "small");
    process.tell(&format!("read {} 64", memory.start));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let seen = look(&mut ops, target, memory, true);
    assert_eq!(seen.iter().map(|s| s.present).sum::<u32>(), 0);
    assert_eq!(seen.iter().map(|s| s.unknown.total()).sum::<u64>(), 0);
}

#[test]
fn exec_and_end_are_seen() {
    needs_root!();
    let (mut process, mut ops, target, memory) = with_memory(64, "small");
    let mut mappings = Vec::new();
    assert_eq!(ops.mappings(target, &mut mappings), Ok(Liveness::Alive));
    process.tell("exec");
    let seen = look(&mut ops, target, memory, true);
    assert!(seen.iter().all(|s| s.pages == 0), "looks at the old address space are dropped");
    assert_eq!(ops.mappings(target, &mut mappings), Ok(Liveness::Replaced));
    assert_eq!(ops.mappings(target, &mut mappings), Ok(Liveness::Alive));
    let memory = process.map(64, "small");
    process.touch(memory);
    ops.mappings(target, &mut mappings).unwrap();
    assert!(about(young(&look(&mut ops, target, memory, true)), 64), "the new one is seen");
    process.kill();
    let seen = look(&mut ops, target, memory, true);
    assert!(seen.iter().all(|s| s.pages == 0));
    assert_eq!(ops.mappings(target, &mut mappings), Ok(Liveness::Gone));
    assert!(mappings.is_empty() && !ops.is_alive(target));
}

#[test]
fn a_reused_pid_is_not_taken_for_the_process() {
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    needs_root!();
    let mut ops = Vaddr::new().unwrap();
    for _ in 0..50 {
        let mut first = Obedient::start();
        let pid = first.pid();
        let target = ops.attach(pid).unwrap();
        first.kill();
        std::fs::write(LAST, (pid - 1).to_string()).unwrap();
        let second = Obedient::start();
        if second.pid() == pid {
            assert_eq!(ops.mappings(target, &mut Vec::new()), Ok(Liveness::Gone));
            assert_eq!(ops.ran(target), None);
            return;
        }
        ops.detach(target);
    }
    panic!("the pid was never used again");
}

/// `finds_the_right_process_in_a_pid_namespace` runs this inside the namespace.
#[test]
#[ignore = "run by another test"]
fn inside_a_pid_namespace() {
    let mut process = Obedient::start();
    assert!(process.pid() < 100, "this is no new namespace");
    let mut ops = Vaddr::new().unwrap();
    let target = ops.attach(process.pid()).unwrap();
    let memory = process.map(64, "small");
    process.touch(part(memory, 0, 7));
    ops.mappings(target, &mut Vec::new()).unwrap();
    assert_eq!(young(&look(&mut ops, target, memory, true)), 7);
}

#[test]
fn finds_the_right_process_in_a_pid_namespace() {
    needs_root!();
    let output = std::process::Command::new("unshare")
        .args(["-pf", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "inside_a_pid_namespace", "--include-ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn unwatchable_processes_are_refused_with_a_reason() {
    needs_root!();
    let mut ops = Vaddr::new().unwrap();
    let nobody = (1 << 22) + 1;
    assert!(matches!(ops.attach(nobody), Err(AttachError::NoProcess(_))));
    assert!(matches!(ops.attach(-1), Err(AttachError::NoProcess(_))));
    let kthread = ops.attach(2).unwrap_err();
    assert!(kthread.to_string().contains("thread of the kernel"), "{kthread}");
    let (send, receive) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let _ = wait.recv();
    });
    let tid = receive.recv().unwrap();
    assert!(matches!(ops.attach(tid), Err(AttachError::Thread(_))), "a thread is no process");
    done.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn without_capabilities_the_message_says_which() {
    needs_root!();
    // Capabilities belong to the thread, so the other tests keep theirs.
    let message = std::thread::spawn(|| {
        let none = rustix::thread::CapabilitySets {
            effective: rustix::thread::CapabilitySet::empty(),
            permitted: rustix::thread::CapabilitySet::empty(),
            inheritable: rustix::thread::CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).unwrap();
        Walker::load(WalkMethod::Direct).err().map(|e| e.to_string())
    })
    .join()
    .unwrap()
    .expect("page tables cannot be read without capabilities");
    assert!(message.contains("CAP_BPF") && message.contains("run as root"), "{message}");
}

#[test]
fn new_mappings_are_followed_and_reservations_left_out() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let mut mappings = Vec::new();
    let memory = process.map(300, "small");
    ops.mappings(target, &mut mappings).unwrap();
    let covers = |m: &[isotherm_core::Mapping], r: AddrRange| {
        m.iter().filter_map(|m| m.range.intersect(&r)).map(|r| r.len()).sum::<u64>()
    };
    assert_eq!(covers(&mappings, memory), memory.len());
    process.tell(&format!("unmap {} 100", part(memory, 100, 100).start));
    ops.mappings(target, &mut mappings).unwrap();
    assert_eq!(covers(&mappings, memory), memory.len() - 100 * PAGE_SIZE);
    assert!(mappings.is_sorted_by(|a, b| a.range.end <= b.range.start));
    assert!(mappings.iter().any(|m| &*m.name == "[stack]"));
    assert!(mappings.iter().any(|m| m.unknown == Some(Unknown::Special)), "[vvar], [vdso]");
}
