//! The results of the guests as a table.

use std::time::Duration;

/// The result of a scenario on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// as expected
    Ok,
    /// the unexpected results, one per line
    Failed(Vec<String>),
    /// the reason for not running it, and a remedy
    NotTried(String),
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioRow {
    /// its name
    pub scenario: String,
    /// the release of the kernel, or its series
    pub kernel: String,
    /// its result
    pub verdict: Verdict,
    /// time from boot to end
    pub took: Duration,
    /// messages of the guest, one per line
    pub seen: Vec<String>,
}

impl ScenarioRow {
    /// Whether it has failed.
    pub fn failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }

    /// A line of the table, and one for each further message.
    pub fn lines(&self) -> String {
        let seen = self.seen.iter();
        let (word, lines): (_, Vec<&String>) = match &self.verdict {
            Verdict::Ok => ("ok", seen.collect()),
            Verdict::Failed(why) => ("FAILED", why.iter().chain(seen).collect()),
            Verdict::NotTried(why) => ("-", vec![why]),
        };
        let mut text = row(&self.scenario, &self.kernel, word, &seconds(self.took));
        for (i, line) in lines.iter().enumerate() {
            let before = if i == 0 { String::new() } else { row("", "", "", "") };
            text += &format!("{before}{line}\n");
        }
        if lines.is_empty() { text + "\n" } else { text }
    }
}

/// The head of the table.
pub fn head() -> String {
    row("scenario", "kernel", "", "seconds") + "seen\n"
}

fn row(scenario: &str, kernel: &str, word: &str, seconds: &str) -> String {
    format!("{scenario:<20} {kernel:<30} {word:<6} {seconds:>7}  ")
}

fn seconds(took: Duration) -> String {
    if took.is_zero() { String::new() } else { format!("{:.1}", took.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_before_what_was_seen() {
        let outcome = ScenarioRow {
            scenario: "record".to_owned(),
            kernel: "6.12".to_owned(),
            verdict: Verdict::Failed(vec!["no record".to_owned()]),
            took: Duration::from_millis(1250),
            seen: vec!["by bpf".to_owned()],
        };
        let lines = outcome.lines();
        let words: Vec<Vec<&str>> = lines.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["record", "6.12", "FAILED", "1.2", "no", "record"]);
        assert_eq!(words[1], ["by", "bpf"]);
        assert_eq!(lines.find("no record"), head().find("seen"));
    }
}
