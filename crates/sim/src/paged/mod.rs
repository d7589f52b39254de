//! A simulated machine whose memory may run short: files, a page cache and a disk; processes and
//! swap; nodes. Its memory follows a kernel's rules ([`isotherm_mm`]).
//!
//! No part of it uses a wall clock or a thread. Time is in ns since the start, [`Task`]s run in order of time,
//! and the same seed gives the same bytes.
//!
//! ```
//! use isotherm_mm::Fair;
//! use isotherm_sim::paged::{MachineSpec, PagedMachine, Stream, StreamOrder, Task};
//! use isotherm_sim::workload::Op;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = MachineSpec::parse(
//!     "about = '40 MB'\n[[node]]\nzones = [{ kind = 'normal', pages = 10000 }]\n",
//! )?;
//! let mut machine = PagedMachine::new(&spec, Fair::Landed.rules(), 1)?;
//! let file = machine.add_file(20_000);
//! let reader = Stream::new(&machine, file, Op::Read, StreamOrder::Sequential, 20_000);
//! let ended = machine.run(&mut [Box::new(reader) as Box<dyn Task>])?;
//! assert!(ended[0] > 600_000_000, "82 MB take more than 0.6 s at 132 MB/s");
//! assert_eq!(machine.counts().fetched, 20_000);
//! # Ok(())
//! # }
//! ```

mod accesses;
mod ages;
mod background;
mod bus;
mod disk;
mod engine;
mod owners;
mod pager;
mod spec;
mod stream;
mod system;
mod toucher;
mod watcher;
mod writeback;

pub use ages::Ages;
pub use disk::DiskStats;
pub use engine::{Next, Task};
pub use pager::Pager;
pub use spec::{Costs, DiskSpec, MachineSpec, NodeSpec, SpecError, SwapSpec, ZoneSpec};
pub use stream::{Stream, StreamOrder};
pub use system::{Actor, PageEvents, PagedMachine};
pub use toucher::{Populate, Toucher};
pub use watcher::{WatchResults, Watcher, addresses, target};
