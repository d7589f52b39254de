//! `isotherm interleave verify --kernel`: the kernel's memory policies, tried on memory of our own.
//!
//! The cases follow the tests of `set_mempolicy` and `mbind` in the Linux Test Project, in our own
//! words, and the same with the weights that the machine has. docs/interleave.md says which are not here.

mod errors;
mod memory;
mod placement;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_linux::numa::NumaError;
use isotherm_linux::sys::{NodeMask, PolicyMode, allowed_nodes, set_policy};
use isotherm_mm::mempolicy::Weights;
use isotherm_report::json;
use serde::Serialize;

use super::rule::{Machine, text};
use crate::commands::report::output::print;

/// What has come of a case: nothing, or what was otherwise.
type Outcome = std::result::Result<(), String>;

/// What cases are tried with.
pub struct Bench {
    /// nodes with memory that we may use
    nodes: Vec<u32>,
    /// of these, the machine's; 1 each where there are none
    weights: Weights,
    /// the kernel interleaves by weight
    weighted: bool,
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    /// `as the rule`, `otherwise`, `not here`
    outcome: &'static str,
    /// what was otherwise, or is not here
    detail: String,
}

#[derive(Serialize)]
struct Tried {
    schema_version: u32,
    nodes: Vec<u32>,
    weights: String,
    cases: Vec<Row>,
}

/// A case: what it takes, what it is called, and what it does.
struct Case {
    takes: Takes,
    name: &'static str,
    act: fn(&Bench) -> Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    TwoNodes,
    Weights,
    WeightsOfThree,
}

const CASES: [Case; 16] = [
    Case::new(Takes::Nothing, "a task bound to a node, and who it starts", placement::bind),
    Case::new(Takes::Nothing, "a task that prefers a node, and who it starts", placement::prefer),
    Case::new(Takes::TwoNodes, "a task that interleaves over all nodes", placement::interleave),
    Case::new(Takes::Weights, "a task that interleaves by weight", placement::weighted),
    Case::new(Takes::Weights, "the same over each pair of nodes", placement::weighted_pairs),
    Case::new(Takes::Weights, "the same, begun by who it starts", placement::weighted_inherited),
    Case::new(Takes::Weights, "a file in memory, by whole rounds", placement::weighted_file),
    Case::new(Takes::Nothing, "a range bound to each node", placement::range_bind),
    Case::new(Takes::Weights, "a range interleaved by weight", placement::range_weighted),
    Case::new(
        Takes::Weights,
        "memory on one of its nodes stays when its range becomes so",
        placement::range_stays,
    ),
    Case::new(
        Takes::WeightsOfThree,
        "memory elsewhere is moved by weight then",
        placement::range_moved,
    ),
    Case::new(Takes::TwoNodes, "pages moved one by one to where weights ask", placement::moved),
    Case::new(Takes::TwoNodes, "a strict range that lies elsewhere", errors::strict),
    Case::new(Takes::Nothing, "tasks: what makes no sense is refused", errors::task),
    Case::new(Takes::Nothing, "ranges: what makes no sense is refused", errors::range),
    Case::new(Takes::Weights, "a policy is told as it was set", errors::told),
];

impl Case {
    const fn new(takes: Takes, name: &'static str, act: fn(&Bench) -> Outcome) -> Self {
        Case { takes, name, act }
    }
}

/// Tries all cases. Exit status 1 if one comes out otherwise.
pub fn run(as_json: bool) -> Result<ExitCode> {
    let bench = Bench::here()?;
    let cases: Vec<Row> = CASES.iter().map(|case| bench.try_one(case)).collect();
    let failed = cases.iter().any(|c| c.outcome == OTHERWISE);
    let weights = text(&bench.weights);
    let tried = Tried { schema_version: 1, nodes: bench.nodes, weights, cases };
    let shown = if as_json { json(&tried)? + "\n" } else { tried.text() };
    print(shown.as_bytes())?;
    Ok(ExitCode::from(u8::from(failed)))
}

const AS_THE_RULE: &str = "as the rule";
const OTHERWISE: &str = "otherwise";
const NOT_HERE: &str = "not here";

impl Bench {
    fn here() -> Result<Self> {
        let machine = Machine::read()?;
        let allowed = allowed_nodes().map_err(NumaError::Policy)?;
        let nodes: Vec<u32> =
            machine.nodes.iter().map(|n| n.node).filter(|&n| allowed.contains(n)).collect();
        let setting = machine.weights.unwrap_or_default();
        let weight = |&n: &u32| (n, setting.weights.get(&n).copied().unwrap_or(1));
        let weights = Weights::new(nodes.iter().map(weight))?;
        let mask = nodes.iter().copied().collect();
        let weighted = set_policy(PolicyMode::WEIGHTED_INTERLEAVE, &mask).is_ok();
        set_policy(PolicyMode::DEFAULT, &NodeMask::default()).map_err(NumaError::Policy)?;
        Ok(Bench { nodes, weights, weighted })
    }

    /// In a thread of its own, as a policy is that of a thread.
    fn try_one(&self, case: &Case) -> Row {
        let (nodes, weighted) = match case.takes {
            Takes::Nothing => (1, false),
            Takes::TwoNodes => (2, false),
            Takes::Weights => (2, true),
            Takes::WeightsOfThree => (3, true),
        };
        let lacks = match () {
            () if weighted && !self.weighted => Some("this kernel does not interleave by weight"),
            () if self.nodes.len() < nodes => Some("too few nodes"),
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
        Row { case: case.name, outcome, detail }
    }
}

impl Tried {
    fn text(&self) -> String {
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
