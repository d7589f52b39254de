//! Options from a file: `reclaim --config`.

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use isotherm::options_file::{OptionKind, OptionsFile};
use isotherm_core::scheme::Scheme;

use super::{Cli, Command, Reclaim, UsageError};

/// Options that cannot change while a service runs: its targets, and settings of the start.
const FIXED_OPTIONS: [&str; 32] = [
    "pid",
    "comm",
    "cgroup",
    "all",
    "children",
    "file",
    "dir",
    "mount",
    "cached",
    "except-comm",
    "except-cgroup",
    "except-pid",
    "control",
    "metrics",
    "metrics-every",
    "lake",
    "host",
    "keep",
    "keep-size",
    "spool",
    "spool-size",
    "upload-every",
    "command-lines",
    "dry-run",
    "log",
    "passed",
    "stacks",
    "json",
    "duration",
    "look",
    "monitor",
    "seed",
];
/// Options that select targets: one on the command line replaces all of them in the file.
const TARGETS: [&str; 9] =
    ["pid", "comm", "cgroup", "all", "children", "file", "dir", "mount", "cached"];

/// The options of a file.
#[derive(Debug)]
pub struct Config(OptionsFile);

impl Config {
    /// Reads the options. An unknown option or an invalid value is an error with its line and
    /// column.
    pub fn read(path: &Path, text: String) -> Result<Self, UsageError> {
        OptionsFile::read(path, text, kind, check).map(Config)
    }

    /// The options of the command line, completed by the options of this file. `typed` is
    /// everything after `reclaim`.
    pub fn under(&self, typed: &[OsString]) -> Result<Reclaim, UsageError> {
        let own = parse(typed)?;
        let hidden = |name: &str| {
            TARGETS.contains(&name) && own.acting.selects()
                || name == "goal" && !own.goal.is_empty()
        };
        let all: Vec<OsString> = self.0.args(hidden).chain(typed.iter().cloned()).collect();
        parse(&all).map_err(|e| self.placed(e, typed))
    }

    /// Adds a place to an error about options.
    pub fn placed(&self, e: UsageError, typed: &[OsString]) -> UsageError {
        self.0.placed(e, typed)
    }

    /// The schemes of the file.
    pub fn schemes(&self, interval: Duration, taken: &str) -> Result<Vec<Scheme>, UsageError> {
        self.0.schemes(interval, taken)
    }

    /// Fails if an option that cannot change while a service runs differs from `before`.
    pub fn check_change(&self, before: &Config) -> Result<(), UsageError> {
        self.0.check_change(&before.0, &FIXED_OPTIONS)
    }
}

/// The kind of an option of `reclaim`.
fn kind(name: &str) -> Result<OptionKind, String> {
    let command = Cli::command();
    let reclaim = command.find_subcommand("reclaim");
    let of_name = |arg: &&clap::Arg| arg.get_long() == Some(name) && name != "config";
    let arg = reclaim.and_then(|reclaim| reclaim.get_arguments().find(of_name));
    match arg.map(clap::Arg::get_action) {
        Some(ArgAction::SetTrue) => Ok(OptionKind::Flag),
        Some(ArgAction::Append) => Ok(OptionKind::Several),
        Some(_) => Ok(OptionKind::One),
        None => Err(format!(
            "`{name}` is not an option of isotherm reclaim: isotherm reclaim --help lists them; schemes are \
             [[scheme]]"
        )),
    }
}

/// Checks one option by itself. An option that it requires may be elsewhere in the file.
fn check(args: &[String]) -> Result<(), String> {
    let words = ["isotherm", "reclaim"].into_iter().chain(args.iter().map(String::as_str));
    match Cli::try_parse_from(words) {
        Err(e) if e.kind() != ErrorKind::MissingRequiredArgument => Err(why(&e)),
        _ => Ok(()),
    }
}

fn parse(typed: &[OsString]) -> Result<Reclaim, UsageError> {
    let begin = ["isotherm", "reclaim"].map(OsString::from);
    match Cli::try_parse_from(begin.iter().chain(typed)).map(|cli| cli.command) {
        Ok(Command::Reclaim(options)) => Ok(options),
        Ok(_) => Err(UsageError::new("these are not options of isotherm reclaim".to_owned())),
        Err(e) => Err(UsageError::new(why(&e))),
    }
}

/// The reason of an error, without usage and hints of the command line.
fn why(e: &clap::Error) -> String {
    e.source().map_or_else(
        || {
            let text = e.to_string();
            let first = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            first.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
        },
        ToString::to_string,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(text: &str) -> Result<Config, String> {
        Config::read(Path::new("r.toml"), text.to_owned()).map_err(|e| e.to_string())
    }

    fn under(text: &str, typed: &[&str]) -> Reclaim {
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        config(text).unwrap().under(&typed).unwrap()
    }

    const TEXT: &str = r#"
comm = ["redis-server", "postgres"]
min-age = "30s"
quota-size = "none"
goal = ["refault=0.2%"]
budget = "0.5%"
dry-run = true
json = false
ipis = 7
"#;

    #[test]
    fn options_by_their_names() {
        let o = under(TEXT, &[]);
        assert_eq!(o.acting.targets.comm, ["redis-server", "postgres"]);
        assert_eq!((o.min_age, o.quota_size.0), (Duration::from_secs(30), None));
        assert_eq!((o.goal.len(), o.acting.dry_run, o.acting.json), (1, true, false));
        let attrs = o.acting.watching.check().unwrap();
        assert_eq!((attrs.budget_ppm, attrs.max_clears), (5_000, 7));
    }

    #[test]
    fn an_option_may_require_another() {
        let o = under("metrics-every = \"20s\"\nmetrics = \"127.0.0.1:9477\"", &[]);
        assert_eq!(o.acting.metrics.every, Duration::from_secs(20));
        let alone = config("metrics-every = \"20s\"").unwrap().under(&[]).unwrap_err().to_string();
        assert!(alone.starts_with("r.toml: "), "{alone}");
    }

    #[test]
    fn the_command_line_wins() {
        let o = under(TEXT, &["--min-age", "1s", "--pid=7", "--goal", "psi=1%", "--goal=psi=2%"]);
        assert_eq!(o.min_age, Duration::from_secs(1));
        assert_eq!((&o.acting.targets.pid[..], o.acting.targets.comm.len()), (&[7][..], 0));
        assert_eq!(o.goal.len(), 2);
        assert!(under("all = true", &["--comm=x"]).acting.targets.comm == ["x"]);
    }

    #[test]
    fn errors_have_a_place() {
        for (text, place, said) in [
            ("all = true\nmin-age = \"old\"", "line 2, column 11", "20ms"),
            ("colour = 1", "line 1, column 1", "not an option"),
            ("config = \"x\"", "line 1, column 1", "not an option"),
            ("\nall = 3", "line 2, column 1", "true or false"),
            ("quota = [\"10ms/1s\"]", "line 1, column 1", "a text or a number"),
            ("all = tru", "line 1, column 7", ""),
            ("quota = \"10ms\"", "line 1, column 9", "10ms/1s, or none"),
        ] {
            let e = config(text).unwrap_err();
            assert!(e.starts_with("r.toml: "), "{text}: {e}");
            assert!(e.contains(place) && e.contains(said), "{text}: {e}");
        }
        let both = config("all = true\npid = 7").unwrap().under(&[]).unwrap_err().to_string();
        assert!(both.starts_with("r.toml: line 1, column 7: "), "{both}");
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn a_conflict_has_the_place_of_the_option_in_the_file() {
        let text = "all = true\nquota = \"2s/1s\"\nwindow = \"64K\"\n";
        let config = config(text).unwrap();
        let placed = |what: &str, typed: &[&str]| {
            let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
            config.placed(UsageError::new(what), &typed).to_string()
        };
        let said = "--quota: a quota of 2s";
        assert_eq!(placed(said, &["--window=4K"]), format!("r.toml: line 2, column 9: {said}"));
        assert_eq!(placed(said, &["--quota", "3s/1s"]), format!("r.toml: {said}"));
        let two = "--sample, --window: x";
        assert_eq!(placed(two, &[]), format!("r.toml: line 3, column 10: {two}"));
        let size = "--quota-size: x";
        assert_eq!(placed(size, &[]), format!("r.toml: {size}"));
    }

    #[test]
    fn targets_cannot_change() {
        let before = config("comm = \"x\"\nmin-age = \"1s\"").unwrap();
        let same = config("min-age = \"2s\"\ncomm = [\"x\"]").unwrap();
        assert!(same.check_change(&before).is_ok());
        let other = config("min-age = \"2s\"\ncomm = \"y\"").unwrap();
        let said = other.check_change(&before).unwrap_err().to_string();
        assert!(said.contains("line 2, column 8: `comm` cannot change"), "{said}");
        let none = config("min-age = \"2s\"").unwrap();
        assert!(none.check_change(&before).is_err());
        for text in ["metrics = \"127.0.0.1:9477\"", "metrics-every = \"5s\""] {
            let other = config(&format!("comm = \"x\"\n{text}")).unwrap();
            let said = other.check_change(&before).unwrap_err().to_string();
            assert!(said.contains("line 2") && said.contains("cannot change"), "{said}");
        }
    }

    /// Checks each option by itself, and with the option that it requires.
    #[test]
    fn every_option_is_a_key() {
        let examples = BTreeMap::from([
            ("aggr", "\"1s\""),
            ("budget", "\"1%\""),
            ("cgroup", "\"a/b\""),
            ("clear-every", "8"),
            ("comm", "\"x\""),
            ("control", "\"none\""),
            ("dir", "[\"/no/folder\"]"),
            ("duration", "\"1h\""),
            ("except-cgroup", "[\"a/b\"]"),
            ("except-comm", "[\"x\"]"),
            ("aim", "\"save 30%\""),
            ("except-pid", "[7]"),
            ("file", "[\"/no/file\"]"),
            ("goal", "[\"psi=1%\"]"),
            ("host", "\"h\""),
            ("interval", "\"2s\""),
            ("ipis", "7"),
            ("keep-size", "\"1G\""),
            ("lake", "\"/no/lake\""),
            ("log", "\"l\""),
            ("metrics", "\"m.prom\""),
            ("min-region", "\"64K\""),
            ("monitor", "\"exposure\""),
            ("mount", "\"/\""),
            ("pid", "[7]"),
            ("range", "[\"1000..2000\"]"),
            ("sample", "\"20ms\""),
            ("seed", "7"),
            ("split", "2"),
            ("watermarks-interval", "\"1s\""),
        ]);
        let command = Cli::command();
        let reclaim = command.find_subcommand("reclaim").unwrap();
        let is_key = |arg: &&clap::Arg| {
            arg.get_long().is_some_and(|name| !["config", "help"].contains(&name))
        };
        for arg in reclaim.get_arguments().filter(is_key) {
            let name = arg.get_long().unwrap();
            let value = match (arg.get_action(), arg.get_default_values(), examples.get(name)) {
                (ArgAction::SetTrue, ..) => "true".to_owned(),
                (_, [default], None) => format!("{default:?}"),
                (_, _, example) => (*example.expect(name)).to_owned(),
            };
            let line = format!("{name} = {value}\n");
            let read = config(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
            let besides = match name {
                "metrics-every" => "metrics = \"m.prom\"\n",
                "host" | "keep-size" | "command-lines" => "lake = \"/no/lake\"\n",
                _ => "",
            };
            let whole = config(&format!("{line}{besides}")).unwrap().under(&[]);
            assert!(read.0.count() == 1 && whole.is_ok(), "{line}: {:?}", whole.err());
        }
        let alone = config("metrics-every = \"1s\"").unwrap().under(&[]).unwrap_err().to_string();
        assert!(alone.contains("--metrics "), "{alone}");
    }

    #[test]
    fn schemes_beside_options() {
        let text = "all = true\n[[scheme]]\naction = \"stat\"\n";
        let schemes = config(text).unwrap().schemes(Duration::from_secs(1), "x").unwrap();
        assert_eq!(schemes.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["stat"]);
        let bad = config("all = true\n[[scheme]]\naction = \"stat\"\ncolour = 1\n").unwrap();
        let said = bad.schemes(Duration::from_secs(1), "x").unwrap_err().to_string();
        assert!(said.contains("line 4, column 1"), "{said}");
    }
}
