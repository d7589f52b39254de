//! Watching and acting, until there is a reason to end.

use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::scheme::{Engine, Event};
use isotherm_core::{Act, Attrs, Nanos, Snapshot, Source, Step, TargetId};
use isotherm_linux::sys;
use isotherm_record::TargetFact;

use super::answer::Asked;
use super::dry::Dry;
use super::event::Line;
use super::log::Log;
use super::metrics::Meter;
use super::recording::Recording;
use super::saved::Saved;
use super::status;
use super::table::Table;
use super::{Takes, Told};
use crate::commands::metrics::{Metrics, Scene};
use crate::commands::stop::Stop;
use crate::commands::watch::{Acting, Attributions, Ends, Follower, ROOT, Status, Watch, probes};
use crate::control::{self, Control};
use crate::notify::Notify;
use crate::served::Wait;
use crate::words::say;

/// From one step of the schemes to the next, at least.
const PACE: Duration = Duration::from_millis(10);

/// Schemes at work.
pub struct Running {
    pub(super) engine: Engine,
    pub(super) meter: Meter,
    pub(super) follower: Follower,
    /// of who is watched
    pub(super) facts: BTreeMap<TargetId, TargetFact>,
    log: Option<Log>,
    pub(super) dry: bool,
    pub(super) begin: Nanos,
    pub(super) last: Option<Arc<Snapshot>>,
    pub(super) paused: bool,
    pub(super) control: Option<Control>,
    metrics: Metrics,
    pub(super) attributions: Attributions,
    /// what was kept for the schemes of the start
    pub(super) takes: Takes,
    /// what it goes by
    pub(super) told: Option<Rc<dyn Told>>,
    /// what of that others have changed meanwhile
    pub(super) saved: Option<Saved>,
    pub(super) recording: Recording,
    pub(super) notify: Notify,
    stepped: Nanos,
    /// that these schemes rest
    pub(super) said: bool,
}

impl Running {
    /// On who is followed already.
    pub fn new(
        engine: Engine,
        meter: Meter,
        mut follower: Follower,
        log: Option<Log>,
        dry: bool,
    ) -> Self {
        let facts = follower.news().into_iter().map(|f| (f.id, f)).collect();
        let begin = sys::monotonic();
        Running {
            engine,
            meter,
            follower,
            facts,
            log,
            dry,
            begin,
            last: None,
            paused: false,
            control: None,
            metrics: Metrics::default(),
            attributions: Attributions::default(),
            takes: Takes::default(),
            told: None,
            saved: None,
            recording: Recording::default(),
            notify: Notify::from_env(),
            stepped: begin,
            said: false,
        }
    }

    /// Has it answer who asks over `control`; other schemes may take no more than `takes`.
    pub fn answers(&mut self, control: Option<Control>, takes: Takes, told: Rc<dyn Told>) {
        (self.control, self.takes, self.told) = (control, takes, Some(told));
    }

    /// Has it tell metrics.
    pub fn tells(&mut self, metrics: Metrics) {
        self.metrics = metrics;
    }

    /// Who is watched.
    pub fn targets(&self) -> Vec<TargetId> {
        self.follower.targets()
    }

    /// Acts; says why that has ended.
    pub fn until(&mut self, watch: &mut Acting, stop: &Stop, attrs: &Attrs) -> Result<String> {
        if self.follower.may_grow() {
            watch.outlive_targets();
        }
        let mut status = Status::new(attrs);
        self.notify.say("READY=1");
        let ended = self.act_until(watch, stop, &mut status);
        self.notify.say("STOPPING=1");
        status.clear();
        self.recording.end();
        let stopped = watch.stop();
        let why = ended?;
        stopped?;
        self.saved.iter().for_each(Saved::forget);
        Ok(why)
    }

    fn act_until(
        &mut self,
        watch: &mut Acting,
        stop: &Stop,
        status: &mut Status,
    ) -> Result<String> {
        const GONE: &str = "all targets have ended";
        let mut ended = true;
        loop {
            let now = sys::monotonic();
            self.notify.alive(now);
            if let Some(cause) = stop.cause() {
                return Ok(cause.to_string());
            }
            if stop.takes_reload() {
                self.reload(watch, status);
            }
            if std::mem::take(&mut ended) || self.follower.is_due(now) {
                self.follow(watch)?;
                if !self.follower.any_alive(watch.hold()) {
                    return Ok(GONE.to_owned());
                }
            }
            self.recording.flush_if_due(now);
            let read = self.attributions.read(&self.follower, watch.hold());
            let renamed = self.follower.renamed(&read);
            self.attributions.read_anew(&renamed);
            renamed.iter().for_each(|fact| self.recording.target(fact));
            self.facts.extend(renamed.into_iter().map(|fact| (fact.id, fact)));
            read.into_iter().for_each(|a| self.recording.attribution(a));
            match watch.step(now)? {
                Step::Wait(until) => {
                    let due = self.due();
                    if due.is_some_and(|due| due <= now) {
                        self.act(watch)?;
                        continue;
                    }
                    let until = due.map_or(until, |due| until.min(due));
                    let (requests, come) = self.wait(until, watch, stop);
                    ended = come;
                    self.tell_metrics(status);
                    if let Some(why) = self.answer(requests, watch, status) {
                        return Ok(why);
                    }
                }
                Step::Snapshot(s) => {
                    probes::aggregated(&s, &self.follower.pid_of());
                    self.last = Some(Arc::clone(&s));
                    self.recording.snapshot(&s);
                    self.act(watch)?;
                    status.show(&s, &status::done(&self.engine));
                }
                Step::End(_) => return Ok(GONE.to_owned()),
            }
        }
    }

    /// Waits until then, or until there is something else to do; what is asked, and whether targets may have
    /// ended.
    fn wait(&mut self, until: Nanos, watch: &mut Acting, stop: &Stop) -> (Vec<Asked>, bool) {
        let others = [
            stop.end(),
            self.follower.by(),
            self.attributions.by(&self.follower),
            self.recording.flush_by(),
            self.metrics.by(),
            self.notify.by(),
        ];
        let until = others.into_iter().flatten().fold(until, Nanos::min);
        let (mut ends, mut signals) = (Ends::of(watch.hold()), stop);
        let until = ends.by(until);
        let all: [&mut dyn Wait; 2] = [&mut ends, &mut signals];
        let all = all.into_iter().chain(self.metrics.listener());
        let asked = control::wait(self.control.as_mut(), all, until);
        (asked, ends.come)
    }

    /// When schemes have something to do without a new snapshot.
    fn due(&self) -> Option<Nanos> {
        self.last.as_ref().filter(|_| !self.paused)?;
        Some(self.engine.due()?.max(self.stepped + PACE))
    }

    /// Has the schemes act on the last snapshot, and tells what came of it.
    fn act(&mut self, watch: &mut Acting) -> Result<()> {
        let Some(s) = self.last.clone().filter(|_| !self.paused) else { return Ok(()) };
        let pids = self.follower.pid_of();
        let metrics = self.meter.read(ROOT.as_ref(), &s, &pids);
        if let Some(why) = self.meter.rests().filter(|_| !std::mem::replace(&mut self.said, true)) {
            say(format_args!("isotherm: schemes that go by what the targets suffer rest: {why}"));
        }
        let (now, mut events) = (sys::monotonic(), Vec::new());
        let act = watch.act();
        let mut dry = Dry(act);
        let act: &mut dyn Act = if self.dry { &mut dry } else { dry.0 };
        let mut told = probes::Told { act, pids: &pids };
        let done = self.engine.step(now, &s, &metrics, &mut told, &mut events);
        self.stepped = sys::monotonic();
        self.tell(&s, &events)?;
        Ok(done?)
    }

    /// How it goes, to be told.
    pub(super) fn scene<'a>(&'a self, status: &'a Status) -> Scene<'a> {
        Scene {
            snapshot: self.last.as_deref(),
            follower: &self.follower,
            attributions: &self.attributions,
            status,
            engine: Some(&self.engine),
        }
    }

    fn tell_metrics(&mut self, status: &Status) {
        let mut metrics = std::mem::take(&mut self.metrics);
        metrics.tell(&self.scene(status));
        self.metrics = metrics;
    }

    fn tell(&mut self, s: &Snapshot, events: &[Event]) -> Result<()> {
        if events.is_empty() || self.log.is_none() && !self.dry {
            return Ok(());
        }
        let line = |e| (e, Line::new(e, s, self.facts.get(&e.target), self.dry));
        let lines: Vec<(&Event, Line<'_>)> = events.iter().map(line).collect();
        if self.dry {
            let mut out = std::io::stdout().lock();
            let mut told = lines.iter().filter(|(_, line)| line.is_worth_telling());
            told.try_for_each(|(e, line)| writeln!(out, "{}", line.words(e.at, self.begin)))?;
        }
        let lines: Vec<Line<'_>> = lines.into_iter().map(|(_, line)| line).collect();
        self.log.as_mut().map_or(Ok(()), |log| log.write(&lines))
    }

    /// Processes that have come since, and those that have ended.
    pub(super) fn follow(&mut self, watch: &mut Acting) -> Result<()> {
        let ended = self.follower.follow(watch.hold());
        let news = self.follower.news();
        if !news.is_empty() || !ended.is_empty() {
            watch.set_targets(&self.follower.targets())?;
        }
        news.iter().for_each(|fact| self.recording.target(fact));
        self.facts.extend(news.into_iter().map(|fact| (fact.id, fact)));
        self.attributions.forget(&ended);
        for target in ended {
            watch.hold().detach(target);
            self.facts.remove(&target);
        }
        Ok(())
    }

    /// What came of it; says why it has ended, if that was no error.
    pub fn end(&self, because: Option<&String>) -> Table {
        let time = sys::monotonic().since(self.begin);
        if let Some(because) = because {
            let who = self.follower.summary();
            say(format_args!("ran {:.1} s ({because}): {who}", time.as_secs_f64()));
        }
        Table::new(&self.engine, time, self.dry)
    }
}
