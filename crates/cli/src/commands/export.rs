//! `isotherm export`.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_record::export_arrow;

use super::{Output, create, lost_text, open};
use crate::cli::{Export, UsageError};
use crate::log::say;

/// Writes the record as an Arrow IPC stream.
pub fn run(o: &Export) -> Result<ExitCode> {
    let reader = open(&o.input)?;
    let mut file = None;
    let mut out: Box<dyn Write> = if o.output == Path::new("-") {
        if io::stdout().is_terminal() {
            let text = "standard output is a terminal, and an Arrow stream is binary: give -o FILE, or \
                 pipe it into a program";
            return Err(UsageError::new(text).into());
        }
        Box::new(io::stdout().lock())
    } else {
        Box::new(file.insert(create(&o.output, &o.input.path)?))
    };
    let mut noting = Noting { out: &mut out, error: None };
    let exported = export_arrow(reader, BufWriter::new(&mut noting));
    // The original error, so that the caller can detect a closed pipe.
    if let Some(e) = noting.error {
        return Err(e).with_context(|| format!("cannot write {}", o.output.display()));
    }
    out.flush()?;
    drop(out);
    let exported = exported?;
    file.map_or(Ok(()), Output::finish)
        .with_context(|| format!("cannot write {}", o.output.display()))?;
    if let Some(torn) = exported.torn {
        say(format_args!("isotherm: {torn}"));
    }
    if exported.lost.places > 0 {
        say(format_args!("isotherm: {}", lost_text(&exported.lost)));
    }
    Ok(ExitCode::SUCCESS)
}

/// A writer that keeps the first error of writing.
struct Noting<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Noting<W> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| {
            let kind = e.kind();
            if kind != io::ErrorKind::Interrupted {
                self.error.get_or_insert(e);
            }
            kind.into()
        })
    }
}

impl<W: Write> Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.note(result)
    }
}
