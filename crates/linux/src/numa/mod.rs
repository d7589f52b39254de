//! Nodes: the data of firmware and kernel about them, the machine's interleave weights, and the placement of a
//! process's pages.
//!
//! Placement is read and changed by folio. The caller's rule determines the node of each folio.

mod batch;
mod change;
mod error;
mod files;
mod layout;
mod move_result;
mod nodes;
mod pieces;
mod rule;
mod stream;
mod undo_log;
mod weights;
mod windows;

pub use change::{Holding, RequestedWeights, RestoreResult, hold, put_back, set, sweep};
pub use error::NumaError;
pub use files::parse_list;
pub use layout::ProcessLayout;
pub use move_result::{MoveResult, UnmovedPages};
pub use nodes::{Node, NodePerformance, allowed_nodes_of, balancing, nodes};
pub use pieces::MovablePiece;
pub use rule::node_of;
pub use stream::{Bound, Mix, Streamed, measure};
pub use weights::{WeightFiles, WeightSetting};
