//! `isotherm interleave apply`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm::interleave::rule::{Machine, WeightsSource, text};
use isotherm::interleave::{hot_ranges, keep};
use isotherm::stop::Stop;
use isotherm_core::AddrRange;
use isotherm_linux::numa::{self, Layout, MoveResult};
use isotherm_linux::sys;
use isotherm_mm::mempolicy::Weights;
use isotherm_report::{bytes, json};
use serde::Serialize;

use super::{nodes_text, root};
use crate::cli::{Apply, UsageError};
use crate::commands::report::output::print;
use crate::log::say;

/// Time between two checks for signals.
const WAKE: Duration = Duration::from_millis(100);

/// A round, in the form of the JSON output.
#[derive(Serialize)]
struct Round<'a> {
    schema_version: u32,
    pid: i32,
    weights: Vec<Weight>,
    weights_from: &'static str,
    /// size of the hot memory; `None` without `--hot`
    hot_bytes: Option<u64>,
    /// number of the round, from 1 on
    round: u32,
    #[serde(flatten)]
    laid_out: &'a MoveResult,
}

#[derive(Serialize)]
struct Weight {
    node: u32,
    weight: u8,
}

/// Places the memory of the process; with `--keep` in repeated rounds.
pub fn run(o: &Apply) -> Result<ExitCode> {
    if o.interval < WAKE {
        return Err(UsageError::new(format!("make --interval {WAKE:?} or longer")).into());
    }
    let stop = Stop::at_signals()?.at(o.duration.map(|d| sys::monotonic() + d));
    let machine = Machine::read()?;
    let layout = Layout::of(root(), o.pid)?;
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
    Applying { o, layout, weights, from, hot, round: 0 }.until(&stop)
}

struct Applying<'a> {
    o: &'a Apply,
    layout: Layout,
    weights: Weights,
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
                self.once()?;
                rounds.after(since.elapsed());
            }
            if !self.o.keep || stop.is_over() || self.layout.has_ended() {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(WAKE);
        }
    }

    fn once(&mut self) -> Result<()> {
        let (out, done) = keep::round(&mut self.layout, &self.weights, self.hot.as_deref());
        self.round += 1;
        let pid = self.o.pid;
        if self.layout.has_ended() {
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
        if self.o.json {
            return print((json(&self.as_printed(out))? + "\n").as_bytes());
        }
        let of = match &self.hot {
            None => "all private memory".to_owned(),
            Some(hot) => format!(
                "{} in {} hot regions",
                bytes(hot.iter().map(AddrRange::len).sum()),
                hot.len()
            ),
        };
        let again = if self.round > 1 { format!(" (round {})", self.round) } else { String::new() };
        let text = format!(
            "process {}, {of}, by the weights {} ({}){again}:\n  {}\n  pages before, and requested: {}\n",
            self.o.pid,
            text(&self.weights),
            self.from.text(),
            nodes_text::laid_out(out),
            nodes_text::found_of_asked(&out.found, &out.asked),
        );
        print(text.as_bytes())
    }

    fn as_printed<'a>(&self, laid_out: &'a MoveResult) -> Round<'a> {
        let weight = |&(node, weight): &(u32, u8)| Weight { node, weight };
        Round {
            schema_version: 1,
            pid: self.o.pid,
            weights: self.weights.nodes().iter().map(weight).collect(),
            weights_from: self.from.text(),
            hot_bytes: self.hot.as_ref().map(|hot| hot.iter().map(AddrRange::len).sum()),
            round: self.round,
            laid_out,
        }
    }
}
