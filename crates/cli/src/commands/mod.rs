//! The commands, one file for each.

pub mod agent;
pub mod doctor;
pub mod edit;
pub mod exec;
pub mod export;
pub mod files;
pub mod fleet;
pub mod import;
pub mod interleave;
pub mod lab;
mod line;
pub mod need;
pub mod now;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod run;
pub mod service;
pub mod swap;
pub mod system;
pub mod top;
pub mod web;
pub mod whatif;
pub mod workload;
pub mod zones;
