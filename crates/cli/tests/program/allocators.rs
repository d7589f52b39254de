//! Memory by code of programs that load another allocator than that of the C library.

use std::process::Command;

use serde_json::Value;

use crate::run::{finish, has_or_skip, isotherm, needs_root};
use crate::stacks::{compiled, is_near, mib, report};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/allocators.cpp");
/// MiB that the function `keep` fills once.
const KEPT_MIB: f64 = 48.0;

/// MiB of each site, from the source.
fn truth() -> Vec<f64> {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let lines = source.lines().filter_map(|line| line.trim().strip_prefix("SITE("));
    let numbers = lines.map(|line| line.split(", ").take(3).map(str::parse).collect());
    let sites: Vec<Vec<u32>> = numbers.filter_map(Result::ok).collect();
    assert!(sites.len() == 8 && sites.iter().zip(0..).all(|(s, n)| s[0] == n), "{sites:?}");
    sites.into_iter().map(|s| f64::from(s[2])).collect()
}

/// Whether the dynamic linker finds the library.
fn is_there(test: &str, library: &str, package: &str) -> bool {
    let tried = Command::new("true").env("LD_PRELOAD", library).output().unwrap();
    has_or_skip(tried.stderr.is_empty(), test, format_args!("{library} of {package}"))
}

/// Resident MiB of a function: low, value and high.
fn resident(figures: &Value, function: &str) -> [f64; 3] {
    let name = format!("{function}(unsigned long)");
    let mut rows = figures["rows"].as_array().unwrap().iter();
    rows.find(|row| row["name"] == name).map_or([0.0; 3], |row| mib(&row["resident_bytes"]))
}

/// Whether each function owns what it has allocated, by whichever function of C or C++, and what it touched first.
fn has_owners(library: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(SOURCE, dir.path()).display().to_string();
    let record = dir.path().join("rec").display().to_string();
    let words = ["record", "--alloc=64K", "--duration", "15s", "-o", &record, "--", &program];
    let done = finish(isotherm(words).env("LD_PRELOAD", library));
    assert_eq!(done.status, 0, "{}", done.err);
    let figures = report(dir.path(), &[]);
    assert_eq!(figures["owner"], "allocation", "{}", done.err);
    let of_site = |(n, truth)| {
        let site = format!("site_{n}");
        is_near(resident(&figures, &site), truth, 2.0, &format!("{library}: {site}"))
    };
    let mut all_near = truth().into_iter().enumerate().all(of_site);
    let first_touch = report(dir.path(), &["--first-touch"]);
    for (figures, by) in [(&figures, "allocation"), (&first_touch, "first touch")] {
        let keep = format!("{library}: keep by {by}");
        all_near &= is_near(resident(figures, "keep"), KEPT_MIB, 2.0, &keep);
    }
    let libraries = report(dir.path(), &["--by", "library", "--first-touch"]);
    let stem = library.split(".so").next().unwrap();
    let rows = libraries["rows"].as_array().unwrap().iter();
    let of_allocator = rows.filter(|row| row["name"].as_str().unwrap().starts_with(stem));
    let bytes: f64 = of_allocator.map(|row| mib(&row["resident_bytes"])[1]).sum();
    assert!(bytes < 4.0, "{bytes} MiB belong to {library}: {libraries}");
    all_near
}

macro_rules! allocators {
    ($($test:ident: $library:literal of $package:literal;)*) => {
        $(#[test]
        fn $test() {
            needs_root!();
            if is_there(stringify!($test), $library, $package) {
                // A few samples may miss by chance. On a busy machine some are lost, too.
                assert!((0..3).any(|_| has_owners($library)), "in none of three runs");
            }
        })*
    };
}
allocators! {
    memory_of_jemalloc_belongs_to_its_callers: "libjemalloc.so.2" of "libjemalloc2";
    memory_of_tcmalloc_belongs_to_its_callers: "libtcmalloc_minimal.so.4" of "libtcmalloc-minimal4";
    memory_of_mimalloc_belongs_to_its_callers: "libmimalloc.so.2" of "libmimalloc2.0";
}
