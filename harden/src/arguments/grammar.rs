//! All commands and options, from the page of the documentation that the program generates.

const PAGE: &str = include_str!("../../../docs/reference/options.md");

/// A command.
#[derive(Debug)]
pub struct Command {
    /// the words of its name
    pub name: Vec<&'static str>,
    pub options: Vec<Flag>,
    pub positionals: Vec<&'static str>,
    /// whether words after `--` are a command to start
    pub starts_command: bool,
}

/// An option.
#[derive(Debug)]
pub struct Flag {
    /// the longest of its names
    pub name: &'static str,
    /// placeholder of its value
    pub value: Option<&'static str>,
}

/// All commands.
pub fn commands() -> Vec<Command> {
    let sections = PAGE.split("\n## isotherm ").skip(1);
    sections.map(command).collect()
}

fn command(section: &'static str) -> Command {
    let name = section.lines().next().unwrap_or_default().split(' ').collect();
    let (mut options, mut positionals) = (Vec::new(), Vec::new());
    let mut starts_command = false;
    for term in section.lines().filter_map(term) {
        if term.contains("COMMAND") {
            starts_command = true;
        } else if let Some(flag) = flag(term) {
            options.push(flag);
        } else {
            positionals.push(placeholder(term));
        }
    }
    Command { name, options, positionals, starts_command }
}

/// The last name in the first column of a row, for example `--pid <PID>` of "`-p`, `--pid <PID>`".
fn term(row: &'static str) -> Option<&'static str> {
    let (term, _) = row.strip_prefix("| `")?.split_once("` | ")?;
    term.rsplit("`, `").next()
}

fn flag(term: &'static str) -> Option<Flag> {
    if !term.starts_with('-') {
        return None;
    }
    let end = term.find([' ', '[', '=']).unwrap_or(term.len());
    let (name, rest) = term.split_at(end);
    Some(Flag { name, value: Some(placeholder(rest)).filter(|value| !value.is_empty()) })
}

/// `FILE` of ` <FILE>`, `[FILE]...` or `[=<FILE>]`.
fn placeholder(term: &'static str) -> &'static str {
    term.trim_matches([' ', '<', '>', '[', ']', '.', '='])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_kind_of_argument() {
        let all = commands();
        assert!(all.len() > 40, "{all:?}");
        let of = |name: &str| all.iter().find(|c| c.name.join(" ") == name).unwrap();
        let record = of("record");
        let has = |name, value| record.options.iter().any(|o| o.name == name && o.value == value);
        assert!(has("--pid", Some("PID")) && has("--alloc", Some("BYTES")), "{record:?}");
        assert!(has("--all", None) && has("--regions", Some("MIN..MAX")), "{record:?}");
        assert!(record.starts_command && record.positionals.is_empty());
        assert_eq!(of("system swap zram").positionals, ["SIZE"]);
        assert_eq!(of("edit").positionals, ["FILE"]);
    }
}
