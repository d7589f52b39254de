//! Output of reports: the destination and the format.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::output_file::create;
use isotherm_report::{GridSize, Picture, RenderError, Style, json};

use crate::cli::{Selection, UsageError};
use crate::log::say;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    Text,
    Json,
    Png,
    Svg,
}

impl OutputFormat {
    pub fn is_picture(self) -> bool {
        matches!(self, OutputFormat::Png | OutputFormat::Svg)
    }
}

/// The destination and the format of a report.
pub struct Output<'a> {
    form: OutputFormat,
    /// standard output if `None`
    path: Option<&'a Path>,
    input: &'a Path,
}

impl<'a> Output<'a> {
    /// Chooses the format by the name of the file, before anything is read.
    pub fn new(output: Option<&'a Path>, selection: &'a Selection) -> Result<Self, UsageError> {
        Output::of(output, &selection.part.input.path, selection.shown.json)
    }

    /// The same for a report of the record at `input`.
    pub fn of(
        output: Option<&'a Path>,
        input: &'a Path,
        as_json: bool,
    ) -> Result<Self, UsageError> {
        let path = output.filter(|path| *path != Path::new("-"));
        let form = match (path, output) {
            _ if as_json => OutputFormat::Json,
            (Some(path), _) => by_name(path)?,
            (None, Some(_)) if !std::io::stdout().is_terminal() => OutputFormat::Png,
            _ => OutputFormat::Text,
        };
        Ok(Output { form, path, input })
    }

    /// A picture of figures that are not from a record, in the format of the file's name.
    pub fn picture(path: &'a Path) -> Result<Self, UsageError> {
        Ok(Output { form: by_name(path)?, path: Some(path), input: Path::new("") })
    }

    pub fn form(&self) -> OutputFormat {
        self.form
    }

    /// The file to write; `None` for standard output.
    pub fn path(&self) -> Option<&Path> {
        self.path
    }

    /// Writes figures in the chosen format.
    pub fn write(
        &self,
        figures: &impl serde::Serialize,
        text: impl FnOnce() -> String,
        picture: impl FnOnce() -> Result<Picture, RenderError>,
    ) -> Result<ExitCode> {
        let bytes = match self.form {
            OutputFormat::Text => text().into_bytes(),
            OutputFormat::Json => (json(figures)? + "\n").into_bytes(),
            OutputFormat::Png => picture()?.png()?,
            OutputFormat::Svg => picture()?.svg()?.into_bytes(),
        };
        let Some(path) = self.path else { return print(&bytes) };
        write(path, self.input, &bytes)
    }
}

/// Writes a report of the record at `input` to a file.
pub fn write(path: &Path, input: &Path, bytes: &[u8]) -> Result<ExitCode> {
    let mut file = create(path, input)?;
    let written = file.write_all(bytes).and_then(|()| file.finish());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn by_name(path: &Path) -> Result<OutputFormat, UsageError> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("png") => Ok(OutputFormat::Png),
        Some("svg") => Ok(OutputFormat::Svg),
        _ => Err(UsageError::new(format!(
            "{} does not determine the format of the picture: choose a name that ends in .png or .svg",
            path.display()
        ))),
    }
}

/// Writes to standard output.
pub fn print(bytes: &[u8]) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints figures as JSON, or as text.
pub fn show(
    as_json: bool,
    figures: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<ExitCode> {
    let text = if as_json { json(figures)? + "\n" } else { text() };
    print(text.as_bytes())
}

/// The number of cells that fit the terminal.
pub fn terminal_shape() -> GridSize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.filter(|s| s.ws_col > 0 && s.ws_row > 0);
    let (columns, rows) = size.map_or((100, 40), |s| (s.ws_col.into(), s.ws_row.into()));
    // One line is for the prompt.
    GridSize::terminal(columns, rows - 1)
}

/// The capabilities of the terminal.
pub fn style() -> Style {
    let var = |name| std::env::var(name).unwrap_or_default();
    if !std::io::stdout().is_terminal() || !var("NO_COLOR").is_empty() || var("TERM") == "dumb" {
        Style::Plain
    } else if ["truecolor", "24bit"].contains(&var("COLORTERM").as_str()) {
        Style::TrueColor
    } else {
        Style::Ansi256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_picture_says_its_form() {
        let form = |name: &str| by_name(Path::new(name));
        assert!(matches!(form("a/b.png"), Ok(OutputFormat::Png)));
        assert!(matches!(form("b.SVG"), Ok(OutputFormat::Svg)));
        for name in ["b.jpeg", "png", ".svg", "b"] {
            let text = form(name).unwrap_err().to_string();
            assert!(text.contains(".png or .svg"), "{name}: {text}");
        }
    }
}
