//! A live source that a test feeds, records, and servers of them.
#![allow(dead_code, reason = "each user takes what it needs")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, AgeHistogram, Attribution, Attrs, Cost, Mapping, MappingKind, Nanos, PageAges, Rate,
    RateSupport, RegionView, Snapshot, TargetId, TargetView, Thresholds, UnknownPages,
};
use isotherm_record::{
    Event, FileEndReason, Limits as RecordLimits, RecordingHeader, TargetInfo, Writer,
};
use isotherm_view::Index;
use isotherm_view::index::IndexLimits;
use isotherm_view::pyramid::Retention;
use isotherm_web::{ListenOptions, PageSource, Server, SourceKind, load_record};
use tokio::sync::watch;

pub const MIB: u64 = 1 << 20;
pub const BASE: u64 = 0x5500_0000_0000;
/// 2026-11-01 00:00 UTC, when records begin.
const STARTED_UNIX_MS: u64 = 1_793_491_200_000;
pub const EVERY: Duration = Duration::from_millis(250);

pub struct Scene {
    pub server: Server,
    pub source: Arc<PageSource>,
    changes: watch::Sender<u64>,
    seq: u64,
}

pub fn limits() -> IndexLimits {
    IndexLimits {
        retention: Retention::Newest,
        memory: 8 << 20,
        ring: 64 << 20,
        bridge: false,
        thresholds: Thresholds::default(),
    }
}

pub fn listen() -> ListenOptions {
    ListenOptions { listen: "127.0.0.1:0".parse().unwrap(), tls: None, hosts: Vec::new() }
}

impl Scene {
    /// A server that shows `names`, of which nothing is known yet.
    pub fn new(names: &[&str]) -> Self {
        let source =
            Arc::new(PageSource::new(SourceKind::Live, "live".into(), None, Index::new(limits())));
        let (changes, changed) = watch::channel(0);
        let server = Server::start(&listen(), vec![Arc::clone(&source)], changed).unwrap();
        let mut scene = Scene { server, source, changes, seq: 0 };
        scene.push(Event::Header(RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0))));
        for (id, name) in (0..).zip(names) {
            let fact = TargetInfo {
                id: TargetId(id),
                pid: Some(4000 + id),
                command: format!("{name} --flag"),
            };
            scene.push(Event::Target(fact));
            scene.push(Event::Attribution(Attribution {
                target: TargetId(id),
                at: Nanos(0),
                comm: (*name).into(),
                cgroup: format!("/system.slice/{name}.service").as_str().into(),
                swapped: u64::from(id) * 7 * MIB,
                major_faults: 0,
            }));
        }
        scene
    }

    pub fn push(&mut self, event: Event) {
        self.source.change().push(event);
    }

    /// Adds snapshots of targets `0..targets`, in which a hot band moves up.
    pub fn snapshots(&mut self, count: u64, targets: u32) {
        for _ in 0..count {
            let s = snapshot(self.seq, targets);
            self.seq += 1;
            self.push(Event::Snapshot(Arc::new(s)));
        }
        self.changes.send_modify(|n| *n += 1);
    }

    /// Another service takes the place of the one that was shown: it has the process `other`, and another number for
    /// it.
    pub fn restart(&mut self) {
        self.source.restart();
        let (id, command) = (TargetId(1), "other".to_owned());
        self.push(Event::Target(TargetInfo { id, pid: Some(5000), command }));
        let mut s = snapshot(0, 2);
        s.targets.remove(0);
        // Its memory is elsewhere, too.
        let moved = |range: AddrRange| AddrRange::new(range.start + MIB, range.end + MIB);
        for region in s.targets.iter_mut().flat_map(|view| &mut view.regions) {
            region.range = moved(region.range);
        }
        self.push(Event::Snapshot(Arc::new(s)));
        self.changes.send_modify(|n| *n += 1);
    }

    /// Another service takes the place of the one that was shown, and has made so many snapshots. Its process has the
    /// same number and addresses, but the hot band is elsewhere.
    pub fn replace(&mut self, snapshots: u64) {
        self.source.restart();
        let (id, command) = (TargetId(0), "other".to_owned());
        self.push(Event::Target(TargetInfo { id, pid: Some(5000), command }));
        for seq in 0..snapshots {
            let targets = snapshot(seq + 12, 1).targets;
            self.push(Event::Snapshot(Arc::new(Snapshot { targets, ..snapshot(seq, 1) })));
        }
        self.changes.send_modify(|n| *n += 1);
    }

    /// Port, and the token.
    pub fn address(&self) -> (u16, String) {
        let rest = self.server.address().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = rest.split_once("/?token=").unwrap();
        (port.parse().unwrap(), token.to_owned())
    }
}

/// Writes a record of two processes.
pub fn write_record(path: &Path, snapshots: u64) {
    write_record_of(path, snapshots, 2);
}

/// Writes a record of so many processes.
pub fn write_record_of(path: &Path, snapshots: u64, targets: u32) {
    let mut facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    facts.started_unix_ms = STARTED_UNIX_MS;
    let mut writer = Writer::create(path, &facts, RecordLimits::default()).unwrap();
    for id in 0..targets {
        let command = format!("app{id} --flag");
        let _ =
            writer.target(TargetInfo { id: TargetId(id), pid: Some(4000 + id), command }).unwrap();
    }
    for seq in 0..snapshots {
        let s = snapshot(seq, targets);
        if seq % 40 == 0 {
            let a = Attribution {
                target: TargetId(1),
                at: s.start,
                comm: "app1".into(),
                cgroup: "/system.slice/app1.service".into(),
                swapped: seq * MIB,
                major_faults: 0,
            };
            let _ = writer.attribution(a).unwrap();
        }
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
}

/// Writes a log of a service: a scheme acts on a process of such a record at 20.5 s, twice, and at 60 s; on another
/// process, before the record and after it.
pub fn write_log(path: &Path) {
    let line = |time: &str, pid: u32, applied: u64| {
        format!(
            r#"{{"time":"{time}Z","scheme":"cold","action":"pageout","pid":{pid},"outcome":"acted","applied":{applied}}}"#
        )
    };
    let lines = [
        line("2026-10-31T23:59:59.000", 4000, MIB),
        line("2026-11-01T00:00:20.500", 4000, MIB),
        line("2026-11-01T00:00:20.600", 4001, 2 * MIB),
        line("2026-11-01T00:00:20.700", 9999, MIB),
        line("2026-11-01T00:01:00.000", 4001, 5 * MIB),
        line("2026-11-01T01:00:00.000", 4001, MIB),
    ];
    std::fs::write(path, lines.join("\n")).unwrap();
}

/// A server of records.
pub struct Records {
    pub server: Server,
    sources: Vec<Arc<PageSource>>,
    changes: watch::Sender<u64>,
    limits: IndexLimits,
    /// logs of services
    pub logs: Vec<PathBuf>,
}

impl Records {
    /// The page of records that have not been read yet; of the heat of each, `memory` bytes are kept.
    pub fn of(paths: &[&Path], memory: usize) -> Self {
        let limits = IndexLimits { retention: Retention::Evenly, memory, ring: 0, ..limits() };
        let source = |path: &&Path| {
            let record = Some((path.to_path_buf(), false));
            let name = path.display().to_string();
            Arc::new(PageSource::new(SourceKind::Record, name, record, Index::new(limits)))
        };
        let sources: Vec<_> = paths.iter().map(source).collect();
        let (changes, changed) = watch::channel(0);
        let server = Server::start(&listen(), sources.clone(), changed).unwrap();
        Records { server, sources, changes, limits, logs: Vec::new() }
    }

    /// Shows so many of their snapshots, as a sample of a long record is shown.
    pub fn sample(&self, snapshots: usize) {
        for source in &self.sources {
            let events = source.open().unwrap().map(Result::unwrap);
            let mut index = Index::new(self.limits);
            let mut seen = 0;
            for event in events {
                seen += usize::from(matches!(event, Event::Snapshot(_)));
                if seen > snapshots {
                    break;
                }
                index.push(event);
            }
            index.finish();
            *source.change() = index;
        }
        self.changes.send_modify(|n| *n += 1);
    }

    /// Reads the records.
    pub fn load(&self) {
        for source in &self.sources {
            load_record(source, &self.logs, self.limits, &self.changes).unwrap();
        }
    }
}

/// A heap of 256 MiB in which a band of 32 MiB is hot and moves, and a library that is hardly touched.
pub fn snapshot(seq: u64, targets: u32) -> Snapshot {
    let start = Nanos(0) + EVERY * u32::try_from(seq).unwrap();
    let band = seq / 4 % 7 * 32;
    let mapping = |(start, end, kind, name): (u64, u64, MappingKind, &str)| Mapping {
        range: AddrRange::new(start, end),
        kind,
        name: name.into(),
        unknown: None,
    };
    let library = 0x7f00_0000_0000;
    let mappings = Arc::new(
        [
            (BASE, BASE + 256 * MIB, MappingKind::Heap, "[heap]"),
            (
                library,
                library + 8 * MIB,
                MappingKind::File,
                "/usr/lib/<img src=x onerror=alert(1)>.so",
            ),
        ]
        .map(mapping)
        .into(),
    );
    let of = |id: u32| {
        let mut ages = PageAges { sampling: 1, ..PageAges::default() };
        ages.idle = AgeHistogram::default();
        (0..12).for_each(|i| ages.idle.add(500 << i, 9_000 - 700 * i));
        ages.swapped.add(64_000, 2_000);
        let mut regions = vec![
            region(BASE, BASE + band * MIB, 0.0),
            region(BASE + band * MIB, BASE + (band + 32) * MIB, 80.0),
            region(BASE + (band + 32) * MIB, BASE + 256 * MIB, 0.4),
            region(library, library + 8 * MIB, 0.0),
        ];
        regions.retain(|r| !r.range.is_empty());
        TargetView {
            id: TargetId(id),
            ran: None,
            mappings: Arc::clone(&mappings),
            left_out: 0,
            dirty: None,
            regions,
            ages: Some(Arc::new(ages)),
        }
    };
    Snapshot {
        seq,
        start,
        end: start + EVERY,
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets: (0..targets).map(of).collect(),
    }
}

fn region(start: u64, end: u64, hz: f32) -> RegionView {
    RegionView {
        range: AddrRange::new(start, end),
        accesses_bp: (-(-hz * Attrs::default().sample.as_secs_f32()).exp_m1() * 1e4) as u32,
        age: Duration::from_secs(if hz > 0.0 { 2 } else { 60 }),
        rate: Rate { hz, low: hz * 0.8, high: if hz > 0.0 { hz * 1.2 } else { 3.0 } },
        touched_bp: if hz > 0.0 { 10_000 } else { 0 },
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    }
}
