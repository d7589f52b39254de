//! A workload on real memory: touched in a known way, and counted.

mod contents;
mod ledger;
mod marks;
mod run;
mod touch;

pub use contents::fill;
pub use ledger::Book;
pub use marks::{check, mark};
pub use run::Running;
