//! `isotherm system swap`: creates and removes swap in compressed memory.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_linux::swap::{Restore, SwapError, restore, set_up};
use isotherm_report::bytes;

use super::report::output::print;
use crate::cli::{Swap, SwapTask, UsageError};
use crate::log::say;

/// Creates the swap, or removes it.
pub fn run(o: &Swap) -> Result<ExitCode> {
    let text = match &o.task {
        SwapTask::Zram { size, name } => make(*size, name.as_deref()),
        SwapTask::Restore { name, force } => remove(name.as_deref(), *force),
    };
    let text = text.map_err(|e| match e {
        SwapError::Size { .. } | SwapError::Name(_) => UsageError::new(e.to_string()).into(),
        e => anyhow::Error::from(e),
    })?;
    print(text.as_bytes())
}

fn make(size: u64, name: Option<&str>) -> Result<String, SwapError> {
    let device = set_up(Path::new("/"), name, size)?;
    let name = name.map_or_else(String::new, |name| format!(" --name {name}"));
    Ok(format!(
        "swapping to {}, {} before compression; isotherm system swap restore{name} removes it\n",
        device.display(),
        bytes(size)
    ))
}

fn remove(name: Option<&str>, force: bool) -> Result<String, SwapError> {
    let caller = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let o = Restore { name, force, caller };
    let mut show = |content: &_| say(format_args!("isotherm: to be removed: {content}"));
    let gone: String = restore(Path::new("/"), &o, &mut show)?
        .iter()
        .map(|device| {
            format!("{} is removed, and its content is back in memory\n", device.display())
        })
        .collect();
    Ok(match gone.is_empty() {
        true => "there is no swap of isotherm's to remove (the swap of a measurement ends with \
                 its process)\n"
            .to_owned(),
        false => gone,
    })
}
