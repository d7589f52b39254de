//! The program as people use it: on real processes, with its records read back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, and what helps them")]

mod act_files;
mod advice;
mod agent;
mod aim;
mod allocators;
#[path = "../../../linux/tests/common/swap.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod alone;
mod attribution;
mod cgroups;
mod check;
mod churn;
mod command;
mod command_line;
mod container;
mod control;
mod damage;
mod disk;
mod doctor;
mod ends;
mod exec;
mod export;
mod faults;
mod faults_killed;
mod files;
mod files_and_processes;
mod fixed;
mod fleet;
mod goals;
mod idle;
mod import;
mod interleave;
mod kill_on_drop;
mod lab;
mod lab_interleave;
mod limits;
mod load;
#[path = "../../../../bench/src/synthetic.rs"]
mod long_record;
mod looks;
mod metrics;
#[path = "../../../fleet/tests/moto/mod.rs"]
mod moto;
mod need;
mod notified;
mod object_storage;
mod package;
mod privileges;
#[path = "../../../record/tests/record/python.rs"]
mod python;
mod reclaim;
mod record;
mod record_control;
mod record_files;
mod refused;
mod report;
mod reports;
#[path = "../../../linux/tests/common/root.rs"]
mod root;
mod run;
mod schemes;
mod schemes_quota;
mod schemes_targets;
mod security;
mod servers;
mod service;
mod service_targets;
mod soak;
mod stacks;
mod swap;
mod synthetic;
mod top;
mod tracepoints;
mod unit;
mod web;
mod whatif;
#[path = "../../../linux/tests/common/words.rs"]
#[allow(clippy::undocumented_unsafe_blocks, reason = "memory of our own, mapped for this")]
mod words;
mod workload;
mod wrong_usage;
mod zones;

/// In the process that [`load::Load`] starts, this is the load. In an ordinary test run it does nothing.
#[test]
fn obey() {
    load::obey();
}
