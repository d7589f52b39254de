//! A run of the program.

use std::fs::{File, write};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use isotherm_core::AddrRange;

use super::audit::{self, AuditLine};
use crate::{program, usage};

/// Time in seconds from which memory is cold.
pub const COLD_SECONDS: u64 = 3;

/// The parameters of a run.
pub struct RunParameters<'a> {
    /// the scheme without its action, its processes and its minimum age
    pub scheme: &'a str,
    /// the processes and their address ranges
    pub on: &'a [(i32, AddrRange)],
    /// how long
    pub length: Duration,
    /// further options
    pub options: &'a [&'a str],
}

/// The results of a run.
pub struct Ran {
    pub log: Vec<AuditLine>,
    /// CPU time of all of it
    pub cpu: Duration,
}

impl RunParameters<'_> {
    /// Runs the program to page out cold memory.
    pub fn run(&self) -> Result<Ran> {
        let dir = tempfile::tempdir()?;
        let path = |name: &str| dir.path().join(name);
        write(path("s.toml"), self.text())?;
        // Other work of the machine must not count.
        let mut command = Command::new("chrt");
        command.args(["--fifo", "1"]).arg(program::beside()?);
        command.args(["run", "--scheme", "s.toml", "--json", "--log", "log", "--duration"]);
        command.arg(format!("{}ms", self.length.as_millis())).args(self.options);
        command.args(self.on.iter().flat_map(|(pid, _)| ["--pid".to_owned(), pid.to_string()]));
        command.stdout(File::create(path("out"))?).stderr(File::create(path("err"))?);
        let used = usage::run(command.current_dir(dir.path())).context("cannot run isotherm")?;
        let text = |name| std::fs::read_to_string(path(name));
        ensure!(used.status.success(), "isotherm run has failed: {}", text("err")?);
        let log = audit::read(&path("log"))?;
        let logged: u64 = log.iter().map(|l| l.applied).sum();
        let table: serde_json::Value = serde_json::from_str(&text("out")?)?;
        let said = &table["schemes"][0]["applied"]["bytes"];
        ensure!(*said == logged, "{logged} bytes in the log, {said} in the table at the end");
        Ok(Ran { log, cpu: used.cpu })
    }

    fn text(&self) -> String {
        let only = self.on.iter().map(|(_, r)| {
            format!(
                "{{ kind = {{ addresses = \"{:#x}..{:#x}\" }}, allow = true }},",
                r.start, r.end
            )
        });
        format!(
            "[[scheme]]\naction = \"pageout\"\nrate = {{ max = 0 }}\nage = {{ min = \"{COLD_SECONDS}s\" }}\n\
             filters = [{}]\n{}\n",
            only.collect::<String>(),
            self.scheme
        )
    }
}
