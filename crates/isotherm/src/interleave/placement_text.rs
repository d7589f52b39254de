//! Pages per node, and restored weights, as text.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_core::PAGE_SIZE;
use isotherm_linux::numa::{MoveResult, RestoreResult, UnmovedPages};
use isotherm_report::bytes;

/// `N0 640 of 641, N1 ...`: for each node, the pages that lie there, and the pages that the weights
/// place there.
pub fn found_of_asked(found: &BTreeMap<u32, u64>, asked: &BTreeMap<u32, u64>) -> String {
    let nodes: BTreeSet<u32> = found.keys().chain(asked.keys()).copied().collect();
    let of = |map: &BTreeMap<u32, u64>, node: u32| map.get(&node).copied().unwrap_or(0);
    let one = |&node: &u32| format!("N{node} {} of {}", of(found, node), of(asked, node));
    nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The result of placing pages, in one line.
#[must_use]
pub fn laid_out(out: &MoveResult) -> String {
    let size = |pages: u64| bytes(pages * PAGE_SIZE);
    let mut text = format!(
        "{} pages ({}) checked, {} on other nodes than the weights require: {} moved, {} not moved{}",
        out.pages,
        size(out.pages),
        out.misplaced,
        out.moved,
        out.left.total() - out.left.partial,
        reasons(&out.left)
    );
    text += &folios(out);
    text
}

/// The pages of folios, which are not judged page by page.
pub fn folios(out: &MoveResult) -> String {
    let mut text = String::new();
    if out.left.partial > 0 {
        text += &format!(
            "; {} pages are parts of large folios, and were not checked",
            out.left.partial
        );
    }
    if out.in_folios > 0 {
        text += &format!("; {} pages are in large folios, which move whole", out.in_folios);
    }
    text
}

fn reasons(left: &UnmovedPages) -> String {
    let reasons = [
        (left.shared, "mapped by other processes too"),
        (left.gone, "gone meanwhile"),
        (left.busy, "in use by the kernel or a device"),
        (left.no_room, "no room where they belong"),
    ];
    let parts: Vec<String> =
        reasons.iter().filter(|r| r.0 > 0).map(|(n, why)| format!("{n} {why}")).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The result of a restore, in words.
#[must_use]
pub fn put_back_text(done: &RestoreResult) -> String {
    let list = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if !done.nodes.is_empty() {
        parts.push(format!("weights of nodes {} are as before", list(&done.nodes)));
    }
    if done.mode {
        parts.push("the automatic mode is on again".to_owned());
    }
    if done.mode_lost {
        parts.push(
            "the automatic mode stays off, as there is no bandwidth to derive from".to_owned(),
        );
    }
    if !done.left.is_empty() {
        let left = list(&done.left);
        parts.push(format!(
            "another program has changed the weights of nodes {left} since, and isotherm does \
             not restore those"
        ));
    }
    if parts.is_empty() {
        return "there is nothing to restore".to_owned();
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmoved_pages_have_a_reason() {
        let left = UnmovedPages { shared: 2, no_room: 1, partial: 4, ..UnmovedPages::default() };
        let out = MoveResult { pages: 10, misplaced: 5, moved: 2, left, ..MoveResult::default() };
        let text = laid_out(&out);
        assert!(
            text.contains("2 moved, 3 not moved (2 mapped by other processes too, 1 no room"),
            "{text}"
        );
        assert!(text.contains("4 pages are parts"), "{text}");
        let whole = MoveResult { pages: 10, in_folios: 8, ..MoveResult::default() };
        assert_eq!(folios(&whole), "; 8 pages are in large folios, which move whole");
        let none = BTreeMap::from([(0, 3)]);
        assert_eq!(found_of_asked(&none, &BTreeMap::from([(1, 3)])), "N0 3 of 0, N1 0 of 3");
    }
}
