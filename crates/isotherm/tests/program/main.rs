//! The program as people use it: on real processes, read back from its records.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, and what helps them")]

mod check;
mod command;
mod doctor;
mod ends;
mod limits;
mod load;
mod privileges;
mod record;
mod report;
mod reports;
mod run;
#[path = "../../../../bench/src/synthetic.rs"]
mod synthetic;
mod wrong_usage;

/// In the process that [`load::Load`] starts, this is the load; in an ordinary test run, nothing.
#[test]
fn obey() {
    load::obey();
}
