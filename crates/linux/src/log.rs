//! What libbpf says is kept for error messages instead of being printed.

use std::sync::Mutex;

use libbpf_rs::PrintLevel;

/// The last lines, so that a verifier log cannot fill memory.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
const KEPT: usize = 12;

/// Keeps warnings from now on, and forgets older ones.
pub(crate) fn quiet() {
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

fn keep(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        said.extend(lines.map(|l| l.chars().take(200).collect()));
        let excess = said.len().saturating_sub(KEPT);
        said.drain(..excess);
    }
}

/// The error in words, with what libbpf said of it.
pub(crate) fn reason(error: &libbpf_rs::Error) -> String {
    let said = SAID.lock().map(|s| s.join("; ")).unwrap_or_default();
    if said.is_empty() { format!("{error:#}") } else { format!("{error:#} ({said})") }
}
