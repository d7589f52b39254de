//! What is said of schemes while they act.

use isotherm_core::scheme::Engine;
use isotherm_report::bytes;

/// What each has done so far, or would have.
pub fn done(engine: &Engine, dry: bool) -> String {
    let would = if dry { "would " } else { "" };
    let of = engine.schemes().map(|(scheme, stats)| {
        let off = if stats.exceeded > 0 { " (quota)" } else { "" };
        format!("{would}{} {}{off}  ", scheme.name, bytes(stats.applied.bytes))
    });
    of.collect()
}
