//! `isotherm export`.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_record::{Reader, export_arrow};

use crate::cli::{Export, UsageError};

/// Writes the record as an Arrow IPC stream.
pub fn run(o: &Export) -> Result<ExitCode> {
    let reader = Reader::open(&o.input)?;
    let mut out: Box<dyn Write> = if o.output == Path::new("-") {
        if std::io::stdout().is_terminal() {
            let text =
                "an Arrow stream is not for a terminal: give -o FILE, or pipe it into a program";
            return Err(UsageError::new(text).into());
        }
        Box::new(std::io::stdout().lock())
    } else {
        let file = File::create(&o.output);
        Box::new(file.with_context(|| format!("cannot write {}", o.output.display()))?)
    };
    let exported = export_arrow(reader, BufWriter::new(&mut out))?;
    out.flush()?;
    if let Some(torn) = exported.torn {
        eprintln!("isotherm: {torn}");
    }
    Ok(ExitCode::SUCCESS)
}
