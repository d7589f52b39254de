//! isotherm finds the memory of a running program that is hot, and shows it.

mod cli;
mod commands;
mod control;
mod notify;
mod schemes;
mod served;
mod units;
mod words;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    isotherm_linux::sys::keep_little_memory();
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Record(options) => commands::record::run(options),
        cli::Command::Now(options) => commands::now::run(options),
        cli::Command::Run(options) => commands::run::run(options),
        cli::Command::Reclaim(options) => commands::reclaim::run(options),
        cli::Command::Status(options) => commands::control::status(&options),
        cli::Command::Commit(options) => commands::control::commit(&options),
        cli::Command::Pause(options) => commands::control::tell(&options, &control::Request::Pause),
        cli::Command::Resume(options) => {
            commands::control::tell(&options, &control::Request::Resume)
        }
        cli::Command::Stop(options) => commands::control::tell(&options, &control::Request::Stop),
        cli::Command::Attributes(options) => commands::control::attributes(&options),
        cli::Command::Targets(options) => commands::control::targets(options),
        cli::Command::Recording(options) => commands::control::recording(&options),
        cli::Command::Report(options) => commands::report::run(options),
        cli::Command::Export(options) => commands::export::run(&options),
        cli::Command::Doctor(options) => commands::doctor::run(&options),
        cli::Command::Workload(options) => commands::workload::run(&options),
        cli::Command::Lab(options) => commands::lab::run(&options),
        cli::Command::Zones(options) => commands::zones::run(&options),
        cli::Command::Interleave(options) => commands::interleave::run(&options),
        cli::Command::Swap(options) => commands::swap::run(&options),
    };
    result.unwrap_or_else(|e| {
        if words::is_closed_pipe(&e) {
            return ExitCode::SUCCESS;
        }
        words::say(format_args!("isotherm: {}", words::chain(&e)));
        ExitCode::from(if e.is::<cli::UsageError>() { 2 } else { 1 })
    })
}
