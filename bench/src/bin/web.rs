//! How fast `isotherm web` shows a long record, and what a live page costs: CPU time, memory, and delays of the monitor.

#[path = "../../../crates/isotherm/tests/fake_service/mod.rs"]
mod fake_service;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use isotherm::control::{Request, Response};
use isotherm::session::History;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::program::{self, ChildGuard};
use isotherm_bench::synthetic;
use isotherm_bench::threads::Threads;
use isotherm_core::{Nanos, TargetId};
use isotherm_record::{Event, TargetInfo};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

/// Measures the first picture, panning, zooming and the crosshair of a long record, the memory after a simulated
/// day, the CPU time of a live page, and the intervals of the monitor with 100 clients.
#[derive(Parser)]
struct Options {
    /// snapshots in the record
    #[arg(long, default_value_t = 36_000)]
    snapshots: u64,
    /// regions in each
    #[arg(long, default_value_t = 1000)]
    regions: u64,
    /// views for each zoom
    #[arg(long, default_value_t = 40)]
    views: u64,
    /// time of a measurement of the live page, in seconds
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// measurements of the live page with clients, and as many without
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// print only one of the parts
    #[arg(long)]
    only: Option<Part>,
    /// file for the record, which is kept for the next run [default: a temporary file]
    #[arg(long)]
    record: Option<PathBuf>,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    /// a long record
    Record,
    /// memory after a simulated day
    Day,
    /// CPU time of a live page
    Live,
    /// the monitor with 100 clients
    Crowd,
}

const EVERY: Duration = Duration::from_millis(400);
/// Columns and rows of a tile, and of the heat map of a page.
const COLUMNS: f64 = 256.0;
const ROWS: f64 = 512.0;
const WIDTH: f64 = 1140.0;
const HEIGHT: f64 = 408.0;
/// Requests of a page at a time.
const AT_ONCE: usize = 4;
const PAGE: f64 = 4096.0;

fn main() -> Result<()> {
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(program::beside, Ok)?;
    let wants = |part| o.only.is_none_or(|only| only == part);
    if wants(Part::Record) {
        let dir = tempfile::tempdir()?;
        let path = o.record.clone().unwrap_or_else(|| dir.path().join("isotherm.rec"));
        if !path.exists() {
            // Ages every 10 s, as isotherm records them at first.
            synthetic::write_every(&path, o.snapshots, o.regions, (EVERY, 25))?;
        }
        let (size, regions) = (path.metadata()?.len(), o.snapshots * o.regions);
        println!("{regions} regions in {} snapshots, {} MiB", o.snapshots, size >> 20);
        record(&isotherm, &path, o.views)?;
    }
    if wants(Part::Day) {
        day(&isotherm)?;
    }
    if !rustix::process::geteuid().is_root() {
        println!("the live page requires root: left out");
        return Ok(());
    }
    let time = Duration::from_secs(o.seconds);
    if wants(Part::Live) {
        live(&isotherm, time, o.rounds)?;
    }
    if wants(Part::Crowd) {
        crowd(&isotherm, time, o.rounds)?;
    }
    Ok(())
}

/// A running `isotherm web`.
struct Web {
    child: ChildGuard,
    port: u16,
    token: String,
}

impl Web {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut child = ChildGuard(child);
        let out = child.0.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let rest = line
            .trim()
            .strip_prefix("http://127.0.0.1:")
            .context("isotherm web has not started")?;
        let (port, token) = rest.split_once("/?token=").context("there is no token")?;
        Ok(Web { child, port: port.parse()?, token: token.to_owned() })
    }

    fn client(&self) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!(
            "Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.port, self.token
        );
        Ok(Client { stream: BufReader::new(stream), head })
    }

    fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

/// A size from `/proc/PID/status`, in bytes.
fn status(pid: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).context("no size")?;
    Ok(kib.parse::<u64>()? << 10)
}

/// A connection that stays open.
struct Client {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Client {
    /// Status and body of an answer.
    fn get(&mut self, path: &str) -> Result<(u16, Vec<u8>)> {
        write!(self.stream.get_mut(), "GET {path} HTTP/1.1\r\n{}", self.head)?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line)? > 0, "the connection has ended");
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or("0").parse()?;
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }

    fn json(&mut self, path: &str) -> Result<Value> {
        let (status, body) = self.get(path)?;
        if status != 200 {
            bail!("{path}: {status}");
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

/// A view of the heat map: ms, and bytes of the axis.
#[derive(Clone, Copy)]
struct View {
    from: f64,
    ms: f64,
    low: f64,
    bytes: f64,
}

/// Milliseconds of a column and bytes of a row, as the page chooses them.
fn scales(v: &View) -> (f64, f64) {
    let pixel = 2f64.powf((v.ms / WIDTH).log2().ceil().max(0.0));
    let row = PAGE * 2f64.powf((v.bytes / HEIGHT / PAGE).log2().ceil().max(0.0));
    (pixel, row)
}

/// Numbers of the tiles of a view, in time and in addresses.
fn places(v: &View, span: f64, all: f64) -> Vec<(u64, u64)> {
    let (pixel, row) = scales(v);
    let numbers =
        |from: f64, to: f64, size: f64| (from / size) as u64..=((to - 1e-6) / size) as u64;
    let columns = numbers(v.from, (v.from + v.ms).min(span), COLUMNS * pixel);
    let rows = || numbers(v.low, (v.low + v.bytes).min(all), ROWS * row);
    columns.flat_map(|i| rows().map(move |j| (i, j))).collect()
}

/// The request of a tile, or of some of its columns.
fn tile(
    axis: u64,
    (from_ms, pixel): (f64, f64),
    (from_byte, row): (f64, f64),
    width: f64,
) -> String {
    format!(
        "/api/source/0/tile?target=0&axis={axis}&from_ms={from_ms}&pixel_ms={pixel}&from_byte={from_byte}&\
         row_bytes={row}&width={width}&height={ROWS}"
    )
}

/// The requests of the tiles of a view, as the page makes them.
fn tiles(v: &View, span: f64, all: f64, axis: u64) -> Vec<String> {
    let (pixel, row) = scales(v);
    let request = |(i, j): (u64, u64)| {
        tile(axis, (i as f64 * COLUMNS * pixel, pixel), (j as f64 * ROWS * row, row), COLUMNS)
    };
    places(v, span, all).into_iter().map(request).collect()
}

/// Fetches tiles over several connections. Returns whether any has a rate.
fn fetch(clients: &mut [Client], tiles: &[String]) -> Result<bool> {
    let parts = clients.len();
    let fetch = |(i, client): (usize, &mut Client)| -> Result<bool> {
        let mut any = false;
        for path in tiles.iter().skip(i).step_by(parts) {
            let (status, cells) = client.get(path)?;
            ensure!(status == 200, "{path}: {status}");
            any |= cells.iter().any(|cell| *cell > 4);
        }
        Ok(any)
    };
    std::thread::scope(|s| {
        let threads: Vec<_> =
            clients.iter_mut().enumerate().map(|c| s.spawn(move || fetch(c))).collect();
        let mut any = false;
        for thread in threads {
            any |= thread.join().map_err(|_| anyhow::anyhow!("a client has failed"))??;
        }
        Ok(any)
    })
}

fn record(isotherm: &Path, path: &Path, views: u64) -> Result<()> {
    let start = Instant::now();
    let web = Web::start(Command::new(isotherm).arg("web").arg(path))?;
    let mut clients = (0..AT_ONCE).map(|_| web.client()).collect::<Result<Vec<_>>>()?;
    let span = |client: &mut Client| -> Result<(f64, bool)> {
        let state = client.json("/api/state")?;
        let source = &state["sources"][0];
        Ok((source["span_ms"].as_f64().unwrap_or(0.0), source["complete"] == true))
    };
    let axis = |client: &mut Client| -> Result<Option<(u64, f64)>> {
        let Ok(axis) = client.json("/api/source/0/axis?target=0") else { return Ok(None) };
        let areas = axis["areas"].as_array().map(Vec::as_slice).unwrap_or_default();
        let bytes = areas.iter().filter_map(|a| a["bytes"].as_f64()).sum::<f64>();
        Ok(axis["version"].as_u64().filter(|_| bytes > 0.0).map(|version| (version, bytes)))
    };
    loop {
        if let Some((version, bytes)) = axis(&mut clients[0])? {
            let (ms, _) = span(&mut clients[0])?;
            let view = View { from: 0.0, ms, low: 0.0, bytes };
            if fetch(&mut clients, &tiles(&view, ms, bytes, version))? {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let first = start.elapsed();
    println!("first picture after {:.2} s", first.as_secs_f64());
    while !span(&mut clients[0])?.1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let peak = status(web.pid(), "VmHWM")? >> 20;
    println!("all of it after {:.1} s, peak memory {peak} MiB", start.elapsed().as_secs_f64());
    let (version, all) = axis(&mut clients[0])?.context("there is no axis")?;
    let ms = span(&mut clients[0])?.0;
    println!(
        "{:<24} {:>8} {:>8} {:>8} {:>8}  ms, {views} views each",
        "zoom", "median", "95 %", "99 %", "maximum"
    );
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut unit = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut every = Histogram::<u64>::new(3)?;
    for (time, rows) in [(1, 1), (4, 1), (4, 4), (32, 8), (256, 32), (2048, 128)] {
        let mut times = Histogram::<u64>::new(3)?;
        for _ in 0..views {
            let (wide, tall) = (ms / f64::from(time), all / f64::from(rows));
            let view = View {
                from: unit() * (ms - wide),
                ms: wide,
                low: unit() * (all - tall),
                bytes: tall,
            };
            let start = Instant::now();
            fetch(&mut clients, &tiles(&view, ms, all, version))?;
            let took = start.elapsed().as_micros() as u64;
            times.record(took)?;
            every.record(took)?;
        }
        print_row(&format!("time {time}x, address {rows}x"), &times);
    }
    print_row("all views", &every);
    let mut points = Histogram::<u64>::new(3)?;
    for _ in 0..views {
        let path = format!(
            "/api/source/0/point?target=0&ms={}&byte={}",
            unit() * ms,
            (unit() * all) as u64
        );
        let start = Instant::now();
        clients[0].json(&path)?;
        points.record(start.elapsed().as_micros() as u64)?;
    }
    print_row("crosshair", &points);
    ensure!(first <= MAX_FIRST, "the first picture took {first:.2?}, more than {MAX_FIRST:?}");
    for (percent, most) in [(50.0, MAX_MEDIAN), (99.0, MAX_99)] {
        let took = Duration::from_micros(every.value_at_percentile(percent));
        ensure!(took <= most, "{percent} % of all views took {took:.1?}, more than {most:?}");
    }
    Ok(())
}

fn print_row(name: &str, times: &Histogram<u64>) {
    let ms = |us: u64| us as f64 / 1e3;
    let [median, most, nearly_all] = [50.0, 95.0, 99.0].map(|p| ms(times.value_at_percentile(p)));
    println!("{name:<24} {median:>8.1} {most:>8.1} {nearly_all:>8.1} {:>8.1}", ms(times.max()));
}

/// Maximum time to the first picture, and for all tiles of a view: the median, and 99 %.
const MAX_FIRST: Duration = Duration::from_secs(3);
const MAX_MEDIAN: Duration = Duration::from_millis(50);
const MAX_99: Duration = Duration::from_millis(200);

/// Maximum share of a CPU for all threads but that of the monitor, with a client at four updates a second, in percent.
const MAX_PERCENT: f64 = 0.5;
/// Maximum memory after a day.
const MAX_MEMORY: u64 = 64 << 20;
/// Snapshots of a day.
const DAY: usize = 86_400;
/// The longest time in which the page may read them.
const MAX_DAY_READING: Duration = Duration::from_secs(3600);
/// Snapshots in one answer of the service: about as many as fit.
const SNAPSHOTS_PER_ANSWER: usize = 48;
/// The page reads what changes slowly in one of so many turns.
const SLOW_TURNS: u64 = 5;
/// Clients that read, and as many that do not.
const CROWD: usize = 50;
/// Maximum 95th percentile of the monitor's intervals with these clients, relative to that without.
const MAX_LENGTHENING: f64 = 1.05;
/// The aggregation interval of the live page. The 95th percentile of the deviations from it may grow by at most
/// `MAX_JITTER` of it.
const AGGR_MS: f64 = 250.0;
const MAX_JITTER: f64 = 0.05;
/// The time that a live page shows.
const WINDOW_MS: f64 = 60e3;

/// A live page of the workload `zipf`, and the process that runs it.
fn live_page(isotherm: &Path) -> Result<(ChildGuard, Web)> {
    let mut load = Command::new(isotherm);
    load.args(["lab", "workload", "zipf", "--duration", "10min"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let load = ChildGuard(load.spawn()?);
    // The memory of the workload must be there.
    std::thread::sleep(Duration::from_secs(2));
    let pid = load.0.id().to_string();
    // Four snapshots a second, always.
    let monitor = ["--monitor", "regions", "--sample", "25ms", "--aggr", "250ms"];
    let web = Web::start(Command::new(isotherm).args(["web", "--pid", &pid]).args(monitor))?;
    std::thread::sleep(Duration::from_secs(10));
    Ok((load, web))
}

/// CPU time of a live page, alternately without a client and with one.
fn live(isotherm: &Path, time: Duration, rounds: usize) -> Result<()> {
    let (_load, web) = live_page(isotherm)?;
    let mut shares = [(); 2].map(|()| (Vec::new(), Vec::new()));
    let mut updates = 0;
    for _ in 0..rounds {
        for (has_client, (watching, serving)) in [false, true].into_iter().zip(&mut shares) {
            let mut page = if has_client { Some(Page::open(&web)?) } else { None };
            let (start, before) = (Instant::now(), Threads::of(web.pid())?);
            while start.elapsed() < time {
                match &mut page {
                    Some(page) => updates += page.update()?,
                    None => std::thread::sleep(time.saturating_sub(start.elapsed())),
                }
            }
            let (spent, time) = (before.since()?, start.elapsed());
            let percent = |cpu: Duration| cpu.as_secs_f64() / time.as_secs_f64() * 100.0;
            watching.push(percent(spent.main));
            serving.push(percent(spent.others));
        }
    }
    println!("| live page | watching, % of a CPU | server, % of a CPU |\n|---|---|---|");
    let median = |values| middle(values).unwrap_or(f64::NAN);
    let [alone, with_client] =
        shares.map(|(watching, serving)| (median(watching), median(serving)));
    for (name, (watching, serving)) in [("no client", alone), ("one client", with_client)] {
        println!("| {name} | {watching:.2} | {serving:.2} |");
    }
    let seconds = time.as_secs_f64() * rounds as f64;
    println!("updates a second: {:.1}; medians of {rounds} turns", f64::from(updates) / seconds);
    let memory = status(web.pid(), "VmRSS")? >> 20;
    println!("memory {memory} MiB");
    let serving = with_client.1;
    ensure!(serving <= MAX_PERCENT, "the server needs {serving:.2} %, more than {MAX_PERCENT} %");
    Ok(())
}

/// Asks as the page does: at each event for the new columns of the tiles in view, each second for the table, and more
/// rarely for everything else.
struct Page {
    events: Client,
    clients: Vec<Client>,
    axis: (u64, f64),
    /// how much of each tile is known, by column and row
    known: BTreeMap<(u64, u64), f64>,
    /// when the table is read again, and how often it was
    next: Instant,
    turns: u64,
}

impl Page {
    fn open(web: &Web) -> Result<Self> {
        let mut events = web.client()?;
        write!(events.stream.get_mut(), "GET /api/events HTTP/1.1\r\n{}", events.head)?;
        let clients = (0..AT_ONCE).map(|_| web.client()).collect::<Result<Vec<_>>>()?;
        let known = BTreeMap::new();
        Ok(Page { events, clients, axis: (0, 0.0), known, next: Instant::now(), turns: 0 })
    }

    /// Waits for an event and does what the page does then. Returns the number of updates: 1.
    fn update(&mut self) -> Result<u32> {
        let mut line = String::new();
        let state: Value = loop {
            line.clear();
            ensure!(self.events.stream.read_line(&mut line)? > 0, "the events have ended");
            if let Some(data) = line.strip_prefix("data:") {
                break serde_json::from_str(data)?;
            }
        };
        let ms = state["sources"][0]["span_ms"].as_f64().context("no span")?;
        if Instant::now() >= self.next {
            self.next = Instant::now() + Duration::from_secs(1);
            if self.turns.is_multiple_of(SLOW_TURNS) {
                self.refresh_slow(ms)?;
            }
            self.turns += 1;
            self.clients[0].get(&format!("/api/source/0/table?ms={ms}"))?;
        }
        let tiles = self.new_columns(ms);
        // The axis may have changed in between.
        let _ = fetch(&mut self.clients, &tiles);
        Ok(1)
    }

    fn refresh_slow(&mut self, ms: f64) -> Result<()> {
        let client = &mut self.clients[0];
        for path in ["targets", "series", &format!("ages?target=0&ms={ms}")] {
            client.get(&format!("/api/source/0/{path}"))?;
        }
        let axis = client.json("/api/source/0/axis?target=0")?;
        let areas = axis["areas"].as_array().map(Vec::as_slice).unwrap_or_default();
        let bytes = areas.iter().filter_map(|a| a["bytes"].as_f64()).sum::<f64>();
        let version = axis["version"].as_u64().unwrap_or(0);
        if version != self.axis.0 {
            self.known.clear();
        }
        self.axis = (version, bytes);
        Ok(())
    }

    /// Requests of the columns that have come since the last ones, of all tiles in view.
    fn new_columns(&mut self, span: f64) -> Vec<String> {
        let (axis, bytes) = self.axis;
        let view = View { from: (span - WINDOW_MS).max(0.0), ms: WINDOW_MS, low: 0.0, bytes };
        let (pixel, row) = scales(&view);
        let mut out = Vec::new();
        for (i, j) in places(&view, span, bytes) {
            let (start, end) = (i as f64 * COLUMNS * pixel, (i + 1) as f64 * COLUMNS * pixel);
            let known = self.known.entry((i, j)).or_insert(start);
            if *known >= end {
                continue;
            }
            let column = |ms: f64| ((ms - start) / pixel).floor();
            let first = (column(*known) - 4.0).max(0.0);
            let last = (column(span) + 3.0).min(COLUMNS);
            *known = span;
            let (from_ms, from_byte) = (start + first * pixel, j as f64 * ROWS * row);
            out.push(tile(axis, (from_ms, pixel), (from_byte, row), last - first));
        }
        out
    }
}

/// Lengths of the intervals between snapshots, in ms, and the state at the end.
fn intervals(web: &Web, time: Duration) -> Result<(Vec<f64>, Value)> {
    let (mut client, start) = (web.client()?, Instant::now());
    let (mut found, mut last) = (Vec::new(), (0, 0.0));
    loop {
        let state = client.json("/api/state")?;
        let source = &state["sources"][0];
        let now =
            (source["snapshots"].as_u64().unwrap_or(0), source["span_ms"].as_f64().unwrap_or(0.0));
        if last.0 > 0 && now.0 == last.0 + 1 {
            found.push(now.1 - last.1);
        }
        last = now;
        if start.elapsed() >= time {
            return Ok((found, state));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The intervals of the monitor, alternately without clients and with many, half of which never read.
fn crowd(isotherm: &Path, time: Duration, rounds: usize) -> Result<()> {
    let (_load, web) = live_page(isotherm)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut dropped, mut left) = (0, u64::MAX);
    for _ in 0..rounds {
        alone.extend(intervals(&web, time)?.0);
        let (readers, _silent) = (readers(&web)?, silent(&web)?);
        // Those that do not read are dropped after 10 s.
        let (found, state) = intervals(&web, time.max(Duration::from_secs(15)))?;
        // Their threads hold the connections, too.
        readers.iter().try_for_each(|reader| reader.shutdown(Shutdown::Both))?;
        beside.extend(found);
        dropped = state["refused"]["slow"].as_u64().unwrap_or(0);
        left = left.min(state["connections"].as_u64().unwrap_or(0));
    }
    println!(
        "| intervals of the monitor | number | median, ms | 95 %, ms | deviation from {AGGR_MS} ms, 95 %, ms |\n\
         |---|---|---|---|---|"
    );
    let part = |all: &mut [f64], part: f64| {
        all.sort_by(f64::total_cmp);
        all[(all.len() as f64 * part) as usize]
    };
    let [before, with] = [("no client", alone), ("100 clients", beside)].map(|(name, mut all)| {
        let mut deviations: Vec<f64> = all.iter().map(|ms| (ms - AGGR_MS).abs()).collect();
        let (median, most) = (part(&mut all, 0.5), part(&mut all, 0.95));
        let deviation = part(&mut deviations, 0.95);
        println!("| {name} | {} | {median:.1} | {most:.1} | {deviation:.2} |", all.len());
        (most, deviation)
    });
    let (silent, ratio, jitter) = (CROWD * rounds, with.0 / before.0, with.1 - before.1);
    println!(
        "ratio of the 95 %: {ratio:.3}; growth of the deviation: {jitter:.2} ms; dropped: {dropped} of {silent} that \
         never read"
    );
    ensure!(dropped == silent as u64, "{dropped} of {silent} silent clients were dropped");
    ensure!(left > CROWD as u64, "{left} clients are left, and {CROWD} have read");
    ensure!(ratio <= MAX_LENGTHENING, "the 95 % are {ratio:.3} times those without clients");
    ensure!(
        jitter <= MAX_JITTER * AGGR_MS,
        "the deviations are {jitter:.2} ms longer, more than {MAX_JITTER} of the interval"
    );
    Ok(())
}

/// Clients that read all events.
fn readers(web: &Web) -> Result<Vec<TcpStream>> {
    let reader = |_| -> Result<TcpStream> {
        let mut client = web.client()?;
        write!(client.stream.get_mut(), "GET /api/events HTTP/1.1\r\n{}", client.head)?;
        let stream = client.stream.get_ref().try_clone()?;
        // It ends with the connection.
        std::thread::spawn(move || std::io::copy(&mut client.stream, &mut std::io::sink()));
        Ok(stream)
    };
    (0..CROWD).map(reader).collect()
}

/// Clients that ask for more than fits in the buffers of a connection, and never read.
fn silent(web: &Web) -> Result<Vec<Client>> {
    let one = |_| -> Result<Client> {
        let mut client = web.client()?;
        for _ in 0..200 {
            write!(client.stream.get_mut(), "GET /page.js HTTP/1.1\r\n{}", client.head)?;
        }
        Ok(client)
    };
    (0..CROWD).map(one).collect()
}

/// Memory of the program after it has shown a day of snapshots of 300 regions, one a second, of a service that keeps all
/// of them.
fn day(isotherm: &Path) -> Result<()> {
    let start = Instant::now();
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("socket");
    let mut snapshots = synthetic::snapshots(300, Duration::from_secs(1), 60).take(DAY);
    let answer = move |request| match request {
        Request::Status => Response::status(serde_json::json!({ "seconds": DAY })),
        Request::Snapshot { from: Some(_), .. } => {
            let command = "/usr/bin/server --made-up".to_owned();
            let fact = TargetInfo { id: TargetId(0), pid: Some(4711), command };
            let mut some = History::new(std::iter::once(fact));
            for s in snapshots.by_ref().take(SNAPSHOTS_PER_ANSWER) {
                some.push(Event::Snapshot(Arc::new(s)));
            }
            match some.since(Nanos(0)) {
                Ok(answer) => Response::snapshot(answer),
                Err(e) => Response::refused(e.to_string()),
            }
        }
        _ => Response::done(),
    };
    fake_service::serve(&socket, answer)?;
    let mut command = Command::new(isotherm);
    let web = Web::start(command.args(["web", "--service", "--control"]).arg(&socket))?;
    let mut client = web.client()?;
    let shown = |client: &mut Client| -> Result<usize> {
        let state = client.json("/api/state")?;
        Ok(state["sources"][0]["snapshots"].as_u64().unwrap_or(0) as usize)
    };
    let (mut last, begin) = (0, Instant::now());
    while last < DAY {
        ensure!(begin.elapsed() < MAX_DAY_READING, "the page has read {last} of {DAY} snapshots");
        std::thread::sleep(Duration::from_secs(1));
        last = shown(&mut client)?;
    }
    // What a page asks of it.
    for path in ["targets", "series", "table?ms=1e9", "axis?target=0", "ages?target=0&ms=1e9"] {
        client.json(&format!("/api/source/0/{path}"))?;
    }
    let (own, most) = (status(web.pid(), "RssAnon")?, status(web.pid(), "VmHWM")?);
    println!(
        "a day of {DAY} snapshots of 300 regions: memory of isotherm web --service {} MiB at most, of which {} MiB are \
         not pages of the program file, after {:.1} s",
        most >> 20,
        own >> 20,
        start.elapsed().as_secs_f64()
    );
    ensure!(most <= MAX_MEMORY, "{} MiB are more than {} MiB", most >> 20, MAX_MEMORY >> 20);
    Ok(())
}
