//! The one-line form of schemes: `<min/max size> <min/max rate> <min/max age> <action>`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::definition::Scheme;
use super::error::SchemeError;
use super::pattern::{Pattern, hz_of_percent};
use crate::act::{Action, Destination, Destinations};
use crate::units;

/// A parse error with its position.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ParseError {
    /// line, from 1
    pub line: usize,
    /// column in characters, from 1
    pub column: usize,
    /// the error
    pub what: ParseErrorKind,
}

/// The kind of error in a line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// a missing word
    #[error(
        "{0} is missing: a scheme is `min-size max-size min-rate max-rate min-age max-age action`, e.g. \
         `4K null null 5 5s null pageout`"
    )]
    Missing(&'static str),
    /// an extra word
    #[error("`{0}` is too much: a scheme ends with its action, and nodes if that migrates")]
    Extra(String),
    /// an invalid size
    #[error("`{0}` is no size: write bytes, or e.g. 4K, 2M, 1.5G, null, min, max")]
    Size(String),
    /// an invalid rate
    #[error("`{0}` is no rate: write percent at 5 ms (5 or 5%), or 10Hz, null, min, max")]
    Rate(String),
    /// an invalid age
    #[error("`{0}` is no age: write e.g. 500ms, 5s, 2m, 1h, a number of intervals, null, min, max")]
    Age(String),
    /// an unknown action
    #[error(
        "`{0}` is no action: choose pageout, cold, willneed, hugepage, nohugepage, lru_prio, \
         lru_deprio, migrate_hot NODES, migrate_cold NODES or stat; of files: drop, prefetch or protect"
    )]
    Action(String),
    /// an action that only the process itself can request
    #[error(
        "a scheme cannot `{0}` memory: the kernel locks only the memory of the process that asks for it. isotherm \
         exec --advice FILE locks hot memory from inside, by the advice of isotherm report advice --json"
    )]
    FromInside(String),
    /// invalid nodes
    #[error("`{0}` names no nodes: write e.g. 1, or 0:2,1:1 for two pages of three on node 0")]
    Nodes(String),
    /// an invalid scheme
    #[error("{0}")]
    Scheme(SchemeError),
    /// too long: all input from outside has a limit
    #[error("more than {MAX_TEXT} bytes of schemes")]
    TooLong,
}

const MAX_TEXT: usize = 1 << 20;

/// Parses the schemes in `text`, one per line; `#` starts a comment. An age without a unit counts aggregation
/// intervals of length `interval`. A scheme gets the name of its action; further schemes with the same action
/// are named `pageout-2`, `pageout-3` and so on.
///
/// # Errors
/// The first syntax error or invalid scheme.
pub fn parse(text: &str, interval: Duration) -> Result<Vec<Scheme>, ParseError> {
    if text.len() > MAX_TEXT {
        return Err(ParseError { line: 1, column: 1, what: ParseErrorKind::TooLong });
    }
    let mut schemes: Vec<Scheme> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let mut words = Words::new(line, content);
        if words.is_empty() {
            continue;
        }
        let (pattern, action) = words.scheme(interval)?;
        let same = schemes.iter().filter(|s| s.action.name() == action.name()).count();
        let name = match same {
            0 => action.name().to_owned(),
            n => format!("{}-{}", action.name(), n + 1),
        };
        let scheme = Scheme::new(&name, pattern, action);
        scheme
            .check()
            .map_err(|e| words.wrong(words.column_of(e.key()), ParseErrorKind::Scheme(e)))?;
        schemes.push(scheme);
    }
    Ok(schemes)
}

/// Parses an action as written in schemes: `pageout`, or `migrate_cold 0:2,1:1`.
///
/// # Errors
/// If the action is unknown or names no nodes, or if text follows it.
pub fn parse_action(text: &str) -> Result<Action, ParseError> {
    let mut words = Words::new(1, text);
    let action = words.action()?;
    words.end().map(|()| action)
}

/// The words of a line with their columns.
struct Words<'a> {
    line: usize,
    end: usize,
    columns: Vec<usize>,
    words: std::vec::IntoIter<(usize, &'a str)>,
}

impl<'a> Words<'a> {
    fn new(line: usize, content: &'a str) -> Self {
        let code = content.split('#').next().unwrap_or_default();
        let column = |word: &str| {
            let at = word.as_ptr() as usize - code.as_ptr() as usize;
            code[..at].chars().count() + 1
        };
        let words: Vec<_> = code.split_whitespace().map(|w| (column(w), w)).collect();
        let columns = words.iter().map(|(column, _)| *column).collect();
        let end = code.trim_end().chars().count() + 1;
        Words { line, end, columns, words: words.into_iter() }
    }

    /// Column of the value that the TOML form calls `key`.
    fn column_of(&self, key: &str) -> usize {
        let word = match key {
            "rate" => 2,
            "age" => 4,
            "action" => 6,
            _ => 0,
        };
        self.columns.get(word).copied().unwrap_or(1)
    }

    fn is_empty(&self) -> bool {
        self.words.len() == 0
    }

    fn wrong(&self, column: usize, what: ParseErrorKind) -> ParseError {
        ParseError { line: self.line, column, what }
    }

    fn next(&mut self, what: &'static str) -> Result<(usize, &'a str), ParseError> {
        self.words.next().ok_or_else(|| self.wrong(self.end, ParseErrorKind::Missing(what)))
    }

    fn scheme(&mut self, interval: Duration) -> Result<(Pattern, Action), ParseError> {
        let size = |word: &str| units::size(word).ok();
        let size =
            self.range(["min-size", "max-size"], 0..=u64::MAX, size, ParseErrorKind::Size)?;
        let hz = self.range(
            ["min-rate", "max-rate"],
            0.0..=f64::INFINITY,
            parse_rate,
            ParseErrorKind::Rate,
        )?;
        let age = |word: &str| parse_age(word, interval);
        let ages = Duration::ZERO..=Duration::MAX;
        let age = self.range(["min-age", "max-age"], ages, age, ParseErrorKind::Age)?;
        let action = self.action()?;
        self.end().map(|()| (Pattern { size, hz, age }, action))
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.words.next() {
            Some((column, word)) => Err(self.wrong(column, ParseErrorKind::Extra(word.to_owned()))),
            None => Ok(()),
        }
    }

    /// Parses two words: minimum and maximum.
    fn range<T: Clone>(
        &mut self,
        names: [&'static str; 2],
        all: RangeInclusive<T>,
        read: impl Fn(&str) -> Option<T>,
        wrong: fn(String) -> ParseErrorKind,
    ) -> Result<RangeInclusive<T>, ParseError> {
        let mut bound = |name, unbounded: &T| {
            let (column, word) = self.next(name)?;
            match word.to_ascii_lowercase().as_str() {
                "null" => Ok(unbounded.clone()),
                "min" => Ok(all.start().clone()),
                "max" => Ok(all.end().clone()),
                _ => read(word).ok_or_else(|| self.wrong(column, wrong(word.to_owned()))),
            }
        };
        let least = bound(names[0], all.start())?;
        Ok(least..=bound(names[1], all.end())?)
    }

    fn action(&mut self) -> Result<Action, ParseError> {
        let (column, word) = self.next("the action")?;
        Ok(match word.to_ascii_lowercase().as_str() {
            "pageout" | "drop" => Action::PageOut,
            "cold" => Action::Cold,
            "willneed" | "prefetch" => Action::WillNeed,
            "hugepage" => Action::HugePage,
            "nohugepage" => Action::NoHugePage,
            "lru_prio" | "protect" => Action::LruPrio,
            "lru_deprio" => Action::LruDeprio,
            "migrate_hot" => Action::MigrateHot(self.nodes()?),
            "migrate_cold" => Action::MigrateCold(self.nodes()?),
            "stat" => Action::Stat,
            "lock" | "unlock" => {
                return Err(self.wrong(column, ParseErrorKind::FromInside(word.to_owned())));
            }
            _ => return Err(self.wrong(column, ParseErrorKind::Action(word.to_owned()))),
        })
    }

    /// Parses `1`, or `0:2,1:1` with weights.
    fn nodes(&mut self) -> Result<Destinations, ParseError> {
        let (column, word) = self.next("the node to migrate to")?;
        let node = |one: &str| {
            let (node, weight) = one.split_once(':').unwrap_or((one, "1"));
            Some(Destination { node: node.parse().ok()?, weight: weight.parse().ok()? })
        };
        let nodes: Option<Arc<[Destination]>> = word.split(',').map(node).collect();
        let nodes =
            nodes.ok_or_else(|| self.wrong(column, ParseErrorKind::Nodes(word.to_owned())))?;
        Ok(Destinations(nodes))
    }
}

/// Parses a rate as written in schemes, in Hz: `10Hz`, or percent at 5 ms. `None` if it is not a rate.
#[must_use]
pub fn parse_rate(word: &str) -> Option<f64> {
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if word[number.len()..].eq_ignore_ascii_case("hz") {
        return number.trim_end().parse().ok().filter(|hz: &f64| hz.is_finite() && *hz >= 0.0);
    }
    let percent: f64 = word.strip_suffix('%').unwrap_or(word).parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| hz_of_percent(percent))
}

/// Parses an age as written in schemes: a time, or a number of intervals. `None` if it is not an age.
#[must_use]
pub fn parse_age(word: &str, interval: Duration) -> Option<Duration> {
    match word.parse::<u32>() {
        Ok(intervals) => interval.checked_mul(intervals),
        Err(_) => units::with_units(word).ok(),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
