//! An operations set of your own: the monitor watches something that is not a process.
//!
//! A cache of 64 Ki slots counts the hits of each slot. It implements [`Space`] (the slots) and [`Look`] (the
//! slots that were hit since the last clear). So a [`RegionSampler`] finds its hot part, at the cost of a few
//! windows in each sampling interval instead of a scan over all slots.
//!
//! `cargo run -p isotherm-core --example own_look`

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Attrs, Cost, Heat, Liveness, Look, Mapping, MappingKind, Nanos, OpsError,
    PAGE_SIZE, RegionSampler, Seen, Snapshot, Source, Space, Step, TargetId, Thresholds,
};

const SLOTS: usize = 64 * 1024;
const CACHE: TargetId = TargetId(0);

/// One slot represents one page: slot `i` has the address `i * PAGE_SIZE`.
#[derive(Default)]
struct Cache {
    now: Nanos,
    /// hits of each slot since the monitor last cleared it
    hits: Vec<u32>,
}

impl Cache {
    fn hit(&mut self, slot: usize) {
        self.hits[slot] += 1;
    }

    fn slots(range: AddrRange) -> std::ops::Range<usize> {
        (range.start / PAGE_SIZE) as usize..(range.end / PAGE_SIZE) as usize
    }
}

/// The cache as an operations set.
struct CacheOps(Rc<RefCell<Cache>>);

impl Space for CacheOps {
    fn mappings(&mut self, _: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let range = AddrRange::new(0, SLOTS as u64 * PAGE_SIZE);
        let name = Arc::from("slots");
        out.clear();
        out.push(Mapping { range, kind: MappingKind::Anonymous, name, unknown: None });
        Ok(Liveness::Alive)
    }

    /// The CPU time is not known.
    fn ran(&mut self, _: TargetId) -> Option<Duration> {
        None
    }
}

impl Look for CacheOps {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut cache = self.0.borrow_mut();
        let now = cache.now;
        for ask in asks {
            let slots = &mut cache.hits[Cache::slots(ask.range)];
            out.push(Seen {
                pages: slots.len() as u32,
                present: slots.len() as u32,
                young: slots.iter().filter(|&&hits| hits > 0).count() as u32,
                read_at: now,
                cleared_at: now,
                ..Seen::default()
            });
            if ask.clear {
                slots.fill(0);
            }
        }
        Ok(Cost { looks: asks.len() as u64, ..Cost::default() })
    }
}

/// Serves 200 requests per ms for 4 s: nine of ten go to 6000 slots, the others to any slot.
fn serve(cache: &Rc<RefCell<Cache>>, monitor: &mut impl Source) -> Result<Arc<Snapshot>, OpsError> {
    let mut last = None;
    let mut random = 1u64;
    for ms in 0..4000u64 {
        let now = Nanos(ms * 1_000_000);
        cache.borrow_mut().now = now;
        for request in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (random >> 33) as usize;
            let slot = if request % 10 == 0 { slot % SLOTS } else { 20_000 + slot % 6000 };
            cache.borrow_mut().hit(slot);
        }
        // The caller owns the clock: the monitor does the work that is due, or returns the time until which
        // to wait.
        if let Step::Snapshot(s) = monitor.step(now)? {
            let hot = s.bytes(&Thresholds::default()).hot / PAGE_SIZE;
            println!("snapshot {}: {} regions, {hot} hot slots", s.seq, s.nr_regions());
            last = Some(s);
        }
    }
    last.ok_or_else(|| OpsError::Failed("no interval has ended".into()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Rc::new(RefCell::new(Cache { hits: vec![0; SLOTS], ..Cache::default() }));
    let mut monitor =
        RegionSampler::new(CacheOps(Rc::clone(&cache)), Attrs::default(), &[CACHE], 1)?;
    let last = serve(&cache, &mut monitor)?;

    let mut found = Vec::new();
    for r in &last.targets[0].regions {
        let (slots, heat) = (Cache::slots(r.range), r.heat(&Thresholds::default()));
        println!("{slots:?}: {:.1} hits/s {heat:?}, for {:?}", r.rate.hz, r.age);
        found.extend(slots.filter(|_| heat == Heat::Hot));
    }

    // 180 of 200 requests go to 20,000..26,000: 30 hits per second for each slot there.
    let right = found.iter().filter(|s| (20_000..26_000).contains(*s)).count();
    println!("{} slots are hot, {right} of them rightly, of 6000", found.len());
    assert!(right > 5500 && found.len() - right < 500, "the hot part was not found");
    Ok(())
}

#[test]
fn finds_the_hot_part() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
