//! `isotherm interleave apply`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm::interleave::rule::{MachineNodes, WeightsSource};
use isotherm::interleave::{PlacementRound, hot_ranges, keep};
use isotherm::stop::Stop;
use isotherm_core::AddrRange;
use isotherm_linux::numa::{self, MoveResult, ProcessLayout};
use isotherm_linux::sys;
use isotherm_mm::mempolicy::NodeWeights;

use super::root;
use crate::cli::{Apply, UsageError};
use crate::commands::report::output::show;
use crate::log::say;

/// Time between two checks for signals.
const WAKE: Duration = Duration::from_millis(100);

/// Places the memory of the process; with `--keep` in repeated rounds.
pub fn run(o: &Apply) -> Result<ExitCode> {
    if o.interval < WAKE {
        return Err(UsageError::new(format!("make --interval {WAKE:?} or longer")).into());
    }
    let stop = Stop::at_signals()?;
    let machine = MachineNodes::read()?;
    let layout = ProcessLayout::of(root(), o.pid)?;
    let allowed = numa::allowed_nodes_of(root(), o.pid)?;
    let (weights, from) = machine.rule(&o.layout.chosen(), &allowed, o.pid)?;
    keep::warn_of_balancing(if o.keep {
        "isotherm moves those pages back in each round"
    } else {
        "with --keep isotherm moves them back"
    });
    if o.hot && o.keep {
        say("isotherm: apply determines the hot memory only once: start it again when the hot \
             memory changes");
    }
    let hot = o.hot.then(|| hot_ranges(o.pid, o.watch, &stop)).transpose()?;
    if stop.is_over() {
        return Ok(ExitCode::SUCCESS);
    }
    // Watching is not part of the duration.
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    Applying { o, layout, weights, from, hot, round: 0 }.until(&stop)
}

struct Applying<'a> {
    o: &'a Apply,
    layout: ProcessLayout,
    weights: NodeWeights,
    from: WeightsSource,
    hot: Option<Vec<AddrRange>>,
    round: u32,
}

impl Applying<'_> {
    fn until(mut self, stop: &Stop) -> Result<ExitCode> {
        let mut rounds = keep::Rounds::every(self.o.interval);
        loop {
            if rounds.is_due() {
                let since = Instant::now();
                self.once(stop)?;
                rounds.after(since.elapsed());
            }
            if !self.o.keep || stop.is_over() || self.layout.has_ended() {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(WAKE);
        }
    }

    fn once(&mut self, stop: &Stop) -> Result<()> {
        let (layout, hot) = (&mut self.layout, self.hot.as_deref());
        let (out, done) = keep::round(layout, &self.weights, hot, stop);
        self.round += 1;
        let pid = self.o.pid;
        if self.layout.has_ended() {
            if self.round == 1 {
                self.print(&out)?;
            }
            say(format_args!("isotherm: process {pid} has ended; {} pages were moved", out.moved));
            return Ok(());
        }
        // Later rounds print nothing if no page is misplaced.
        if self.round == 1 || out.misplaced > 0 || done.is_err() {
            self.print(&out)?;
        }
        done.with_context(|| format!("{} pages of process {pid} had been moved by then", out.moved))
    }

    fn print(&self, out: &MoveResult) -> Result<ExitCode> {
        let (hot, weights) = (self.hot.as_deref(), (&self.weights, self.from));
        let round = PlacementRound::new(self.o.pid, self.round, weights, hot, out);
        show(self.o.json, &round, || round.text())
    }
}
