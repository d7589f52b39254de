//! Names of folders.

use std::collections::{HashMap, HashSet};

/// Maximal depth of a folder. Paths of the kernel have at most 4096 bytes.
pub(super) const MAX_DEPTH: usize = 2048;

/// Folders by their identity in the kernel's memory.
#[derive(Debug, Default)]
pub struct Directories(HashMap<u64, Directory>);

#[derive(Debug)]
struct Directory {
    parent: u64,
    name: String,
}

impl Directories {
    pub(super) fn add(&mut self, id: u64, parent: u64, name: String) {
        self.0.insert(id, Directory { parent, name });
    }

    /// The folders that are not known yet, each once.
    pub(super) fn missing(&self, ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
        // Files of a folder often follow each other.
        let mut last = 0;
        let ids = ids.into_iter().filter(|id| std::mem::replace(&mut last, *id) != *id);
        let new = ids.filter(|id| *id != 0 && !self.0.contains_key(id));
        new.collect::<HashSet<_>>().into_iter().collect()
    }

    /// The path below the root of its file system, which begins with `/`; the root is `/`. `None` if it, or a folder
    /// above it, is not known.
    #[must_use]
    pub fn path(&self, id: u64) -> Option<String> {
        let mut names = Vec::new();
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            let folder = self.0.get(&at)?;
            // The root is its own parent.
            if folder.parent == at {
                names.push("");
                names.reverse();
                return Some(if names.len() == 1 { "/".into() } else { names.join("/") });
            }
            names.push(&folder.name);
            at = folder.parent;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root() {
        let mut d = Directories::default();
        for (id, parent, name) in
            [(1, 1, "/"), (2, 1, "usr"), (3, 2, "lib"), (5, 4, "lost"), (7, 6, ""), (6, 7, "")]
        {
            d.add(id, parent, name.into());
        }
        let path = |id| d.path(id);
        assert_eq!([path(1), path(2), path(3)].map(Option::unwrap), ["/", "/usr", "/usr/lib"]);
        assert_eq!((path(5), path(9)), (None, None));
        assert_eq!(path(7), None, "a circle");
        assert_eq!(d.missing([1, 9, 9, 0]), [9]);
    }
}
