//! The command line is as docs/abi/testing/command-line.md describes it.

use std::collections::BTreeSet;

use crate::run::{finish, isotherm};

const PAGE: &str = include_str!("../../../../docs/abi/testing/command-line.md");

fn help(of: &[&str]) -> String {
    finish(isotherm(of).arg("--help")).text().to_owned()
}

/// The words in a text that begin so.
fn words<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    text.split(is_end).filter(move |word| word.starts_with(begin) && word.len() > begin.len())
}

/// The commands that help lists, but for itself.
fn commands() -> Vec<String> {
    let help = help(&[]);
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let first =
        |line: &str| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')).map(str::to_owned);
    let names = list.lines().filter_map(first);
    let names = names.map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

#[test]
fn each_command_is_described_and_each_option_exists() {
    let all = commands();
    assert!(all.len() > 10, "{all:?}");
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
        let below = ["start", "stop", "zram", "restore", "summary", "show"];
        let helps = of_row.iter().flat_map(|name| {
            let own = std::iter::once(help(&[name]));
            own.chain(below.iter().map(|sub| help(&[name, sub])))
        });
        let helps: Vec<String> = helps.collect();
        let known: BTreeSet<&str> = helps.iter().flat_map(|text| words(text, "--")).collect();
        for option in words(options, "--") {
            assert!(known.contains(option), "{option} is none of {names}");
        }
    }
}

#[test]
fn the_levels_have_what_is_described_and_doctor_says_what_its_page_says() {
    let page = include_str!("../../../../docs/abi/testing/doctor.md");
    let json = finish(&mut isotherm(["doctor", "--json"])).json();
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
