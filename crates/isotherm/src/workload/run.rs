//! Runs the phases of a workload in order.

use std::io;
use std::thread::Builder;
use std::time::Duration;

use isotherm_core::{Nanos, PAGE_SIZE};
use isotherm_linux::sys::{self, Arena, SleepingChild};
use isotherm_sim::workload::{
    ISLAND_HZ, Op, Schedule, Slot, TouchRate, Walk, Workload, WorkloadLayout,
};

use super::WorkloadRunError;
use super::access_counts::{AccessCounts, TruthRecorder};
use super::touch::{Stage, Toucher, work};
use crate::stop::Stop;

/// Interval at which to check for a signal.
const POLL: Duration = Duration::from_millis(20);

/// A workload with its memory.
pub struct RunningWorkload<'a> {
    workload: &'a Workload,
    layout: &'a WorkloadLayout,
    arena: &'a Arena,
    seed: u64,
    access_counts: AccessCounts,
}

impl<'a> RunningWorkload<'a> {
    /// Uses mapped memory; `seed` determines its layout and its random numbers.
    pub fn new(
        workload: &'a Workload,
        layout: &'a WorkloadLayout,
        arena: &'a Arena,
        seed: u64,
    ) -> Self {
        let pages = usize::try_from(layout.len() / PAGE_SIZE).unwrap_or(usize::MAX);
        let access_counts = AccessCounts::new(layout.parts.len(), pages);
        RunningWorkload { workload, layout, arena, seed, access_counts }
    }

    /// The addresses of the memory and of the touch counters: `docs/abi/testing/workload.md`. `child` shares some
    /// of the memory.
    pub fn addresses(&self, child: Option<&SleepingChild>) -> serde_json::Value {
        let (range, counts) = (self.arena.range(), self.access_counts.counts());
        serde_json::json!({
            "schema_version": 1,
            "pid": std::process::id(),
            "start": range.start,
            "end": range.end,
            "child": child.map(SleepingChild::pid),
            "counts": { "start": counts.start, "end": counts.end },
        })
    }

    /// Runs all of `schedule`, or until `stop`.
    pub fn all(
        &self,
        schedule: &Schedule,
        stop: &Stop,
    ) -> Result<TruthRecorder<'_>, WorkloadRunError> {
        let begin = sys::monotonic();
        let base = self.arena.range().start;
        let stretches = self.layout.stretches(self.workload, base);
        let mut recorder =
            TruthRecorder::new(&self.access_counts, stretches, base, self.seed, begin);
        for slot in &schedule.slots {
            if stop.is_over() {
                break;
            }
            self.phase(slot, begin, stop, &mut recorder)?;
        }
        Ok(recorder)
    }

    fn phase(
        &self,
        slot: &Slot,
        begin: Nanos,
        stop: &Stop,
        recorder: &mut TruthRecorder<'_>,
    ) -> Result<(), WorkloadRunError> {
        let (arena, access_counts) = (self.arena, &self.access_counts);
        let (start, end) = (begin + slot.start, begin + slot.end());
        let stage = Stage { arena, access_counts, begin: start, end, stop };
        let name = &self.workload.phases[slot.phase].name;
        let spawned: io::Result<()> = std::thread::scope(|threads| {
            for touchers in self.threads(slot.phase) {
                Builder::new().spawn_scoped(threads, || work(touchers, &stage))?;
            }
            for &cut in slot.cuts.iter().take(slot.cuts.len() - 1) {
                sleep_until(begin + cut, stop);
                if stop.is_over() {
                    break;
                }
                recorder.close(name, sys::monotonic());
            }
            Ok(())
        });
        // The last interval ends when all threads have ended.
        recorder.close(name, sys::monotonic());
        spawned.map_err(WorkloadRunError::Thread)
    }

    /// The accesses of each thread of a phase. One thread performs all accesses that fit in a single thread,
    /// and the islands.
    fn threads(&self, phase: usize) -> Vec<Vec<Toucher>> {
        let islands = Walk::of_islands(self.layout, self.seed);
        let mut common = vec![Toucher::new(islands, Op::Read, TouchRate::Hz(ISLAND_HZ), 1)];
        let mut own = Vec::new();
        for access in &self.workload.phases[phase].accesses {
            for thread in 0..access.threads {
                let walk = Walk::of(self.workload, self.layout, access, thread, self.seed);
                let toucher = Toucher::new(walk, access.op, access.rate, access.threads);
                if access.threads > 1 || toucher.is_restless() {
                    own.push(vec![toucher]);
                } else {
                    common.push(toucher);
                }
            }
        }
        own.push(common);
        own
    }
}

fn sleep_until(time: Nanos, stop: &Stop) {
    while sys::monotonic() < time && !stop.is_over() {
        std::thread::sleep(time.since(sys::monotonic()).min(POLL));
    }
}
