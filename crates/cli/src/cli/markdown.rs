//! The command line as a page of the documentation, `docs/reference/options.md`.

use std::fmt::Write;

use clap::{Arg, Command};

const HEAD: &str = "\
# Options
This page has every command and option of isotherm, as `isotherm COMMAND --help` prints them. \
[Command line](../abi/testing/command-line.md) lists those that scripts may rely on, the forms of \
values, and the exit statuses.

Every command has `-v`, which reports actions on standard error, and `-vv`, which reports each step.

This page is generated: `UPDATE_DOCS=1 cargo test options_page` writes it. Do not edit it by hand.
";

/// One section for each command without subcommands, in the order of `--help`: its usage, and a
/// table of its arguments and options for each heading of its help.
pub fn page(mut command: Command) -> String {
    command.build();
    let mut text = HEAD.to_owned();
    section(&command, &mut text);
    text
}

/// The section of a command, then those of its subcommands.
fn section(command: &Command, text: &mut String) {
    if !command.has_subcommands() {
        let name = command.get_bin_name().unwrap_or(command.get_name());
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").trim();
        let about = command.get_long_about().or(command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n## {name}\n{}.\n\n```\n{usage}\n```\n", one_line(&about));
        tables(command, text);
    }
    let own = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    own.for_each(|subcommand| section(subcommand, text));
}

/// A table for each heading of the help of a command. The first has the options without a heading.
fn tables(command: &Command, text: &mut String) {
    let is_own = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && !arg.is_global_set();
    let args: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let mut headings = vec![None];
    for arg in &args {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let rows = args.iter().filter(|arg| arg.get_help_heading() == heading);
        let rows: String = rows.map(|arg| row(arg)).collect();
        if !rows.is_empty() {
            let title = heading.unwrap_or("Option");
            let _ = write!(text, "\n| {} | |\n|---|---|\n{rows}", cell(title));
        }
    }
}

/// An option with its short form and value, its help, its default and its possible values.
fn row(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let mut help = one_line(
        &arg.get_long_help().or(arg.get_help()).map_or(String::new(), ToString::to_string),
    );
    if !arg.is_hide_possible_values_set() && arg.get_action().takes_values() {
        for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let means = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
            let _ = write!(help, "; `{}`{means}", value.get_name());
        }
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(" ");
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        let _ = write!(help, " [default: {defaults}]");
    }
    // clap prints an option by its long form, if it has one.
    format!("| {short}`{}` | {} |\n", cell(&arg.to_string()), cell(&help.replace('<', "&lt;")))
}

/// A paragraph without line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text with `|` escaped, so that it stays in one cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use clap::builder::PossibleValue;
    use clap::value_parser;

    use super::*;

    /// `UPDATE_DOCS=1` writes the page.
    #[test]
    fn the_options_page_is_that_of_the_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/options.md");
        let made = page(super::super::command());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap() == made, "UPDATE_DOCS=1 writes {path}");
    }

    #[test]
    fn a_command_has_its_usage_and_its_options() {
        let values = [PossibleValue::new("a").help("the first"), PossibleValue::new("b")];
        let options = [
            Arg::new("pid").short('p').long("pid").value_name("PID").help("Process to watch"),
            Arg::new("kind").long("kind").value_parser(values).default_value("b").help("Which one"),
            Arg::new("deep").long("deep").help_heading("Depth").action(clap::ArgAction::SetTrue),
            Arg::new("size").long("size").value_name("A|B").value_parser(value_parser!(u32)),
            Arg::new("secret").long("secret").hide(true),
        ];
        let command = Command::new("tool")
            .subcommand(Command::new("look").about("Look at it").args(options))
            .subcommand(Command::new("old").hide(true));
        let text = page(command);
        assert!(text.contains("\n## tool look\nLook at it.\n\n```\ntool look [OPTIONS]\n```\n"));
        assert!(text.contains("\n| `-p`, `--pid <PID>` | Process to watch |\n"), "{text}");
        let kind = "| `--kind <kind>` | Which one; `a`: the first; `b` [default: b] |\n";
        assert!(text.contains(kind), "{text}");
        assert!(text.contains("| `--size <A\\|B>` |  |\n"), "{text}");
        assert!(text.ends_with("\n| Depth | |\n|---|---|\n| `--deep` |  |\n"), "{text}");
        assert!(!text.contains("secret") && !text.contains("old"), "{text}");
    }
}
