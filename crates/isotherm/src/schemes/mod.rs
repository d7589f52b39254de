//! Schemes in files: TOML, or one scheme per line.

mod convert;
mod text;
mod values;

pub(crate) use convert::WATERMARKS_INTERVAL;

use std::path::Path;
use std::time::Duration;

use isotherm_core::scheme::{ParseError, Scheme, parse};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use self::convert::{InvalidKey, default_name, scheme};
use self::text::{Among, File, SchemeText};
use crate::usage::UsageError;

pub use text::TARGETS;

/// An error in a file of schemes, and its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeFileError {
    /// not TOML, an unknown key, or a value that cannot be parsed
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// parsed, but invalid
    #[error("line {line}, column {column}: `{key}`: {what}")]
    Senseless {
        /// line, from 1
        line: usize,
        /// column, from 1, in characters
        column: usize,
        /// key, such as `quota.time`
        key: String,
        /// the error
        what: String,
    },
}

/// The format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemeSyntax {
    /// TOML
    Toml,
    /// one scheme per line
    Txt,
}

impl SchemeSyntax {
    /// The format of a file with this name.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|e| e == "toml") {
            SchemeSyntax::Toml
        } else {
            SchemeSyntax::Txt
        }
    }
}

/// Parses the schemes in a text and appends them to a copy of `before`. An age without a unit counts intervals
/// of length `interval`.
///
/// # Errors
/// If the text contains something that is not a scheme: the place of the error.
pub fn parse_as(
    form: SchemeSyntax,
    text: &str,
    interval: Duration,
    before: &[Scheme],
) -> Result<Vec<Scheme>, String> {
    match form {
        SchemeSyntax::Toml => read(text, interval, before).map_err(|e| e.to_string()),
        SchemeSyntax::Txt => lines(text, interval, before).map_err(|e| e.to_string()),
    }
}

/// Appends the schemes in a file to `before`. An age without a unit counts intervals of length `interval`.
///
/// # Errors
/// If the file does not exist, cannot be read, or contains something that is not a scheme: the place of the
/// error.
pub fn load(
    path: &Path,
    text: &str,
    interval: Duration,
    before: &mut Vec<Scheme>,
) -> Result<(), UsageError> {
    add(&path.display().to_string(), SchemeSyntax::of(path), text, interval, before)
}

/// Appends the schemes in `line`, the `n`-th scheme line on the command line, to `before`.
///
/// # Errors
/// If the line contains no scheme or an invalid one: the place of the error.
pub fn load_line(
    n: usize,
    line: &str,
    interval: Duration,
    before: &mut Vec<Scheme>,
) -> Result<(), UsageError> {
    let number = if n == 1 { String::new() } else { format!(" number {n}") };
    add(&format!("--scheme-line{number}"), SchemeSyntax::Txt, line, interval, before)
}

fn add(
    from: &str,
    form: SchemeSyntax,
    text: &str,
    interval: Duration,
    before: &mut Vec<Scheme>,
) -> Result<(), UsageError> {
    let named = |what| UsageError::new(format!("{from}: {what}"));
    let schemes = parse_as(form, text, interval, before).map_err(named)?;
    if schemes.is_empty() {
        return Err(named("it contains no scheme".to_owned()));
    }
    before.extend(schemes);
    Ok(())
}

/// The schemes in a TOML file that contains other tables too. No scheme may have the name `taken`. An age
/// without a unit counts intervals of length `interval`.
///
/// # Errors
/// If a scheme is invalid: the place of the error.
pub fn among(text: &str, interval: Duration, taken: &str) -> Result<Vec<Scheme>, SchemeFileError> {
    let file: Among = toml::from_str(text)?;
    all(file.scheme, text, interval, &[], Some(taken))
}

/// Parses the TOML format.
fn read(text: &str, interval: Duration, before: &[Scheme]) -> Result<Vec<Scheme>, SchemeFileError> {
    let file: File = toml::from_str(text)?;
    all(file.scheme, text, interval, before, None)
}

/// Parses schemes, one per line. None of them has a name of its own.
fn lines(text: &str, interval: Duration, before: &[Scheme]) -> Result<Vec<Scheme>, ParseError> {
    let mut all = before.to_vec();
    for mut scheme in parse(text, interval)? {
        scheme.name = default_name(&scheme.action, &all).into();
        all.push(scheme);
    }
    Ok(all.split_off(before.len()))
}

fn all(
    texts: Vec<SchemeText>,
    text: &str,
    interval: Duration,
    before: &[Scheme],
    taken: Option<&str>,
) -> Result<Vec<Scheme>, SchemeFileError> {
    let mut all = before.to_vec();
    for (n, t) in texts.into_iter().enumerate() {
        let senseless = |InvalidKey { key, what }| {
            let (line, column) = place(text, locate(text, &format!("scheme.{n}.{key}")));
            SchemeFileError::Senseless { line, column, key, what }
        };
        all.push(scheme(t, interval, &all, taken).map_err(senseless)?);
    }
    Ok(all.split_off(before.len()))
}

/// The byte at which the value of a key starts. In a key such as `scheme.0.quota.time`, a number is the index
/// of a list element. If the key does not exist, returns the byte for the innermost parent that exists.
fn locate(text: &str, key: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 0 };
    let mut at = root.span().start;
    let root = DeValue::Table(root.into_inner());
    let mut value = &root;
    for part in key.split('.') {
        let next = part.parse().map_or_else(|_| value.get(part), |i: usize| value.get(i));
        let Some(next) = next else { break };
        at = next.span().start;
        value = next.get_ref();
    }
    at
}

/// Line and column of a byte, both from 1.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
