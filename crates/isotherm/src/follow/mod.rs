//! The processes that are watched: selected, followed as they come and go, or started.

mod exclusions;
mod follower;
mod members;
mod selection;
mod started;

pub use follower::Follower;
pub use selection::Selection;
pub use started::{Started, resolve};
