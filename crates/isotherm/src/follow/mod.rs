//! The watched processes: selecting them, following them as they start and end, and starting a command.

mod error;
mod exclusions;
mod follower;
mod members;
mod selection;
mod started;

pub use error::FollowError;
pub use follower::Follower;
pub use selection::Selection;
pub use started::{StartedCommand, resolve};
