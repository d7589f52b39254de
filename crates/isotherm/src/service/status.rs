//! Progress of schemes as text.

use isotherm_core::scheme::Engine;
use isotherm_report::bytes;

/// Describes what each scheme has done so far, or would have done in a dry run.
pub fn done(engine: &Engine, dry: bool) -> String {
    let would = if dry { "would " } else { "" };
    let of = engine.schemes().map(|(scheme, stats)| {
        let off = match () {
            () if stats.exceeded > 0 => " (quota)",
            () if stats.inactive > 0 && stats.tried.bytes == 0 => " (inactive by its watermarks)",
            () => "",
        };
        format!("{would}{} {}{off}  ", scheme.name, bytes(stats.applied.bytes))
    });
    of.collect()
}
