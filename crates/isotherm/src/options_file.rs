//! Options in a TOML file, by their names on the command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::scheme::Scheme;
use toml::{Spanned, Value};

use crate::schemes;
use crate::usage::UsageError;

/// The key of the schemes in a file.
const SCHEMES: &str = "scheme";

/// The values that an option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionKind {
    /// none: the option is on or off
    Flag,
    /// one value
    One,
    /// one value or a list of values
    Several,
}

/// The contents of a file: options by their names, and schemes.
#[derive(Debug)]
pub struct OptionsFile {
    path: PathBuf,
    text: String,
    options: BTreeMap<String, FileOption>,
}

/// An option in a file.
#[derive(Debug)]
struct FileOption {
    /// the option as it would be typed
    args: Vec<String>,
    /// offset of its value in the file, in bytes
    at: usize,
}

impl OptionsFile {
    /// Reads the options. `kind` returns the kind of an option, or why there is none of this name; `check` checks
    /// one option as it would be typed.
    ///
    /// # Errors
    /// If an option is unknown or its value is invalid, with its line and column.
    pub fn read(
        path: &Path,
        text: String,
        kind: impl Fn(&str) -> Result<OptionKind, String>,
        check: impl Fn(&[String]) -> Result<(), String>,
    ) -> Result<Self, UsageError> {
        let read = toml::from_str::<BTreeMap<Spanned<String>, Spanned<Value>>>(&text);
        let values = read.map_err(|e| UsageError::new(format!("{}: {e}", path.display())))?;
        let mut file = OptionsFile { path: path.to_owned(), text, options: BTreeMap::new() };
        for (key, value) in values {
            let name = key.get_ref();
            if name == SCHEMES {
                continue;
            }
            let args = kind(name).and_then(|kind| args(name, kind, value.get_ref()));
            let args = args.map_err(|e| file.wrong(key.span().start, &e))?;
            check(&args).map_err(|e| file.wrong(value.span().start, &e))?;
            file.options.insert(name.clone(), FileOption { args, at: value.span().start });
        }
        Ok(file)
    }

    /// The number of options in the file.
    #[must_use]
    pub fn count(&self) -> usize {
        self.options.len()
    }

    /// The options as they would be typed, except for the `hidden` ones.
    pub fn args(&self, hidden: impl Fn(&str) -> bool) -> impl Iterator<Item = OsString> {
        let shown = self.options.iter().filter(move |(name, _)| !hidden(name));
        shown.flat_map(|(_, option)| option.args.iter().map(OsString::from))
    }

    /// Adds a place to an error about options: line and column of the first option that the error
    /// names, if the file has it and it is not `typed`. Else it adds only the path.
    #[must_use]
    pub fn placed(&self, e: UsageError, typed: &[OsString]) -> UsageError {
        let is_typed = |name: &str| {
            let long = format!("--{name}");
            let is_it = |word: &OsString| {
                let word = word.to_string_lossy();
                word.strip_prefix(&long)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            };
            typed.iter().any(is_it)
        };
        let is_in_name = |c: char| c.is_ascii_lowercase() || c == '-';
        let text = e.to_string();
        let named = text.split("--").skip(1).map(|rest| {
            let end = rest.find(|c| !is_in_name(c)).unwrap_or(rest.len());
            rest[..end].trim_end_matches('-')
        });
        let given = named.filter(|name| !is_typed(name)).find_map(|name| self.options.get(name));
        match given {
            Some(given) => self.wrong(given.at, &text),
            None => UsageError::new(format!("{}: {e}", self.path.display())),
        }
    }

    /// The schemes of the file. An age without a unit counts intervals of length `interval`. None may have the name `taken`, which belongs to the scheme made
    /// from options.
    ///
    /// # Errors
    /// If a scheme is invalid.
    pub fn schemes(&self, interval: Duration, taken: &str) -> Result<Vec<Scheme>, UsageError> {
        schemes::among(&self.text, interval, taken)
            .map_err(|e| UsageError::new(format!("{}: {e}", self.path.display())))
    }

    /// Checks that the options `lasting`, which cannot change while a service runs, are as in `before`.
    ///
    /// # Errors
    /// If one differs.
    pub fn check_change(&self, before: &OptionsFile, lasting: &[&str]) -> Result<(), UsageError> {
        let args = |config: &OptionsFile, name: &str| Some(config.options.get(name)?.args.clone());
        let changed = lasting.iter().find(|name| args(self, name) != args(before, name));
        let Some(&name) = changed else { return Ok(()) };
        let at = self.options.get(name).map_or(0, |given| given.at);
        Err(self.wrong(at, &format!("`{name}` cannot change while it runs: restart the service")))
    }

    fn wrong(&self, at: usize, what: &str) -> UsageError {
        let (line, column) = schemes::place(&self.text, at);
        UsageError::new(format!("{}: line {line}, column {column}: {what}", self.path.display()))
    }
}

/// An option as it would be typed.
fn args(name: &str, kind: OptionKind, value: &Value) -> Result<Vec<String>, String> {
    match (kind, value) {
        (OptionKind::Flag, Value::Boolean(true)) => Ok(vec![format!("--{name}")]),
        (OptionKind::Flag, Value::Boolean(false)) => Ok(Vec::new()),
        (OptionKind::Flag, _) => Err(format!("`{name}` must be true or false")),
        (OptionKind::Several, Value::Array(values)) => {
            values.iter().map(|value| arg_of(name, value)).collect()
        }
        _ => Ok(vec![arg_of(name, value)?]),
    }
}

fn arg_of(name: &str, value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        _ => return Err(format!("`{name}` requires a text or a number")),
    };
    Ok(format!("--{name}={text}"))
}
