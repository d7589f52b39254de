//! Files that benches write.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Writes `value` as JSON to `path`. A regular file is replaced only once the new one is complete; if writing
/// fails, the previous file remains. A device or a pipe is written directly.
pub fn save_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let text = serde_json::to_string_pretty(value)? + "\n";
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        let mut file = File::options().write(true).open(path).with_context(cannot)?;
        return file.write_all(text.as_bytes()).with_context(cannot);
    }
    // A link stays one.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = place.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".bench.").permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(dir).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)?;
    file.persist(&place).map(drop).map_err(|e| e.error).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A value that fails to serialize.
    struct Broken;

    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("broken"))
        }
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        save_json(&path, &[1, 2]).unwrap();
        let before = File::open(&path).unwrap();
        assert!(save_json(&path, &Broken).is_err());
        save_json(&path, &[3]).unwrap();
        // A reader of the earlier file can read it to its end.
        let earlier: Vec<u8> = serde_json::from_reader(before).unwrap();
        let now: Vec<u8> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((earlier, now), (vec![1, 2], vec![3]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(save_json(&dir.path().join("no/such"), &[1]).is_err());
        save_json(Path::new("/dev/null"), &[1]).unwrap();
    }
}
