//! Memory as a few areas, each with one kind of access at a time. So it simulates thousands of blocks in
//! little time.
//!
//! A bit is drawn at its read, by the time since its clear. This is exact for random touches, which have no
//! memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, BLOCK_SAMPLES, BLOCK_SIZE, Block, Cleared, Cost, Liveness, Look, Mapping,
    MappingKind, Nanos, OpsError, PAGE_SIZE, PageMask, Seen, Snapshot, Source, Space, Step, Survey,
    TargetId, sample_pages,
};
use std::sync::Arc;

/// The accesses to an area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Touch {
    Idle,
    /// each page at random, at this rate per second
    Random(f64),
    /// each page once, in order, over this time from then on
    Pass {
        from: Nanos,
        length: Duration,
    },
    /// repeated passes
    Passes {
        from: Nanos,
        length: Duration,
        every: Duration,
    },
}

impl Touch {
    /// Whether the page at this part of its area, whose bit is clear, was touched in the time.
    fn touches(&self, part: f64, from: Nanos, to: Nanos, chance: f64) -> bool {
        let at = |begin: Nanos, length: Duration| begin + length.mul_f64(part);
        match *self {
            Touch::Idle => false,
            Touch::Random(hz) => chance < -(-hz * to.since(from).as_secs_f64()).exp_m1(),
            Touch::Pass { from: begin, length } => {
                let at = at(begin, length);
                at > from && at <= to
            }
            Touch::Passes { from: begin, length, every } => {
                let first = at(begin, length);
                if first > to {
                    return false;
                }
                let rounds = (to.since(first).as_nanos() / every.as_nanos()) as u32;
                first + every * rounds > from
            }
        }
    }
}

#[derive(Debug)]
struct Area {
    range: AddrRange,
    touch: Touch,
}

/// The prices of operations, in s.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    pub read_a_page: f64,
    /// for each block or part of a block, which has a page table of its own
    pub read_a_block: f64,
    pub clear_a_page: f64,
    pub touch_again: f64,
    pub own_run: f64,
    pub shootdown: f64,
    pub call: f64,
    /// for each time at which anything is read or cleared
    pub wakeup: f64,
    /// factor for computing: after a sleep, caches are cold
    pub computing: f64,
    /// of the target, for each touch; if 0, the target runs all the time
    pub touch: f64,
}

/// As measured on a real machine (`docs/concepts/looks.md`).
pub const MEASURED: Prices = Prices {
    read_a_page: 1.8e-9,
    read_a_block: 0.0,
    clear_a_page: 80e-9,
    touch_again: 290e-9,
    own_run: 10e-6,
    shootdown: 12e-6,
    call: 15e-6,
    wakeup: 0.0,
    computing: 1.0,
    touch: 0.0,
};

/// The same on a virtual machine, with what waking up costs, and a target that sleeps between its touches.
pub const VIRTUAL: Prices = Prices {
    read_a_page: 2.4e-9,
    read_a_block: 0.3e-6,
    own_run: 16e-6,
    shootdown: 9e-6,
    call: 30e-6,
    wakeup: 60e-6,
    computing: 2.5,
    touch: 38e-9,
    ..MEASURED
};

#[derive(Debug)]
struct State {
    now: Nanos,
    /// the computing of the monitor, if that is counted
    computing: Option<Computing>,
    prices: Prices,
    /// when it last woke up for something
    woke_up: Nanos,
    /// for how long the target ran, in s
    ran: f64,
    areas: Vec<Area>,
    /// young pages of each block, and the time of that state
    blocks: BTreeMap<u64, (PageMask, Nanos)>,
    rng: u64,
}

impl State {
    fn wait(&mut self, until: Nanos) {
        let hz = |touch: Touch| match touch {
            Touch::Random(hz) => hz,
            Touch::Passes { every, .. } => 1.0 / every.as_secs_f64(),
            Touch::Idle | Touch::Pass { .. } => 0.0,
        };
        let touches: f64 =
            self.areas.iter().map(|a| (a.range.len() / PAGE_SIZE) as f64 * hz(a.touch)).sum();
        let share = (touches * self.prices.touch).min(1.0);
        self.ran += share * until.since(self.now).as_secs_f64();
        self.now = until;
    }

    /// The price of waking up, where this is the first call since.
    fn wakes_up(&mut self) -> Duration {
        let is_awake = std::mem::replace(&mut self.woke_up, self.now) == self.now;
        Duration::from_secs_f64(if is_awake { 0.0 } else { self.prices.wakeup })
    }

    fn chance(&mut self) -> f64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let x = (self.rng ^ self.rng >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (x >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Updates the state of a block.
    fn settle(&mut self, start: u64) -> PageMask {
        let now = self.now;
        let Some(&(mut young, since)) = self.blocks.get(&start) else { return PageMask::default() };
        let here = AddrRange::new(start, start + BLOCK_SIZE);
        let first = self.areas.partition_point(|a| a.range.end <= start);
        let mut i = first;
        while let Some(part) = self.areas.get(i).and_then(|a| a.range.intersect(&here)) {
            let (touch, range) = (self.areas[i].touch, self.areas[i].range);
            i += 1;
            if touch == Touch::Idle || since == now {
                continue;
            }
            let begin = ((part.start - start) / PAGE_SIZE) as usize;
            let end = ((part.end - start) / PAGE_SIZE) as usize;
            if young.count_in(begin, end) as usize == end - begin {
                continue;
            }
            for addr in (part.start..part.end).step_by(PAGE_SIZE as usize) {
                let page = ((addr - start) / PAGE_SIZE) as usize;
                if !young.contains(page) {
                    let chance = self.chance();
                    let part = (addr - range.start) as f64 / range.len() as f64;
                    if touch.touches(part, since, now, chance) {
                        young.insert(page);
                    }
                }
            }
        }
        self.blocks.insert(start, (young, now));
        young
    }
}

/// So many seconds, in whole ticks of 4 ms.
fn ticks(s: f64) -> Duration {
    Duration::from_millis((s * 250.0) as u64 * 4)
}

/// The areas as an operations set; clones share them.
#[derive(Debug, Clone)]
pub struct Field(Rc<RefCell<State>>);

pub const TARGET: TargetId = TargetId(0);

impl Field {
    /// Adjacent idle areas from `base` on, with all bits set. Their ends are multiples of 2 MiB.
    pub fn new(areas: &[AddrRange], seed: u64) -> Self {
        Field::priced(areas, seed, MEASURED)
    }

    /// The same with other prices.
    pub fn priced(areas: &[AddrRange], seed: u64, prices: Prices) -> Self {
        let mut blocks = BTreeMap::new();
        for r in areas {
            for start in (r.start / BLOCK_SIZE * BLOCK_SIZE..r.end).step_by(BLOCK_SIZE as usize) {
                blocks.insert(start, (PageMask::span(0, 512), Nanos(0)));
            }
        }
        let areas = areas.iter().map(|&range| Area { range, touch: Touch::Idle }).collect();
        let rng = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Field(Rc::new(RefCell::new(State {
            now: Nanos(0),
            computing: None,
            prices,
            woke_up: Nanos(0),
            ran: 0.0,
            areas,
            blocks,
            rng,
        })))
    }

    /// Sets the accesses to an area from now on.
    pub fn touch(&self, area: usize, touch: Touch) {
        let mut s = self.0.borrow_mut();
        let range = s.areas[area].range;
        for start in (range.start / BLOCK_SIZE * BLOCK_SIZE..range.end).step_by(BLOCK_SIZE as usize)
        {
            s.settle(start);
        }
        s.areas[area].touch = touch;
    }

    /// From now on counts the CPU time of this thread for computing, without simulating, and charges it if
    /// `is_paid`. Returns the time counted so far.
    pub fn count_computing(&self, is_paid: bool) -> Duration {
        let mut s = self.0.borrow_mut();
        s.count();
        let new = Computing { is_paid, since: own_cpu(), ..Computing::default() };
        s.computing.replace(new).unwrap_or_default().all
    }

    pub fn now(&self) -> Nanos {
        self.0.borrow().now
    }

    /// Steps a source until a time.
    pub fn run(&self, source: &mut impl Source, until: Nanos) -> Vec<Arc<Snapshot>> {
        let mut out = Vec::new();
        loop {
            match source.step(self.now()).unwrap() {
                Step::Snapshot(s) => out.push(s),
                Step::End(_) => return out,
                Step::Wait(next) => {
                    self.0.borrow_mut().wait(next.min(until));
                    if next > until {
                        return out;
                    }
                }
            }
        }
    }
}

impl Space for Field {
    fn mappings(&mut self, _: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        out.clear();
        for a in &self.0.borrow().areas {
            match out.last_mut().filter(|m: &&mut Mapping| m.range.end == a.range.start) {
                Some(m) => m.range.end = a.range.end,
                None => out.push(Mapping {
                    range: a.range,
                    kind: MappingKind::Anonymous,
                    name: "".into(),
                    unknown: None,
                }),
            }
        }
        Ok(Liveness::Alive)
    }

    fn ran(&mut self, _: TargetId) -> Option<Duration> {
        let s = self.0.borrow();
        let runs_always = s.prices.touch == 0.0;
        Some(if runs_always { Duration::from_nanos(s.now.0) } else { ticks(s.ran) })
    }
}

impl Look for Field {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        out.extend(asks.iter().map(|_| Seen::default()));
        Ok(Cost::default())
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}

/// The blocks that overlap `ranges`, with their pages in `ranges`.
fn parts(ranges: &[AddrRange]) -> impl Iterator<Item = (u64, PageMask)> + '_ {
    ranges.iter().flat_map(|r| {
        let first = r.start / BLOCK_SIZE * BLOCK_SIZE;
        (first..r.end).step_by(BLOCK_SIZE as usize).map(move |start| {
            let page =
                |addr: u64| ((addr.clamp(start, start + BLOCK_SIZE) - start) / PAGE_SIZE) as usize;
            (start, PageMask::span(page(r.start), page(r.end)))
        })
    })
}

/// CPU time of this thread.
pub fn own_cpu() -> Duration {
    // The kernel brings its count up to date.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// The CPU time of this thread for computing.
#[derive(Debug, Clone, Copy, Default)]
struct Computing {
    is_paid: bool,
    all: Duration,
    /// not yet charged
    due: Duration,
    /// end of the last simulation
    since: Duration,
}

impl State {
    /// Counts the computing since then.
    fn count(&mut self) {
        if let Some(c) = &mut self.computing {
            let passed = own_cpu().saturating_sub(c.since);
            c.all += passed;
            c.due += if c.is_paid { passed.mul_f64(self.prices.computing) } else { Duration::ZERO };
        }
    }

    /// Simulates, between phases of computing.
    fn simulated(&mut self, of: impl FnOnce(&mut State) -> Cost) -> Cost {
        self.count();
        let cost = of(self);
        if let Some(c) = &mut self.computing {
            c.since = own_cpu();
        }
        cost
    }
}

impl Survey for Field {
    fn survey(
        &mut self,
        _: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError> {
        Ok(self.0.borrow_mut().simulated(|s| s.survey(ranges, out)))
    }

    fn probe(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        nth: u32,
    ) -> Result<(bool, Cost), OpsError> {
        let mut blocks = Vec::new();
        let all = Survey::survey(self, target, ranges, &mut blocks)?;
        let cost = Cost {
            cpu: all.cpu / BLOCK_SAMPLES,
            pages: all.pages / u64::from(BLOCK_SAMPLES),
            ..all
        };
        let sample = sample_pages(nth);
        Ok((blocks.iter().any(|b| !b.young.and(&sample).is_empty()), cost))
    }

    fn clear(
        &mut self,
        _: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError> {
        Ok(self.0.borrow_mut().simulated(|s| s.clear(runs, out)))
    }
}

impl State {
    fn survey(&mut self, ranges: &[AddrRange], out: &mut Vec<Block>) -> Cost {
        let s = self;
        if ranges.is_empty() {
            let due = s.computing.as_mut().map(|c| std::mem::take(&mut c.due));
            return Cost { cpu: due.unwrap_or_default() + s.wakes_up(), ..Cost::default() };
        }
        let (mut pages, mut blocks) = (0, 0);
        for (start, mask) in parts(ranges) {
            blocks += 1;
            let young = s.settle(start).and(&mask);
            pages += mask.count();
            let read_at = s.now;
            out.push(Block { start, huge: false, resident: mask, young, read_at });
        }
        let p = s.prices;
        let tables = f64::from(blocks) * p.read_a_block;
        let cpu = Duration::from_secs_f64(f64::from(pages) * p.read_a_page + tables + p.call);
        Cost { cpu, pages: pages.into(), ..Cost::default() }
    }

    fn clear(&mut self, runs: &[AddrRange], out: &mut Vec<Cleared>) -> Cost {
        let s = self;
        let (mut pages, mut clears) = (0u32, 0u32);
        for run in runs {
            let before = pages;
            for (start, mask) in parts(std::slice::from_ref(run)) {
                let young = s.settle(start);
                pages += young.and(&mask).count();
                let now = s.now;
                s.blocks.insert(start, (young.without(&mask), now));
                out.push(Cleared {
                    start,
                    huge: false,
                    armed: mask,
                    hidden: vec![],
                    cleared_at: now,
                });
            }
            clears += u32::from(pages > before);
        }
        let (p, n, c) = (s.prices, f64::from(pages), f64::from(clears));
        Cost {
            cpu: Duration::from_secs_f64(n * p.clear_a_page + c * p.own_run + p.call),
            lost: Duration::from_secs_f64(n * p.touch_again + c * p.shootdown),
            clears: clears.into(),
            ..Cost::default()
        }
    }
}
