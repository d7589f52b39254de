//! A running service, by its control socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm::control::{ControlError, Request, ask, snapshots};
use isotherm_record::Event;

use super::pressure::Pressures;
use super::{NewsSender, SourceEvent};

/// Time between two requests, if snapshots come more often.
const EVERY: Duration = Duration::from_secs(1);

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
    // since when the service has certainly run
    let mut known: Option<Instant> = None;
    loop {
        let asked = snapshots(control, last, |events| {
            for event in events {
                if let Event::Attribution(a) = &event {
                    pressures.attribution(a);
                }
                // The history waits until there is room, new snapshots do not.
                let _ = if last.is_none() { to.send(event) } else { to.offer(event) };
            }
        });
        // Another service numbers its snapshots from 0 again, so that there is none after the last one for long.
        let asked = asked.and_then(|new| Ok((new, new == last && is_another(control, known)?)));
        match asked {
            Ok((_, true)) => {
                (last, known) = (None, Some(Instant::now()));
                let _ = to.events.send(SourceEvent::Restarted);
            }
            Ok((new, false)) => {
                last = new;
                known = known.or_else(|| new.map(|_| Instant::now()));
            }
            // It has answered before, so this is the end of the view's source, not an error of the command.
            Err(e @ ControlError::NoService { .. }) if known.is_some() => {
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

/// Whether the service has not run since `known`.
fn is_another(control: Option<&Path>, known: Option<Instant>) -> Result<bool, ControlError> {
    let Some(known) = known.map(|known| known.elapsed()) else { return Ok(false) };
    let answer = ask(control, &Request::Status)?;
    let seconds = answer["status"]["seconds"].as_f64();
    Ok(seconds.is_some_and(|seconds| seconds < known.as_secs_f64()))
}

#[cfg(test)]
#[path = "../../../isotherm/tests/fake_service/mod.rs"]
mod fake_service;

#[cfg(test)]
mod tests {
    use isotherm::control::Answer;
    use isotherm::session::History;
    use isotherm::stop::Stop;
    use isotherm_core::{Nanos, TargetId};
    use isotherm_linux::sys;
    use isotherm_record::TargetInfo;
    use serde_json::json;

    use super::fake_service::serve;
    use super::*;
    use crate::scene;
    use crate::source::Source;

    fn history(snapshots: u64, command: &str) -> History {
        let fact = TargetInfo { id: TargetId(0), pid: Some(7), command: command.to_owned() };
        let mut history = History::new([fact].into_iter());
        for seq in 0..snapshots {
            let target = scene::target(0, vec![], vec![]);
            history.push(Event::Snapshot(scene::snapshot(seq, 1.0, vec![target]).into()));
        }
        history
    }

    /// The other service has fewer snapshots, so that none comes after the last one of the first.
    #[test]
    fn another_service_at_the_socket_begins_the_view_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let (first, other) = (history(500, "first"), history(3, "other"));
        let mut restarted = false;
        let answer = move |request| {
            restarted |= matches!(request, Request::Snapshot { after: Some(_), .. });
            let (history, seconds) = if restarted { (&other, 0.5) } else { (&first, 1e6) };
            match request {
                Request::Status => Answer::status(json!({ "seconds": seconds })),
                Request::Snapshot { from: Some(from), .. } => {
                    Answer::snapshot(history.since(Nanos(from)).unwrap())
                }
                Request::Snapshot { after, .. } => Answer::snapshot(history.last(after).unwrap()),
                _ => Answer::done(),
            }
        };
        serve(&socket, answer).unwrap();
        let follow = Source::Service(ServiceOptions { control: Some(socket) });
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
