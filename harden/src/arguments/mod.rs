//! Generated argument vectors over all commands, as the user `nobody` in an empty folder.
//!
//! The program must exit with status 0, 1 or 2, or on SIGINT. If it fails, its folder must be empty, and no process may
//! be left.

mod grammar;
mod values;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::processes;
use crate::random::Random;
use crate::run::{Finished, run};
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::{Experiment, Trial};

/// Folder of the input files.
const INPUTS: &str = "/tmp/in";
/// Time after which a command gets SIGINT.
const SIGINT_AFTER: Duration = Duration::from_millis(800);
/// Address space of a command, so that a large number in an option cannot exhaust the machine.
const ADDRESS_SPACE: u64 = 4 << 30;

/// A small record.
pub const RECORD: &[u8] =
    include_bytes!("../../../crates/record/tests/record/stored/version-6.isotherm");
const FILES: [(&str, &[u8]); 9] = [
    ("a.rec", RECORD),
    ("torn.rec", RECORD.split_at(RECORD.len() - 100).0),
    ("damo.json", include_bytes!("../../../fuzz/corpus/damo_json/damo.json")),
    ("perf.data", include_bytes!("../../../fuzz/corpus/perf_data/perf.data")),
    ("trace.txt", include_bytes!("../../../fuzz/corpus/trace_text/perf.script")),
    ("scheme.toml", b"[[scheme]]\naction = \"pageout\"\nage = \"1s..\"\n"),
    ("scheme.txt", b"4K null null 5 1s null pageout\n"),
    ("reclaim.toml", include_bytes!("../../../packaging/reclaim.toml")),
    ("empty", b""),
];

/// Commands to start. None fails, because some commands of the program return the exit status.
const STARTED: [&[&str]; 5] = [&["true"], &["sleep", "60"], &["/no/such/program"], &["/tmp"], &[]];

pub struct Arguments {
    commands: Vec<grammar::Command>,
}

impl Arguments {
    pub fn new() -> Result<Self> {
        let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
        setrlimit(Resource::As, limit)?;
        Ok(Arguments { commands: grammar::commands() })
    }

    /// An argument vector.
    fn vector(&self, random: &mut Random) -> Vec<OsString> {
        let command = random.pick(&self.commands);
        // Without hostile values, more vectors reach the work of the command.
        let hostile = random.one_in(2);
        let mut words: Vec<OsString> = command.name.iter().map(OsString::from).collect();
        let most = if hostile { 6 } else { 3 };
        for _ in 0..random.below(most).min(command.options.len()) {
            let flag = random.pick(&command.options);
            push(&mut words, flag, hostile, random);
        }
        if command.options.iter().any(|o| o.name == "--duration") && !random.one_in(4) {
            words.extend(["--duration", "300ms"].map(OsString::from));
        }
        for placeholder in &command.positionals {
            if !random.one_in(5) {
                words.push(value(placeholder, hostile, random));
            }
        }
        if hostile && random.one_in(6) {
            let at = random.below(words.len() + 1);
            words.insert(at, values::hostile(random));
        }
        if command.starts_command && !random.one_in(3) {
            let started = random.pick(&STARTED);
            words.push(OsString::from("--"));
            words.extend(started.iter().map(OsString::from));
        }
        words
    }
}

fn value(placeholder: &str, hostile: bool, random: &mut Random) -> OsString {
    if hostile && random.one_in(4) {
        values::hostile(random)
    } else {
        values::plausible(placeholder, random)
    }
}

/// Appends an option, in one word or in two, and sometimes without its value.
fn push(words: &mut Vec<OsString>, flag: &grammar::Flag, hostile: bool, random: &mut Random) {
    let Some(placeholder) = flag.value.filter(|_| !(hostile && random.one_in(20))) else {
        return words.push(OsString::from(flag.name));
    };
    let value = value(placeholder, hostile, random);
    if random.one_in(2) {
        let mut word = OsString::from(flag.name);
        word.push("=");
        word.push(value);
        words.push(word);
    } else {
        words.extend([OsString::from(flag.name), value]);
    }
}

impl Experiment for Arguments {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        write_inputs()?;
        let vector = self.vector(random);
        let (cwd, outputs) = (Path::new(WORK_DIR).join("cwd"), Path::new(WORK_DIR));
        fs::create_dir(&cwd).context("cannot create a folder")?;
        let mut command = Command::new(PROGRAM);
        command.args(&vector).current_dir(&cwd).env_clear().env("PATH", "/usr/bin:/bin");
        command.stdin(std::process::Stdio::null());
        let ended = run(&mut command, outputs, SIGINT_AFTER)?;
        let left = processes::left()?;
        let files = names(&cwd)?;
        fs::remove_dir_all(&cwd)?;
        let fault = fault(&ended, &files, &left);
        let class = ended.class();
        Ok(Trial { class, fault: fault.map(|fault| format!("{fault}\n    {}", show(&vector))) })
    }
}

fn fault(ended: &Finished, files: &[String], left: &[String]) -> Option<String> {
    ended
        .fault()
        .or_else(|| (!left.is_empty()).then(|| format!("left processes: {}", left.join(", "))))
        .or_else(|| {
            (ended.failed() && !ended.interrupted && !files.is_empty())
                .then(|| format!("failed, but left {}: {}", files.join(", "), ended.err.trim()))
        })
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The arguments as a shell would read them, shortened.
fn show(vector: &[OsString]) -> String {
    let word = |word: &OsString| {
        let text = format!("{word:?}");
        if text.len() > 200 { format!("{}...", &text[..100]) } else { text }
    };
    vector.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A command may have replaced one of them in the trial before.
fn write_inputs() -> Result<()> {
    fs::create_dir_all(INPUTS)?;
    for (name, content) in FILES {
        fs::write(Path::new(INPUTS).join(name), content).with_context(|| name.to_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn ended(wait_status: i32, err: &str) -> Finished {
        let status = Some(ExitStatus::from_raw(wait_status));
        Finished { status, interrupted: false, out: String::new(), err: err.to_owned() }
    }

    #[test]
    fn what_no_command_may_do_is_a_fault() {
        let file = ["a.rec".to_owned()];
        assert_eq!(fault(&ended(1 << 8, ""), &[], &[]), None);
        assert_eq!(fault(&ended(0, ""), &file, &[]), None);
        assert!(fault(&ended(1 << 8, ""), &file, &[]).is_some());
        assert!(fault(&ended(0, ""), &[], &file).is_some());
        assert!(fault(&ended(3 << 8, ""), &[], &[]).is_some());
        assert!(fault(&ended(11, ""), &[], &[]).is_some());
        assert!(fault(&ended(1 << 8, "thread panicked at x"), &[], &[]).is_some());
        let hung = Finished { status: None, interrupted: true, ..ended(0, "") };
        assert!(fault(&hung, &[], &[]).is_some());
        let stopped = Finished { interrupted: true, ..ended(2, "") };
        assert_eq!(fault(&stopped, &file, &[]), None);
        let passed_on = Finished { interrupted: true, ..ended(130 << 8, "") };
        assert_eq!(fault(&passed_on, &[], &[]), None);
        assert!(fault(&ended(130 << 8, ""), &[], &[]).is_some());
    }

    #[test]
    fn a_trial_can_be_repeated() {
        let arguments = Arguments { commands: grammar::commands() };
        let vector = |n| arguments.vector(&mut Random::new(7, n));
        assert_eq!(vector(3), vector(3));
        assert_ne!(vector(3), vector(4));
    }
}
