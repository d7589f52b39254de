//! Nodes: what firmware and kernel tell of them, the machine's weights of interleaving, and where the
//! pages of a process lie.
//!
//! What lies where is told and changed by the folio; which node it belongs on is the caller's rule.

mod batch;
mod change;
mod error;
mod files;
mod laid_out;
mod layout;
mod nodes;
mod pieces;
mod rule;
mod stream;
mod undo_log;
mod weights;
mod windows;

pub use change::{Holding, PutBack, Wanted, hold, put_back, set, sweep};
pub use error::NumaError;
pub use files::parse_list;
pub use laid_out::{LaidOut, Left};
pub use layout::Layout;
pub use nodes::{Access, Node, allowed_nodes_of, balancing, nodes};
pub use pieces::Piece;
pub use rule::node_of;
pub use stream::{Bound, Mix, Streamed, measure};
pub use weights::{Setting, WeightFiles};
