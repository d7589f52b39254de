//! The selection of targets by words, and the titles of reports.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_core::TargetId;
use isotherm_record::{RecordingHeader, TargetInfo};
use isotherm_report::{Options, RecordFilter, printable};

use super::{Head, ReadingError, RecordSelection};

/// Maximum number of targets to list if none matches.
const MAX_LISTED: usize = 20;

/// The options of a report of a part of a record.
///
/// # Errors
/// If no target matches.
pub fn options(part: &RecordSelection, head: &Head) -> Result<Options, ReadingError> {
    let (facts, targets) = (head.facts.as_ref(), head.targets.as_slice());
    let chosen = chosen(&part.targets, targets)?;
    let wanted = |t: &&TargetInfo| chosen.as_ref().is_none_or(|ids| ids.contains(&t.id));
    let shown: Vec<&TargetInfo> = targets.iter().filter(wanted).collect();
    let mut options = Options::titled(title(facts, &shown));
    options.filter = RecordFilter { time: part.time.clone(), addr: None, targets: chosen };
    options.labels = targets.iter().map(|t| (t.id, label(t))).collect();
    options.look = facts.map(|f| f.look.clone()).unwrap_or_default();
    options.missing = head.missing;
    options.gaps.clone_from(&head.gaps);
    Ok(options)
}

/// The targets that match any of `words`; `None` (all) if there are no words.
fn chosen(
    words: &[String],
    targets: &[TargetInfo],
) -> Result<Option<BTreeSet<TargetId>>, ReadingError> {
    let mut ids = BTreeSet::new();
    for word in words {
        let found = fitting(word, targets);
        if found.is_empty() {
            let (word, targets) = (word.clone(), list(targets));
            return Err(ReadingError::NoTarget { word, targets });
        }
        ids.extend(found);
    }
    Ok((!words.is_empty()).then_some(ids))
}

/// The only target that matches `word`, or the only target of the record.
///
/// # Errors
/// If no target or several targets match.
pub fn only(word: Option<&str>, targets: &[TargetInfo]) -> Result<TargetId, ReadingError> {
    let words: Vec<String> = word.map(str::to_owned).into_iter().collect();
    let all = || targets.iter().map(|t| t.id).collect();
    let ids = chosen(&words, targets)?.unwrap_or_else(all);
    match (ids.first(), ids.len()) {
        (Some(&id), 1) => Ok(id),
        _ => Err(ReadingError::SeveralTargets(list(targets))),
    }
}

/// The targets that match a word: a number is a pid, or if no target has it, the number of a
/// target; any other word is a part of a command line.
fn fitting(word: &str, targets: &[TargetInfo]) -> Vec<TargetId> {
    let ids = |fits: &dyn Fn(&TargetInfo) -> bool| -> Vec<TargetId> {
        targets.iter().filter(|t| fits(t)).map(|t| t.id).collect()
    };
    let Ok(number) = word.parse::<u32>() else { return ids(&|t| t.command.contains(word)) };
    let by_pid = ids(&|t| t.pid == Some(number));
    if by_pid.is_empty() { ids(&|t| t.id == TargetId(number)) } else { by_pid }
}

fn list(targets: &[TargetInfo]) -> String {
    let all: BTreeMap<TargetId, String> = targets.iter().map(|t| (t.id, label(t))).collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    let named: Vec<String> = all
        .iter()
        .take(MAX_LISTED)
        .map(|(id, label)| format!("{}: {}", id.0, printable(label)))
        .collect();
    let more = all.len().saturating_sub(MAX_LISTED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn title(facts: Option<&RecordingHeader>, targets: &[&TargetInfo]) -> String {
    let first = targets.first().map_or("a process", |t| short(t));
    let count = targets.iter().map(|t| t.id).collect::<BTreeSet<_>>().len();
    let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    // An imported record may have no machine.
    let known = facts.filter(|f| !f.host.is_empty());
    let on = known.map(|f| format!(" on {}, Linux {}", f.host, f.kernel)).unwrap_or_default();
    format!("{first}{others}{on}")
}

fn label(t: &TargetInfo) -> String {
    match t.pid {
        Some(pid) => format!("{} (pid {pid})", short(t)),
        None => short(t).to_owned(),
    }
}

/// The short name of a target. A target that is no process has a name, not a command line.
fn short(t: &TargetInfo) -> &str {
    if t.pid.is_some() { program(&t.command) } else { &t.command }
}

/// The name of the program in a command line: `/usr/bin/redis-server *:0` is `redis-server`.
pub(crate) fn program(command: &str) -> &str {
    let word = command.split_whitespace().next().unwrap_or(command);
    word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<TargetInfo> {
        let of = |id, pid, command: &str| TargetInfo {
            id: TargetId(id),
            pid: Some(pid),
            command: command.into(),
        };
        vec![
            of(0, 70, "/usr/bin/redis-server *:0"),
            of(1, 71, "postgres: writer"),
            of(2, 1, "init"),
        ]
    }

    fn ids(words: &[&str]) -> Result<Option<Vec<u32>>, String> {
        let words: Vec<String> = words.iter().map(|&w| w.to_owned()).collect();
        let chosen = chosen(&words, &targets()).map_err(|e| e.to_string())?;
        Ok(chosen.map(|ids| ids.into_iter().map(|id| id.0).collect()))
    }

    #[test]
    fn names_of_programs() {
        assert_eq!(program("/usr/bin/redis-server *:0"), "redis-server");
        assert_eq!(program("postgres: writer process"), "postgres:");
        assert_eq!(program("/"), "/");
    }

    #[test]
    fn a_target_is_a_pid_a_part_of_a_command_or_a_number() {
        assert_eq!(ids(&[]), Ok(None));
        assert_eq!(ids(&["71"]), Ok(Some(vec![1])));
        assert_eq!(ids(&["1"]), Ok(Some(vec![2])), "a pid before a number");
        assert_eq!(ids(&["0"]), Ok(Some(vec![0])));
        assert_eq!(ids(&["writer", "redis"]), Ok(Some(vec![0, 1])));
        assert_eq!(only(Some("redis"), &targets()).ok(), Some(TargetId(0)));
        assert_eq!(only(None, &targets()[1..2]).ok(), Some(TargetId(1)));
        assert!(only(None, &targets()).unwrap_err().to_string().contains("--target"));
        let error = ids(&["writer", "mysql"]).unwrap_err();
        for part in
            ["mysql", "0: redis-server (pid 70)", "1: postgres: (pid 71)", "2: init (pid 1)"]
        {
            assert!(error.contains(part), "{error}");
        }
    }
}
