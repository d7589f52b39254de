//! Memory policies: which node a page is allocated from. The rules of mm/mempolicy.c.
//!
//! Weighted interleave has two rules:
//! - **by index**: the node of a page in an address space follows from the number of the page alone
//!   ([`NodeWeights::node`], [`static_node`]). This rule also applies to real machines, and needs nothing else
//!   from this module;
//! - **by turn**: a page outside address spaces comes from the task's next node ([`Task::take_weighted`]).
//!
//! [`Task::allocate`] then allocates a page of [`Memory`](crate::Memory): the selected node may be full, and
//! the allowed nodes may change in the meantime.
//!
//! ```
//! use isotherm_mm::mempolicy::{NodeMapping, FilesOf, Mode, Policy, Task, Use, WeightFilesModel};
//! use isotherm_mm::{AllocRequest, Layout, Memory, NodeLayout, NodeSet, Rules, ZoneKind, ZoneLayout};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = |to_0, to_1| NodeLayout {
//!     zones: vec![ZoneLayout { kind: ZoneKind::Normal, managed: 4000 }],
//!     distances: vec![to_0, to_1],
//! };
//! let layout = Layout { cpus: 1, nodes: vec![node(10, 20), node(20, 10)] };
//! let mut memory = Memory::new(&layout, Rules::linux_4_8())?;
//!
//! let both = NodeSet::from_iter([0, 1]);
//! let mut weights = WeightFilesModel::new(FilesOf::V6_9, both);
//! weights.store(0, "5\n")?;
//! let policy = Policy::new(Mode::WeightedInterleave, NodeMapping::default(), both, both)?;
//! let mut task = Task::new(policy, both);
//! let request = AllocRequest {
//!     cpu: 0, node: 0, class: ZoneKind::Normal, kind: None, write: false, owner: 0,
//! };
//! for page in 0..600 {
//!     task.allocate(&mut memory, request, Use::Mapped(page), &weights, &mut (), |_| ())?;
//! }
//! let given: Vec<u64> = memory.zones().iter().map(|z| z.stats.allocated).collect();
//! assert_eq!(given, [500, 100]);
//! # Ok(())
//! # }
//! ```

mod bandwidth;
mod files;
mod place;
mod policy;
mod task;
mod text;
mod weights;

pub use bandwidth::{WEIGHTINESS, bandwidth_of, weights_from_bandwidth};
pub use files::{FilesOf, WeightFileError, WeightFilesModel};
pub use place::Use;
pub use policy::{Mode, NodeMapping, Policy, PolicyError};
pub use task::{Allowed, Task};
pub use weights::{MAX_WEIGHTS, NodeWeights, NodeWeightsError, interleave_index, static_node};
