//! Records, written and read again: complete, cut, damaged, limited, and read by other software.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attribution;
mod damage;
mod damo;
#[path = "../../examples/day.rs"]
#[allow(dead_code, reason = "it is a program")]
mod day;
mod edit;
mod limits;
mod marks;
mod perfetto;
mod pyarrow;
mod python;
mod round_trip;
mod samples;
mod size;
mod stored;
mod tables;
mod verify;
