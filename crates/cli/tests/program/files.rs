//! `isotherm files` on real files.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::record_files::{EndOnDrop, MIB, counted_file, folder};
use crate::run::{Done, TIMEOUT, finish, isotherm, needs_root, until};

/// Writes a file, whose pages are cached then.
pub fn write(path: &Path, mib: u64) -> File {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let bytes = vec![1; MIB as usize];
    (0..mib).for_each(|at| file.write_all_at(&bytes, at * MIB).unwrap());
    file.sync_all().unwrap();
    file
}

fn files(args: &[&str]) -> Done {
    finish(&mut isotherm([&["files"], args].concat()))
}

/// Up to five attempts for exact numbers of cached pages: the kernel, or the host of a virtual machine, may take back
/// page cache at any time. After [`TIMEOUT`], only one more attempt follows.
pub fn with_whole_cache(attempt: impl Fn()) {
    let begin = Instant::now();
    let is_done = || catch_unwind(AssertUnwindSafe(&attempt)).is_ok();
    if !(1..5).any(|_| begin.elapsed() < TIMEOUT && is_done()) {
        attempt();
    }
}

fn json(args: &[&str]) -> Value {
    let done = files(&[args, &["--json", "--limit", "100000"]].concat());
    assert_eq!(done.status, 0, "{args:?}: {}", done.err);
    done.json()
}

/// Rows as names and bytes of `key`.
fn rows(found: &Value, key: &str) -> Vec<(String, u64)> {
    let row = |r: &Value| (r["name"].as_str().unwrap().to_owned(), r[key].as_u64().unwrap());
    found["rows"].as_array().unwrap().iter().map(row).collect()
}

/// The BPF program adds up files that cannot be among the first, without their names.
#[test]
fn many_small_files_are_added_up() {
    needs_root!();
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let write = |name: String, pages: usize| {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(&vec![1; pages * 4096]).unwrap();
        // Other tests have dirty pages in the same file system, which stay.
        let how = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, how) }, 0);
    };
    (0..3).for_each(|i| write(format!("large{i}"), 20 + 10 * i));
    (0..3000).for_each(|i| write(format!("small{i}"), 1 + i % 5));
    (3..5).for_each(|i| write(format!("large{i}"), 20 + 10 * i));
    let shown = root.to_str().unwrap();
    let counted = || {
        let done = files(&[shown, "--json", "--limit", "5"]);
        assert_eq!(done.status, 0, "{}", done.err);
        done.json()
    };
    let figures = |found: &Value| {
        let total = &found["total"];
        ["files", "resident_bytes", "size_bytes", "dirty_bytes", "writeback_bytes"]
            .map(|key| total[key].as_u64().unwrap())
    };
    // The kernel may evict pages in the meantime.
    let same = || {
        let (before, found, after) = (json(&[shown]), counted(), json(&[shown]));
        (figures(&before) == figures(&after)).then_some((found, after))
    };
    let (found, listed) = (0..20).find_map(|_| same()).expect("the cache changes all the time");
    assert_eq!(figures(&found), figures(&listed));
    assert_eq!(figures(&found)[0], 3005);
    let mut names = rows(&found, "resident_bytes");
    names.sort();
    let expected = |i: u64| (format!("{shown}/large{i}"), (20 + 10 * i) * 4096);
    assert_eq!(names, (0..5).map(expected).collect::<Vec<_>>());
    let sampled = found["total"]["marks"]["sampled_bytes"].as_f64().unwrap();
    let resident = found["total"]["resident_bytes"].as_f64().unwrap();
    assert!((0.9..1.1).contains(&(sampled / resident)), "{found}");
}

#[test]
fn a_file_is_listed_in_each_folder_that_has_a_name_of_it() {
    needs_root!();
    with_whole_cache(|| {
        let dir = folder();
        let root = dir.path().canonicalize().unwrap();
        let names = ["first/name", "second/name", "third/name"].map(|name| root.join(name));
        write(&names[0], 2);
        for name in &names[1..] {
            fs::create_dir(name.parent().unwrap()).unwrap();
            fs::hard_link(&names[0], name).unwrap();
        }
        for name in &names {
            let found = json(&[name.parent().unwrap().to_str().unwrap()]);
            let expected = (name.display().to_string(), 2 * MIB);
            assert_eq!(rows(&found, "resident_bytes"), [expected]);
        }
        let found = json(&[root.to_str().unwrap()]);
        assert_eq!(found["total"]["files"], 1, "it counts once");
    });
}

#[test]
fn a_tree_by_file_and_by_folder() {
    needs_root!();
    with_whole_cache(|| {
        let dir = folder();
        let root = dir.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        write(&at("a/b/two"), 2);
        write(&at("a/three"), 3);
        write(&at("one"), 1);
        let deleted = write(&at("a/gone"), 4);
        fs::remove_file(at("a/gone")).unwrap();
        let shown = root.to_str().unwrap();
        let name = |path: &str| at(path).display().to_string();

        let found = json(&[shown]);
        let expected = [
            (name("a/gone (deleted)"), 4 * MIB),
            (name("a/three"), 3 * MIB),
            (name("a/b/two"), 2 * MIB),
            (name("one"), MIB),
        ];
        assert_eq!(rows(&found, "resident_bytes"), expected);
        assert_eq!(
            (&found["total"]["files"], &found["total"]["resident_bytes"]),
            (&4.into(), &(10 * MIB).into())
        );
        assert_eq!(
            (&found["schema_version"], &found["by"], &found["nr_rows"]),
            (&1.into(), &"file".into(), &4.into())
        );
        drop(deleted);

        let by_dir = json(&[shown, "--by", "dir", "--sort", "name"]);
        let expected = [(name(""), MIB), (name("a"), 3 * MIB), (name("a/b"), 2 * MIB)];
        let expected = expected.map(|(name, n)| (name.trim_end_matches('/').to_owned(), n));
        assert_eq!(rows(&by_dir, "resident_bytes"), expected);
        // The names in the path of the folder, and one more.
        let depth = (root.components().count()).to_string();
        let by_depth = json(&[shown, "--by", "dir", "--depth", &depth]);
        assert_eq!(rows(&by_depth, "resident_bytes")[0], (name("a"), 5 * MIB));
        let one = json(&[&name("one"), "--by", "filesystem"]);
        assert_eq!(one["rows"][0]["resident_bytes"], MIB);

        let text = files(&[shown, "--limit", "1"]);
        let text = text.text();
        assert!(
            text.contains("6.0 MiB cached of 3 files")
                && text.contains("/a/three\n2 more, 3.0 MiB"),
            "{text}"
        );
        assert!(text.contains("unknown, not cold"), "{text}");
    });
}

#[test]
fn holders_and_groups_add_up() {
    needs_root!();
    with_whole_cache(|| {
        let dir = folder();
        let path = dir.path().canonicalize().unwrap().join("held");
        let held = write(&path, 3);
        let path = path.to_str().unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let own = format!("{} {}", own.trim(), std::process::id());
        let by_process = json(&[path, "--by", "process"]);
        assert!(rows(&by_process, "resident_bytes").contains(&(own, 3 * MIB)), "{by_process}");
        drop(held);
        // A child that another test has just forked holds it until its exec.
        let by_process = || rows(&json(&[path, "--by", "process"]), "resident_bytes");
        until("a file that no process holds", || {
            by_process() == [("[no process]".to_owned(), 3 * MIB)]
        });

        let by_group = json(&[path, "--by", "cgroup"]);
        let sum: u64 = rows(&by_group, "resident_bytes").iter().map(|row| row.1).sum();
        assert_eq!(sum, 3 * MIB, "{by_group}");
        // All of it is charged to the group that has written it, and only that group has it.
        let Some((group, _)) =
            rows(&by_group, "resident_bytes").into_iter().find(|row| row.0.starts_with('/'))
        else {
            return;
        };
        let of_group = json(&[path, "--cgroup", &group]);
        assert_eq!(of_group["total"]["resident_bytes"], 3 * MIB);
    });
}

#[test]
fn an_overlay_shows_the_files_below() {
    needs_root!();
    with_whole_cache(|| {
        let dir = folder();
        let root = dir.path().canonicalize().unwrap();
        let (lower, upper, work, merged) =
            (root.join("lower"), root.join("upper"), root.join("work"), root.join("merged"));
        [&upper, &work, &merged].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        write(&lower.join("sub/low"), 2);
        write(&lower.join("both"), 5);
        write(&upper.join("both"), 1);
        // A mount namespace of its own, so that nothing remains mounted.
        let script = "mount -t overlay overlay -o \"lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work\" \"$1/merged\" || exit 77
            cat \"$1/merged/sub/low\" >/dev/null
            \"$2\" files \"$1/merged\" --json || exit 1
            echo; \"$2\" files \"$1/lower/sub\" --json";
        let mut command = Command::new("unshare");
        let args = ["--mount", "sh", "-c", script, "sh"];
        command.args(args).arg(&root).arg(env!("CARGO_BIN_EXE_isotherm"));
        let done = finish(&mut command);
        if done.status == 77 {
            eprintln!("skipped: this machine cannot mount an overlay: {}", done.err);
            return;
        }
        assert_eq!(done.status, 0, "{}", done.err);
        let mut outputs = done.text().lines().filter(|l| !l.is_empty());
        let mut next = || serde_json::from_str::<Value>(outputs.next().unwrap()).unwrap();
        let through = rows(&next(), "resident_bytes");
        let name = |path: &Path| path.display().to_string();
        assert!(through.contains(&(name(&merged.join("sub/low")), 2 * MIB)), "{through:?}");
        assert!(
            through.contains(&(name(&merged.join("both")), MIB)),
            "the upper one hides it: {through:?}"
        );
        assert_eq!(rows(&next(), "resident_bytes"), [(name(&lower.join("sub/low")), 2 * MIB)]);
    });
}

/// After its file system was unmounted, `--mount` must not choose the one below.
#[test]
fn an_unmounted_file_system_is_no_other_one() {
    needs_root!();
    let dir = folder();
    let script = "mount -t tmpfs none \"$1\" && echo text >\"$1/file\" || exit 77
        \"$2\" files --mount \"$1\" --watch --interval 200ms --duration 60s --json >\"$3\" &
        while [ ! -s \"$3\" ]; do sleep 0.1; done
        umount \"$1\" || exit 1
        until grep -q 'no longer mounted' \"$3\" || ! kill -0 $!; do sleep 0.1; done
        kill $!; wait; exit 0";
    let lines = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(dir.path());
    let done = finish(command.arg(env!("CARGO_BIN_EXE_isotherm")).arg(lines.path()));
    assert_eq!(done.status, 0, "{}", done.err);
    let lines = fs::read_to_string(lines.path()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let files = |line: Option<&Value>| line.unwrap()["total"]["files"].as_u64().unwrap();
    assert_eq!((files(lines.first()), files(lines.last())), (1, 0));
    let last = lines.last().unwrap().to_string();
    assert!(last.contains("no longer mounted"), "{last}");
}

#[test]
fn watching_prints_a_line_of_json_each_interval() {
    needs_root!();
    let done = files(&[
        "--watch",
        "--interval",
        "100ms",
        "--duration",
        "500ms",
        "--json",
        "--by",
        "filesystem",
    ]);
    assert_eq!(done.status, 0, "{}", done.err);
    let lines: Vec<Value> = done.text().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!((1..=6).contains(&lines.len()), "{}", lines.len());
    for line in lines {
        let sum: u64 = rows(&line, "resident_bytes").iter().map(|row| row.1).sum();
        assert_eq!(line["total"]["resident_bytes"], sum);
        assert!(sum > 0);
    }
}

/// With this budget, isotherm lists all files again only after many outputs, unless the machine has hardly any.
#[test]
fn between_two_listings_the_first_files_are_read_again() {
    needs_root!();
    let dir = folder();
    let path = dir.path().canonicalize().unwrap().join("large");
    let file = write(&path, 1);
    // Sparse, so that it comes first.
    file.set_len(1 << 42).unwrap();
    let mut command = isotherm(["files", "--watch", "--interval", "200ms", "--duration", "60s"]);
    command.args(["--budget", "0.1%", "--sort", "size", "--limit", "5", "--json"]);
    let mut err = tempfile::tempfile().unwrap();
    let mut child =
        command.stdout(Stdio::piped()).stderr(err.try_clone().unwrap()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut seen, mut listed) = (Vec::new(), 0);
    let has_grown = (1..).zip(lines.map_while(Result::ok)).any(|(mib, line)| {
        let line: Value = serde_json::from_str(&line).unwrap();
        let resident = rows(&line, "resident_bytes");
        let resident = resident.iter().find(|row| Path::new(&row.0) == path).unwrap().1;
        let age = line["listed_ms_ago"].as_u64().unwrap();
        seen.push((age, resident));
        if age == 0 {
            listed = resident;
        }
        file.write_all_at(&vec![1; MIB as usize], mib * MIB).unwrap();
        resident > listed
    });
    child.kill().unwrap();
    child.wait().unwrap();
    err.rewind().unwrap();
    let err = std::io::read_to_string(err).unwrap();
    assert!(has_grown, "age of the listing, and resident: {seen:?} {err}");
}

#[test]
fn a_file_that_is_read_has_a_rate() {
    needs_root!();
    let dir = folder();
    let path = dir.path().canonicalize().unwrap().join("read");
    let file = write(&path, 1);
    write(&dir.path().join("idle"), 1);
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let _end = EndOnDrop(&stop);
        scope.spawn(|| {
            let mut buffer = vec![0; MIB as usize];
            while !stop.load(Ordering::Relaxed) {
                file.read_exact_at(&mut buffer, 0).unwrap();
            }
        });
        let args = [dir.path().to_str().unwrap(), "--reads", "300ms", "--sort", "reads", "--json"];
        files(&args)
    });
    assert_eq!(done.status, 0, "{}", done.err);
    let found = done.json();
    if found["rows"][0]["read_bytes_per_second"].is_null() {
        assert!(done.err.contains("reads are unknown"), "{}", done.err);
        return;
    }
    let rates = rows(&found, "read_bytes_per_second");
    assert_eq!(rates[0].0, path.display().to_string());
    assert!(rates[0].1 > 10 * MIB && rates[1].1 == 0, "{rates:?}");
}

/// The first part of a file is read all the time, the rest and another file never.
#[test]
fn files_have_hot_and_cold_bytes() {
    needs_root!();
    let Some((dir, path, file)) = counted_file(8) else { return };
    write(&dir.path().join("idle"), 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&stop);
        scope.spawn(|| {
            let mut buffer = vec![0; MIB as usize];
            while !stop.load(Ordering::Relaxed) {
                file.read_exact_at(&mut buffer, 0).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut command = isotherm(["files", "--heat", "8s", "--sort", "hot", "--watch", "--json"]);
        let command = command.args(["--interval", "1s"]).arg(dir.path()).stdout(Stdio::piped());
        let mut watch = Killed(command.spawn().unwrap());
        let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
        // While other tests read much, ages grow more slowly than time passes.
        let is_right = |line: std::io::Result<String>| {
            let found: Value = serde_json::from_str(&line.unwrap()).unwrap();
            for row in found["rows"].as_array().unwrap().iter().chain([&found["total"]]) {
                assert_eq!(heat(row).iter().sum::<u64>(), row["resident_bytes"].as_u64().unwrap());
            }
            let [of_read, of_idle] = [0, 1].map(|i| &found["rows"][i]);
            let [hot, warm, cold, _] = heat(of_read);
            of_read["name"] == path.to_str().unwrap()
                && (MIB / 2..=2 * MIB).contains(&(hot + warm))
                && hot > 0
                && cold >= 5 * MIB
                && heat(of_idle)[2] >= 3 * MIB
                && found["watched_ms"].as_u64().unwrap() >= 6000
        };
        assert!(lines.take(120).any(is_right), "in none of 120 outputs");
    });
    let done = files(&[dir.path().to_str().unwrap(), "--heat", "8s", "--by", "dir"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let text = done.text();
    assert!(text.contains(" cold ") && text.contains("accesses of the last "), "{text}");
}

/// Ends it also if a test fails.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Hot, warm, cold and unknown bytes of a row.
fn heat(row: &Value) -> [u64; 4] {
    ["hot", "warm", "cold", "unknown"].map(|k| row["heat"][format!("{k}_bytes")].as_u64().unwrap())
}

/// Without privileges, the pages of named files can still be counted.
#[test]
fn without_bpf_named_files_are_counted_by_system_calls() {
    with_whole_cache(|| {
        let dir = folder();
        let two = dir.path().join("two");
        write(&two, 2);
        fs::hard_link(&two, dir.path().join("the same")).unwrap();
        File::create(dir.path().join("not cached")).unwrap().set_len(MIB).unwrap();
        // The file becomes that of the user who counts it: the kernel hides pages of other users' files.
        let files = || match rustix::process::geteuid().is_root() {
            false => isotherm(["files"]),
            true => {
                let mut command = Command::new("setpriv");
                command.args([
                    "--bounding-set=-all",
                    "--inh-caps=-all",
                    env!("CARGO_BIN_EXE_isotherm"),
                    "files",
                ]);
                command
            }
        };
        let done = finish(files().args([dir.path(), &two]).arg("--json"));
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(done.err.contains("cachestat and mincore"), "{}", done.err);
        let by_group = finish(files().arg(&two).args(["--by", "cgroup"]));
        assert_eq!(by_group.status, 1, "{}", by_group.err);
        assert!(by_group.err.contains("without --cgroup and --by cgroup"), "{}", by_group.err);
        let found = done.json();
        assert_eq!(rows(&found, "resident_bytes"), [(two.display().to_string(), 2 * MIB)]);
        assert_eq!(found["total"]["size_bytes"], 2 * MIB);
        assert_eq!(found["total"]["resident_bytes"], 2 * MIB);
        assert_eq!(found["rows"][0]["marks"], Value::Null, "unknown");
        assert_eq!(found["rows"][0]["mapped_bytes"], Value::Null, "unknown");
    });
}

/// `mincore` reports all pages of such a file as cached.
#[test]
fn pages_of_a_file_of_another_user_are_not_counted() {
    needs_root!();
    with_whole_cache(|| {
        let dir = folder();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [theirs, open] = ["theirs", "open"].map(|name| dir.path().join(name));
        fs::DirBuilder::new().mode(0o700).create(dir.path().join("closed")).unwrap();
        write(&theirs, 2);
        let file = write(&open, 1);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
        fadvise(File::open(&theirs).unwrap(), 0, None, Advice::DontNeed).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.args([env!("CARGO_BIN_EXE_isotherm"), "files", "--json"]).arg(dir.path());
        let done = finish(&mut command);
        if done.status == 126 || done.status == 127 {
            eprintln!("skipped: other users cannot execute the program here: {}", done.err);
            return;
        }
        assert_eq!(done.status, 0, "{}", done.err);
        let found = done.json();
        assert_eq!(rows(&found, "resident_bytes"), [(open.display().to_string(), MIB)]);
        let remarks = found["remarks"].to_string();
        assert!(
            remarks.contains("1 file could not be counted") && remarks.contains("its owner"),
            "{remarks}"
        );
        assert!(remarks.contains("1 folder could not be read"), "{remarks}");
        drop(file);
    });
}

#[test]
fn what_makes_no_sense_is_reported() {
    for (args, status, said) in [
        (&["--depth", "1"][..], 2, "--by dir"),
        (&["--watch", "--interval", "1ms"], 2, "--interval"),
        (&["--reads", "0s"], 2, "make --reads 100ms or longer"),
        (&["--heat", "7s"], 2, "make --heat 8s or longer"),
        (&["--sort", "cold"], 2, "give --heat 10s"),
        (&["--duration", "1s"], 2, "--watch"),
        (&["--by", "colour"], 2, "filesystem"),
        (&["/no/such/file"], 1, "/no/such/file"),
        (&["/dev/null"], 1, "/dev/null is neither a regular file nor a folder"),
    ] {
        let done = files(args);
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said) && done.out.is_empty(), "{args:?}: {}", done.err);
    }
}
