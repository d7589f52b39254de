//! The evaluation of the mails in which DAMON, its schemes and proactive reclamation were proposed, on this
//! machine: workloads under several configurations, in alternation. `docs/measurements/evaluation.md` describes it.

pub mod beside;
pub mod config;
pub mod estimate;
pub mod folder;
pub mod latency;
pub mod locked;
pub mod machine;
pub mod mails;
pub mod names;
pub mod one;
pub mod pace;
pub mod plan;
pub mod pressure;
pub mod process;
pub mod results;
pub mod run;
pub mod sampler;
pub mod slices;
pub mod small_pages;
pub mod statistics;
pub mod stop;
pub mod table;
pub mod tables;
pub mod verdict;
pub mod verdicts;
pub mod watching;
pub mod workload;
