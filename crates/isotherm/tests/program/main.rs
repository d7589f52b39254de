//! The program as people use it: on real processes, read back from its records.

mod command;
mod doctor;
mod ends;
mod limits;
mod load;
mod privileges;
mod record;
mod report;
mod run;
mod usage;

/// In the process that [`load::Load`] starts, this is the load; in an ordinary test run, nothing.
#[test]
fn obey() {
    load::obey();
}
