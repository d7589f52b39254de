//! `isotherm interleave verify --kernel`: tests the kernel's memory policies on memory of our own.
//!
//! The cases follow the tests of `set_mempolicy` and `mbind` in the Linux Test Project, but share no code with them.
//! They also use the weights of this machine. docs/reference/interleave.md lists the missing cases.

mod errors;
mod files;
mod memory;
mod placement;
mod ranges;

use std::fmt::Write;

use isotherm::interleave::InterleaveError;
use isotherm::interleave::rule::{MachineNodes, text};
use isotherm_linux::numa::NumaError;
use isotherm_linux::sys::{NodeMask, PolicyMode, allowed_nodes, set_policy};
use isotherm_mm::mempolicy::NodeWeights;
use serde::Serialize;

/// The result of a case: passed, or a description of the difference.
type Outcome = Result<(), String>;

/// The conditions under which the cases run.
struct Bench {
    /// nodes with memory that this process may use
    nodes: Vec<u32>,
    /// weights of these nodes, as the machine has them; all 1 if the machine has none
    weights: NodeWeights,
    /// whether the kernel interleaves by weight
    weighted: bool,
    /// whether temporary files can be created on a file system other than tmpfs
    files: bool,
}

#[derive(Serialize)]
struct CaseResult {
    case: &'static str,
    /// `as the rule`, `otherwise` or `not here`
    outcome: &'static str,
    /// the difference from the rule, or the missing requirement
    detail: String,
}

/// The results of all cases: `docs/abi/testing/interleave.md`.
#[derive(Serialize)]
pub struct CaseResults {
    schema_version: u32,
    nodes: Vec<u32>,
    weights: String,
    cases: Vec<CaseResult>,
}

/// A case: its requirements, its name, and the function that runs it.
struct Case {
    requirements: Requirements,
    name: &'static str,
    act: fn(&Bench) -> Outcome,
}

/// The requirements of a case.
#[derive(Clone, Copy)]
struct Requirements {
    nodes: usize,
    /// the kernel must interleave by weight
    weights: bool,
    /// temporary files must be on a file system other than tmpfs
    files: bool,
}

const NOTHING: Requirements = Requirements { nodes: 1, weights: false, files: false };
const TWO_NODES: Requirements = Requirements { nodes: 2, ..NOTHING };
const WEIGHTS: Requirements = Requirements { weights: true, ..TWO_NODES };
const OF_THREE: Requirements = Requirements { nodes: 3, ..WEIGHTS };
const FILES: Requirements = Requirements { files: true, ..NOTHING };
const FILES_OF_TWO: Requirements = Requirements { files: true, ..TWO_NODES };
const WEIGHTED_FILES: Requirements = Requirements { files: true, ..WEIGHTS };

/// Pages of a test that uses one node.
const PAGES: u64 = 16;
/// Number of full rounds of weights in a test; some pages beyond a full round are added.
const ROUNDS: u64 = 8;
const ODD: u64 = 5;

fn rounds_of(weights: &NodeWeights) -> u64 {
    ROUNDS * weights.total() + ODD
}

const CASES: [Case; 26] = [
    Case::new(NOTHING, "a task bound to a node, and its children", placement::bind),
    Case::new(NOTHING, "a task that prefers a node, and its children", placement::prefer),
    Case::new(TWO_NODES, "a task that interleaves over all nodes", placement::interleave),
    Case::new(TWO_NODES, "the same over each pair of nodes", placement::interleave_pairs),
    Case::new(WEIGHTS, "a task that interleaves by weight", placement::weighted),
    Case::new(WEIGHTS, "the same over each pair of nodes", placement::weighted_pairs),
    Case::new(WEIGHTS, "the same, begun by its child", placement::weighted_inherited),
    Case::new(NOTHING, "a file in memory, on one node", files::memory_on_nodes),
    Case::new(WEIGHTS, "a file in memory by weight, of whole rounds", files::memory_weighted),
    Case::new(WEIGHTS, "a range of a file in memory by weight", files::memory_range_weighted),
    Case::new(FILES, "a file on a file system, on one node", files::cache_on_nodes),
    Case::new(FILES_OF_TWO, "files on a file system, interleaved", files::cache_interleaved),
    Case::new(WEIGHTED_FILES, "files on a file system by weight", files::cache_weighted),
    Case::new(NOTHING, "a range on one node", ranges::on_nodes),
    Case::new(WEIGHTS, "a range interleaved by weight", ranges::weighted),
    Case::new(WEIGHTS, "a range by weight, also in a forked child", ranges::forked),
    Case::new(WEIGHTS, "memory on one of its nodes stays when its range becomes so", ranges::stays),
    Case::new(OF_THREE, "memory elsewhere is moved by weight then", ranges::moved_by_weight),
    Case::new(TWO_NODES, "memory elsewhere is moved to a node", ranges::moved_to_a_node),
    Case::new(TWO_NODES, "memory of several is moved only with theirs", ranges::moved_with_others),
    Case::new(TWO_NODES, "pages moved one by one to where weights ask", ranges::pages_moved),
    Case::new(TWO_NODES, "a strict range that lies elsewhere", errors::strict),
    Case::new(NOTHING, "tasks: invalid policies are refused", errors::task),
    Case::new(NOTHING, "ranges: invalid policies are refused", errors::range),
    Case::new(
        WEIGHTS,
        "the kernel reports the policy of a task as it was set",
        errors::reported_task_policy,
    ),
    Case::new(
        NOTHING,
        "the kernel reports the policy of a range as it was set",
        ranges::reported_policy,
    ),
];

impl Case {
    const fn new(
        requirements: Requirements,
        name: &'static str,
        act: fn(&Bench) -> Outcome,
    ) -> Self {
        Case { requirements, name, act }
    }
}

/// Runs all cases.
///
/// # Errors
/// If the nodes or the weights cannot be read.
pub fn try_all() -> Result<CaseResults, InterleaveError> {
    let bench = Bench::here()?;
    let cases: Vec<CaseResult> = CASES.iter().map(|case| bench.try_one(case)).collect();
    let weights = text(&bench.weights);
    Ok(CaseResults { schema_version: 1, nodes: bench.nodes, weights, cases })
}

const AS_THE_RULE: &str = "as the rule";
const OTHERWISE: &str = "otherwise";
const NOT_HERE: &str = "not here";

impl Bench {
    fn here() -> Result<Self, InterleaveError> {
        let machine = MachineNodes::read()?;
        let allowed = allowed_nodes().map_err(NumaError::Policy)?;
        let nodes: Vec<u32> =
            machine.nodes.iter().map(|n| n.node).filter(|&n| allowed.contains(n)).collect();
        let setting = machine.weights.unwrap_or_default();
        let weight = |&n: &u32| (n, setting.weights.get(&n).copied().unwrap_or(1));
        let weights = NodeWeights::new(nodes.iter().map(weight))?;
        let mask = nodes.iter().copied().collect();
        let weighted = set_policy(PolicyMode::WEIGHTED_INTERLEAVE, &mask).is_ok();
        set_policy(PolicyMode::DEFAULT, &NodeMask::default()).map_err(NumaError::Policy)?;
        Ok(Bench { nodes, weights, weighted, files: files::on_a_file_system().is_some() })
    }

    /// Runs a case in a thread of its own, because a memory policy belongs to a thread.
    fn try_one(&self, case: &Case) -> CaseResult {
        let Requirements { nodes, weights, files } = case.requirements;
        let lacks = match () {
            () if weights && !self.weighted => Some("this kernel does not interleave by weight"),
            () if self.nodes.len() < nodes => Some("too few nodes"),
            () if files && !self.files => {
                Some("temporary files are in memory, or there are none: TMPDIR names a directory")
            }
            () => None,
        };
        let (outcome, detail) = match lacks {
            Some(why) => (NOT_HERE, why.to_owned()),
            None => match std::thread::scope(|s| s.spawn(|| (case.act)(self)).join()) {
                Ok(Ok(())) => (AS_THE_RULE, String::new()),
                Ok(Err(what)) => (OTHERWISE, what),
                Err(_) => (OTHERWISE, "it could not be tried".to_owned()),
            },
        };
        CaseResult { case: case.name, outcome, detail }
    }
}

impl CaseResults {
    /// Whether the result of any case differs from the rule.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.cases.iter().any(|c| c.outcome == OTHERWISE)
    }

    /// The results as text, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("memory policies of this kernel, by the weights {}\n", self.weights);
        for c in &self.cases {
            let detail =
                if c.detail.is_empty() { String::new() } else { format!(": {}", c.detail) };
            let _ = writeln!(out, "{:12}{}{detail}", c.outcome, c.case);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here, on however many nodes there are.
    #[test]
    fn this_kernel_keeps_its_rules() {
        let bench = Bench::here().unwrap();
        for case in &CASES {
            let row = bench.try_one(case);
            assert_ne!(row.outcome, OTHERWISE, "{}: {}", row.case, row.detail);
        }
    }
}
