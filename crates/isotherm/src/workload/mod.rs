//! A workload on real memory: known accesses, which are counted.

mod contents;
mod ledger;
mod marks;
mod run;
mod touch;

pub use contents::fill;
pub use ledger::Book;
pub use marks::{check, mark};
pub use run::Running;
