//! A running service, by its control socket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use isotherm::control::{ControlError, snapshots};
use isotherm_record::Event;

use super::NewsSender;
use super::pressure::Pressures;

/// Time between two requests, if snapshots come more often.
const EVERY: Duration = Duration::from_secs(1);

/// Which service.
pub struct ServiceOptions {
    /// its control socket; `None`: the default
    pub control: Option<PathBuf>,
}

/// Asks for the snapshots that the service keeps, and then for new ones until the view or the service ends.
pub fn follow(o: &ServiceOptions, to: &mut NewsSender) -> Result<String> {
    let (mut last, mut pressures) = (None, Pressures::default());
    loop {
        let asked = snapshots(o.control.as_deref(), last, |events| {
            for event in events {
                if let Event::Attribution(a) = &event {
                    pressures.attribution(a);
                }
                // The history waits until there is room, new snapshots do not.
                let _ = if last.is_none() { to.send(event) } else { to.offer(event) };
            }
        });
        match asked {
            Ok(new) => last = new,
            // It has answered before, so this is the end of the view's source, not an error of the command.
            Err(e @ ControlError::NoService { .. }) if last.is_some() => {
                return Ok(format!("the service has ended ({e})"));
            }
            // An error of the command, which the view prints as it is the first news.
            Err(e) => return Err(e.into()),
        }
        if let Some(groups) = pressures.read() {
            to.pressure(groups);
        }
        if !to.wait(EVERY) {
            return Ok(String::new());
        }
    }
}
