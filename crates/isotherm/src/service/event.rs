//! One action, or one skipped match: as a line of the log, and as text.

use std::io::{self, BufRead, Read};
use std::iter;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isotherm_core::scheme::{ActionEvent, Outcome};
use isotherm_core::{Failure, Mapping, Nanos, Snapshot};
use isotherm_record::TargetInfo;
use isotherm_report::{bytes, printable};
use serde::{Deserialize, Serialize};

/// Maximum length of a line of a log that is read, in bytes. A service writes lines of some KiB.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A line of the log: `docs/abi/testing/audit-log.md`.
#[derive(Debug, Serialize)]
pub struct LogLine<'a> {
    time: String,
    scheme: &'a str,
    action: &'a str,
    pid: Option<u32>,
    command: &'a str,
    mapping: &'a str,
    kind: Option<&'static str>,
    start: String,
    end: String,
    bytes: u64,
    hz: f64,
    age_seconds: f64,
    score: f64,
    window: u64,
    outcome: &'static str,
    tried: u64,
    applied: u64,
    passed: u64,
    took_us: u64,
    why: Option<&'static str>,
}

impl<'a> LogLine<'a> {
    /// The line for `e`, which resulted from `s`; `of` describes its target, if known.
    pub fn new(e: &'a ActionEvent, s: &'a Snapshot, of: Option<&'a TargetInfo>, dry: bool) -> Self {
        let mapping = mapping(e, s);
        let (outcome, done, why) = match e.outcome {
            Outcome::Acted(done) if dry => ("would_act", done, None),
            Outcome::Acted(done) => ("acted", done, done.failure.map(failure)),
            Outcome::Passed(why) => ("passed", Default::default(), Some(why.name())),
        };
        LogLine {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            scheme: &e.scheme,
            action: e.action.name(),
            pid: of.and_then(|t| t.pid),
            command: of.map_or("", |t| &t.command),
            mapping: mapping.map_or("", |m| &m.name),
            kind: mapping.map(|m| m.kind.name()),
            start: format!("{:#x}", e.range.start),
            end: format!("{:#x}", e.range.end),
            bytes: e.range.len(),
            hz: e.hz,
            age_seconds: e.age.as_secs_f64(),
            score: e.score,
            window: e.window,
            outcome,
            tried: done.tried,
            applied: done.applied,
            passed: done.passed,
            took_us: u64::try_from(done.took.as_micros()).unwrap_or(u64::MAX),
            why,
        }
    }

    /// Whether to print it: something was or would be done, or an option asks for skipped matches too.
    pub fn is_reported(&self) -> bool {
        self.applied > 0 || self.outcome == "passed"
    }

    /// The event as text, for people; `begin` is the start of the service.
    pub fn words(&self, at: Nanos, begin: Nanos) -> String {
        let seconds = at.since(begin).as_secs_f64();
        let what = match (self.outcome, self.why) {
            ("passed", why) => format!("not {}: {}", self.action, why.unwrap_or_default()),
            _ => format!("{} {} of {}", self.action, bytes(self.applied), bytes(self.bytes)),
        };
        let command = printable(self.command);
        let of = self.pid.map_or_else(String::new, |pid| format!(" of {pid} {command}"));
        let mapping = if self.mapping.is_empty() { self.kind.unwrap_or("") } else { self.mapping };
        let mapping = printable(mapping);
        let age = Duration::from_secs_f64(self.age_seconds).as_secs();
        format!(
            "{seconds:8.1} s  {}: {what}{of}, {}..{} {mapping}, {:.2} Hz for {age} s",
            self.scheme, self.start, self.end, self.hz,
        )
    }
}

/// An action that a log reports.
#[derive(Debug, Deserialize)]
pub struct LoggedAction {
    time: String,
    /// name of the scheme
    pub scheme: String,
    /// its action
    pub action: String,
    /// the process; `None` if it was no longer watched
    pub pid: Option<u32>,
    outcome: String,
    /// bytes that the action was applied to
    pub applied: u64,
}

impl LoggedAction {
    /// When it was logged, on the wall clock, since 1970 (UTC).
    #[must_use]
    pub fn since_1970(&self) -> Option<Duration> {
        humantime::parse_rfc3339(&self.time).ok()?.duration_since(UNIX_EPOCH).ok()
    }
}

/// The actions of a log that were applied to memory. All other lines are left out, also those that were cut.
pub fn logged_actions(mut log: impl BufRead) -> impl Iterator<Item = io::Result<LoggedAction>> {
    let action = |line: Vec<u8>| {
        let action: LoggedAction = serde_json::from_slice(&line).ok()?;
        (action.outcome == "acted" && action.applied > 0).then_some(action)
    };
    let lines = iter::from_fn(move || next_line(&mut log).transpose());
    lines.filter_map(move |line| line.map(action).transpose())
}

/// The next line, with its end; an empty one in the place of a line that is too long. `None` at the end of the log.
fn next_line(log: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let length = log.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if length as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
        line = Vec::new();
        log.skip_until(b'\n')?;
    }
    Ok((length > 0).then_some(line))
}

/// The mapping that contains the start of the range.
fn mapping<'a>(e: &ActionEvent, s: &'a Snapshot) -> Option<&'a Mapping> {
    let view = s.targets.iter().find(|view| view.id == e.target)?;
    let at = view.mappings.partition_point(|m| m.range.end <= e.range.start);
    view.mappings.get(at).filter(|m| m.range.start <= e.range.start)
}

fn failure(failure: Failure) -> &'static str {
    match failure {
        Failure::Gone => "gone",
        Failure::NoRoom => "no_room",
        Failure::Busy => "busy",
        Failure::Refused => "refused",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LogLine<'_> = LogLine {
        time: String::new(),
        scheme: "cold",
        action: "pageout",
        pid: Some(7),
        command: "\u{1b}]0;x\u{7} sh",
        mapping: "/tmp/\u{1b}[2J\n\u{202e}a",
        kind: None,
        start: String::new(),
        end: String::new(),
        bytes: 4096,
        hz: 0.0,
        age_seconds: 9.0,
        score: 1.0,
        window: 0,
        outcome: "would_act",
        tried: 4096,
        applied: 4096,
        passed: 0,
        took_us: 0,
        why: None,
    };

    /// Found by an audit: `run --dry-run` printed the names of other users' processes and files as they were.
    #[test]
    fn a_name_does_not_steer_the_terminal() {
        let line = LogLine { start: "0x1000".to_owned(), end: "0x2000".to_owned(), ..LINE };
        let words = line.words(Nanos(2_000_000_000), Nanos(0));
        assert_eq!(words, printable(&words));
        assert!(words.contains("]0;x") && words.contains("0x1000..0x2000 /tmp/"), "{words}");
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let line = |outcome, applied| {
            let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(1500));
            let line = LogLine { time: time.to_string(), outcome, applied, ..LINE };
            serde_json::to_string(&line).unwrap()
        };
        let aim =
            r#"{"time":"2026-11-01T00:00:00.000Z","scheme":"cold","action":"aim","cgroup":null}"#;
        let lines = [
            line("acted", 8192),
            line("would_act", 8192),
            line("acted", 0),
            aim.to_owned(),
            "{\"time\":\"20".to_owned(),
            line("acted", 4096),
        ];
        let log = lines.join("\n");
        let found: Vec<_> = logged_actions(log.as_bytes()).map(Result::unwrap).collect();
        let [first, last] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.applied, last.applied), (8192, 4096));
        assert_eq!((&*first.scheme, &*first.action, first.pid), ("cold", "pageout", Some(7)));
        assert_eq!(first.since_1970(), Some(Duration::from_millis(1500)));
    }

    /// Found by a review: a large file without line ends was collected until memory ended.
    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let line = |applied, padding| {
            let line = LogLine { outcome: "acted", applied, ..LINE };
            serde_json::to_string(&line).unwrap() + &" ".repeat(padding)
        };
        let max = MAX_LINE_BYTES as usize;
        let log = [line(1, max), line(2, 0)].join("\n");
        let found = logged_actions(log.as_bytes()).map(|action| action.unwrap().applied);
        assert_eq!(found.collect::<Vec<_>>(), [2]);
    }
}
