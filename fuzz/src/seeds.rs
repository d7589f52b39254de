//! Writes records with uncompressed payloads, from which `record_messages` starts: `seeds FOLDER RECORD...`.

use std::path::Path;
use std::{env, fs, io};

// It calls nothing of libFuzzer, but is instrumented as the targets are, and the instrumentation calls libFuzzer.
use libfuzzer_sys as _;

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let folder = args.next().ok_or_else(|| io::Error::other("usage: seeds FOLDER RECORD..."))?;
    fs::create_dir_all(&folder)?;
    for record in args {
        let name = Path::new(&record).file_name().unwrap_or_default();
        fs::write(Path::new(&folder).join(name), isotherm_fuzz::unpacked(&fs::read(&record)?))?;
    }
    Ok(())
}
