//! How fast `isotherm web` shows a long record, and what a live page costs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use isotherm_bench::program::{self, Ended};
use isotherm_bench::synthetic;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

/// Measures the first picture, panning, zooming and the crosshair of a long record, and the CPU time of a live page.
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
    /// time for which the live page is measured
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// file for the record, which is kept for the next run [default: a temporary file]
    #[arg(long)]
    record: Option<PathBuf>,
    /// the program [default: that beside this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

const EVERY: Duration = Duration::from_millis(400);
/// Cells in a row and a column of a tile, and of the heat map of a page.
const TILE: f64 = 256.0;
const WIDTH: f64 = 1140.0;
const HEIGHT: f64 = 408.0;
/// Requests of a page at a time.
const AT_ONCE: usize = 4;
const PAGE: f64 = 4096.0;

fn main() -> Result<()> {
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(program::beside, Ok)?;
    let dir = tempfile::tempdir()?;
    let path = o.record.clone().unwrap_or_else(|| dir.path().join("isotherm.rec"));
    if !path.exists() {
        // Ages every 10 s, as isotherm records them at first.
        synthetic::write_every(&path, o.snapshots, o.regions, (EVERY, 25))?;
    }
    let (size, regions) = (path.metadata()?.len(), o.snapshots * o.regions);
    println!("{regions} regions in {} snapshots, {} MiB", o.snapshots, size >> 20);
    record(&isotherm, &path, o.views)?;
    if rustix::process::geteuid().is_root() {
        live(&isotherm, Duration::from_secs(o.seconds))?;
    } else {
        println!("the live page requires root: left out");
    }
    Ok(())
}

/// A running `isotherm web`.
struct Web {
    child: Ended,
    port: u16,
    token: String,
}

impl Web {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut child = Ended(child);
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

    fn cpu(&self) -> Result<Duration> {
        cpu(&self.child.0)
    }
}

/// CPU time of a process so far.
fn cpu(child: &Child) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
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

/// The requests of the tiles of a view, as the page makes them.
fn tiles(v: &View, span: f64, all: f64, axis: u64) -> Vec<String> {
    let pixel = 2f64.powf((v.ms / WIDTH).log2().ceil().max(0.0));
    let row = PAGE * 2f64.powf((v.bytes / HEIGHT / PAGE).log2().ceil().max(0.0));
    let numbers =
        |from: f64, to: f64, size: f64| (from / size) as u64..=((to - 1e-6) / size) as u64;
    let columns = numbers(v.from, (v.from + v.ms).min(span), TILE * pixel);
    let mut out = Vec::new();
    for i in columns {
        for j in numbers(v.low, (v.low + v.bytes).min(all), TILE * row) {
            out.push(format!(
                "/api/source/0/tile?target=0&axis={axis}&from_ms={}&pixel_ms={pixel}&from_byte={}&row_bytes={row}&\
                 width=256&height=256",
                i as f64 * TILE * pixel,
                j as f64 * TILE * row
            ));
        }
    }
    out
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
    let begin = Instant::now();
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
    println!("first picture after {:.2} s", begin.elapsed().as_secs_f64());
    while !span(&mut clients[0])?.1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", web.child.0.id()))?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    println!("all of it after {:.1} s, peak memory {peak}", begin.elapsed().as_secs_f64());
    let (version, all) = axis(&mut clients[0])?.context("there is no axis")?;
    let ms = span(&mut clients[0])?.0;
    println!(
        "{:<24} {:>8} {:>8} {:>8}  ms, {views} views each",
        "zoom", "median", "95 %", "maximum"
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
            let begin = Instant::now();
            fetch(&mut clients, &tiles(&view, ms, all, version))?;
            let took = begin.elapsed().as_micros() as u64;
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
        let begin = Instant::now();
        clients[0].json(&path)?;
        points.record(begin.elapsed().as_micros() as u64)?;
    }
    print_row("crosshair", &points);
    Ok(())
}

fn print_row(name: &str, times: &Histogram<u64>) {
    let ms = |us: u64| us as f64 / 1e3;
    let [median, most] = [50.0, 95.0].map(|p| ms(times.value_at_percentile(p)));
    println!("{name:<24} {median:>8.1} {most:>8.1} {:>8.1}", ms(times.max()));
}

/// CPU time of a live page, without a client and with one that asks for everything four times a second.
fn live(isotherm: &Path, time: Duration) -> Result<()> {
    let mut load = Command::new(isotherm);
    load.args(["lab", "workload", "zipf", "--duration", "5min"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let load = Ended(load.spawn()?);
    let web = Web::start(Command::new(isotherm).args(["web", "--pid", &load.0.id().to_string()]))?;
    std::thread::sleep(Duration::from_secs(10));
    let share = |asks: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let (begin, before) = (Instant::now(), web.cpu()?);
        while begin.elapsed() < time {
            let turn = Instant::now();
            asks()?;
            std::thread::sleep(Duration::from_millis(250).saturating_sub(turn.elapsed()));
        }
        Ok((web.cpu()? - before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0)
    };
    let alone = share(&mut || Ok(()))?;
    let mut clients = (0..AT_ONCE).map(|_| web.client()).collect::<Result<Vec<_>>>()?;
    let with_client = share(&mut || {
        let state = clients[0].json("/api/state")?;
        let ms = state["sources"][0]["span_ms"].as_f64().unwrap_or(0.0);
        for path in [
            "targets",
            "series",
            "marks",
            &format!("table?ms={ms}"),
            &format!("ages?target=0&ms={ms}"),
        ] {
            clients[0].get(&format!("/api/source/0/{path}"))?;
        }
        let axis = clients[0].json("/api/source/0/axis?target=0")?;
        let areas = axis["areas"].as_array().map(Vec::as_slice).unwrap_or_default();
        let bytes = areas.iter().filter_map(|a| a["bytes"].as_f64()).sum::<f64>();
        let view = View { from: (ms - 60e3).max(0.0), ms: 60e3, low: 0.0, bytes };
        let version = axis["version"].as_u64().unwrap_or(0);
        // Of the tiles in view, the page reads those again that reach into the present.
        let all = tiles(&view, ms, bytes, version);
        let open: Vec<String> = all.into_iter().rev().take(2).collect();
        // The axis may have changed in between.
        let _ = fetch(&mut clients, &open);
        Ok(())
    })?;
    println!(
        "live page: {alone:.1} % of a CPU without a client, {with_client:.1} % with one, 4 updates a second"
    );
    Ok(())
}
