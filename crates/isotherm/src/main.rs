//! isotherm finds the memory of a running program that is hot, and shows it.

mod cli;
mod commands;
mod units;
mod words;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Record(options) => commands::record::run(options),
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
        if is_closed_pipe(&e) {
            return ExitCode::SUCCESS;
        }
        words::say(format_args!("isotherm: {}", words::chain(&e)));
        ExitCode::from(if e.is::<cli::UsageError>() { 2 } else { 1 })
    })
}

/// Who reads our output may stop when they have seen enough.
fn is_closed_pipe(e: &anyhow::Error) -> bool {
    let io = e.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
