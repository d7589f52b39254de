//! Progress of schemes as text.

use isotherm_core::scheme::Engine;
use isotherm_report::bytes;

/// Describes what each scheme has done so far, or would have done in a dry run.
pub fn done(engine: &Engine, dry: bool) -> String {
    let would = if dry { "would " } else { "" };
    let of = engine.schemes().map(|(scheme, stats)| {
        let off = if stats.exceeded > 0 { " (quota)" } else { "" };
        format!("{would}{} {}{off}  ", scheme.name, bytes(stats.applied.bytes))
    });
    of.collect()
}
