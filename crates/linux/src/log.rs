//! Keeps the messages of libbpf for error messages instead of printing them.

use std::sync::Mutex;

use libbpf_rs::PrintLevel;

/// The last lines, so that a verifier log cannot fill memory.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
const KEPT_LINES: usize = 12;

/// Keeps warnings from now on, and forgets older ones.
pub(crate) fn quiet() {
    if let Ok(mut messages) = MESSAGES.lock() {
        messages.clear();
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

fn keep(_: PrintLevel, text: String) {
    if let Ok(mut messages) = MESSAGES.lock() {
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        messages.extend(lines.map(|l| l.chars().take(200).collect()));
        let excess = messages.len().saturating_sub(KEPT_LINES);
        messages.drain(..excess);
    }
}

/// The error in words, with what libbpf said of it.
pub(crate) fn reason(error: &libbpf_rs::Error) -> String {
    match cause(&last_messages()) {
        Some(line) => format!("{error:#} ({line})"),
        None => format!("{error:#}"),
    }
}

/// The last lines that libbpf said.
pub(crate) fn last_messages() -> Vec<String> {
    MESSAGES.lock().map(|messages| messages.clone()).unwrap_or_default()
}

/// The last line that says what is wrong: in the log of the verifier, counts and consequences follow.
fn cause(messages: &[String]) -> Option<&str> {
    const FOLLOWING: [&str; 5] =
        ["processed ", "verification time ", "stack depth ", "-- END PROG", "libbpf: "];
    let tells = |line: &&String| !FOLLOWING.iter().any(|start| line.starts_with(start));
    messages.iter().rfind(tells).or(messages.last()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_of_the_verifier_is_reported() {
        let log = "; status = why; @ walk.bpf.c:440\n13: (4f) r2 |= r1\n\
                   R2 pointer |= pointer prohibited\n\
                   processed 10 insns (limit 1000000) max_states_per_insn 0\n\
                   -- END PROG LOAD LOG --\nlibbpf: prog 'do_order': failed to load: -EACCES\n\
                   libbpf: failed to load object 'walk_bpf'";
        let messages: Vec<String> = log.lines().map(str::to_owned).collect();
        assert_eq!(cause(&messages), Some("R2 pointer |= pointer prohibited"));
        assert_eq!(cause(&messages[5..]), Some("libbpf: failed to load object 'walk_bpf'"));
        assert_eq!(cause(&[]), None);
    }
}
