//! A running service, by its control socket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use isotherm::control::{ControlError, Request, ask, run_of, snapshots};
use isotherm_record::Event;

use super::pressure::Pressures;
use super::{NewsSender, SourceEvent};

/// Time between two requests, if snapshots come more often.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Which service.
pub struct ServiceOptions {
    /// its control socket; `None`: the default
    pub control: Option<PathBuf>,
}

/// Asks for the snapshots that the service keeps, and then for new ones until the view or the service ends. If
/// another service has taken its place, the view begins again.
pub fn follow(o: &ServiceOptions, to: &mut NewsSender) -> Result<String> {
    let control = o.control.as_deref();
    let (mut last, mut pressures) = (None, Pressures::default());
    let mut known_run: Option<Option<u64>> = None;
    let mut is_broken = false;
    loop {
        let asked = ask(control, &Request::Status).and_then(|status| {
            let run = run_of(&status);
            // Another service numbers its snapshots and targets from 0 again.
            if known_run.replace(run).is_some_and(|known| known != run) {
                last = None;
                let _ = to.events.send(SourceEvent::Restarted);
            }
            snapshots(control, last, |events| {
                for event in events {
                    if let Event::Attribution(a) = &event {
                        pressures.attribution(a);
                    }
                    // The history waits until there is room, new snapshots do not.
                    let _ = if last.is_none() { to.send(event) } else { to.offer(event) };
                }
            })
        });
        match asked {
            Ok(new) => (last, is_broken) = (new, false),
            // The service may have ended during the exchange: the next one tells.
            Err(ControlError::Speak { .. } | ControlError::Senseless { .. })
                if known_run.is_some() && !is_broken =>
            {
                is_broken = true;
                if last.is_none() {
                    // A part of the history may have come. The next time, all of it comes.
                    let _ = to.events.send(SourceEvent::Restarted);
                }
            }
            // It has answered before, so this is the end of the view's source, not an error of the command.
            Err(e @ ControlError::NoService { .. }) if known_run.is_some() => {
                return Ok(format!("the service has ended ({e})"));
            }
            // An error of the command, which the view prints as it is the first news.
            Err(e) => return Err(e.into()),
        }
        if let Some(groups) = pressures.read() {
            to.pressure(groups);
        }
        if !to.wait(REQUEST_INTERVAL) {
            return Ok(String::new());
        }
    }
}

#[cfg(test)]
#[path = "../../../isotherm/tests/fake_service/mod.rs"]
mod fake_service;

#[cfg(test)]
mod tests {
    use isotherm::control::Response;
    use isotherm::session::History;
    use isotherm::stop::Stop;
    use isotherm_core::{Nanos, TargetId};
    use isotherm_linux::sys;
    use isotherm_record::TargetInfo;
    use serde_json::json;

    use super::fake_service::serve;
    use super::*;
    use crate::scene;
    use crate::source::ViewSource;

    fn history(snapshots: u64, command: &str) -> History {
        let fact = TargetInfo { id: TargetId(0), pid: Some(7), command: command.to_owned() };
        let mut history = History::new([fact].into_iter());
        for seq in 0..snapshots {
            let target = scene::target(0, vec![], vec![]);
            history.push(Event::Snapshot(scene::snapshot(seq, 1.0, vec![target]).into()));
        }
        history
    }

    /// The other service may have fewer snapshots, so that none comes after the last one of the first, or more.
    #[test]
    fn another_service_at_the_socket_begins_the_view_again() {
        shows_the_other_after(500);
        shows_the_other_after(1);
    }

    #[test]
    fn a_service_may_end_before_it_has_answered() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let history = history(3, "first");
        let mut asked = 0;
        let answer = move |request| {
            asked += usize::from(matches!(request, Request::Status));
            match request {
                Request::Status if asked == 1 => Response::status(json!({ "started_ns": 1 })),
                Request::Snapshot { after, .. } => Response::snapshot(history.last(after).unwrap()),
                _ => panic!("the service ends here"),
            }
        };
        serve(&socket, answer).unwrap();
        let follow = ViewSource::Service(ServiceOptions { control: Some(socket) });
        let mut feed = follow.start().unwrap();
        let stop = Stop::never().at(Some(sys::monotonic() + Duration::from_secs(300)));
        let why = loop {
            if let SourceEvent::Ended(why) = feed.next(&stop).expect("the view does not end") {
                break why.unwrap();
            }
        };
        assert!(why.starts_with("the service has ended"), "{why}");
        feed.join();
    }

    /// The first service has so many snapshots, and the other one three.
    fn shows_the_other_after(snapshots: u64) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let (first, other) = (history(snapshots, "first"), history(3, "other"));
        let mut asked = 0;
        let answer = move |request| {
            asked += usize::from(matches!(request, Request::Status));
            let (history, started) = if asked > 1 { (&other, 2) } else { (&first, 1) };
            match request {
                Request::Status => Response::status(json!({ "started_ns": started })),
                Request::Snapshot { from: Some(from), .. } => {
                    Response::snapshot(history.since(Nanos(from)).unwrap())
                }
                Request::Snapshot { after, .. } => Response::snapshot(history.last(after).unwrap()),
                _ => Response::done(),
            }
        };
        serve(&socket, answer).unwrap();
        let follow = ViewSource::Service(ServiceOptions { control: Some(socket) });
        let mut feed = follow.start().unwrap();
        let stop = Stop::never().at(Some(sys::monotonic() + Duration::from_secs(300)));
        let mut seen = Vec::new();
        while !seen.ends_with(&["restarted", "other", "snapshot", "snapshot", "snapshot"]) {
            match feed.next(&stop).expect("the other service is not shown") {
                SourceEvent::Restarted => seen.push("restarted"),
                SourceEvent::Event(Event::Target(fact)) if fact.command == "other" => {
                    seen.push("other");
                }
                SourceEvent::Event(Event::Snapshot(_)) => seen.push("snapshot"),
                SourceEvent::Ended(why) => panic!("it has ended: {why:?}"),
                _ => {}
            }
        }
        feed.join();
    }
}
