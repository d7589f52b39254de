//! Names of mappings, as small indices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use isotherm_core::{Mapping, MappingKind, TargetId, TargetView};

/// Maximum number of different names; further ones share one. A limit, because records come from outside.
const MAX_NAMES: usize = 10_000;
/// Maximum number of targets whose mappings are kept between snapshots.
const MAX_CACHED: usize = 256;

/// Index of [`NameIndex::get`] for memory without a mapping.
pub(crate) const NO_MAPPING: usize = 0;
const UNNAMED_MAPPING: usize = 1;

/// Mappings and the indices of their names.
type Named = (Arc<Vec<Mapping>>, Arc<[usize]>);

/// Gives every name an index.
#[derive(Debug)]
pub(crate) struct NameIndex {
    names: Vec<Arc<str>>,
    index: HashMap<Arc<str>, usize>,
    last: BTreeMap<TargetId, Named>,
}

impl NameIndex {
    pub(crate) fn new() -> Self {
        let names = vec!["(no mapping known)".into(), "(more names)".into()];
        NameIndex { names, index: HashMap::new(), last: BTreeMap::new() }
    }

    /// The name with an index.
    pub(crate) fn get(&self, index: usize) -> &str {
        self.names.get(index).map_or("", |n| n)
    }

    /// The index of the name of each mapping of a target. The result is kept, because mappings rarely change
    /// between snapshots.
    pub(crate) fn of(&mut self, view: &TargetView) -> Arc<[usize]> {
        if let Some((mappings, ids)) = self.last.get(&view.id)
            && (Arc::ptr_eq(mappings, &view.mappings) || *mappings == view.mappings)
        {
            return ids.clone();
        }
        let ids: Arc<[usize]> = view.mappings.iter().map(|m| self.index(m)).collect();
        if self.last.len() >= MAX_CACHED {
            self.last.clear();
        }
        self.last.insert(view.id, (view.mappings.clone(), ids.clone()));
        ids
    }

    fn index(&mut self, m: &Mapping) -> usize {
        let name = label_of(m);
        if let Some(&index) = self.index.get(name) {
            return index;
        }
        if self.names.len() >= MAX_NAMES {
            return UNNAMED_MAPPING;
        }
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.index.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }
}

/// The name of a mapping, also if the kernel gives it none: `anonymous`.
#[must_use]
pub fn label_of(m: &Mapping) -> &str {
    match (&*m.name, m.kind) {
        ("", MappingKind::Anonymous) => "anonymous",
        ("", MappingKind::Heap) => "[heap]",
        ("", MappingKind::Stack) => "[stack]",
        ("", MappingKind::File) => "(unnamed file)",
        ("", MappingKind::Special) => "(special)",
        ("", MappingKind::Physical) => "(physical memory)",
        (name, _) => name,
    }
}

/// The last part of a path: `libc.so.6`.
#[must_use]
pub fn short(name: &str) -> &str {
    match name.strip_prefix('/').and_then(|n| n.rsplit('/').next()) {
        Some(last) if !last.is_empty() => last,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;

    #[test]
    fn paths_are_shortened_and_brackets_are_not() {
        for (name, text) in [
            ("/usr/lib/libc.so.6", "libc.so.6"),
            ("/dev/zero (deleted)", "zero (deleted)"),
            ("[heap]", "[heap]"),
            ("anon_inode:[io_uring]", "anon_inode:[io_uring]"),
            ("/", "/"),
        ] {
            assert_eq!(short(name), text);
        }
    }

    #[test]
    fn equal_names_share_an_index_over_targets() {
        let mut names = NameIndex::new();
        let maps = |first: &str| {
            vec![scene::mapping(0x1000, 0x2000, first), scene::mapping(0x3000, 0x4000, "[heap]")]
        };
        let a = names.of(&scene::target(0, maps("/lib/a.so"), vec![]));
        let b = names.of(&scene::target(1, maps(""), vec![]));
        assert_eq!(a[1], b[1]);
        assert_eq!((names.get(a[0]), names.get(b[0])), ("/lib/a.so", "anonymous"));
    }

    #[test]
    fn names_beyond_the_limit_share_one() {
        let mut names = NameIndex::new();
        let maps = (0..MAX_NAMES as u64 + 5)
            .map(|i| scene::mapping(i << 12, (i + 1) << 12, &format!("/f{i}")))
            .collect();
        let ids = names.of(&scene::target(0, maps, vec![]));
        assert_eq!(names.get(ids[0]), "/f0");
        assert_eq!(names.get(*ids.last().unwrap()), "(more names)");
    }
}
