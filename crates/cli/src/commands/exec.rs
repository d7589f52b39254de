//! `isotherm exec`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::exec::{self, ProgramAdvice, lock_budget};
use isotherm::stop::{Stop, StopCause};
use isotherm_report::bytes;

use crate::cli::Exec;
use crate::log::say;

/// Runs the command with the advice, and returns its exit status.
pub fn run(o: &Exec) -> Result<ExitCode> {
    let all = ProgramAdvice::read(&o.advice)?;
    // The raised limit is restored at the end.
    let (budget, _raised) = lock_budget(&all, o.lock_limit, o.pid);
    let advised = all.lock_bytes();
    let advice = all.within(budget);
    let stop = Stop::at_signals()?;
    let (status, applied) = match o.pid {
        Some(pid) => (Some(0), exec::apply(pid, &advice, &stop)?),
        None => exec::run(&o.command, &advice, &stop)?,
    };
    say(format_args!(
        "isotherm: locked {} at most, of {} advised and {} allowed; huge pages for {}",
        bytes(applied.locked),
        bytes(advised),
        bytes(budget),
        bytes(applied.huge)
    ));
    if applied.refused > 0 {
        say(format_args!(
            "isotherm: the kernel refused {}: raise RLIMIT_MEMLOCK (ulimit -l) of the process, or give it \
             CAP_IPC_LOCK; the kernel never locks memory of devices, memory for asynchronous I/O, or hugetlb pages; -v prints \
             each range",
            bytes(applied.refused)
        ));
    }
    Ok(exit(status, &stop))
}

/// The exit status of the command, or 128 plus the number of the signal that ended isotherm.
pub fn exit(status: Option<u8>, stop: &Stop) -> ExitCode {
    let by_signal = match stop.cause() {
        Some(StopCause::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        _ => 1,
    };
    ExitCode::from(status.unwrap_or(by_signal))
}
