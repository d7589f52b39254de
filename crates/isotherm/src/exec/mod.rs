//! Runs a command, or follows a process, and applies the advice of an earlier run inside it: locks ranges, and requests
//! huge pages for others.

mod advice;
mod error;
mod place;
mod process;
mod run;

pub use advice::{AdviceError, ProgramAdvice};
pub use error::ExecError;
pub use run::{AppliedAdvice, RaisedLimit, apply, lock_budget, run};
