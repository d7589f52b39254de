//! Rows of processes or control groups.

use std::cmp::Ordering;

use isotherm_core::TargetId;
use serde::Serialize;

use crate::moment::TargetTotals;

/// The kind of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// a process, or another target such as a file
    Process,
    /// a control group, including all groups below it
    Cgroup,
}

/// A row's identity, which is the same in every table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// all processes
    All,
    /// a process, or another target
    Process(TargetId),
    /// the path of a control group; empty for processes whose group is not known
    Cgroup(String),
}

/// One process or control group at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRow {
    /// which one
    pub key: Key,
    /// pid of a process
    pub pid: Option<u32>,
    /// name of the program, or path of the group
    pub name: String,
    /// command line of a process
    pub command: String,
    /// control group of a process
    pub cgroup: String,
    /// number of processes
    pub processes: usize,
    /// its memory
    pub figures: TargetTotals,
    /// pages that its processes waited for, per second, over the last ten seconds
    pub refaults_per_second: f64,
    /// isotherm's own CPU time as a share of a CPU over the last ten seconds, divided among the processes by resident
    /// memory
    pub own_cpu: f64,
    /// percent of the last 10 s in which a process of the group waited for memory; `None` if not known
    pub pressure: Option<f32>,
}

impl TableRow {
    /// Whether its name, command line, group or pid contains `text`, in upper or lower case.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let has = |s: &str| s.to_lowercase().contains(&text);
        has(&self.name)
            || has(&self.command)
            || has(&self.cgroup)
            || self.pid.is_some_and(|pid| pid.to_string() == text)
    }
}

/// A column of a table, and what a series shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// name
    Name,
    /// pid
    Pid,
    /// resident bytes
    Resident,
    /// hot bytes
    Hot,
    /// warm bytes
    Warm,
    /// cold bytes
    Cold,
    /// bytes whose accesses cannot be observed
    Unknown,
    /// greatest age of cold memory, in seconds
    OldestCold,
    /// bytes in swap
    Saved,
    /// pages that processes waited for, per second
    Refaults,
    /// percent of the last 10 s in which a process waited for memory
    Pressure,
    /// share of a CPU that isotherm itself uses, divided by resident memory
    OwnCost,
}

impl Column {
    /// All columns, in the order of a table.
    pub const ALL: [Column; 12] = [
        Column::Name,
        Column::Pid,
        Column::Resident,
        Column::Hot,
        Column::Warm,
        Column::Cold,
        Column::Unknown,
        Column::OldestCold,
        Column::Saved,
        Column::Refaults,
        Column::Pressure,
        Column::OwnCost,
    ];

    /// The column of a series: its value for these figures over `seconds`; `None` if figures do not have it.
    #[must_use]
    pub fn of(self, f: &TargetTotals, seconds: f64) -> Option<f64> {
        Some(match self {
            Column::Resident => f.heat.resident() as f64,
            Column::Hot => f.heat.hot as f64,
            Column::Warm => f.heat.warm as f64,
            Column::Cold => f.heat.cold as f64,
            Column::Unknown => f.heat.unknown as f64,
            Column::OldestCold => f.oldest_cold.map_or(0.0, |age| age.as_secs_f64()),
            Column::Saved => f.saved as f64,
            Column::Refaults => f.refaults as f64 / seconds.max(1e-9),
            Column::OwnCost => f.own_cpu.as_secs_f64() / seconds.max(1e-9),
            Column::Name | Column::Pid | Column::Pressure => return None,
        })
    }
}

/// Sorts rows by a column. Rows that are equal in it are in order of their keys, so that they do not jump.
pub fn sort(rows: &mut [TableRow], by: Column, descending: bool) {
    let number = |row: &TableRow| match by {
        Column::Refaults => row.refaults_per_second,
        Column::Pressure => row.pressure.map_or(-1.0, f64::from),
        Column::OwnCost => row.own_cpu,
        // A group has no pid: its column counts processes.
        Column::Pid => row.pid.map_or(row.processes as f64, f64::from),
        _ => by.of(&row.figures, 1.0).unwrap_or(0.0),
    };
    let compare = |a: &TableRow, b: &TableRow| match by {
        Column::Name => a.name.to_lowercase().cmp(&b.name.to_lowercase()),
        _ => number(a).total_cmp(&number(b)),
    };
    let turned = |order: Ordering| if descending { order.reverse() } else { order };
    rows.sort_by(|a, b| turned(compare(a, b)).then_with(|| a.key.cmp(&b.key)));
}
