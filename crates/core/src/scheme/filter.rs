//! Filters that select parts of regions, without information about individual pages.

use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeSet;

use super::error::SchemeError;
use super::metrics::Metrics;
use crate::act::PageFilter;
use crate::call::TargetId;
use crate::ops::{Mapping, MappingKind};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::snapshot::TargetView;

/// Selects parts of regions. The first filter that matches a part decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// the property that the filter checks
    pub kind: FilterKind,
    /// whether the filter matches parts with the property, or parts without it
    pub matching: bool,
    /// whether matching parts are allowed; a [`PageFilter`] does not apply to parts that a filter has
    /// allowed, as in the kernel
    pub allow: bool,
}

/// The property that a [`Filter`] checks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterKind {
    /// these addresses, page-aligned
    Addresses(AddrRange),
    /// this target
    Target(TargetId),
    /// the process with this pid, from [`Metrics::processes`]
    Pid(i32),
    /// a process with this name, from [`Metrics::processes`]
    Comm(Arc<str>),
    /// a process in this cgroup or in one below it, from [`Metrics::cgroups`]
    Cgroup(Arc<str>),
    /// the kind of the mapping
    Mapping(MappingKind),
    /// the exact name of the mapping
    Name(Arc<str>),
    /// a prefix of the name of the mapping
    NamePrefix(Arc<str>),
}

/// The parts of a region that filters do not reject, sorted.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// allowed by a filter: page filters do not apply
    pub allowed: RangeSet<u64>,
    /// matched by no filter
    pub undecided: RangeSet<u64>,
}

/// The parts of `range` that `filters` do not reject. Parts that no filter matches are allowed, unless the
/// last filter allows and there is no page filter.
pub(super) fn parts(
    filters: &[Filter],
    page_filters: &[PageFilter],
    range: AddrRange,
    view: &TargetView,
    metrics: &Metrics,
) -> Parts {
    let mut parts = Parts::default();
    parts.undecided.extend(range.non_empty());
    for filter in filters {
        let held = filter.kind.held(range, view, metrics);
        let answers = if filter.matching { held } else { others(&held, range) };
        let decided: Vec<Range<u64>> = parts.undecided.intersection(&answers).collect();
        for r in decided {
            parts.undecided.remove(r.clone());
            if filter.allow {
                parts.allowed.insert(r);
            }
        }
    }
    if page_filters.is_empty() && filters.last().is_some_and(|f| f.allow) {
        parts.undecided.clear();
    }
    parts
}

/// The parts of `range` that are not in `held`.
fn others(held: &RangeSet<u64>, range: AddrRange) -> RangeSet<u64> {
    range.non_empty().iter().flat_map(|r| held.gaps(r).collect::<Vec<_>>()).collect()
}

impl FilterKind {
    /// The parts of `range` with this property.
    fn held(&self, range: AddrRange, view: &TargetView, metrics: &Metrics) -> RangeSet<u64> {
        let all = |yes: bool| if yes { range.non_empty() } else { None }.into_iter().collect();
        let of_mappings = |are_such: &dyn Fn(&Mapping) -> bool| {
            let from = view.mappings.partition_point(|m| m.range.end <= range.start);
            let here = view.mappings[from..].iter().take_while(|m| m.range.start < range.end);
            here.filter(|m| are_such(m))
                .filter_map(|m| m.range.intersect(&range)?.non_empty())
                .collect()
        };
        let process = || metrics.processes.get(&view.id);
        match self {
            FilterKind::Addresses(asked) => {
                asked.intersect(&range).and_then(|r| r.non_empty()).into_iter().collect()
            }
            FilterKind::Target(id) => all(view.id == *id),
            FilterKind::Pid(pid) => all(process().is_some_and(|p| p.pid == *pid)),
            FilterKind::Comm(comm) => all(process().is_some_and(|p| p.comm == *comm)),
            FilterKind::Cgroup(path) => {
                all(metrics.cgroups.get(&view.id).is_some_and(|of| is_below(of, path)))
            }
            FilterKind::Mapping(kind) => of_mappings(&|m| m.kind == *kind),
            FilterKind::Name(name) => of_mappings(&|m| m.name == *name),
            FilterKind::NamePrefix(prefix) => of_mappings(&|m| m.name.starts_with(&**prefix)),
        }
    }

    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let whole = |addr: u64| addr.is_multiple_of(PAGE_SIZE);
        match self {
            FilterKind::Addresses(r) if r.is_empty() || !whole(r.start) || !whole(r.end) => {
                Err(SchemeError::Addresses(*r))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the cgroup at `path` is the one at `of`, or below it.
fn is_below(path: &str, of: &str) -> bool {
    let of = of.trim_end_matches('/');
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
