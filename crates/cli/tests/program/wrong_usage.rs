//! Impossible requests: their exit status, and their messages.

use std::fs;

use tempfile::TempDir;

use crate::load::Load;
use crate::run::{needs_root, run_in};

/// Runs it in an empty folder, and asserts that the folder is empty afterwards.
fn assert_refused(args: &[&str], status: i32, said: &[&str]) {
    let dir = TempDir::new().unwrap();
    let done = run_in(dir.path(), args);
    assert_eq!(done.status, status, "{args:?}: {}", done.err);
    for part in said {
        assert!(done.err.contains(part), "{args:?}: {part} is not in: {}", done.err);
    }
    assert!(!done.err.contains("panicked"), "{args:?}: {}", done.err);
    assert!(done.out.is_empty(), "{args:?}: words belong to standard error");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?} has written something");
}

#[test]
fn wrong_usage_is_reported_with_a_valid_value() {
    let me = std::process::id().to_string();
    let with = |more: &[&'static str]| {
        let args = ["record", "--pid", &me].map(str::to_owned);
        args.into_iter().chain(more.iter().map(|&s| s.to_owned())).collect::<Vec<_>>()
    };
    let cases: [(&[&'static str], &[&str]); 50] = [
        (&["--regions", "5..2"], &["5 regions", "100..1000"]),
        (&["--regions", "2..10"], &["3 or more", "100..1000"]),
        (&["--regions", "100"], &["--regions", "FROM..TO"]),
        (&["--regions", "100..1000000"], &["limit of 100000"]),
        (&["--sample", "1s", "--aggr", "400ms"], &["at most half of that"]),
        (&["--sample", "5parsec"], &["--sample", "as in 20ms"]),
        (&["--sample", "0"], &["sampling interval"]),
        (&["--duration=-1s"], &["--duration", "as in 20ms"]),
        (&["--max-size", "5Q"], &["--max-size", "K, M, G or T"]),
        (&["--max-size", "10K"], &["--max-size 65536"]),
        (&["--rotate", "3"], &["give --max-size"]),
        (&["--rotate", "1", "--max-size", "1M"], &["choose 2 to"]),
        (&["--window", "5000"], &["power of two"]),
        (&["--min-region", "1K"], &["power of two", "4096"]),
        (&["--split", "1"], &["2 to 16"]),
        (&["--clear-every", "0"], &["choose 1"]),
        (&["--no-such-option"], &["--no-such-option", "--help"]),
        (&["--regions", "-5..10"], &["--help"]),
        (&["--regions=-5..10"], &["--regions", "is no number of regions"]),
        (&["--regions", ".."], &["--regions", "is no number of regions"]),
        (&["--regions", "3..1e3"], &["--regions", "is no number of regions"]),
        (&["--regions", "3..99999999999"], &["--regions", "is no number of regions"]),
        (&["--sample", "NaN"], &["--sample", "as in 20ms"]),
        (&["--sample", ""], &["--sample", "as in 20ms"]),
        (&["--sample", "1ns"], &["sampling interval", "100µs..86400s"]),
        (&["--aggr", "1e99s"], &["--aggr", "as in 20ms"]),
        (&["--aggr", "1e99"], &["--aggr", "as in 20ms"]),
        (&["--aggr", "99999999999999999999s"], &["--aggr", "as in 20ms"]),
        (&["--update", "25h"], &["update interval", "100µs..86400s"]),
        (&["--duration", "inf"], &["--duration", "as in 20ms"]),
        (&["--max-size", "99999999T"], &["--max-size", "too big", "16777215T"]),
        (&["--max-size", "99999999999999999999"], &["--max-size", "too big"]),
        (&["--max-size=-1M"], &["--max-size", "as 64M and 1.5G are"]),
        (&["--max-size", ""], &["--max-size", "as 64M and 1.5G are"]),
        (&["--window", "4M"], &["a window", "2097152"]),
        (&["--split", "4294967296"], &["--split", "4294967295"]),
        (&["--monitor", "page"], &["--monitor", "exposure, regions, pages"]),
        (&["--monitor", "exposure", "--split", "2"], &["--split belongs to the regions monitor"]),
        (&["--monitor", "regions", "--windows"], &["--windows", "--monitor exposure"]),
        (&["--budget", "1%", "--aggr", "1s"], &["--budget", "--aggr", "leave out one"]),
        (&["--budget", "0.001%"], &["a budget of 10", "0.01 % to 100 %"]),
        (&["--budget", "101%"], &["--budget", "0 to 100"]),
        (&["--interval", "10ms"], &["interval of 10ms", "200ms"]),
        (&["--interval", "0s"], &["--interval", "write auto"]),
        (&["--ipis", "0"], &["--ipis"]),
        (&["--look", "smaps", "--monitor", "pages"], &["the pages monitor", "or --look bpf"]),
        (&["--look", "clear_refs", "--ipis", "9"], &["the exposure monitor", "or --look bpf"]),
        (&["--look", "damon", "--budget", "1%"], &["its own rules for --budget"]),
        (&["--seed=-1"], &["--seed"]),
        (&["--rotate", "9999", "--max-size", "1T"], &["choose 2 to"]),
    ];
    for (more, said) in cases {
        let args = with(more);
        assert_refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2, said);
    }
    assert_refused(&["record"], 2, &["--pid PID", "isotherm record -- ./app"]);
    assert_refused(&["record", "--pid", "self"], 2, &["--pid"]);
    assert_refused(&["export"], 2, &["--format"]);
    assert_refused(&["report"], 2, &["summary", "heatmap"]);
    for kind in ["summary", "heatmap", "wss", "regions", "access", "raw"] {
        let report = |option, value, said: &[&str]| {
            assert_refused(&["report", kind, option, value], 2, said);
        };
        report("--time", "5", &["--time", "FROM..TO"]);
        report("--time", "20s..10s", &["--time", "after its begin"]);
        report("--time", "10s..10s", &["--time", "after its begin"]);
        report("--time", "NaN..", &["--time", "as in 20ms"]);
        report("--time", "..1e99", &["--time", "as in 20ms"]);
        report("--time", "1 furlong..", &["--time", "as in 20ms"]);
        report("--addr", "zz..1", &["--addr", "hexadecimal"]);
        report("--addr", "0x2000..0x1000", &["--addr", "after its begin"]);
        report("--hot", "0", &["--hot", "above 0"]);
        report("--addr", "0x10000000000000000..", &["--addr", "hexadecimal"]);
        report("--hot", "often", &["--hot", "Hz"]);
        report("--hot", "NaN", &["--hot", "above 0", "as in 10"]);
        report("--hot", "inf", &["--hot", "finite", "as in 10"]);
        report("--hot", "1e999Hz", &["--hot", "finite"]);
        report("--cold", "5 ice ages", &["--cold", "as in 20ms"]);
    }
    let report = |args: &[&str], said| assert_refused(&[&["report"], args].concat(), 2, said);
    report(&["wss", "--percentiles", "50,101"], &["101", "0 to 100"]);
    report(&["wss", "-o", "wss.pdf"], &["wss.pdf", ".png or .svg"]);
    report(&["access", "--sort", "colour"], &["addr", "heat"]);
    report(&["access", "--size", "1M"], &["--size", "FROM..TO"]);
    report(&["access", "--rate", "5..1"], &["after its begin"]);
    report(&["access", "--at", "1s", "--snapshot", "1"], &["cannot be used with"]);
    report(&["cgroups", "--every", "0s"], &["--every", "1ms or more"]);
}

#[test]
fn help_is_no_error() {
    let dir = TempDir::new().unwrap();
    for args in [&["--help"][..], &["record", "--help"], &["report", "heatmap", "--help"]] {
        let done = run_in(dir.path(), args);
        assert!(done.status == 0 && done.text().contains("Usage: isotherm"), "{args:?}");
    }
    let version = run_in(dir.path(), &["--version"]);
    assert_eq!(version.text(), concat!("isotherm ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_missing_record_is_reported_with_the_command_that_records_one() {
    for args in [&["report", "summary"][..], &["report", "heatmap"], &["export", "--arrow"]] {
        assert_refused(args, 1, &["cannot read the record isotherm.rec", "isotherm record -o"]);
        let named = [args, &["-i", "b.rec"]].concat();
        assert_refused(&named, 1, &["cannot read the record b.rec", "isotherm record -o b.rec"]);
    }
    let done = run_in("/".as_ref(), &["report", "summary", "-i", "/no.rec"]);
    assert_eq!(done.err.matches("No such file").count(), 1, "{}", done.err);
}

#[test]
fn a_file_that_is_no_record_is_reported() {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in [("text", &b"hot and cold\n"[..]), ("zeros", &[0; 10_000]), ("empty", &[])]
    {
        fs::write(dir.path().join(name), bytes).unwrap();
        for args in [&["report", "summary"][..], &["report", "heatmap"], &["export", "--arrow"]] {
            let done = run_in(dir.path(), &[args, &["-i", name]].concat());
            assert_eq!(done.status, 1, "{args:?} {name}: {}", done.err);
            assert!(done.err.contains(&format!("{name} is no isotherm record")), "{}", done.err);
        }
    }
    let done = run_in(dir.path(), &["report", "summary", "-i", "."]);
    assert!(done.status == 1 && done.err.contains("cannot read the record"), "{}", done.err);
}

#[test]
fn unwatchable_processes_are_reported() {
    needs_root!();
    assert_refused(&["record", "--pid", "2"], 1, &["process 2 (kthreadd)", "thread of the kernel"]);
    // One more than the maximum.
    let nobody = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let said = format!("no process {}", nobody.trim());
    assert_refused(&["record", "--pid", nobody.trim()], 1, &[&said]);
    assert_refused(&["record", "--pid", "0"], 1, &["no process 0"]);
    let load = Load::start(16, 4);
    let tasks = fs::read_dir(format!("/proc/{}/task", load.pid())).unwrap();
    let names = tasks.map(|t| t.unwrap().file_name().into_string().unwrap());
    let thread = names.into_iter().find(|t| *t != load.pid().to_string()).unwrap();
    assert_refused(&["record", "--pid", &thread], 1, &["is a thread", "the pid of its process"]);
}

#[test]
fn a_place_that_cannot_be_written_is_reported_and_left_alone() {
    needs_root!();
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let record = ["record", "--pid", &pid, "--duration", "1s"];
    let nowhere = [&record[..], &["-o", "no/such/dir.rec"]].concat();
    assert_refused(&nowhere, 1, &["cannot write the record no/such/dir.rec", "directory exists"]);

    let dir = TempDir::new().unwrap();
    let foreign = dir.path().join("thesis.txt");
    fs::write(&foreign, "years of work").unwrap();
    let done = run_in(dir.path(), &[&record[..], &["-o", "thesis.txt"]].concat());
    assert_eq!(done.status, 1);
    assert!(done.err.contains("thesis.txt exists and is no isotherm record"), "{}", done.err);
    // It does not start a command that could not be recorded.
    let args = ["record", "-o", "thesis.txt", "--", "touch", "started"];
    assert_eq!(run_in(dir.path(), &args).status, 1);
    // Rotation does not overwrite it either.
    fs::rename(&foreign, dir.path().join("a.rec.1")).unwrap();
    let rotating = ["-o", "a.rec", "--max-size", "1M", "--rotate", "2"];
    let done = run_in(dir.path(), &[&record[..], &rotating].concat());
    assert!(done.status == 1 && done.err.contains("a.rec.1 exists"), "{}", done.err);
    assert_eq!(fs::read_to_string(dir.path().join("a.rec.1")).unwrap(), "years of work");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else was written");
}
