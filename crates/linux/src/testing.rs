//! Helpers of several tests.

use std::path::Path;

/// A tree of files, as a machine in place of this one.
pub(crate) fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    files.into_iter().for_each(|(path, text)| put(root.path(), path, text));
    root
}

/// A file of it.
pub(crate) fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
