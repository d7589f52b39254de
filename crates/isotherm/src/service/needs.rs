//! The figures that schemes use.

use std::sync::Arc;

use isotherm_core::scheme::{Goal, Scheme, Scope, WatermarkMetric};

use crate::schemes::TARGETS;

/// A figure, and its scope.
#[non_exhaustive]
pub enum RequiredMetric<'a> {
    /// resident memory, or the working set
    Scope(&'a Scope),
    /// major faults, and the working set
    Faults(&'a Scope),
    /// time for which tasks wait for memory
    Stalls(&'a Scope),
    /// free memory of the machine
    Free,
    /// the part of free memory that can form huge pages
    Fragmentation,
    /// the number in a file
    File(&'a Arc<str>),
}

/// All figures that `scheme` uses.
pub fn needs<'a>(scheme: &'a Scheme) -> Vec<RequiredMetric<'a>> {
    let of_goal = |goal: &'a Goal| match goal {
        Goal::Stalled { of, .. } => RequiredMetric::Stalls(of),
        Goal::Refaults { of, .. } => RequiredMetric::Faults(of),
        Goal::Resident { of, .. } => RequiredMetric::Scope(of),
        Goal::Free { .. } => RequiredMetric::Free,
        Goal::User { name, .. } => RequiredMetric::File(name),
    };
    let of_mark = |mark: &'a WatermarkMetric| match mark {
        WatermarkMetric::Free => RequiredMetric::Free,
        WatermarkMetric::Fragmentation => RequiredMetric::Fragmentation,
        WatermarkMetric::Stalled(of) => RequiredMetric::Stalls(of),
    };
    let marks = scheme.watermarks.iter().map(|w| of_mark(&w.metric));
    scheme.quota.goals.iter().map(of_goal).chain(marks).collect()
}

/// Whether the scope is the watched targets.
pub fn is_of_targets(scope: &Scope) -> bool {
    matches!(scope, Scope::Group(name) if **name == *TARGETS)
}
