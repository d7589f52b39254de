//! Figures for live views: a bounded history of snapshots, and what views show of it.
//!
//! A [`View`] receives the events of a recording as they come, from a running monitor or from a record that is
//! played. It keeps them in a [`Ring`], whose memory is bounded: every second for the newest past, then every ten
//! seconds, then every minute. Any moment of the ring gives a table of processes or control groups. Any span of it
//! gives series, heat maps, or its events, which make a record.
//!
//! An [`Index`] has such a view, and the heat of each target over time in a [`Pyramid`](pyramid::Pyramid) of bounded
//! memory: pictures of days pan and zoom without whole snapshots.
//!
//! Nothing here reads a machine, a file or a clock, and nothing draws.
//!
//! ```
//! use isotherm_core::{AddrRange, Attrs, Cost, Nanos, Rate, RegionView, Snapshot, TargetId, TargetView, UnknownPages};
//! use isotherm_record::{Event, TargetInfo};
//! use isotherm_view::{By, Column, View};
//! # let region = RegionView {
//! #     range: AddrRange::new(0x10_0000, 0x30_0000), accesses_bp: 2000, age: Default::default(),
//! #     rate: Rate { hz: 40.0, low: 30.0, high: 50.0 }, touched_bp: 10_000,
//! #     resident_bp: 10_000, unknown_bp: UnknownPages::default(), support: None,
//! # };
//! # let target = TargetView {
//! #     id: TargetId(0), ran: None, mappings: Default::default(), left_out: 0,
//! #     dirty: None, regions: vec![region], ages: None,
//! # };
//! # let snapshot = Snapshot {
//! #     seq: 0, start: Nanos(0), end: Nanos(1_000_000_000), attrs: Attrs::default(),
//! #     cost: Cost::default(), quality: None, targets: vec![target],
//! # };
//!
//! let mut view = View::new(64 << 20);
//! view.push(Event::Target(TargetInfo { id: TargetId(0), pid: Some(7), command: "app".into() }));
//! view.push(Event::Snapshot(snapshot.into()));
//! let now = view.ring().last().expect("one moment");
//! let mut rows = view.table(now, By::Process);
//! isotherm_view::sort(&mut rows, Column::Hot, true);
//! assert_eq!((rows[0].name.as_str(), rows[0].figures.heat.hot), ("app", 2 << 20));
//! ```

pub mod axis;
pub mod cell;
pub mod index;
mod moment;
pub mod pyramid;
mod ring;
pub mod series;
mod table;
mod view;

pub use index::Index;
pub use moment::{Moment, TargetTotals};
pub use ring::Ring;
pub use table::{By, Column, Key, TableRow, sort};
pub use view::{Area, MappingFigures, MonitorCost, View};

#[cfg(test)]
#[path = "../../report/tests/scene/mod.rs"]
mod scene;
