//! Figures from snapshots, and their renderers.
//!
//! Every report is made in two steps. Snapshots are pushed one by one into a builder, which returns plain
//! figures ([`Summary`], [`Heatmap`], [`Wss`], [`Regions`], [`AccessReport`]). The figures are rendered as text, as a
//! [`Picture`] (PNG or SVG) or as JSON. Memory use does not grow with the length of the record. No part of this
//! crate reads a live machine, a file or a terminal.
//!
//! ```
//! use isotherm_report::{Extent, Grid, GridSize, Options, Style, Summarizer};
//! # use isotherm_core::{AddrRange, Attrs, Cost, Nanos, Rate, RegionView, Snapshot};
//! # use isotherm_core::{TargetId, TargetView, UnknownPages};
//! # let region = RegionView {
//! #     range: AddrRange::new(0x10_0000, 0x30_0000), accesses_bp: 2000, age: Default::default(),
//! #     rate: Rate { hz: 40.0, low: 30.0, high: 50.0 }, touched_bp: 10_000,
//! #     resident_bp: 10_000, unknown_bp: UnknownPages::default(), support: None,
//! # };
//! # let target = TargetView {
//! #     id: TargetId(0), ran: None, mappings: Default::default(), left_out: 0,
//! #     dirty: None, regions: vec![region], ages: None,
//! # };
//! # let record = [Snapshot {
//! #     seq: 0, start: Nanos(0), end: Nanos(400_000_000), attrs: Attrs::default(),
//! #     cost: Cost::default(), quality: None, targets: vec![target],
//! # }];
//! let mut summarizer = Summarizer::new(Options::default());
//! let mut extent = Extent::new(Options::default());
//! for snapshot in &record {
//!     summarizer.push(snapshot);
//!     extent.push(snapshot);
//! }
//! let summary = summarizer.finish()?;
//! assert_eq!(summary.mean.hot_bytes, 2 << 20);
//! println!("{}", isotherm_report::summary_text(&summary, 10));
//!
//! // A heat map requires a second pass, because the memory to draw is known only now.
//! let mut grid = Grid::new(extent, &GridSize::terminal(80, 24))?;
//! record.iter().for_each(|snapshot| grid.push(snapshot));
//! println!("{}", isotherm_report::terminal(&grid.finish(), Style::TrueColor));
//! # Ok::<(), isotherm_report::FilterError>(())
//! ```

mod access;
mod advice;
mod basis;
mod code;
mod columns;
mod course;
mod distribution;
mod filter;
mod groups;
mod heatmap;
mod lines;
mod names;
mod need;
mod pieces;
mod raw;
mod regions;
mod render;
mod row;
mod summary;
mod timeline;
mod units;
mod whatif;
mod wss;

#[cfg(test)]
#[path = "../tests/scene/mod.rs"]
mod scene;

pub use access::{AccessBuilder, AccessError, AccessReport, Choice, Pick, SortBy, TargetName};
pub use advice::{
    ActionRow, Advice, AdviceBuilder, AdviceScope, AdviceThresholds, AdvisedAction, IdleRow,
    RangeRow, Sizing,
};
pub use basis::{Basis, GapFigures};
pub use code::{
    ChangedRow, ChangedStack, Code, CodeAddress, CodeBuilder, CodeBy, CodeChange, CodeMemory,
    CodeRow, CodeSide, Estimate, FindFunctions, RefaultRow, StackFrame, StackRow, per_mib_saved,
};
pub use course::Course;
pub use distribution::Percentile;
pub use filter::{FilterError, Gap, Options, RecordFilter};
pub use groups::{By, GroupBytes, GroupRow, Groups, GroupsBuilder, TimeBucket};
pub use heatmap::{
    Canvas, Cell, CellSupport, Cells, Extent, Grid, GridSize, Heatmap, MIN_RESIDENT_BP, Omitted,
    Panel, SMALL_GAP,
};
pub use lines::{ChartLine, Lines, Plot};
pub use names::{label_of as mapping_name, short as short_name};
pub use need::{
    CacheNeed, CacheRow, Need, NeedBuilder, NeedPoint, NeedRow, Objective, RequiredMemory, ScanRow,
    SuggestedLimits,
};
pub use pieces::each_piece;
pub use raw::{Raw, RawHead, RawSnapshot, RawTarget};
pub use regions::{Regions, RegionsBuilder, Sizes};
pub use render::{
    Picture, RenderError, Style, access_text, advice_text, ansi256, change_graph, code_change_text,
    code_text, flame_graph, folded, groups_text, heatmap_picture, is_printable, json,
    lines_picture, need_picture, need_text, page, pprof, printable, rate_char, rate_color,
    rate_position, raw_head_text, raw_text, refaults_text, regions_picture, regions_text,
    summary_text, terminal, what_if_picture, what_if_text, wss_picture, wss_text,
};
pub use row::{RegionRow, RegionState, RowSupport};
pub use summary::{Bytes, MappingRow, MonitorFigures, Summarizer, Summary, TargetRow, WorkingSet};
pub use timeline::TimelinePoint;
pub use units::{bytes, counted, significant, time};
pub use whatif::{WhatIf, WhatIfPoint, WhatIfRow, WhatIfTier};
pub use wss::{Wss, WssBuilder};
