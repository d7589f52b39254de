//! The watched processes: selecting them, following them as they start and end, and starting a command.

mod exclusions;
mod follower;
mod members;
mod selection;
mod started;

pub use follower::Follower;
pub use selection::Selection;
pub use started::{StartedCommand, resolve};
