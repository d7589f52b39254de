//! `isotherm swap`: swap in compressed memory, made and taken away.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_linux::swap::{SwapError, restore, set_up};
use isotherm_report::bytes;

use super::report::output::print;
use crate::cli::{Swap, SwapTask, UsageError};

/// Makes it, or takes it away.
pub fn run(o: &Swap) -> Result<ExitCode> {
    let root = Path::new("/");
    let text = match o.task {
        SwapTask::Zram { size } => {
            let device = set_up(root, size).map_err(|e| match e {
                SwapError::Size { .. } => UsageError::new(e.to_string()).into(),
                e => anyhow::Error::from(e),
            })?;
            format!(
                "swapping to {}, {} before compression; isotherm swap restore takes it away\n",
                device.display(),
                bytes(size)
            )
        }
        SwapTask::Restore => {
            let gone: String = restore(root)?
                .iter()
                .map(|device| format!("{} is gone, what it held is back\n", device.display()))
                .collect();
            if gone.is_empty() {
                "there is no swap of isotherm's to take away (that of a measurement goes with its process)\n"
                    .to_owned()
            } else {
                gone
            }
        }
    };
    print(text.as_bytes())
}
