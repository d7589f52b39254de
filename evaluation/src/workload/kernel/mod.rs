//! Compute kernels of the kind that the mails measured (PARSEC and SPLASH-2X), each on memory of a given size. They
//! compute until they are killed, and count what they have done.

mod bodies;
mod graphs;
mod matrix;
mod passes;
mod streams;

use std::path::Path;

use anyhow::{Context, Result};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::counted::CountedProcess;
use super::counting::{CountingProcess, TouchCount};
use super::{Running, Workload};
use crate::stop::Stop;

/// The argument with which the bench starts itself as this process.
const ARGUMENT: &str = "--be-the-kernel";
/// Words between two reports.
const BATCH_WORDS: usize = 1 << 14;
/// Random numbers are this small, so that memory compresses about 3:1.
const RANDOM_BITS: u64 = (1 << 22) - 1;

/// What it computes.
#[derive(Debug, Clone, Copy)]
pub struct ComputeKernel {
    /// its name
    pub name: &'static str,
    run: fn(u64, &mut TouchCount) -> Result<()>,
}

/// All of them.
pub static KERNELS: [ComputeKernel; 15] = [
    ComputeKernel { name: "sort", run: passes::sort },
    ComputeKernel { name: "graph", run: passes::graph },
    ComputeKernel { name: "stencil", run: passes::stencil },
    ComputeKernel { name: "join", run: passes::join },
    ComputeKernel { name: "lu", run: matrix::lu },
    ComputeKernel { name: "fft", run: matrix::fft },
    ComputeKernel { name: "multigrid", run: matrix::multigrid },
    ComputeKernel { name: "n-body", run: bodies::n_body },
    ComputeKernel { name: "rays", run: bodies::rays },
    ComputeKernel { name: "cluster", run: streams::cluster },
    ComputeKernel { name: "itemsets", run: streams::itemsets },
    ComputeKernel { name: "dedup", run: streams::dedup },
    ComputeKernel { name: "radix", run: graphs::radix },
    ComputeKernel { name: "traversal", run: graphs::traversal },
    ComputeKernel { name: "anneal", run: graphs::anneal },
];

impl ComputeKernel {
    /// The kernel of this name.
    pub fn find(name: &str) -> Option<ComputeKernel> {
        KERNELS.iter().find(|kernel| kernel.name == name).copied()
    }
}

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Computation {
    /// what it computes
    pub kernel: ComputeKernel,
    /// size of all its memory
    pub bytes: u64,
    /// whether it is measured together with a second one that isotherm does not know
    pub twin: bool,
}

impl Workload for Computation {
    fn name(&self) -> &str {
        self.kernel.name
    }

    fn memory(&self) -> u64 {
        self.bytes
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let words = [ARGUMENT, self.name(), &self.bytes.to_string()];
        let start =
            |place: &Path, huge| CountingProcess::start(self.name(), &words, place, huge, stop);
        Ok(Box::new(CountedProcess::start(place, self.twin, start)?))
    }
}

/// If the command line requests it, computes until killed. Does nothing otherwise.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(ARGUMENT) {
        return Ok(());
    }
    let name = words.next().context("no kernel")?;
    let kernel = ComputeKernel::find(&name).context("no such kernel")?;
    let bytes: u64 = words.next().context("no size")?.parse()?;
    (kernel.run)(bytes, &mut TouchCount::new()?)
}

/// Random numbers that depend on the size only.
fn random(bytes: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(bytes)
}

/// How many things of `each` bytes fit into this part of `bytes`; at least one.
fn fitting(bytes: u64, part: f64, each: usize) -> usize {
    ((bytes as f64 * part) as usize / each).max(1)
}
