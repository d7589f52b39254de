//! The records that the kernel writes into a ring.

use std::sync::Arc;

use isotherm_core::{AddrRange, Nanos};
use perf_event_open_sys::bindings as sys;

use super::event::Counts;

/// `PERF_CONTEXT_MAX`: values from here on separate the parts of a call chain.
const CONTEXTS: u64 = (-4095_i64).cast_unsigned();

/// The kind of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// A page of the sample of pages was touched, and did not wait for a disk. Without BPF, some page was.
    Minor,
    /// a page fault, chosen at random, that waited until the page was read
    Major,
    /// a page of the sample of pages was touched, and waited until it was read
    Read,
    /// A page of the sample of pages was mapped because a page near it was touched. The address is that of the mapped page.
    Around,
    /// an allocation of this many bytes
    Allocated(u64),
    /// the end of a sampled allocation
    Released,
}

/// A sampled page fault or allocation of some process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// the process
    pub pid: i32,
    /// the thread
    pub tid: i32,
    /// its name
    pub thread: Arc<str>,
    /// its time
    pub at: Nanos,
    /// the touched or allocated address
    pub address: u64,
    /// kind of the event
    pub kind: SampleKind,
    /// number of faults or allocations that this one represents
    pub weight: u64,
    /// If its page was filled or mapped before, when a smaller sample left it out: the shift of that sample, else 0. So
    /// other pages represent it, as long as they are resident, and unless this fault has filled it again.
    pub left_out: u32,
    /// A number that changes when the process shares its memory with a new child until one of them writes to it; `None`
    /// if the kernel does not count that.
    pub forks: Option<u64>,
    /// The process and the program that it runs, by which the kernel notes pages: another one after each `exec`. 0 without
    /// BPF.
    pub program: u64,
    /// Call stack in user space by frame pointers, the innermost frame first. It ends at the first function
    /// that has none.
    pub frames: Arc<[u64]>,
    /// the registers and the top of the stack, to unwind it without frame pointers
    pub copy: Option<StackCopy>,
}

impl Sampled {
    fn released(pid: i32, tid: i32, at: Nanos, address: u64) -> Self {
        Sampled {
            pid,
            tid,
            thread: "".into(),
            at,
            address,
            kind: SampleKind::Released,
            weight: 0,
            left_out: 0,
            forks: None,
            program: 0,
            frames: [].into(),
            copy: None,
        }
    }

    /// About the memory that it uses, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let copy = self.copy.as_ref().map_or(0, |copy| copy.bytes.len());
        size_of::<Self>() + size_of_val(&*self.frames) + copy
    }

    /// Whether it is of the sample of pages.
    #[must_use]
    pub fn is_of_page(&self) -> bool {
        matches!(self.kind, SampleKind::Minor | SampleKind::Read | SampleKind::Around)
    }

    /// Whether it reports an allocation or its end, instead of a fault.
    #[must_use]
    pub fn is_of_allocation(&self) -> bool {
        matches!(self.kind, SampleKind::Allocated(_) | SampleKind::Released)
    }
}

/// The registers of a thread, and a copy of the top of its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackCopy {
    /// base pointer, stack pointer and instruction pointer
    pub registers: [u64; 3],
    /// the stack from the stack pointer on
    pub bytes: Box<[u8]>,
}

/// The content of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Fault(Sampled),
    /// a thread has a new name; `exec`: its process runs another program
    Name {
        at: Nanos,
        pid: i32,
        tid: i32,
        name: String,
        exec: bool,
    },
    /// a process may execute this memory from now on
    Mapped {
        at: Nanos,
        pid: i32,
        range: AddrRange,
    },
    /// a thread has started another thread, or a process
    Fork {
        at: Nanos,
        pid: i32,
        tid: i32,
        parent: i32,
        parent_pid: i32,
    },
    Exit {
        at: Nanos,
        tid: i32,
    },
    /// this number of records did not fit into the ring
    Lost(u64),
}

/// Parses a record of a ring of events that count `counts`; `None` if the record is not needed.
pub(super) fn parse(kind: u32, misc: u16, content: &[u8], counts: Counts) -> Option<Record> {
    let mut rest = Fields(content);
    match kind {
        sys::PERF_RECORD_SAMPLE => rest.sample(counts).map(Record::Fault),
        sys::PERF_RECORD_COMM => {
            let (pid, tid) = (rest.id()?, rest.id()?);
            let name = rest.0.split(|&b| b == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let exec = u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0;
            Some(Record::Name { at: rest.time()?, pid, tid, name, exec })
        }
        sys::PERF_RECORD_MMAP => {
            let (pid, _tid) = (rest.id()?, rest.id()?);
            let (start, len) = (rest.long()?, rest.long()?);
            let range = AddrRange::new(start, start.checked_add(len)?);
            Some(Record::Mapped { at: rest.time()?, pid, range })
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            let (pid, parent_pid) = (rest.id()?, rest.id()?);
            let (tid, parent) = (rest.id()?, rest.id()?);
            let at = Nanos(rest.long()?);
            let fork = kind == sys::PERF_RECORD_FORK;
            Some(match fork {
                true => Record::Fork { at, pid, tid, parent, parent_pid },
                false => Record::Exit { at, tid },
            })
        }
        sys::PERF_RECORD_LOST => {
            let _event = rest.long()?;
            rest.long().map(Record::Lost)
        }
        _ => None,
    }
}

/// The number of allocations of `size` bytes that a sampled one represents, if each byte is a sample with a
/// probability of 1 / `mean`. A fraction is rounded at random, so that sums are right.
///
/// Example: of allocations of 64 KiB, with a mean of 512 KiB, 1 - exp(-1/8) = 11.75 % are sampled. So each represents
/// 8.51 allocations: 9 in half of all cases, else 8.
fn represented(size: u64, mean: u64, random: u64) -> u64 {
    let n = -1.0 / (-(size as f64) / mean.max(1) as f64).exp_m1();
    // Fibonacci hashing: the upper bits of the product are uniform.
    let uniform = (random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
    ((n + uniform) as u64).max(1)
}

/// The remaining fields of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// A sample of a ring of events that count `counts`.
    fn sample(&mut self, counts: Counts) -> Option<Sampled> {
        let (pid, tid) = (self.id()?, self.id()?);
        let at = Nanos(self.long()?);
        // The program knows it.
        let address = if counts == Counts::Selected { 0 } else { self.long()? };
        if counts == Counts::Releases {
            let _abi = self.long()?;
            return Some(Sampled::released(pid, tid, at, self.long()?));
        }
        let frames = self.long()?;
        let frames = (0..frames).map_while(|_| self.long()).filter(|&f| f < CONTEXTS).collect();
        let selected = if counts == Counts::Selected { Some(self.selected()?) } else { None };
        let arguments = counts == Counts::Allocations;
        let (registers, copy) = self.copy(if arguments { 3 } else { 0 }).unzip();
        let (mut left_out, mut forks, mut program) = (0, None, 0);
        let (address, kind, weight) = match counts {
            Counts::Major { period } => (address, SampleKind::Major, period),
            Counts::Minor { period } => (address, SampleKind::Minor, period),
            Counts::Allocations => match *registers? {
                [mean, size, address] => {
                    (address, SampleKind::Allocated(size), represented(size, mean, at.0))
                }
                _ => return None,
            },
            Counts::Selected => {
                let [address, weight, kind, by, number, runs] = selected?;
                left_out = u32::try_from(by).ok()?;
                (forks, program) = ((number > 0).then_some(number), runs);
                let kind = match kind {
                    0 => SampleKind::Minor,
                    1 => SampleKind::Major,
                    2 => SampleKind::Read,
                    3 => SampleKind::Around,
                    _ => return None,
                };
                (address, kind, weight)
            }
            Counts::Nothing | Counts::Releases => return None,
        };
        // Its name is in other records.
        let thread = "".into();
        Some(Sampled {
            pid,
            tid,
            thread,
            at,
            address,
            kind,
            weight,
            left_out,
            forks,
            program,
            frames,
            copy,
        })
    }

    /// `struct sample` of `thin.bpf.c`.
    fn selected(&mut self) -> Option<[u64; 6]> {
        let len = usize::try_from(self.id()?).ok()?;
        let (content, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let mut content = Fields(content);
        let mut words = [0; 6];
        for word in &mut words {
            *word = content.long()?;
        }
        Some(words)
    }

    /// The first `arguments` registers, and the others with the stack. None of a thread without a user space.
    fn copy(&mut self, arguments: usize) -> Option<(Box<[u64]>, StackCopy)> {
        const ABI_64: u64 = sys::PERF_SAMPLE_REGS_ABI_64 as u64;
        if self.long()? != ABI_64 {
            return None;
        }
        let first = (0..arguments).map(|_| self.long()).collect::<Option<_>>()?;
        let registers = [self.long()?, self.long()?, self.long()?];
        let len = usize::try_from(self.long()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let valid = usize::try_from(self.long()?).ok()?;
        Some((first, StackCopy { registers, bytes: bytes.get(..valid)?.into() }))
    }

    /// The time of a record that is no sample: it ends with the ids of the thread and the time.
    fn time(&self) -> Option<Nanos> {
        let (_, time) = self.0.split_last_chunk()?;
        Some(Nanos(u64::from_ne_bytes(*time)))
    }

    fn id(&mut self) -> Option<i32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_ne_bytes(*bytes))
    }

    fn long(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts::Minor { period: 64 };

    fn bytes(ids: &[i32], longs: &[u64]) -> Vec<u8> {
        let ids = ids.iter().flat_map(|n| n.to_ne_bytes());
        ids.chain(longs.iter().flat_map(|n| n.to_ne_bytes())).collect()
    }

    #[test]
    fn a_sample_has_the_user_part_of_its_stack() {
        let user = (-512_i64).cast_unsigned();
        let content = bytes(&[7, 8], &[100, 0x7f00_0000_1234, 3, user, 0x4010, 0x4020]);
        let expected = Sampled {
            pid: 7,
            tid: 8,
            thread: "".into(),
            at: Nanos(100),
            address: 0x7f00_0000_1234,
            kind: SampleKind::Minor,
            weight: 64,
            left_out: 0,
            forks: None,
            program: 0,
            frames: [0x4010, 0x4020].into(),
            copy: None,
        };
        let parsed = |content: &[u8]| parse(sys::PERF_RECORD_SAMPLE, 0, content, COUNTS);
        assert_eq!(parsed(&content), Some(Record::Fault(expected)));
        assert_eq!(parsed(&content[..20]), None, "cut");
        // The registers, and 8 of 16 bytes of a stack.
        let stack = bytes(&[], &[2, 0x10, 0x20, 0x30, 16, 77, 0, 8]);
        let Some(Record::Fault(s)) = parsed(&[content.clone(), stack].concat()) else { panic!() };
        let copy = s.copy.unwrap();
        assert_eq!((copy.registers, &*copy.bytes), ([0x10, 0x20, 0x30], &77u64.to_ne_bytes()[..]));
        // A count of frames above the length of the record does not read beyond it.
        let short = bytes(&[7, 8], &[100, 0x1000, u64::MAX, 0x4010]);
        let Some(Record::Fault(s)) = parsed(&short) else { panic!() };
        assert_eq!(*s.frames, [0x4010]);
    }

    #[test]
    fn a_selected_fault_has_what_the_program_knows() {
        let user = (-512_i64).cast_unsigned();
        let head = bytes(&[7, 8], &[100, 2, user, 0x4010]);
        let of_program = |kind| {
            let content = bytes(&[52], &[0x7f00_0000_1234, 256, kind, kind / 2 * 8, kind, 7]);
            // The kernel fills up to 8 bytes.
            let content = [content, bytes(&[0], &[2, 0x10, 0x20, 0x30, 0, 0])].concat();
            let content = [head.clone(), content].concat();
            match parse(sys::PERF_RECORD_SAMPLE, 0, &content, Counts::Selected) {
                Some(Record::Fault(s)) => {
                    assert!(s.copy.is_some() && s.program == 7);
                    Some((s.address, s.kind, s.weight, s.left_out, s.forks))
                }
                _ => None,
            }
        };
        let expected = |kind, left_out, forks| Some((0x7f00_0000_1234, kind, 256, left_out, forks));
        assert_eq!(of_program(0), expected(SampleKind::Minor, 0, None));
        assert_eq!(of_program(1), expected(SampleKind::Major, 0, Some(1)));
        assert_eq!(of_program(2), expected(SampleKind::Read, 8, Some(2)));
        assert_eq!(of_program(3), expected(SampleKind::Around, 8, Some(3)));
        assert_eq!(of_program(4), None);
    }

    #[test]
    fn a_sampled_allocation_has_its_arguments_and_represents_others() {
        let sample = |arguments: [u64; 3], at| {
            let mut content = bytes(&[7, 8], &[at, 0x4000, 1, 0x4010, 2]);
            content.extend(bytes(&[], &arguments));
            content.extend(bytes(&[], &[0x10, 0x20, 0x30, 0, 0]));
            match parse(sys::PERF_RECORD_SAMPLE, 0, &content, Counts::Allocations) {
                Some(Record::Fault(s)) => s,
                other => panic!("{other:?}"),
            }
        };
        let s = sample([524_288, 4096, 0x7f00], 1);
        assert_eq!((s.address, s.kind), (0x7f00, SampleKind::Allocated(4096)));
        assert_eq!(s.copy.unwrap().registers, [0x10, 0x20, 0x30]);
        let release = bytes(&[7, 8], &[100, 0x4000, 2, 0x7f00]);
        let released = parse(sys::PERF_RECORD_SAMPLE, 0, &release, Counts::Releases);
        assert_eq!(released, Some(Record::Fault(Sampled::released(7, 8, Nanos(100), 0x7f00))));
        // 1 / (1 - exp(-1/8)) = 8.51, 1 / (1 - exp(-2)) = 1.157
        for (size, expected) in [(65_536, 8.510), (1 << 20, 1.157), (1 << 30, 1.0)] {
            let sum: u64 = (0..10_000).map(|at| sample([524_288, size, 1], at * 7919).weight).sum();
            let mean = sum as f64 / 10_000.0;
            assert!((mean - expected).abs() < 0.02, "{size}: {mean}");
        }
    }

    #[test]
    fn names_threads_and_losses() {
        let mut named = bytes(&[7, 8], &[]);
        named.extend(b"worker\0\0");
        named.extend(bytes(&[7, 8], &[100]));
        let exec = u16::try_from(sys::PERF_RECORD_MISC_COMM_EXEC).unwrap();
        let name =
            |exec| Record::Name { at: Nanos(100), pid: 7, tid: 8, name: "worker".to_owned(), exec };
        assert_eq!(parse(sys::PERF_RECORD_COMM, 0, &named, COUNTS), Some(name(false)));
        assert_eq!(parse(sys::PERF_RECORD_COMM, exec, &named, COUNTS), Some(name(true)));
        let task = bytes(&[9, 7, 10, 8], &[5]);
        let at = Nanos(5);
        let fork = Record::Fork { at, pid: 9, tid: 10, parent: 8, parent_pid: 7 };
        assert_eq!(parse(sys::PERF_RECORD_FORK, 0, &task, COUNTS), Some(fork));
        let exit = Record::Exit { at, tid: 10 };
        assert_eq!(parse(sys::PERF_RECORD_EXIT, 0, &task, COUNTS), Some(exit));
        let mut mapped = bytes(&[7, 8], &[0x7f00, 0x100, 0]);
        mapped.extend(b"/lib/a.so\0\0\0\0\0\0\0");
        mapped.extend(bytes(&[7, 8], &[5]));
        let range = AddrRange::new(0x7f00, 0x8000);
        let expected = Some(Record::Mapped { at, pid: 7, range });
        assert_eq!(parse(sys::PERF_RECORD_MMAP, 0, &mapped, COUNTS), expected);
        assert_eq!(
            parse(sys::PERF_RECORD_LOST, 0, &bytes(&[], &[1, 42]), COUNTS),
            Some(Record::Lost(42))
        );
        assert_eq!(parse(99, 0, &task, COUNTS), None);
    }
}
