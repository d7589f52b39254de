//! Files that benches write.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use isotherm::output_file::OutputFile;
use serde::Serialize;

/// Writes `value` as JSON to `path`. An existing file is replaced only once the new one is complete.
pub fn save_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    let mut file = OutputFile::create(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.finish());
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

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
