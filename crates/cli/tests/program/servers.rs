//! Real servers, whose memory is mapped by many processes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::{
    AddrRange, Heat, Nanos, PAGE_SIZE, Snapshot, TargetView, Thresholds, align_down,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::MIB;
use crate::run::{Record, Recorder, finish, has_or_skip, root_or_skip, until};

/// The server, if the test can run here.
fn server_or_skip(test: &str, program: Option<PathBuf>) -> Option<PathBuf> {
    if !root_or_skip(test) {
        return None;
    }
    has_or_skip(program.is_some(), test, "a server that is not installed");
    program
}

/// A command with priority over other tests, because memory of a process that waits for a CPU is not hot.
fn promptly(program: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-15"]).arg(program);
    command
}

/// `isotherm record` with the same priority.
fn record(options: &[&str]) -> Recorder {
    let mut command = promptly(env!("CARGO_BIN_EXE_isotherm").as_ref());
    command.arg("record").stdin(Stdio::null());
    let recorder = Recorder::start_by(command, options);
    recorder.until_recording();
    recorder
}

/// One server at a time: there are two CPUs.
static TURN: Mutex<()> = Mutex::new(());

/// A server, ended when dropped: by SIGQUIT, which also ends the backends of PostgreSQL.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let begin = Instant::now();
        let _ = kill_process(Pid::from_child(&self.0), Signal::QUIT);
        while self.0.try_wait().is_ok_and(|end| end.is_none()) {
            if begin.elapsed() > Duration::from_secs(5) {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Server {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

/// Bytes of one target in `ranges` that are reported with this heat.
fn bytes_called(view: &TargetView, heat: Heat, ranges: &[AddrRange]) -> u64 {
    let regions = view.regions.iter().filter(|r| r.heat(&Thresholds::default()) == heat);
    let parts = regions.flat_map(|r| ranges.iter().filter_map(|range| r.range.intersect(range)));
    parts.map(|part| part.len()).sum()
}

mod postgres {
    use super::*;

    const NOBODY: u32 = 65534;
    /// The resolution of the monitor.
    const WINDOW: u64 = 64 << 10;

    fn programs() -> Option<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        versions.map(|v| v.path().join("bin")).find(|bin| bin.join("initdb").exists())
    }

    /// As a user other than root.
    fn as_nobody(program: &Path) -> Command {
        let mut command = promptly("setpriv".as_ref());
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn start(bin: &Path, dir: &TempDir) -> Server {
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let data = dir.path().join("data");
        let mut init = as_nobody(&bin.join("initdb"));
        let done = finish(init.args(["--no-sync", "-A", "trust", "-U", "test", "-D"]).arg(&data));
        assert_eq!(done.status, 0, "{}", done.err);
        let mut command = as_nobody(&bin.join("postgres"));
        let socket = format!("unix_socket_directories={}", dir.path().display());
        command.arg("-D").arg(&data).args(["-c", &socket, "-c", "listen_addresses="]);
        command.args(["-c", "shared_buffers=512MB", "-c", "fsync=off", "-c", "autovacuum=off"]);
        command.args(["-c", "max_parallel_workers_per_gather=0", "-c", "jit=off"]);
        let log = File::create(dir.path().join("log")).unwrap();
        let server = Server(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until("postgres", || psql(dir, &["-c", "select 1"]).status().unwrap().success());
        server
    }

    fn psql(dir: &TempDir, args: &[&str]) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-t", "-A", "-U", "test", "-h"]).arg(dir.path());
        command.args(["-d", "postgres"]).args(args).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        command
    }

    /// An open session, and the pid of its backend.
    struct Session {
        _client: Server,
        backend: i32,
    }

    /// Runs `sql`, whose last statement does not end. Waits until that has begun.
    fn session(dir: &TempDir, sql: &str) -> Session {
        let mut command = psql(dir, &["-f", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let text = format!("select pg_backend_pid();\n{sql}");
        let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let client = Server(child);
        to.write_all(text.as_bytes()).unwrap();
        drop(to);
        let mut lines = BufReader::new(from).lines().map(|l| l.unwrap());
        let backend = lines.next().unwrap().parse().unwrap();
        lines.find(|l| l == "ready").unwrap();
        Session { _client: client, backend }
    }

    const LOAD: [&str; 5] = [
        "create unlogged table hot as
            select i, repeat('ISOTHERM-HOT-ROW ', 55) as t from generate_series(1, 8000) i",
        "create unlogged table cold as
            select i, repeat('ISOTHERM-COLD-ROW ', 52) as t from generate_series(1, 400000) i",
        "vacuum hot, cold",
        "create extension pg_prewarm",
        "select pg_prewarm('cold'), pg_prewarm('hot')",
    ];
    const READ_ALL: &str = "
        select count(*) from cold where t like '%x'; select count(*) from hot where t like '%x';
        select 'ready';";
    const HAMMER: &str = "
        do $$ begin for k in 1..1000000 loop
            perform count(*) from hot where t like 'x%';
        end loop; end $$;";

    /// Pages of the shared buffers that contain `marker`, in the memory of a backend.
    fn buffers_with(pid: i32, marker: &[u8]) -> Vec<AddrRange> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let line = maps.lines().find(|l| l.contains("/dev/zero (deleted)")).unwrap();
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |s| u64::from_str_radix(s, 16).unwrap();
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        // Rows consist only of the marker, repeated, so the middle of a page suffices.
        let mut middle = [0; 200];
        let holds = |at: &u64| {
            memory.read_exact_at(&mut middle, *at + PAGE_SIZE / 2).is_ok()
                && middle.windows(marker.len()).any(|w| w == marker)
        };
        let pages = (number(start)..number(end)).step_by(PAGE_SIZE as usize).filter(holds);
        isotherm_core::join_touching(pages.map(|at| AddrRange::new(at, at + PAGE_SIZE)))
    }

    /// Without the windows at the edges. In those only a few pages may be hot, and they are reported as cold
    /// with their region.
    fn inner_windows(ranges: Vec<AddrRange>) -> Vec<AddrRange> {
        let inner = |r: AddrRange| {
            let (start, end) = (r.start.next_multiple_of(WINDOW), align_down(r.end, WINDOW));
            (start < end).then(|| AddrRange::new(start, end))
        };
        ranges.into_iter().filter_map(inner).collect()
    }

    /// PostgreSQL with 512 MiB of shared buffers in use. Two backends have read everything, and one of them
    /// continues to read 8 MiB.
    #[test]
    fn shared_buffers_are_seen() {
        let Some(bin) = server_or_skip("shared_buffers_are_seen", programs()) else { return };
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = TempDir::new().unwrap();
        let server = start(&bin, &dir);
        let statements: Vec<&str> = LOAD.iter().flat_map(|sql| ["-c", sql]).collect();
        let loaded = finish(psql(&dir, &["-v", "ON_ERROR_STOP=1"]).args(statements));
        assert_eq!(loaded.status, 0, "{}", loaded.err);
        let idle = session(&dir, &format!("{READ_ALL} select pg_sleep(1000);"));
        let busy = session(&dir, &format!("{READ_ALL} {HAMMER}"));
        let options = ["--pid", &server.pid(), "--children", "--control", "c", "--aggr", "400ms"];
        let mut recorder = record(&options);
        recorder.until_more(34);
        let record = recorder.stop();

        let last = record.snapshots.last().unwrap();
        let b = last.bytes(&Thresholds::default());
        let resident = b.hot + b.warm + b.cold + b.unknown;
        // Resident memory is an estimate by samples, too.
        assert!(resident > 700 * MIB, "{resident} bytes resident");
        assert!(b.unknown * 20 <= resident, "{} of {resident} bytes unknown", b.unknown);

        let hot = inner_windows(buffers_with(busy.backend, b"ISOTHERM-HOT-ROW"));
        let cold = buffers_with(busy.backend, b"ISOTHERM-COLD-ROW");
        let len = |ranges: &[AddrRange]| ranges.iter().map(|r| r.len()).sum::<u64>();
        assert!(len(&hot) > 6 * MIB && len(&cold) > 300 * MIB, "{} {}", len(&hot), len(&cold));
        for backend in [busy.backend, idle.backend] {
            let view = view_of(&record, last, backend);
            assert_eq!(bytes_called(view, Heat::Cold, &hot), 0, "hot buffers called cold");
            let found = bytes_called(view, Heat::Cold, &cold);
            assert!(found * 2 > len(&cold), "only {found} bytes of cold buffers found");
        }
        let view = view_of(&record, last, busy.backend);
        let found = bytes_called(view, Heat::Hot, &hot);
        assert!(found * 4 > len(&hot), "only {found} bytes of {} found hot", len(&hot));
    }

    fn view_of<'a>(record: &Record, s: &'a Snapshot, pid: i32) -> &'a TargetView {
        let target = record.targets.iter().find(|t| t.pid == u32::try_from(pid).ok()).unwrap();
        s.targets.iter().find(|t| t.id == target.id).unwrap()
    }
}

mod redis {
    use super::*;

    fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("redis-server")).find(|p| p.exists())
    }

    fn cli(socket: &Path, args: &[&str]) -> String {
        let done = finish(Command::new("redis-cli").arg("-s").arg(socket).args(args));
        assert_eq!(done.status, 0, "{}", done.err);
        done.text().trim().to_owned()
    }

    /// While redis writes its memory to disk, a child shares all of it.
    #[test]
    fn hot_keys_stay_hot_during_a_save() {
        let Some(program) = server_or_skip("hot_keys_stay_hot_during_a_save", program()) else {
            return;
        };
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("socket");
        let mut command = promptly(&program);
        command.args(["--port", "0", "--save", "", "--rdb-key-save-delay", "4000", "--dir"]);
        command.arg(dir.path()).arg("--unixsocket").arg(&socket).stdout(Stdio::null());
        let server = Server(command.spawn().unwrap());
        until("redis", || socket.exists());
        // 8192 values of 8 KiB: a save takes 30 s. 1000 of them are hot.
        let fill = "for i = 0, 8191 do redis.call('SET', string.format('key:%012d', i), \
                    string.rep('x', 8000)) end";
        cli(&socket, &["EVAL", fill, "0"]);
        let mut load = promptly("redis-benchmark".as_ref());
        load.arg("-s").arg(&socket).args(["-q", "-n", "1000000000", "-c", "1", "-P", "8"]);
        load.args(["-r", "1000", "GET", "key:__rand_int__"]);
        let _load = Server(load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

        let mut recorder = record(&["--pid", &server.pid(), "--aggr", "400ms", "--control", "c"]);
        recorder.until_more(10);
        let save = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let save =
            Nanos(save.tv_sec.cast_unsigned() * 1_000_000_000 + save.tv_nsec.cast_unsigned());
        cli(&socket, &["BGSAVE"]);
        let begin = Instant::now();
        recorder.until_more(15);
        let saving = || cli(&socket, &["INFO", "persistence"]).contains("bgsave_in_progress:1");
        assert!(saving(), "the save has ended too early, after {:?}", begin.elapsed());
        let record = recorder.stop();

        let hot_pages = |snapshots: &[&Snapshot]| {
            let regions = snapshots.iter().flat_map(|s| &s.targets).flat_map(|t| &t.regions);
            let hot = regions.filter(|r| r.heat(&Thresholds::default()) == Heat::Hot);
            let mean = hot.map(|r| r.bytes(&Thresholds::default()).hot).sum::<u64>();
            mean / snapshots.len().max(1) as u64
        };
        for s in &record.snapshots {
            println!(
                "{} {:?} {:?}",
                s.end.0 as f64 / 1e9 - save.0 as f64 / 1e9,
                s.cost,
                s.bytes(&Thresholds::default())
            );
        }
        let all: Vec<&Snapshot> = record.snapshots.iter().map(|s| &**s).collect();
        let (old, new) = all.split_at(all.partition_point(|s| s.end <= save));
        assert!(old.len() >= 5 && new.len() >= 5, "{} and {} snapshots", old.len(), new.len());
        let (old, new) = (&old[old.len() - 5..], &new[new.len() - 5..]);
        let (was, is) = (hot_pages(old), hot_pages(new));
        assert!(was > 5 * MIB, "only {was} bytes hot before the save");
        assert!(is * 10 >= was * 7, "{is} bytes hot during the save, {was} before");
    }
}
