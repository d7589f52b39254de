//! Compares where the memory of a process lies with where its weights place it.

use std::collections::BTreeMap;
use std::fmt::Write;

use isotherm_core::Mapping;
use isotherm_linux::numa::{self, MoveResult, ProcessLayout, parse_list};
use isotherm_linux::proc;
use serde::Serialize;

use super::rule::{MachineNodes, is_by_address, text};
use super::{ChosenLayout, InterleaveError, placement_text, root};

/// A mapping whose placement was compared.
#[derive(Serialize)]
struct Row {
    start: u64,
    end: u64,
    name: String,
    policy: String,
    weights: String,
    #[serde(flatten)]
    found: MoveResult,
}

/// The result for a process: `docs/abi/testing/interleave.md`.
#[derive(Serialize)]
pub struct VerifyOutput {
    schema_version: u32,
    pid: i32,
    mappings: Vec<Row>,
    pages: u64,
    misplaced: u64,
}

/// Compares the memory of process `pid` with `chosen` nodes and weights, or without any with the policy of each
/// mapping.
///
/// # Errors
/// If the process cannot be read, or if neither `chosen` nor a policy names weights.
pub fn verify(pid: i32, chosen: &ChosenLayout) -> Result<VerifyOutput, InterleaveError> {
    let machine = MachineNodes::read()?;
    let mut layout = ProcessLayout::of(root(), pid)?;
    let allowed = numa::allowed_nodes_of(root(), pid)?;
    // Nodes or weights of the command line apply to all mappings; otherwise each has its own
    // policy.
    let is_given = !chosen.nodes.is_empty() || chosen.weights.is_some();
    let given =
        is_given.then(|| machine.rule(chosen, &allowed, pid)).transpose()?.map(|rule| rule.0);
    let policies = proc::policies(root(), pid)?;
    let mut rows = Vec::new();
    for m in proc::mappings(root(), pid)?.iter().filter(|m| is_by_address(m)) {
        let policy = policy_of(&policies, m);
        let weights = match &given {
            Some(weights) => weights.clone(),
            None => match weighted(policy) {
                Some(nodes) => machine.rule(&of_nodes(nodes?), &allowed, pid)?.0,
                None => continue,
            },
        };
        let found = layout.look(m.range, |piece| numa::node_of(&weights, m.range.start, piece))?;
        if found.pages > 0 || found.left.partial > 0 {
            rows.push(Row {
                start: m.range.start,
                end: m.range.end,
                name: m.name.to_string(),
                policy: policy.to_owned(),
                weights: text(&weights),
                found,
            });
        }
    }
    if rows.is_empty() && given.is_none() {
        return Err(InterleaveError::NoPolicy(pid));
    }
    let sum = |f: fn(&MoveResult) -> u64| rows.iter().map(|r| f(&r.found)).sum();
    let (pages, misplaced) = (sum(|f| f.pages), sum(|f| f.misplaced));
    Ok(VerifyOutput { schema_version: 1, pid, mappings: rows, pages, misplaced })
}

/// The policy of a mapping. Each area has its own line in both files.
fn policy_of<'a>(policies: &'a BTreeMap<u64, String>, m: &Mapping) -> &'a str {
    policies.get(&m.range.start).map_or("default", String::as_str)
}

/// The nodes of a policy of weighted interleave; `None` for other policies.
fn weighted(policy: &str) -> Option<Result<Vec<u32>, InterleaveError>> {
    let nodes = policy.strip_prefix("weighted interleave")?.rsplit(':').next()?;
    Some(parse_list(nodes).ok_or_else(|| InterleaveError::Policy(policy.to_owned())))
}

fn of_nodes(nodes: Vec<u32>) -> ChosenLayout {
    ChosenLayout { nodes, weights: None }
}

impl VerifyOutput {
    /// Whether a page lies elsewhere.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.misplaced > 0
    }

    /// The result as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for r in &self.mappings {
            let name = if r.name.is_empty() { "anonymous" } else { &r.name };
            let _ = writeln!(
                out,
                "{:x}-{:x} {name}: {}; by {}: pages {}; {} elsewhere{}",
                r.start,
                r.end,
                r.policy,
                r.weights,
                placement_text::found_of_asked(&r.found.found, &r.found.asked),
                r.found.misplaced,
                placement_text::folios(&r.found)
            );
        }
        let _ = writeln!(
            out,
            "process {}: {} pages of private memory, {} on other nodes than the weights require",
            self.pid, self.pages, self.misplaced
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_policy() {
        let nodes = |policy| weighted(policy).map(|n| n.ok());
        assert_eq!(nodes("weighted interleave:0-1"), Some(Some(vec![0, 1])));
        assert_eq!(nodes("weighted interleave=static:0,2"), Some(Some(vec![0, 2])));
        assert_eq!(nodes("interleave:0-1"), None);
        assert_eq!(nodes("weighted interleave:x"), Some(None));
    }
}
