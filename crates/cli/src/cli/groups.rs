//! The commands in groups, ordered by when a newcomer needs them.

use std::fmt::Write;

use clap::CommandFactory;

use super::Cli;

const COMMAND_GROUPS: [(&str, &[&str]); 6] = [
    (
        "See which memory is hot",
        &["record", "now", "top", "web", "need", "files", "report", "whatif"],
    ),
    ("Exchange and edit records", &["import", "export", "edit"]),
    ("Act on memory", &["run", "reclaim", "exec", "interleave"]),
    ("Watch many machines", &["agent", "fleet"]),
    ("Control services, and check the machine", &["service", "system"]),
    ("Experiment", &["lab"]),
];

const BEGIN: &str = "\
Begin with:
  isotherm system doctor                     check this machine
  isotherm record --pid PID --duration 30s   record a process to isotherm.rec
  isotherm report heatmap                    draw the record
";

/// The command line, for the parser and for the documentation.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let groups = COMMAND_GROUPS.iter().map(|(title, names)| group(&command, title, names));
    let groups = groups.collect::<String>();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{BEGIN}\n{groups}Options:\n{{options}}\n\n\
         isotherm COMMAND --help describes the options of a command."
    ))
}

fn group(command: &clap::Command, title: &str, names: &[&str]) -> String {
    let mut text = format!("{title}:\n");
    for name in names {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "  {name:<11} {about}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let mut listed: Vec<&str> =
            COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        listed.sort_unstable();
        let command = command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut all: Vec<&str> = shown.map(clap::Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    #[test]
    fn the_suggested_first_commands_parse() {
        for line in BEGIN.lines().skip(1) {
            let words = line.split("  ").find(|part| !part.trim().is_empty()).unwrap();
            let words = words.trim().replace("PID", "1");
            assert!(command().try_get_matches_from(words.split(' ')).is_ok(), "{words}");
        }
    }

    /// clap's own check of names, defaults and conflicts.
    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }
}
