//! Pages of files: the node of a page of tmpfs depends on its offset in the file; pages of the page cache are
//! placed in turn.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use isotherm_linux::sys::{Existing, PolicyMode};
use isotherm_mm::mempolicy::NodeWeights;
use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};

use crate::memory::{BasePages, even, policy};
use crate::ranges::bind_range;
use crate::{Bench, Outcome, PAGES, ROUNDS};

/// File system type of `tmpfs` (statfs(2)).
const IN_MEMORY: i64 = 0x0102_1994;
/// Tests of the page cache use files of about `FILE`, 2 x `FILE`, ..., `FILES` x `FILE` pages.
const FILE: u64 = 10;
const FILES: u64 = 10;
/// Pages for the file system's own data are placed in turn too. A deviation up to 1/`TOLERANCE` of all pages is
/// therefore allowed, as in the Linux Test Project.
const TOLERANCE: u64 = 60;

/// An unnamed file in the directory of temporary files; `None` if that directory is on tmpfs.
pub fn on_a_file_system() -> Option<File> {
    let fd = unnamed(&std::env::temp_dir()).ok()?;
    let kept_in_memory = fstatfs(&fd).is_ok_and(|s| s.f_type == IN_MEMORY);
    (!kept_in_memory).then(|| File::from(fd))
}

fn unnamed(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR)
}

fn cached(pages: u64) -> Result<BasePages, String> {
    let file = on_a_file_system().ok_or("there is no file system any more")?;
    BasePages::written(&file, pages)
}

/// Tests files that are bound to each node, and files that prefer it.
fn on_each_node(bench: &Bench, file: fn(u64) -> Result<BasePages, String>) -> Outcome {
    for &node in &bench.nodes {
        for mode in [PolicyMode::BIND, PolicyMode::PREFERRED] {
            policy(mode, &[node])?;
            let lies = file(PAGES)?.lies_by(&even(&[node])?);
            lies.map_err(|e| format!("node {node}, {mode:?}: {e}"))?;
        }
    }
    Ok(())
}

pub fn memory_on_nodes(bench: &Bench) -> Outcome {
    on_each_node(bench, BasePages::of_file)
}

pub fn cache_on_nodes(bench: &Bench) -> Outcome {
    on_each_node(bench, cached)
}

/// The index of a page of tmpfs includes the file's inode number. The result for whole rounds is the same for
/// any number.
pub fn memory_weighted(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    whole_rounds(bench, &BasePages::of_file(ROUNDS * bench.weights.total())?)
}

/// A policy that is set for a range of a tmpfs file is a policy of the file.
pub fn memory_range_weighted(bench: &Bench) -> Outcome {
    let m = BasePages::of_file(ROUNDS * bench.weights.total())?;
    bind_range(&m, PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes, Existing::Leave)?;
    whole_rounds(bench, &m)
}

fn whole_rounds(bench: &Bench, m: &BasePages) -> Outcome {
    let rounds = bench.weights.nodes().iter().map(|&(node, w)| (node, ROUNDS * u64::from(w)));
    m.counts_are(&rounds.collect::<Vec<_>>())
}

pub fn cache_interleaved(bench: &Bench) -> Outcome {
    by_turn(PolicyMode::INTERLEAVE, &even(&bench.nodes)?)
}

pub fn cache_weighted(bench: &Bench) -> Outcome {
    by_turn(PolicyMode::WEIGHTED_INTERLEAVE, &bench.weights)
}

/// Tests files of several sizes: the nodes together hold all pages, and each node holds its share within the
/// tolerance.
fn by_turn(mode: PolicyMode, weights: &NodeWeights) -> Outcome {
    let nodes: Vec<u32> = weights.nodes().iter().map(|n| n.0).collect();
    policy(mode, &nodes)?;
    // For each size, as many files as there are nodes, with page counts that are not whole rounds.
    let each = (1..=FILES).flat_map(|i| (1..=nodes.len() as u64).map(move |j| FILE * i + j % 10));
    let files = each.map(cached).collect::<Result<Vec<BasePages>, String>>()?;
    let all: u64 = files.iter().map(BasePages::pages).sum();
    let mut sum = 0;
    for &(node, weight) in weights.nodes() {
        let found = files.iter().map(|f| f.count(node)).sum::<Result<u64, String>>()?;
        let share = all * u64::from(weight) / weights.total();
        if found.abs_diff(share) > all / TOLERANCE {
            return Err(format!("node {node} has {found} of {all} pages, and not {share}"));
        }
        sum += found;
    }
    if sum == all { Ok(()) } else { Err(format!("{sum} of {all} pages lie on these nodes")) }
}
