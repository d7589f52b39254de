//! Options of `whatif`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::reading::{Input, RecordSelection};
use isotherm::reclaim::{SizeQuota, TimeQuota, quota_size, time_quota};
use isotherm::units;
use isotherm::whatif::{Settings, Sweep, TierList, limit, sweep, tiers};

use super::DEFAULT_RECORD;

/// Options of `whatif`.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// Record to play; - is standard input
    #[arg(value_name = "RECORD", default_value = DEFAULT_RECORD)]
    pub record: PathBuf,
    /// Play the schemes of this file, as isotherm run does; each file is a setting. Repeatable, like all options
    /// of settings
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub scheme: Vec<PathBuf>,
    /// Page out memory that was not touched for this long, as isotherm reclaim does
    /// [default: 120s, if there is no other setting]
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Settings")]
    pub min_age: Vec<Duration>,
    /// Time for paging out in each window of time, with each --min-age; none: no limit [default: 10ms/1s]
    #[arg(long, value_name = "TIME/WINDOW", value_parser = time_quota, help_heading = "Settings")]
    pub quota: Vec<TimeQuota>,
    /// With --min-age, maximum number of bytes to page out in each window of --quota; none: no limit [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = quota_size, help_heading = "Settings")]
    pub quota_size: Option<SizeQuota>,
    /// With --min-age, decide page by page
    #[arg(long, help_heading = "Settings")]
    pub pages: bool,
    /// Limit the memory: while there is more, page out the memory that was untouched for the longest time
    #[arg(long, value_name = "SIZE", value_parser = limit, help_heading = "Settings")]
    pub limit: Vec<u64>,
    /// Tiers of memory, the fastest first, each with its size and the time of an access. The memory that was untouched
    /// for the longest time moves down
    #[arg(
        long, value_name = "SIZE:TIME,...", value_parser = tiers, help_heading = "Settings"
    )]
    pub tiers: Vec<TierList>,
    /// Play this many settings from one value to the other, in equal ratios: min-age=1s..10m or limit=1G..8G
    #[arg(
        long, value_name = "WHAT=FROM..TO", value_parser = sweep, help_heading = "Settings"
    )]
    pub sweep: Vec<Sweep>,
    /// Memory that the machine has for the played targets, for schemes that depend on free memory: all memory
    /// except that of the kernel, other processes and page cache
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub memory: Option<u64>,
    /// Time for which the program waits until a page is back: about 20us from swap in compressed memory, 100us from
    /// a fast disk
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = units::duration)]
    pub fault: Duration,
    /// CPU time for paging out a page; the default was measured with swap in compressed memory
    #[arg(long, value_name = "TIME", default_value = "4220ns", value_parser = units::duration)]
    pub page_out: Duration,
    /// Leave out damaged parts, instead of ending there
    #[arg(long)]
    pub skip_damaged: bool,
    /// Play only this part of the recording, counted from its beginning (10s..20s)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub time: Option<Range<Duration>>,
    /// Play only this target: its pid, a part of its command line, or its number in the record; repeatable
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Picture to write, PNG or SVG by its name; - writes a PNG to standard output, unless that is
    /// a terminal [default: print text]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

impl WhatIf {
    /// The part of the record that is played.
    pub fn part(&self) -> RecordSelection {
        RecordSelection {
            input: Input { path: self.record.clone(), skip_damaged: self.skip_damaged },
            time: self.time.clone(),
            targets: self.target.clone(),
        }
    }

    /// The settings to play.
    pub fn settings(&self) -> Settings {
        Settings {
            schemes: self.scheme.clone(),
            min_ages: self.min_age.clone(),
            quotas: self.quota.clone(),
            quota_size: self.quota_size,
            pages: self.pages,
            limits: self.limit.clone(),
            tiers: self.tiers.clone(),
            sweeps: self.sweep.clone(),
        }
    }
}
