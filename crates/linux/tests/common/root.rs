//! Tests that require root.

/// Whether this test can run here: it requires root. If all tests must run, its absence is a failure.
pub fn root_or_skip(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(root || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{test} requires root");
    if !root {
        eprintln!("skipped {test}: it requires root to read page tables of another process");
    }
    root
}

/// Skips the rest of a test without root. The name of the test is that of the function.
macro_rules! needs_root {
    () => {
        fn here() {}
        // For example `program::record::a_test::here`.
        let path = std::any::type_name_of_val(&here);
        if !$crate::root::root_or_skip(path.rsplit("::").nth(1).unwrap_or(path)) {
            return;
        }
    };
}
pub(crate) use needs_root;
