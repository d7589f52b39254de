//! All scenarios on all kernels that are to be had.

use isotherm_guests::qemu;
use isotherm_guests::suite::{self, Asked};
use isotherm_guests::table;

#[test]
fn every_scenario_holds_on_its_kernels() {
    if !qemu::is_here() {
        let required = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
        assert!(!required, "every_scenario_holds_on_its_kernels takes qemu-system-x86_64");
        eprintln!("skipped every_scenario_holds_on_its_kernels: it takes qemu-system-x86_64");
        return;
    }
    let mut table = table::head();
    let all_ok = suite::run(
        &Asked::default(),
        |outcome| table += &outcome.lines(),
        |text| eprintln!("{text}"),
    );
    println!("{table}");
    assert!(all_ok.unwrap(), "\n{table}");
}
