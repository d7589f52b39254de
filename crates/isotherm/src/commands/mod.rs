//! One file a command.

pub mod doctor;
pub mod export;
pub mod record;
pub mod report;
