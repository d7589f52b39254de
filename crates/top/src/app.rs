//! The state of the view. It receives news and keys, and does no I/O.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::{AddrRange, Nanos, TargetId};
use isotherm_record::Event;
use isotherm_report::counted;
use isotherm_view::{By, Column, Key, MappingFigures, Moment, TableRow, View, sort};

use crate::color::Colors;
use crate::source::SourceEvent;
use crate::{TopOptions, draw};

/// The spans of time that charts may show, in seconds.
pub const SPANS: [u64; 7] = [60, 180, 600, 1800, 3600, 6 * 3600, 24 * 3600];
/// The limits that keys choose from: hot in Hz, cold in seconds.
pub const HOT_CHOICES_HZ: [f64; 9] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];
pub const COLD_CHOICES_S: [u64; 9] = [1, 2, 5, 10, 30, 60, 120, 300, 600];

/// The page that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewPage {
    /// processes or control groups
    Table,
    /// one process
    Process(TargetId),
}

/// The meaning of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyMode {
    /// keys are commands
    Normal,
    /// the list of keys is shown
    Help,
    /// text is typed, by which rows are filtered
    Filter(String),
    /// the name of a file is typed, to which the marked time is saved
    Save(String),
}

/// The action that the caller must take.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// end
    Quit,
    /// save the snapshots of this time to this file, and report to [`App::saved`]
    Save(PathBuf, Range<Nanos>),
    /// draw the whole screen again
    Redraw,
}

/// The state of the view, and what each key does to it.
pub struct App {
    view: View,
    pub(crate) page: ViewPage,
    pub(crate) mode: KeyMode,
    pub(crate) by: By,
    pub(crate) column: Column,
    pub(crate) descending: bool,
    pub(crate) filter: String,
    /// the control group whose processes are shown
    pub(crate) group: Option<String>,
    pub(crate) rows: Vec<TableRow>,
    pub(crate) total: Option<TableRow>,
    /// the selected row, which the selection follows; `None`: the first row, whichever it is
    pub(crate) selected: Option<Key>,
    /// the time that is shown, if it is not the present
    pub(crate) at: Option<Nanos>,
    /// index in [`SPANS`]
    pub(crate) span: usize,
    /// start of the marked time, and its end
    pub(crate) marks: (Option<Nanos>, Option<Nanos>),
    /// the addresses that are shown, if not all
    pub(crate) zoom: Option<AddrRange>,
    pub(crate) maps: Vec<MappingFigures>,
    pub(crate) map: usize,
    pub(crate) colors: Colors,
    /// result of the last key
    pub(crate) message: String,
    /// why there are no more news
    pub(crate) ended: Option<String>,
    /// an error of the source
    pub failure: Option<String>,
    save_to: PathBuf,
    /// maximum memory of the history, in bytes
    memory: usize,
}

impl App {
    /// The state before any news.
    #[must_use]
    pub fn new(o: &TopOptions) -> Self {
        let mut view = View::new(o.memory);
        view.set_thresholds(o.thresholds);
        App {
            view,
            page: ViewPage::Table,
            mode: KeyMode::Normal,
            by: if o.groups { By::Cgroup } else { By::Process },
            column: Column::Hot,
            descending: true,
            filter: String::new(),
            group: None,
            rows: Vec::new(),
            total: None,
            selected: None,
            at: None,
            span: 1,
            marks: (None, None),
            zoom: None,
            maps: Vec::new(),
            map: 0,
            colors: o.colors,
            message: String::new(),
            ended: None,
            failure: None,
            save_to: o.save_to.clone(),
            memory: o.memory,
        }
    }

    /// The history.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Takes news. The tables show them after the next [`App::tick`].
    pub fn news(&mut self, news: SourceEvent) {
        match news {
            SourceEvent::Event(Event::End(_)) => {}
            SourceEvent::Event(event) => self.view.push(event),
            SourceEvent::Pressure(groups) => self.view.set_pressure(groups),
            SourceEvent::Restarted => self.restart(),
            SourceEvent::Ended(Ok(why)) => self.ended = Some(why),
            SourceEvent::Ended(Err(e)) => {
                let e = format!("{e:#}");
                (self.ended, self.failure) = (Some(e.clone()), Some(e));
            }
        }
    }

    /// Forgets all that was seen: numbers of targets stand for other processes from now on.
    fn restart(&mut self) {
        let thresholds = self.view.thresholds();
        self.view = View::new(self.memory);
        self.view.set_thresholds(thresholds);
        (self.page, self.selected, self.zoom) = (ViewPage::Table, None, None);
        (self.at, self.marks) = (None, (None, None));
        self.message = "the service was restarted".to_owned();
    }

    /// The result of [`Effect::Save`].
    pub fn saved(&mut self, result: Result<u64>) {
        self.message = match result {
            Ok(n) => format!("saved {} to {}", counted(n, "snapshot"), self.save_to.display()),
            Err(e) => format!("not saved: {e:#}"),
        };
    }

    /// The moment that is shown; `None` before the first snapshot.
    #[must_use]
    pub fn moment(&self) -> Option<&Moment> {
        let ring = self.view.ring();
        // A moment starts where the one before ends: the time of a pause belongs to the earlier one.
        let Some(at) = self.at else { return ring.last() };
        ring.at(at.before(Duration::from_nanos(1))).or_else(|| ring.at(at))
    }

    /// The end of the time that is shown.
    fn now(&self) -> Option<Nanos> {
        let last = self.view.ring().last()?.snapshot.end;
        Some(self.at.map_or(last, |at| at.min(last)))
    }

    /// The time that charts show.
    #[must_use]
    pub fn shown(&self) -> Option<Range<Nanos>> {
        let end = self.now()?;
        Some(end.before(self.length())..end)
    }

    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(SPANS.get(self.span).copied().unwrap_or(60))
    }

    /// Computes the tables of the moment that is shown.
    pub fn tick(&mut self) {
        let Some(moment) = self.moment() else { return };
        let mut rows = self.view.table(moment, self.by);
        let total = self.view.total(moment);
        let maps = match self.page {
            ViewPage::Process(id) => self.view.mappings(moment, id),
            ViewPage::Table => Vec::new(),
        };
        if let Some(group) = &self.group {
            rows.retain(|row| is_within(&row.cgroup, group));
        }
        if !self.filter.is_empty() {
            rows.retain(|row| row.matches(&self.filter));
        }
        sort(&mut rows, self.column, self.descending);
        (self.rows, self.total, self.maps) = (rows, Some(total), maps);
        // The largest first, because there is room for a few only.
        self.maps.sort_by_key(|m| std::cmp::Reverse(m.heat.resident()));
        self.map = self.map.min(self.maps.len().saturating_sub(1));
        if self.selected.as_ref().is_some_and(|key| self.place(key).is_none()) {
            self.selected = None;
        }
    }

    fn place(&self, key: &Key) -> Option<usize> {
        self.rows.iter().position(|row| row.key == *key)
    }

    /// The index of the selected row.
    pub(crate) fn selection(&self) -> usize {
        self.selected.as_ref().and_then(|key| self.place(key)).unwrap_or(0)
    }

    /// Moves the selection by some rows.
    pub(crate) fn select(&mut self, by: isize) {
        match self.page {
            ViewPage::Table => {
                let last = self.rows.len().saturating_sub(1);
                let to = self.selection().saturating_add_signed(by).min(last);
                self.selected = self.rows.get(to).filter(|_| to > 0).map(|row| row.key.clone());
            }
            ViewPage::Process(_) => {
                let last = self.maps.len().saturating_sub(1);
                self.map = self.map.saturating_add_signed(by).min(last);
            }
        }
    }

    /// Opens the selected row: a process, the processes of a group, or a mapping.
    pub(crate) fn open(&mut self) {
        let selected = self.rows.get(self.selection()).map(|row| &row.key);
        match (&self.page, selected) {
            (ViewPage::Process(_), _) => self.zoom = self.maps.get(self.map).map(|m| m.range),
            (ViewPage::Table, Some(Key::Process(id))) => {
                (self.page, self.zoom, self.map) = (ViewPage::Process(*id), None, 0);
            }
            (ViewPage::Table, Some(Key::Cgroup(path))) => {
                (self.by, self.group) = (By::Process, Some(path.clone()));
            }
            (ViewPage::Table, _) => {}
        }
    }

    /// Goes back by one step.
    pub(crate) fn back(&mut self) {
        if self.zoom.take().is_some() {
        } else if matches!(self.page, ViewPage::Process(_)) {
            self.page = ViewPage::Table;
        } else {
            self.filter.clear();
            self.group = None;
        }
    }

    /// Sorts by the next column, or by the previous one.
    pub(crate) fn sort_by(&mut self, step: isize) {
        let all = Column::ALL;
        let at = all.iter().position(|c| *c == self.column).unwrap_or(0);
        let to = (at + all.len()).saturating_add_signed(step) % all.len();
        self.column = all[to];
        self.descending = self.column != Column::Name;
    }

    /// Stops at the present, or returns to it.
    pub(crate) fn pause(&mut self) {
        self.at = if self.at.is_some() { None } else { self.now() };
    }

    /// Moves in time, by a sixtieth of the shown time per step.
    pub(crate) fn seek(&mut self, steps: i32) {
        let (Some(now), Some(span)) = (self.now(), self.view.ring().span()) else { return };
        let way = (self.length() / 60).max(Duration::from_secs(1)) * steps.unsigned_abs();
        let to = if steps < 0 { now.before(way) } else { now + way };
        self.at = Some(to.clamp(span.start, span.end));
    }

    /// Shows a longer time, or a shorter one.
    pub(crate) fn stretch(&mut self, step: isize) {
        self.span = self.span.saturating_add_signed(step).min(SPANS.len() - 1);
    }

    /// Takes a higher limit of hot, or a lower one.
    pub(crate) fn hot(&mut self, step: isize) {
        let mut t = self.view.thresholds();
        t.hot_hz = next(&HOT_CHOICES_HZ, t.hot_hz, step);
        self.view.set_thresholds(t);
    }

    /// Takes a higher limit of cold, or a lower one.
    pub(crate) fn cold(&mut self, step: isize) {
        let mut t = self.view.thresholds();
        t.cold_age = next(&COLD_CHOICES_S.map(Duration::from_secs), t.cold_age, step);
        self.view.set_thresholds(t);
    }

    /// Marks the start of a time, then its end; then starts again.
    pub(crate) fn mark(&mut self) {
        let Some(now) = self.now() else { return };
        self.marks = match self.marks {
            (Some(start), None) => (Some(start.min(now)), Some(start.max(now))),
            _ => (Some(now), None),
        };
        self.message = match self.marks {
            (_, None) => "marked the start: m marks the end".to_owned(),
            _ => "marked a time: w saves it as a record".to_owned(),
        };
    }

    /// The time to save: the marked one, from the mark to now, or the shown one.
    pub(crate) fn marked(&self) -> Option<Range<Nanos>> {
        let shown = self.shown()?;
        Some(match self.marks {
            (Some(start), Some(end)) => start..end,
            (Some(start), None) => start.min(shown.end)..start.max(shown.end),
            (None, _) => shown,
        })
    }

    pub(crate) fn ask_where_to_save(&mut self) {
        self.mode = KeyMode::Save(self.save_to.display().to_string());
    }

    pub(crate) fn save(&mut self, path: String) -> Option<Effect> {
        self.save_to = path.into();
        (!self.save_to.as_os_str().is_empty())
            .then(|| Some(Effect::Save(self.save_to.clone(), self.marked()?)))?
    }

    /// How far the shown moment is behind the newest one.
    pub(crate) fn behind(&self) -> Option<Duration> {
        let last = self.view.ring().last()?.snapshot.end;
        self.at.map(|at| last.since(at))
    }

    pub(crate) fn label(&self, row: &TableRow) -> String {
        draw::printable(&row.name)
    }
}

/// Whether a control group is another one, or below it. `/` holds all; an empty path is that of processes whose group
/// is not known.
fn is_within(cgroup: &str, group: &str) -> bool {
    let below = || cgroup.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
    cgroup == group || !group.is_empty() && (group == "/" || below())
}

/// The next of `values`, which ascend, above `now` or below it; `now` if there is none.
fn next<T: PartialOrd + Copy>(values: &[T], now: T, step: isize) -> T {
    let found = match step > 0 {
        true => values.iter().find(|v| **v > now),
        false => values.iter().rev().find(|v| **v < now),
    };
    found.copied().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_moves_from_any_value_in_the_right_direction() {
        let steps = |now| (next(&HOT_CHOICES_HZ, now, -1), next(&HOT_CHOICES_HZ, now, 1));
        assert_eq!(steps(20.0), (10.0, 50.0));
        assert_eq!(steps(15.0), (10.0, 20.0));
        assert_eq!(steps(500.0), (200.0, 500.0));
        assert_eq!(steps(0.1), (0.1, 0.5));
    }

    #[test]
    fn a_group_contains_the_groups_below_it_only() {
        for (cgroup, group, expected) in [
            ("/services/1", "/services/1", true),
            ("/services/1/a", "/services/1", true),
            ("/services/10", "/services/1", false),
            ("/services/1", "/", true),
            ("", "", true),
            ("/services", "", false),
            ("", "/services", false),
        ] {
            assert_eq!(is_within(cgroup, group), expected, "{cgroup:?} in {group:?}");
        }
    }
}
