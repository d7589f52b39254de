//! `isotherm top`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::stop::Stop;
use isotherm_linux::sys;
use isotherm_top::source::{LiveOptions, ReplayOptions, ServiceOptions, ViewSource};
use isotherm_top::{Colors, TopOptions};

use crate::cli::{ColorOption, Top, UsageError};
use crate::log::BufferedMessages;

/// Shows live processes, a service or a record in the terminal.
pub fn run(o: Top) -> Result<ExitCode> {
    let options = TopOptions {
        thresholds: o.heat.thresholds(),
        refresh: o.refresh,
        memory: usize::try_from(o.history)?,
        groups: o.groups,
        colors: colors(o.color),
        save_to: o.save.clone(),
    };
    let end = o.duration.map(|d| sys::monotonic() + d);
    let source = source(o)?;
    let stop = Stop::at_signals()?.at(end);
    // A message would land in the middle of the screen.
    let _held = BufferedMessages::begin();
    isotherm_top::run(source, &options, &stop)?;
    Ok(ExitCode::SUCCESS)
}

fn source(o: Top) -> Result<ViewSource> {
    if let Some(path) = o.replay {
        let (speed, skip_damaged) = (o.speed, o.skip_damaged);
        return Ok(ViewSource::Replay(ReplayOptions { path, speed, skip_damaged }));
    }
    if o.service || o.control.is_some() {
        return Ok(ViewSource::Service(ServiceOptions { control: o.control }));
    }
    let targets = o.targets.selection(false);
    if targets.is_empty() || !targets.command.is_empty() {
        let text = "top shows running processes: give --pid PID, --comm NAME, --cgroup PATH, --all, --service, or \
                    --replay FILE; isotherm record -- COMMAND starts a command and records it";
        return Err(UsageError::new(text).into());
    }
    let _ = o.watching.check()?;
    let (look, seed) = (o.watching.look, o.watching.seed);
    Ok(ViewSource::Live(LiveOptions { targets, look, attrs: Box::new(o.watching), seed }))
}

fn colors(option: ColorOption) -> Colors {
    match option {
        ColorOption::Auto => Colors::of_environment(|name| std::env::var(name).ok()),
        ColorOption::True => Colors::True,
        ColorOption::Ansi256 => Colors::Ansi256,
        ColorOption::Ansi16 => Colors::Ansi16,
        ColorOption::Never => Colors::None,
    }
}
