//! A running service, by its control socket: memory by process and group, and what its schemes do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use isotherm::control::{ControlError, LastSnapshot, Request, ask, run_of, snapshots};
use isotherm::stop::Stop;
use isotherm::words::chain;
use isotherm_core::{HeatBytes, Nanos, groups_above};
use isotherm_linux::sys;
use isotherm_view::Index;
use isotherm_view::index::SchemeMark;
use serde_json::{Value, json};

use crate::server::Server;
use crate::source::{PageSource, SourceKind, ms};
use crate::{WebOptions, announce, farewell, live_limits};

/// Time between two questions to the service.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a service until a signal. `control` is its socket; `None`: the default.
///
/// # Errors
/// If no service answers, or the server cannot start.
pub fn follow(control: Option<&Path>, options: &WebOptions) -> Result<()> {
    let stop = Stop::at_signals()?.at(options.duration.map(|d| sys::monotonic() + d));
    // Before a browser is opened, it must be clear that there is a service.
    let first = ask(control, &Request::Status)?;
    let index = Index::new(live_limits(options.thresholds));
    let name = control.map_or_else(isotherm::control::default_path, PathBuf::from);
    let source =
        Arc::new(PageSource::new(SourceKind::Service, name.display().to_string(), None, index));
    let (changes, changed) = tokio::sync::watch::channel(0);
    let server = Server::start(&options.listen, vec![Arc::clone(&source)], changed)?;
    announce(&server);
    let mut service = Service::new(control, &source, run_of(&first));
    let mut status: Result<Value, ControlError> = Ok(first);
    while !stop.is_over() {
        // What was seen stays on the page while no service answers.
        let answered = status.map_err(Into::into).and_then(|answer| service.take(&answer));
        source.note(&answered.err().map_or_else(String::new, |e| chain(e.as_ref())));
        changes.send_modify(|n| *n += 1);
        stop.until(sys::monotonic() + REQUEST_INTERVAL)?.wait();
        status = ask(control, &Request::Status);
    }
    farewell(&server);
    Ok(())
}

/// The state of a service.
struct Service<'a> {
    control: Option<&'a Path>,
    source: &'a PageSource,
    /// its start
    run: Option<u64>,
    /// its last snapshot
    last: Option<LastSnapshot>,
    /// bytes that each scheme was applied to so far
    done: BTreeMap<String, u64>,
}

impl<'a> Service<'a> {
    fn new(control: Option<&'a Path>, source: &'a PageSource, run: Option<u64>) -> Self {
        Service { control, source, run, last: None, done: BTreeMap::new() }
    }

    /// Adds the answer to a question for the status, and the snapshot that came since the last one; at first all that
    /// the service keeps.
    fn take(&mut self, answer: &Value) -> Result<()> {
        let (now, run, status) = (sys::monotonic(), run_of(answer), &answer["status"]);
        if run != self.run {
            // Another service has answered: numbers of snapshots and targets start again.
            *self = Service::new(self.control, self.source, run);
            self.source.restart();
        }
        let take = |events: Vec<_>| {
            let mut index = self.source.change();
            events.into_iter().for_each(|event| index.push(event));
        };
        let read = snapshots(self.control, self.last, take);
        if read.is_err() && self.last.is_none() && self.source.index().counts().0 > 0 {
            // A part of the history has come. The next time, all of it comes.
            self.source.restart();
        }
        match read {
            Ok(last) => {
                self.last = last;
                self.source.set_rows(None);
            }
            // The kernel watches, so that there are no regions.
            Err(ControlError::Refused(_)) => self.totals(status, now),
            Err(e) => return Err(e.into()),
        }
        let mut index = self.source.change();
        if let Some(start) = index.span().map(|span| span.start) {
            for mark in marks(status, &mut self.done, ms(now.since(start))) {
                index.mark(mark);
            }
        }
        Ok(())
    }

    /// Adds what a status reports of memory.
    fn totals(&self, status: &Value, now: Nanos) {
        let saved = status["total"]["saved"].as_u64().unwrap_or(0);
        self.source.change().total(now..now + REQUEST_INTERVAL, &heat(&status["total"]), saved);
        self.source.set_rows(Some(rows(status)));
    }
}

fn heat(of: &Value) -> HeatBytes {
    let bytes = |name: &str| of[name].as_u64().unwrap_or(0);
    HeatBytes {
        hot: bytes("hot"),
        warm: bytes("warm"),
        cold: bytes("cold"),
        unknown: bytes("unknown"),
        absent: 0,
    }
}

/// The rows of processes, and their sums by control group and the groups above.
fn rows(status: &Value) -> Value {
    let targets = status["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sizes = ["resident", "hot", "warm", "cold", "unknown", "saved"];
    let mut groups: BTreeMap<&str, (u64, [u64; 6])> = BTreeMap::new();
    let process = |t: &Value| {
        let mut row = json!({
            "pid": t["pid"], "name": t["comm"], "command": t["comm"], "cgroup": t["cgroup"], "processes": 1,
            "refaults": null, "target": null,
        });
        sizes.iter().for_each(|name| row[*name] = t[*name].clone());
        row
    };
    for t in targets {
        let path = t["cgroup"].as_str().unwrap_or("");
        for group in groups_above(path) {
            let (processes, sums) = groups.entry(group).or_default();
            *processes += 1;
            for (sum, name) in sums.iter_mut().zip(sizes) {
                *sum += t[name].as_u64().unwrap_or(0);
            }
        }
    }
    let group = |(path, (processes, sums)): (&&str, &(u64, [u64; 6]))| {
        let mut row = json!({ "pid": null, "name": path, "command": "", "cgroup": path, "processes": processes,
            "refaults": null, "target": null });
        sizes.iter().zip(sums).for_each(|(name, sum)| row[*name] = json!(sum));
        row
    };
    json!({
        "process": targets.iter().map(process).collect::<Vec<_>>(),
        "cgroup": groups.iter().map(group).collect::<Vec<_>>(),
    })
}

/// The actions of each scheme since the last status.
fn marks(status: &Value, done: &mut BTreeMap<String, u64>, ms: f64) -> Vec<SchemeMark> {
    let schemes = status["schemes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mark = |scheme: &Value| {
        let name = scheme["scheme"].as_str()?.to_owned();
        let bytes = scheme["applied"]["bytes"].as_u64()?;
        let before = done.insert(name.clone(), bytes);
        let new = bytes.checked_sub(before?).filter(|new| *new > 0)?;
        let action = scheme["action"].as_str().unwrap_or_default().to_owned();
        Some(SchemeMark { ms, scheme: name, action, bytes: new })
    };
    schemes.iter().filter_map(mark).collect()
}

#[cfg(test)]
#[path = "../../isotherm/tests/fake_service/mod.rs"]
mod fake_service;

#[cfg(test)]
mod tests {
    use isotherm::control::Response;
    use isotherm::session::History;
    use isotherm_core::Thresholds;
    use isotherm_record::Event;
    use isotherm_view::By;
    use isotherm_view::pyramid::NO_DATA;

    use super::*;
    use crate::scene;

    const MIB: u64 = 1 << 20;

    /// A service whose memory the kernel watches refuses to report snapshots. Another one at its socket may have some.
    #[test]
    fn rows_of_a_status_are_shown_until_there_are_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let mut refuses = true;
        let answer = move |_| match std::mem::replace(&mut refuses, false) {
            true => Response::refused("there are no regions".to_owned()),
            false => Response::done(),
        };
        fake_service::serve(&socket, answer).unwrap();
        let index = Index::new(live_limits(Thresholds::default()));
        let source = PageSource::new(SourceKind::Service, "service".to_owned(), None, index);
        let mut service = Service::new(Some(&socket), &source, None);
        let status = json!({ "targets": [{ "pid": 7, "comm": "a", "cgroup": "/a", "hot": 1 }] });
        let answer = json!({ "status": status });
        service.take(&answer).unwrap();
        assert_eq!(source.table(0.0, By::Process).unwrap()[0]["pid"], 7);
        service.take(&answer).unwrap();
        assert!(source.table(0.0, By::Process).is_err(), "there is no snapshot yet");
    }

    /// Answers of a service whose snapshots are of 250 ms, four more of them at each question.
    fn four_a_second(request: &Request, history: &mut History, seq: &mut u64) -> Response<Value> {
        if let Request::Snapshot { from: Some(from), .. } = request {
            return Response::snapshot(history.since(Nanos(*from)).unwrap());
        }
        for _ in 0..4 {
            let region = scene::region(0, MIB, 10.0);
            let targets = vec![scene::target(0, vec![], vec![region])];
            history.push(Event::Snapshot(scene::snapshot(*seq, 0.25, targets).into()));
            *seq += 1;
        }
        match request {
            Request::Snapshot { after, .. } => Response::snapshot(history.last(*after).unwrap()),
            _ => Response::done(),
        }
    }

    #[test]
    fn the_heat_map_of_a_service_has_no_gaps_between_its_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let (mut history, mut seq) = (History::new(std::iter::empty()), 0);
        four_a_second(&Request::Status, &mut history, &mut seq);
        let answer = move |request| four_a_second(&request, &mut history, &mut seq);
        fake_service::serve(&socket, answer).unwrap();
        let index = Index::new(live_limits(Thresholds::default()));
        let source = PageSource::new(SourceKind::Service, "service".to_owned(), None, index);
        let mut service = Service::new(Some(&socket), &source, None);
        (0..30).for_each(|_| service.take(&json!({})).unwrap());
        assert_eq!(source.index().counts().0, 1 + 29, "one at first, and one for each question");
        let tile = json!({
            "target": 0, "axis": source.axis(0).unwrap().version, "from_ms": 1000.0, "pixel_ms": 64.0,
            "from_byte": 0, "row_bytes": MIB, "width": 400, "height": 1,
        });
        let cells = source.tile(&serde_json::from_value(tile).unwrap()).unwrap();
        assert!(!cells.contains(&NO_DATA), "{cells:?}");
        // The last part begins at the end of the last snapshot.
        let parts = source.series().parts;
        assert!(parts[..parts.len() - 1].iter().all(Option::is_some), "{parts:?}");
    }

    /// The service answers with its history, but once does not answer whether there is more.
    #[test]
    fn a_history_that_breaks_off_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let mut history = History::new(std::iter::empty());
        for seq in 0..3 {
            let targets = vec![scene::target(0, vec![], vec![scene::region(0, MIB, 10.0)])];
            history.push(Event::Snapshot(scene::snapshot(seq, 1.0, targets).into()));
        }
        let mut asked = 0;
        let answer = move |request| {
            asked += 1;
            match request {
                Request::Snapshot { .. } if asked == 2 => Response::refused("busy".to_owned()),
                Request::Snapshot { from: Some(from), .. } => {
                    Response::snapshot(history.since(Nanos(from)).unwrap())
                }
                _ => Response::done(),
            }
        };
        fake_service::serve(&socket, answer).unwrap();
        let index = Index::new(live_limits(Thresholds::default()));
        let source = PageSource::new(SourceKind::Service, "service".to_owned(), None, index);
        let mut service = Service::new(Some(&socket), &source, None);
        let counts = [(); 2].map(|()| {
            service.take(&json!({})).unwrap();
            source.index().counts().0
        });
        assert_eq!(counts, [0, 3]);
    }

    /// A laptop slept, or the page read the history of the other service before its next event: its number of
    /// snapshots is greater.
    #[test]
    fn another_service_is_noticed_whatever_its_numbers_are() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let histories = [(1, 1), (3, 2)].map(|(snapshots, id)| {
            let mut history = History::new(std::iter::empty());
            for seq in 0..snapshots {
                let targets = vec![scene::target(id, vec![], vec![scene::region(0, MIB, 10.0)])];
                history.push(Event::Snapshot(scene::snapshot(seq, 1.0, targets).into()));
            }
            history
        });
        let mut asked = 0;
        let answer = move |request| {
            // The first service answers until there is no more of its history.
            let history = &histories[usize::from(asked > 1)];
            asked += 1;
            match request {
                Request::Snapshot { from: Some(from), .. } => {
                    Response::snapshot(history.since(Nanos(from)).unwrap())
                }
                Request::Snapshot { after, .. } => Response::snapshot(history.last(after).unwrap()),
                _ => Response::done(),
            }
        };
        fake_service::serve(&socket, answer).unwrap();
        let index = Index::new(live_limits(Thresholds::default()));
        let source = PageSource::new(SourceKind::Service, "service".to_owned(), None, index);
        let mut service = Service::new(Some(&socket), &source, Some(1));
        let answer = |started: u64| json!({ "status": { "started_ns": started, "seconds": 9.0 } });
        let generation = || serde_json::to_value(source.state()).unwrap()["generation"].clone();
        service.take(&answer(1)).unwrap();
        assert_eq!((source.index().counts().0, generation()), (1, 0.into()));
        service.take(&answer(2)).unwrap();
        assert_eq!((source.index().counts().0, generation()), (3, 1.into()));
        let targets = source.targets();
        assert_eq!(serde_json::to_value(targets).unwrap()[0]["id"], 2);
    }

    #[test]
    fn groups_are_sums_of_their_processes_and_of_the_groups_below() {
        let target =
            |cgroup: &str, hot: u64| json!({ "pid": 7, "comm": "a", "cgroup": cgroup, "hot": hot });
        let status = json!({ "targets": [target("/a/b", 1), target("/a", 2), target("", 4)] });
        let rows = rows(&status);
        let all = rows["cgroup"].as_array().unwrap().iter();
        let sums: Vec<_> =
            all.map(|row| (row["name"].as_str().unwrap(), row["hot"].as_u64().unwrap())).collect();
        assert_eq!(sums, [("", 4), ("/", 3), ("/a", 3), ("/a/b", 1)]);
        assert_eq!(rows["process"][1]["hot"], 2);
    }

    #[test]
    fn a_mark_is_what_was_done_since_the_last_status() {
        let status = |bytes: u64| json!({ "schemes": [{ "scheme": "cold", "action": "pageout", "applied": { "bytes": bytes } }] });
        let mut done = BTreeMap::new();
        assert!(marks(&status(100), &mut done, 0.0).is_empty(), "it was before the page");
        let found = marks(&status(150), &mut done, 1.0);
        assert_eq!((found.len(), found[0].bytes, &*found[0].action), (1, 50, "pageout"));
        assert!(marks(&status(150), &mut done, 2.0).is_empty());
    }
}
