//! isotherm finds the hot memory of running programs, shows it, and acts on it.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod log;

use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    isotherm_linux::sys::keep_little_memory();
    let typed = cli::command().get_matches();
    let cli = cli::Cli::from_arg_matches(&typed).unwrap_or_else(|e| e.exit());
    log::begin(cli.verbose);
    let result = match cli.command {
        cli::Command::Record(options) => commands::record::run(options),
        cli::Command::Now(options) => commands::now::run(options),
        cli::Command::Top(options) => commands::top::run(*options),
        cli::Command::Need(options) => commands::need::run(options),
        cli::Command::Files(options) => commands::files::run(&options),
        cli::Command::WhatIf(options) => commands::whatif::run(*options),
        cli::Command::Agent(options) => commands::agent::run(&options),
        cli::Command::Run(options) => commands::run::run(options),
        cli::Command::Reclaim(options) => commands::reclaim::run(options),
        cli::Command::Exec(options) => commands::exec::run(&options),
        cli::Command::Service(options) => commands::service::run(options.task),
        cli::Command::Report(options) => commands::report::run(options),
        cli::Command::Web(options) => commands::web::run(&options),
        cli::Command::Fleet(options) => commands::fleet::run(&options.task),
        cli::Command::Import(options) => commands::import::run(&options),
        cli::Command::Export(options) => commands::export::run(&options),
        cli::Command::Edit(options) => commands::edit::run(&options),
        cli::Command::Interleave(options) => commands::interleave::run(&options),
        cli::Command::System(options) => commands::system::run(options.task),
        cli::Command::Doctor(options) => commands::doctor::run(&options),
        cli::Command::Lab(options) => commands::lab::run(&options),
    };
    result.unwrap_or_else(|e| {
        if isotherm::words::is_closed_pipe(e.as_ref()) {
            return ExitCode::SUCCESS;
        }
        tracing::error!("{}", isotherm::words::chain(e.as_ref()));
        ExitCode::from(if e.chain().any(|cause| cause.is::<cli::UsageError>()) { 2 } else { 1 })
    })
}
