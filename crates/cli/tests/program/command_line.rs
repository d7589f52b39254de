//! The command line is the one that docs/abi/testing/command-line.md describes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::run::{finish, isotherm, needs_root, run_in};

const PAGE: &str = include_str!("../../../../docs/abi/testing/command-line.md");

fn help(of: &[&str]) -> String {
    finish(isotherm(of).arg("--help")).text().to_owned()
}

/// The words in a text that begin with `begin`.
fn words<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    text.split(is_end).filter(move |word| word.starts_with(begin) && word.len() > begin.len())
}

/// The first words of the lines in a list of commands in help.
fn listed(list: &str) -> Vec<String> {
    let line =
        |line: &str| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')).map(str::to_owned);
    let names = list.lines().filter_map(line);
    let names = names.map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| name != "help" && name != "isotherm").collect()
}

/// All commands in help, for example `system swap zram`. Reports have a page of their own.
fn commands() -> Vec<String> {
    let top = help(&[]);
    let mut todo = listed(top.split("Options:").next().unwrap());
    let mut all = Vec::new();
    while let Some(name) = todo.pop() {
        let own = help(&name.split(' ').collect::<Vec<_>>());
        match own.split("\nCommands:").nth(1).filter(|_| name != "report" && name != "interleave") {
            Some(below) => {
                let below = listed(below.split("Options:").next().unwrap());
                todo.extend(below.into_iter().map(|sub| format!("{name} {sub}")));
            }
            None => all.push(name),
        }
    }
    all
}

#[test]
fn each_command_is_described_and_each_option_exists() {
    let all = commands();
    assert!(all.len() > 20, "{all:?}");
    let table = PAGE.split("### Commands").nth(1).unwrap().split("###").next().unwrap();
    for name in &all {
        assert!(table.contains(&format!("`{name}`")), "{name} is not described");
    }
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).unwrap();
        let options = row.split('|').nth(2).unwrap();
        let of_row: Vec<&String> =
            all.iter().filter(|n| names.contains(&format!("`{n}`"))).collect();
        assert!(!of_row.is_empty(), "{row}");
        let helps = of_row.iter().flat_map(|name| {
            let words: Vec<&str> = name.split(' ').collect();
            let own = std::iter::once(help(&words));
            own.chain(
                ["summary", "show"].iter().map(move |sub| help(&[&words[..], &[sub]].concat())),
            )
        });
        let helps: Vec<String> = helps.collect();
        let known: BTreeSet<&str> = helps.iter().flat_map(|text| words(text, "--")).collect();
        for option in words(options, "--") {
            assert!(known.contains(option), "{option} is none of {names}");
        }
    }
}

#[test]
fn the_levels_and_doctor_are_as_documented() {
    let page = include_str!("../../../../docs/abi/testing/doctor.md");
    let json = finish(&mut isotherm(["system", "doctor", "--json"])).json();
    let object = json.as_object().unwrap();
    let finding = json["findings"][0].as_object().unwrap();
    for key in object.keys().chain(finding.keys()) {
        assert!(page.contains(&format!("`{key}`")), "{key} is not described");
    }
    for finding in json["findings"].as_array().unwrap() {
        let state = finding["state"].as_str().unwrap();
        assert!(page.contains(&format!("`{state}`")), "{state}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let script = finish(&mut isotherm(["system", "completions", "bash"]));
    let completed = |words: &[&str]| {
        let last = words.last().unwrap();
        let line = format!(
            "source /dev/stdin; COMP_WORDS=({}); COMP_CWORD={}; _isotherm isotherm '{last}' ''; \
             echo ${{COMPREPLY[@]}}",
            words.join(" "),
            words.len() - 1
        );
        let mut bash = Command::new("bash")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        bash.stdin.take().unwrap().write_all(script.text().as_bytes()).unwrap();
        String::from_utf8(bash.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["isotherm", "sys"]), "system");
    assert_eq!(completed(&["isotherm", "system", "doc"]), "doctor");
    assert_eq!(completed(&["isotherm", "record", "--dura"]), "--duration");
}

#[test]
fn other_shells_complete_all_commands_and_each_has_a_manual_page() {
    for shell in ["zsh", "fish"] {
        let script = finish(&mut isotherm(["system", "completions", shell]));
        assert!(
            commands().iter().all(|c| script.text().contains(c.split(' ').next_back().unwrap()))
        );
    }
    let dir = TempDir::new().unwrap();
    assert_eq!(run_in(dir.path(), &["system", "man-pages", "."]).status, 0);
    for command in commands() {
        let page = format!("isotherm-{}.1", command.replace(' ', "-"));
        let text = fs::read_to_string(dir.path().join(&page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    let refused = run_in(dir.path(), &["system", "man-pages", "nowhere"]);
    assert!(refused.status == 1 && refused.err.contains("manual pages"), "{}", refused.err);
}

/// Standard error of a command, to a file that `JOURNAL_STREAM` names, as systemd does with its own socket.
fn in_journal(command: &mut Command) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let is = file.as_file().metadata().unwrap();
    command.env("JOURNAL_STREAM", format!("{}:{}", is.dev(), is.ino()));
    let _ = command.stdout(Stdio::null()).stderr(file.reopen().unwrap()).status().unwrap();
    fs::read_to_string(file.path()).unwrap()
}

#[test]
fn verbose_reports_more_and_the_journal_gets_priorities() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let record = |options: &[&str]| {
        let all = [&["record", "-o", "x.rec", "--look", "bpf"], options, &["--", "true"]].concat();
        let mut command = isotherm(all);
        command.current_dir(dir.path());
        command
    };
    let debug = "isotherm: debug isotherm::";
    assert!(!finish(&mut record(&[])).err.contains(debug));
    // A shell that a service has started inherits the variable, and writes elsewhere.
    let verbose = finish(record(&["-v"]).env("JOURNAL_STREAM", "1:1")).err;
    assert!(verbose.lines().any(|line| line.starts_with(debug)), "{verbose}");
    let journal = in_journal(&mut record(&["-v"]));
    assert!(journal.lines().any(|line| line.starts_with(&format!("<7>{debug}"))), "{journal}");
    let wrong = in_journal(&mut isotherm(["report", "summary", "-i", "none"]));
    assert!(wrong.starts_with("<3>isotherm: "), "{wrong}");
}

/// `reclaim --config` parses its own options again: those after the word.
#[test]
fn verbose_may_stand_before_the_command() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("r.toml"), "pid = 2147483647\ndry-run = true\n").unwrap();
    for words in [&["reclaim"][..], &["-v", "reclaim"], &["reclaim", "-v"]] {
        let all = [words, &["--config", "r.toml", "--control", "none"]].concat();
        let done = run_in(dir.path(), &all);
        assert_eq!(done.status, 1, "{words:?}: {}", done.err);
    }
}
