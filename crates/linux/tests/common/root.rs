//! Tests that require root, or something else that a machine may lack.

/// Whether a test has what it requires. Without that it is skipped, or fails if all tests must run.
pub fn has_or_skip(has: bool, test: &str, requires: impl std::fmt::Display) -> bool {
    let may_skip = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none();
    assert!(has || may_skip, "{test} requires {requires}");
    if !has {
        eprintln!("skipped {test}: it requires {requires}");
    }
    has
}

/// The same for a test that requires root.
pub fn root_or_skip(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    has_or_skip(is_root, test, "root to read page tables of another process")
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
