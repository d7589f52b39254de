//! Values of options: plausible ones, ones at the limits, and hostile ones.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::random::Random;

/// For any option.
const HOSTILE: [&[u8]; 26] = [
    b"",
    b" ",
    b"-",
    b"--",
    b"-1",
    b"0",
    b"1",
    b"4294967296",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999T",
    b"1e308",
    b"NaN",
    b"inf",
    b"0x",
    b"..",
    b"1..",
    b"..1",
    b"9..1",
    b"\xff\xfe\x80",
    b"\x1b[2J\x07",
    "\u{202e}\u{0}\u{1f9ca}".as_bytes(),
    b"a\nb",
    b"%s%n%x",
    b"/proc/self/mem",
    b"/dev/full",
];

const TIMES: [&str; 12] =
    ["0", "1ns", "1us", "1ms", "20ms", "100ms", "1s", "5s", "1m", "300h", "1000000h", "0.5s"];
const SIZES: [&str; 12] =
    ["0", "1", "4095", "4096", "64K", "1M", "16M", "1G", "16777215T", "1.5M", "2MiB", "8E"];
const NUMBERS: [&str; 10] = ["0", "1", "2", "3", "8", "64", "1000", "65536", "4294967295", "0.5"];
const RANGES: [&str; 12] = [
    "0..1",
    "3..10",
    "10..100000",
    "100..1000",
    "1..1",
    "0x1000..0x7fffffffffff",
    "0..0xffffffffffffffff",
    "1s..2s",
    "0s..1000h",
    "1M..",
    "..1M",
    "10..",
];
const OTHERS: [&str; 40] = [
    "auto",
    "default",
    "restore",
    "none",
    "never",
    "true",
    "bpf",
    "bpf-probe",
    "bpf-iter",
    "clear_refs",
    "page_idle",
    "smaps",
    "damon",
    "exposure",
    "regions",
    "pages",
    "1%",
    "0%",
    "100.1%",
    "0=1",
    "0=255,1=1",
    "0=256",
    "1:2:3",
    "4%,3,5ms..10s",
    "10ms/1s",
    "0/0",
    "1G:80ns,8G:300ns",
    "1G:80ns,1G",
    "min-age=1s..10m",
    "limit=1M..8G",
    "limit=8G..1M",
    "127.0.0.1:0",
    "[::1]:0",
    "0.0.0.0:0",
    "localhost",
    "sleep",
    "4x",
    "damo",
    "perf-script",
    "parquet",
];
/// Files that exist, below [`super::INPUTS`], and files that do not.
const FILES: [&str; 20] = [
    "/tmp/in/a.rec",
    "/tmp/in/a.rec",
    "/tmp/in/a.rec",
    "/tmp/in/torn.rec",
    "/tmp/in/damo.json",
    "/tmp/in/perf.data",
    "/tmp/in/trace.txt",
    "/tmp/in/scheme.toml",
    "/tmp/in/scheme.txt",
    "/tmp/in/reclaim.toml",
    "/tmp/in/empty",
    "/tmp/in",
    "/no/such/file",
    "/dev/null",
    "out.rec",
    "out.png",
    "out.svg",
    "out.json",
    "out.prom",
    ".",
];

/// A value of the kind that a placeholder names.
pub fn plausible(placeholder: &str, random: &mut Random) -> OsString {
    let has = |words: &[&str]| words.iter().any(|word| placeholder.contains(word));
    let known = || placeholder.split("\\|").next().unwrap_or_default();
    let of: &[&str] = if has(&["FILE", "PATH", "DIR", "FOLDER", "RECORD"]) {
        &FILES
    } else if has(&["PID"]) {
        &["1", "2", "0", "-1", "2147483647", "4194304"]
    } else if has(&[".."]) {
        &RANGES
    } else if has(&["TIME"]) {
        &TIMES
    } else if has(&["SIZE", "BYTES"]) {
        &SIZES
    } else if matches!(known(), "N" | "HZ" | "PERCENT" | "NUMBER" | "N,N,") {
        &NUMBERS
    } else {
        &OTHERS
    };
    OsString::from(*random.pick(of))
}

/// A value that no option expects. An argument cannot hold a byte 0.
pub fn hostile(random: &mut Random) -> OsString {
    if random.one_in(20) {
        return OsString::from("9".repeat(100_000));
    }
    let bytes: Vec<u8> = random.pick(&HOSTILE).iter().copied().filter(|&b| b != 0).collect();
    OsStr::from_bytes(&bytes).to_owned()
}
