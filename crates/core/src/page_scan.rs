//! The pages monitor: it reads and clears all pages in each sampling interval.
//!
//! This is the plain method, and the reference for measurements of the other monitors. It observes each page
//! individually, and misses nothing that is touched at most once per sampling interval. It has no budget: in
//! each sampling interval it reads all page tables, and clears each page that was touched. The next touch
//! must set the bit again, and each run of such pages costs a TLB shootdown. It uses 16 bytes of memory per
//! page, 4 MiB per GiB.

mod piece;
mod scanned;
mod view;

use std::sync::Arc;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::scanned::ScannedTarget;
use crate::attrs::{Attrs, AttrsError};
use crate::call::{Cost, OpsError, TargetId};
use crate::monitor::Monitor;
use crate::ops::{Liveness, Look, Space};
use crate::range::AddrRange;
use crate::roster::{Roster, ran_since};
use crate::snapshot::{Quality, Snapshot, TargetView};
use crate::source::{Source, Step};
use crate::time::Nanos;
use crate::tuning::MIN_GAP;

/// Reads and clears all pages in each sampling interval, and makes a snapshot per aggregation interval.
///
/// The rate of a page follows from the share of the samples in which it was touched. The time since its last
/// touch is known to one sampling interval. The results are deterministic for a seed and the answers of the
/// operations set.
pub struct PageScan<O> {
    ops: O,
    attrs: Attrs,
    roster: Roster<ScannedTarget>,
    /// for looks at memory whose accessed bits carry no information
    rng: Xoshiro256PlusPlus,
    /// origin of the times of pages
    began: Option<Nanos>,
    interval_start: Nanos,
    next_sample: Nanos,
    next_update: Nanos,
    /// number of samples in the current interval
    samples: u32,
    seq: u64,
    /// cost since the last snapshot
    cost: Cost,
}

impl<O: Space + Look> PageScan<O> {
    /// Creates a monitor. It looks at no memory before the first [`Source::step`].
    ///
    /// # Errors
    /// If `attrs` are invalid, or `ops` cannot survey all memory.
    pub fn new(
        mut ops: O,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Self, AttrsError> {
        if ops.survey().is_none() {
            return Err(AttrsError::NoSurvey(attrs.monitor.name()));
        }
        let mut monitor = PageScan {
            ops,
            attrs: attrs.checked()?,
            roster: Roster::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            began: None,
            interval_start: Nanos(0),
            next_sample: Nanos(0),
            next_update: Nanos(0),
            samples: 0,
            seq: 0,
            cost: Cost::default(),
        };
        Monitor::set_targets(&mut monitor, targets);
        Ok(monitor)
    }

    fn ms(&self, at: Nanos) -> u32 {
        let ms = at.since(self.began.unwrap_or_default()).as_millis();
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// Moves the origin of the ms clock forward if it is due.
    fn rebase(&mut self, now: Nanos) {
        if let Some(ms) = self.began.as_mut().and_then(|began| began.move_origin(now)) {
            self.roster.targets.iter_mut().for_each(|w| w.rebase(ms));
        }
    }

    fn begin(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.began = Some(now);
        self.interval_start = now;
        self.next_update = now;
        self.next_sample = now + self.attrs.sample;
        self.scan(now, false)
    }

    /// Reads the mappings of all targets again.
    fn update(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.next_update = now + self.attrs.update;
        let ops = &mut self.ops;
        self.roster.update(|w| {
            let mut mappings = Vec::new();
            let liveness = ops.mappings(w.id, &mut mappings)?;
            if liveness == Liveness::Replaced {
                w.forget();
            }
            if w.ran.is_none() {
                w.ran = ops.ran(w.id);
            }
            w.map(mappings);
            Ok(liveness)
        })
    }

    /// Reads all memory, and clears the young pages; after a read of the mappings, it clears all pages. With
    /// `counts`, touched pages count for the sampling interval that ends now.
    fn scan(&mut self, now: Nanos, counts: bool) -> Result<(), OpsError> {
        let updated = now >= self.next_update;
        if updated {
            self.update(now)?;
        }
        let began = self.began.unwrap_or_default();
        let (mut blocks, mut done) = (Vec::new(), Vec::new());
        for w in &mut self.roster.targets {
            let Some(survey) = self.ops.survey() else { break };
            blocks.clear();
            self.cost += survey.survey(w.id, &w.visible, &mut blocks)?;
            if survey.ended_early() {
                // The blocks that were not read would seem to have left.
                continue;
            }
            w.read(&blocks, began, counts);
            let runs: Vec<AddrRange> = w.runs(updated);
            if !runs.is_empty() {
                done.clear();
                self.cost += survey.clear(w.id, &runs, &mut done)?;
                w.clear(&done, began);
            }
        }
        Ok(())
    }

    /// Asks other ways to look about memory whose accessed bits carry no information.
    fn ask_hidden(&mut self, now: Nanos) -> Result<(), OpsError> {
        let ms = self.ms(now);
        for w in &mut self.roster.targets {
            let asks = w.ask_hidden(&mut self.rng, self.attrs.window);
            if !asks.is_empty() {
                let mut seen = Vec::new();
                self.cost += self.ops.look(&asks, &mut seen)?;
                w.take_answers(&asks, &seen, ms, self.attrs.sample);
            }
        }
        Ok(())
    }

    fn publish(&mut self, now: Nanos) -> Arc<Snapshot> {
        let interval = now.since(self.interval_start);
        let ms = self.ms(now);
        let all: u64 = self.roster.targets.iter().map(ScannedTarget::resident_pages).sum();
        let most = self.attrs.most_regions(0);
        let mut targets = Vec::with_capacity(self.roster.targets.len());
        for w in &mut self.roster.targets {
            let own = self.attrs.regions_of_target(most, w.resident_pages(), all, w.areas());
            let regions = w.make_regions(&self.attrs, own, ms, interval);
            let ran = ran_since(&mut w.ran, self.ops.ran(w.id));
            let mappings = Arc::clone(&w.mappings);
            targets.push(TargetView {
                id: w.id,
                ran,
                mappings,
                left_out: w.left_out,
                dirty: None,
                regions,
                ages: None,
            });
        }
        let snapshot = Arc::new(Snapshot {
            seq: self.seq,
            start: self.interval_start,
            end: now,
            attrs: self.attrs,
            cost: std::mem::take(&mut self.cost),
            quality: Some(Quality::of_all(&targets)),
            targets,
        });
        self.seq += 1;
        self.samples = 0;
        self.interval_start = now;
        snapshot
    }
}

impl<O: Space + Look> Source for PageScan<O> {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        if self.roster.ended().is_none() && self.began.is_none() {
            self.begin(now)?;
        }
        if let Some(why) = self.roster.ended() {
            return Ok(Step::End(why));
        }
        if now < self.next_sample {
            return Ok(Step::Wait(self.next_sample));
        }
        self.rebase(now);
        let gap = now.since(self.next_sample) > self.attrs.interval().max(MIN_GAP);
        self.scan(now, !gap)?;
        self.samples += 1;
        // A late step does not catch up on lost samples: it shifts the later ones.
        let next = self.next_sample + self.attrs.sample;
        self.next_sample = if next > now { next } else { now + self.attrs.sample };
        if self.samples < self.attrs.samples() {
            return Ok(self.roster.ended().map_or(Step::Wait(self.next_sample), Step::End));
        }
        self.ask_hidden(now)?;
        Ok(Step::Snapshot(self.publish(now)))
    }
}

impl<O: Space + Look> Monitor for PageScan<O> {
    type Ops = O;

    fn ops(&mut self) -> &mut O {
        &mut self.ops
    }

    fn attrs(&self) -> Attrs {
        self.attrs
    }

    /// Keeps rates and ages; the current interval restarts with the next step.
    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        self.attrs = Attrs { monitor: self.attrs.monitor, ..attrs.checked()? };
        self.roster.targets.iter_mut().for_each(ScannedTarget::begin_anew);
        self.samples = 0;
        self.interval_start = self.next_sample;
        Ok(())
    }

    fn set_targets(&mut self, ids: &[TargetId]) {
        self.roster.set(ids, ScannedTarget::new);
        self.next_update = Nanos(0);
    }

    fn outlive_targets(&mut self) {
        self.roster.outlive_targets();
    }

    fn stop(&mut self) {
        self.roster.stop();
    }
}
