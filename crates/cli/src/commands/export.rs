//! `isotherm export`.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::output_file::{FirstError, OutputFile, create};
use isotherm::reading::{lost_text, open};
use isotherm_core::Thresholds;
use isotherm_record::{
    ExportError, Exported, ReadError, export_arrow, export_damo_json, export_parquet,
    export_perf_script, export_perfetto,
};

use crate::cli::{Export, ExportFormat, UsageError};
use crate::log::say;

/// Writes the record in another format.
pub fn run(o: &Export) -> Result<ExitCode> {
    let format = o.format.unwrap_or(ExportFormat::Arrow);
    // before the output is created
    let reader = open(&o.input.input())?;
    let exported = match format {
        ExportFormat::Parquet if o.output == Path::new("-") => {
            let text = "Parquet is a folder of files: give --output FOLDER";
            return Err(UsageError::new(text).into());
        }
        ExportFormat::Parquet => export_parquet(reader, &Thresholds::default(), &o.output)?,
        _ => to_file(o, format)?,
    };
    if let Some(torn) = exported.torn {
        say(format_args!("isotherm: {torn}"));
    }
    if exported.lost.places > 0 {
        say(format_args!("isotherm: {}", lost_text(&exported.lost)));
    }
    Ok(ExitCode::SUCCESS)
}

fn to_file(o: &Export, format: ExportFormat) -> Result<Exported> {
    let mut file = None;
    let mut out: Box<dyn Write> = if o.output == Path::new("-") {
        if io::stdout().is_terminal() && format != ExportFormat::PerfScript {
            let text = "standard output is a terminal, and this format is binary: give -o FILE, or pipe \
                 it into a program";
            return Err(UsageError::new(text).into());
        }
        Box::new(io::stdout().lock())
    } else {
        Box::new(file.insert(create(&o.output, &o.input.path)?))
    };
    let mut noting = FirstError::new(&mut out);
    let exported = export(o, format, BufWriter::new(&mut noting));
    // The original error, so that the caller can detect a closed pipe.
    if let Some(e) = noting.error {
        return Err(e).with_context(|| format!("cannot write {}", o.output.display()));
    }
    out.flush()?;
    drop(out);
    let exported = exported?;
    file.map_or(Ok(()), OutputFile::finish)
        .with_context(|| format!("cannot write {}", o.output.display()))?;
    Ok(exported)
}

fn export(o: &Export, format: ExportFormat, out: impl Write) -> Result<Exported, ExportError> {
    let reader = || {
        let path = o.input.path.clone();
        open(&o.input.input()).map_err(|e| ReadError::Io { path, source: io::Error::other(e) })
    };
    match format {
        ExportFormat::Arrow => export_arrow(reader()?, out),
        ExportFormat::Damo => export_damo_json(reader, out),
        ExportFormat::PerfScript => export_perf_script(reader()?, out),
        ExportFormat::Perfetto => export_perfetto(reader()?, &Thresholds::default(), out),
        ExportFormat::Parquet => export_parquet(reader()?, &Thresholds::default(), &o.output),
    }
}
