//! Schemes as files hold them: TOML, or one a line.

mod convert;
mod text;
mod values;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::scheme::{Scheme, parse};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::convert::scheme;
use self::text::{Among, File, SchemeText};
use crate::cli::UsageError;

pub use text::TARGETS;

/// What is wrong with a file of schemes, and where.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// no TOML, other keys than there are, or values that cannot be read
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// read, but senseless
    #[error("line {line}, column {column}: {what}")]
    Senseless {
        /// from 1
        line: usize,
        /// from 1, in characters
        column: usize,
        /// what
        what: String,
    },
}

/// How schemes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    Toml,
    /// one a line
    Txt,
}

impl Form {
    /// What is in a file of this name.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|e| e == "toml") { Form::Toml } else { Form::Txt }
    }
}

/// The schemes in a text; an age without a unit is in intervals of `interval`.
///
/// # Errors
/// If it holds what is no scheme: where.
pub fn parse_as(form: Form, text: &str, interval: Duration) -> Result<Vec<Scheme>, String> {
    match form {
        Form::Toml => read(text, interval).map_err(|e| e.to_string()),
        Form::Txt => parse(text, interval).map_err(|e| e.to_string()),
    }
}

/// The schemes in a file; an age without a unit is in intervals of `interval`.
///
/// # Errors
/// If there is none, it cannot be read, or holds what is no scheme: where.
pub fn load(path: &Path, text: &str, interval: Duration) -> Result<Vec<Scheme>, UsageError> {
    let schemes = parse_as(Form::of(path), text, interval);
    let named = |what| UsageError::new(format!("{}: {what}", path.display()));
    match schemes {
        Ok(schemes) if schemes.is_empty() => Err(named("there is no scheme in it".to_owned())),
        schemes => schemes.map_err(named),
    }
}

/// The schemes in a TOML file that holds other things as well; an age without a unit is in intervals of
/// `interval`.
///
/// # Errors
/// If one makes no sense: where.
pub fn among(text: &str, interval: Duration) -> Result<Vec<Scheme>, FileError> {
    let file: Among = toml::from_str(text)?;
    all(file.scheme, text, interval)
}

/// Reads the TOML form; an age without a unit is in intervals of `interval`.
fn read(text: &str, interval: Duration) -> Result<Vec<Scheme>, FileError> {
    let file: File = toml::from_str(text)?;
    all(file.scheme, text, interval)
}

fn all(
    texts: Vec<Spanned<SchemeText>>,
    text: &str,
    interval: Duration,
) -> Result<Vec<Scheme>, FileError> {
    let mut schemes: Vec<Scheme> = Vec::new();
    for spanned in texts {
        let at = spanned.span().start;
        let senseless = |what: String| {
            let (line, column) = place(text, at);
            FileError::Senseless { line, column, what }
        };
        schemes.push(scheme(spanned.into_inner(), interval, &schemes).map_err(senseless)?);
    }
    Ok(schemes)
}

/// Line and column of a byte, from 1.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
