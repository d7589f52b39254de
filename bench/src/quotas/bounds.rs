//! What was to be so, and was not.

use anyhow::{Result, ensure};

/// Bounds that were broken.
#[derive(Debug, Default)]
pub struct Bounds(Vec<String>);

impl Bounds {
    /// Notes `what` unless it is so.
    pub fn expect(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        if !is_so {
            self.0.push(what());
        }
    }

    /// Whether all was kept.
    ///
    /// # Errors
    /// What was not.
    pub fn check(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "broken: {}", self.0.join("; "));
        Ok(())
    }
}
