//! Checks of bounds.

use anyhow::{Result, ensure};

/// Bounds that were broken.
#[derive(Debug, Default)]
pub struct BrokenBounds(Vec<String>);

impl BrokenBounds {
    /// Records `what` as broken unless the condition is true.
    pub fn expect(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        if !is_so {
            self.0.push(what());
        }
    }

    /// Whether all bounds hold.
    pub fn check(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "broken: {}", self.0.join("; "));
        Ok(())
    }
}
