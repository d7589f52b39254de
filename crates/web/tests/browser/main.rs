//! The page in a real browser. Each test is a case of `cases.py`, which drives a headless Chromium by Playwright.
//! Without them the tests print that and pass; with `ISOTHERM_REQUIRE_ALL` they fail. `ISOTHERM_SCREENSHOTS=DIR` keeps
//! pictures of the page.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests, and what helps them")]

#[path = "../scene/mod.rs"]
mod scene;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use isotherm_record::{Event, Reader};

use crate::scene::{Records, Scene, write_log, write_record_of};

const CHROMIUM: [&str; 5] =
    ["chromium-headless-shell", "headless_shell", "chromium", "chromium-browser", "google-chrome"];
/// Of the heat of a record, so many bytes are kept.
const MEMORY: usize = 1 << 20;
const HOSTILE: &str = "<img src=x onerror=alert(1)><script>document.title='owned'</script>";

/// The programs of the tests.
struct Tools {
    python: PathBuf,
    chromium: PathBuf,
}

impl Tools {
    /// The programs, or why there are none.
    fn find() -> Result<Self, &'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find =
            |name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.exists());
        let chromium = CHROMIUM.into_iter().find_map(find);
        let chromium = chromium.ok_or("Chromium is missing: install chromium-headless-shell")?;
        let python = playwright().ok_or("Playwright is missing, and pip cannot install it")?;
        Ok(Tools { python, chromium })
    }
}

/// A Python with Playwright, installed into a virtual environment below target.
fn playwright() -> Option<PathBuf> {
    let run = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("playwright");
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    }
    // It reads no index if all is there.
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]);
    run(install.arg(file("requirements.txt"))).then_some(python)
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser").join(name)
}

/// Runs a case on the page at `address`. The case prints what must happen next, and waits until `act` has done it.
/// Returns whether it could run.
fn run(case: &str, address: &str, folder: Option<&Path>, mut act: impl FnMut(&str)) -> bool {
    static TOOLS: OnceLock<Result<Tools, &str>> = OnceLock::new();
    let tools = match TOOLS.get_or_init(Tools::find) {
        Ok(tools) => tools,
        Err(why) => {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{case}: {why}");
            eprintln!("skipped {case}: {why}");
            return false;
        }
    };
    let mut command = Command::new(&tools.python);
    command
        .arg("-B")
        .arg(file("cases.py"))
        .arg(case)
        .arg(&tools.chromium)
        .arg(address)
        .args(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        act(&line.unwrap());
        writeln!(input).unwrap();
    }
    assert!(child.wait().unwrap().success(), "{case} has failed: see above");
    true
}

/// A case on live processes, of which `seen` snapshots are there at first. A line is a number of further ones, or
/// `restart`, or `replace` and the number of those of another service.
fn live(case: &str, names: &[&str], seen: u64) {
    let mut scene = Scene::new(names);
    let targets = u32::try_from(names.len()).unwrap();
    scene.snapshots(seen, targets);
    let address = scene.server.address().to_owned();
    run(case, &address, None, |line| match line.split(' ').collect::<Vec<_>>()[..] {
        ["restart"] => scene.restart(),
        ["replace", count] => scene.replace(count.parse().unwrap()),
        _ => scene.snapshots(line.parse().unwrap(), targets),
    });
}

/// A case on records in a folder, each of so many snapshots and processes, and on its log if it has one. A line is
/// `load`, to read them, or a number of snapshots, to show a sample.
fn recorded(case: &str, records: &[(&str, u64, u32)], folder: &Path) -> bool {
    let write = |(name, snapshots, targets): &(&str, u64, u32)| {
        let path = folder.join(name);
        write_record_of(&path, *snapshots, *targets);
        path
    };
    let paths: Vec<PathBuf> = records.iter().map(write).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let mut records = Records::of(&paths, MEMORY);
    records.logs.extend(Some(folder.join("log")).filter(|log| log.exists()));
    run(case, records.server.address(), Some(folder), |line| match line {
        "load" => records.load(),
        count => records.sample(count.parse().unwrap()),
    })
}

#[test]
fn the_live_view_moves_and_zooms_and_says_what_is_there() {
    live("moves_and_zooms", &["redis-server", "postgres"], 160);
}

#[test]
fn dragging_pans() {
    live("pans", &["app"], 160);
}

/// The page fetches only new columns: the picture is that of a page that has fetched everything.
#[test]
fn new_columns_complete_the_picture() {
    live("new_columns", &["app"], 150);
}

#[test]
fn another_service_is_shown_with_its_processes() {
    live("restarted", &["app"], 40);
}

/// For example, because the laptop slept meanwhile.
#[test]
fn another_service_with_more_snapshots_is_drawn_from_its_start() {
    live("replaced", &["app"], 40);
}

/// Browsers send no strict cookie with a click in another site, nor with a redirect that follows.
#[test]
fn a_link_of_another_site_opens_the_page() {
    live("link_of_another_site", &["app"], 40);
}

#[test]
fn without_the_token_and_from_a_foreign_host_it_is_refused() {
    live("refused", &["app"], 40);
}

#[test]
fn hostile_names_are_text() {
    live("hostile_names", &[HOSTILE, "app"], 40);
}

#[test]
fn it_can_be_read_and_operated() {
    live("accessible", &["app"], 40);
}

#[test]
fn keys_sort_the_table() {
    live("sorts_by_keys", &["zebra", "ant", "mole"], 40);
}

#[test]
fn the_scheme_of_the_system_is_drawn_dark_or_light() {
    live("dark_and_light", &["app"], 40);
}

/// A page that was opened before the record was read shows all of it afterwards.
#[test]
fn a_record_is_shown_from_its_start_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    recorded("record", &[("a.rec", 400, 2)], dir.path());
}

/// The server reads the record, and answers slowly.
#[test]
fn the_table_is_read_again_if_the_record_was_read_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    recorded("read_while_refreshing", &[("a.rec", 400, 2)], dir.path());
}

#[test]
fn two_records_are_side_by_side_and_show_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    recorded("two_records", &[("long.rec", 400, 2), ("short.rec", 200, 3)], dir.path());
}

#[test]
fn a_log_marks_what_schemes_did_on_the_time_line() {
    let dir = tempfile::tempdir().unwrap();
    write_log(&dir.path().join("log"));
    recorded("marks", &[("a.rec", 400, 2)], dir.path());
}

#[test]
fn buttons_save_pictures_and_a_record() {
    let dir = tempfile::tempdir().unwrap();
    if recorded("saves", &[("a.rec", 200, 2)], dir.path()) {
        let events = Reader::open(&dir.path().join("isotherm.rec")).unwrap();
        let snapshots = events.filter(|e| matches!(e, Ok(Event::Snapshot(_)))).count();
        assert_eq!(snapshots, 200, "the whole time was shown");
    }
}
