//! Prints the hot memory of a process, repeatedly: `cargo run -p isotherm --example watch_pid -- PID`, as root.

use isotherm::core::{Heat, Thresholds};
use isotherm::{Selection, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: watch_pid PID")?.parse()?;
    let mut session = Session::open(&Selection::pid(pid))?;
    while let Some(snapshot) = session.next_snapshot()? {
        let regions = snapshot.targets.iter().flat_map(|target| &target.regions);
        for r in regions.filter(|r| r.heat(&Thresholds::default()) == Heat::Hot) {
            println!("{:#x}..{:#x} {:.1} Hz", r.range.start, r.range.end, r.rate.hz);
        }
    }
    Ok(())
}
