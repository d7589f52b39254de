//! Schemes: which action to apply to which memory, within a quota.
//!
//! A [`Scheme`] is a [`Pattern`] of size, rate and age, an [`Action`](crate::Action), a [`Quota`], [`Watermarks`] and
//! [`Filter`]s. An [`Engine`] receives snapshots, and acts through [`crate::Act`].
//! `docs/reference/schemes.md` describes schemes in full.

mod absent;
mod acted;
mod aim;
mod aim_step;
mod cache_aim;
mod candidates;
mod definition;
mod engine;
mod error;
mod filter;
mod goal;
mod metrics;
mod parse;
mod pattern;
mod price;
mod priority;
mod queue;
mod quota;
mod running;
mod stats;
#[cfg(test)]
pub(crate) mod testing;
mod watermarks;

pub use aim::Aim;
pub use aim_step::{AimReason, AimStep};
pub use definition::Scheme;
pub use engine::Engine;
pub use error::SchemeError;
pub use filter::{Filter, FilterKind};
pub use goal::{Goal, feed_loop};
pub use metrics::{GroupCache, MemoryMetrics, Metrics, Process, Scope};
pub use parse::{ParseError, ParseErrorKind, parse, parse_action, parse_age, parse_rate};
pub use pattern::{Pattern, hz_of_percent, mean_hz};
pub use price::Prices;
pub use priority::{Weights, score};
pub use quota::Quota;
pub use stats::{ActionEvent, Count, Outcome, SkipReason, Stats};
pub use watermarks::{WatermarkMetric, Watermarks};
