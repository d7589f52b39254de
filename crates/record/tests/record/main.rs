//! Records, written and read again: complete, cut, damaged, limited, and read by other software.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attribution;
mod damage;
mod damo;
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
