//! A running service, by its control socket: memory by process and group, and what its schemes do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use isotherm::control::{ControlError, Request, ask, snapshots};
use isotherm::stop::Stop;
use isotherm::words::chain;
use isotherm_core::{HeatBytes, Nanos, parent_group};
use isotherm_linux::sys;
use isotherm_view::Index;
use isotherm_view::index::SchemeMark;
use serde_json::{Value, json};

use crate::server::Server;
use crate::source::{Source, SourceKind, ms};
use crate::{WebOptions, announce, farewell, live_limits};

/// Time between two questions to the service.
const EVERY: Duration = Duration::from_secs(1);

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
        Arc::new(Source::new(SourceKind::Service, name.display().to_string(), None, index));
    let (changes, changed) = tokio::sync::watch::channel(0);
    let server = Server::start(&options.listen, vec![Arc::clone(&source)], changed)?;
    announce(&server);
    let mut service =
        Service { control, source: &source, last: None, seconds: 0.0, done: BTreeMap::new() };
    let mut status: Result<Value, ControlError> = Ok(first);
    while !stop.is_over() {
        // What was seen stays on the page while no service answers.
        let seconds = |s: &Value| s["status"]["seconds"].as_f64().unwrap_or(1.0);
        let ran = status.as_ref().map_or(service.seconds, seconds);
        // Another service has answered: numbers of snapshots and targets start again.
        if ran < std::mem::replace(&mut service.seconds, ran) {
            (service.last, service.done) = (None, BTreeMap::new());
            *source.change() = Index::new(live_limits(options.thresholds));
        }
        let answered =
            status.map_err(Into::into).and_then(|answer| service.take(&answer["status"]));
        source.note(&answered.err().map_or_else(String::new, |e| chain(e.as_ref())));
        changes.send_modify(|n| *n += 1);
        stop.until(sys::monotonic() + EVERY)?.wait();
        status = ask(control, &Request::Status);
    }
    farewell(&server);
    Ok(())
}

/// The state of a service.
struct Service<'a> {
    control: Option<&'a Path>,
    source: &'a Source,
    /// number of its last snapshot
    last: Option<u64>,
    /// for how long it had run when it last answered
    seconds: f64,
    /// bytes that each scheme was applied to so far
    done: BTreeMap<String, u64>,
}

impl Service<'_> {
    /// Adds a status, and the snapshot that came since the last one; at first all that the service keeps.
    fn take(&mut self, status: &Value) -> Result<()> {
        let now = sys::monotonic();
        let take = |events: Vec<_>| {
            let mut index = self.source.change();
            events.into_iter().for_each(|event| index.push(event));
        };
        match snapshots(self.control, self.last, take) {
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
        self.source.change().total(now..now + EVERY, &heat(&status["total"]), saved);
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
        for group in std::iter::successors(Some(path), |path| parent_group(path)) {
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
    use isotherm::control::Answer;
    use isotherm_core::Thresholds;
    use isotherm_view::By;

    use super::*;

    /// A service whose memory the kernel watches refuses to report snapshots. Another one at its socket may have some.
    #[test]
    fn rows_of_a_status_are_shown_until_there_are_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let mut refuses = true;
        let answer = move |_| match std::mem::replace(&mut refuses, false) {
            true => Answer::refused("there are no regions".to_owned()),
            false => Answer::done(),
        };
        fake_service::serve(&socket, answer).unwrap();
        let index = Index::new(live_limits(Thresholds::default()));
        let source = Source::new(SourceKind::Service, "service".to_owned(), None, index);
        let (control, done) = (Some(socket.as_path()), BTreeMap::new());
        let mut service = Service { control, source: &source, last: None, seconds: 0.0, done };
        let status = json!({ "targets": [{ "pid": 7, "comm": "a", "cgroup": "/a", "hot": 1 }] });
        service.take(&status).unwrap();
        assert_eq!(source.table(0.0, By::Process).unwrap()[0]["pid"], 7);
        service.take(&status).unwrap();
        assert!(source.table(0.0, By::Process).is_err(), "there is no snapshot yet");
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
