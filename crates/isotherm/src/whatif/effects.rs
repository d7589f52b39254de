//! A record, played through several settings: what each would have done.

use std::time::Duration;

use isotherm_core::PAGE_SIZE;
use isotherm_report::{WhatIf, WhatIfPoint, WhatIfRow, WhatIfTier};
use isotherm_sim::whatif::{CoursePart, DelayModel, SettingEffect, TierUse};

/// The figures of the played settings, from a record of this title and time.
#[must_use]
pub fn figures(
    title: &str,
    (from, to): (Duration, Duration),
    delays: DelayModel,
    played: Vec<SettingEffect>,
) -> WhatIf {
    WhatIf {
        schema_version: 1,
        title: title.to_owned(),
        from_ms: ms(from),
        to_ms: ms(to),
        fault_us: ms(delays.fault) * 1e3,
        page_out_us: ms(delays.page_out) * 1e3,
        settings: played.into_iter().map(|p| row(p, delays)).collect(),
    }
    .with_best()
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn row(p: SettingEffect, delays: DelayModel) -> WhatIfRow {
    let m = &p.counted;
    let seconds = m.seconds().max(1e-9);
    let refaults = m.returned / PAGE_SIZE as f64 / seconds;
    WhatIfRow {
        min_age_ms: ms(p.min_age),
        step_ms: ms(p.step),
        counted_from_ms: m.from * 1e3,
        memory_bytes: m.memory.round() as u64,
        saved_bytes: m.saved.round() as u64,
        paged_out_bytes_per_second: m.paged_out / seconds,
        returned_bytes_per_second: m.returned / seconds,
        waiting_percent: refaults * delays.fault.as_secs_f64() * 100.0,
        acting_percent: m.acting / seconds * 100.0,
        quota_full_percent: (m.full / seconds * 100.0).min(100.0),
        quota_passed_bytes: p.quota_passed,
        is_best: false,
        access_ns: access_ns(&p.tiers),
        tiers: p.tiers.iter().map(tier).collect(),
        over_time: p.course.iter().map(point).collect(),
        name: p.name,
        refused: p.refused,
    }
}

fn point(m: &CoursePart) -> WhatIfPoint {
    let seconds = m.seconds().max(1e-9);
    WhatIfPoint {
        from_ms: m.from * 1e3,
        to_ms: m.to * 1e3,
        memory_bytes: m.memory.round() as u64,
        saved_bytes: m.saved.round() as u64,
        paged_out_bytes_per_second: m.paged_out / seconds,
        returned_bytes_per_second: m.returned / seconds,
    }
}

fn tier(t: &TierUse) -> WhatIfTier {
    WhatIfTier {
        size_bytes: t.tier.bytes,
        latency_ns: t.tier.latency.as_secs_f64() * 1e9,
        accesses_per_second: t.accesses,
        moved_down_bytes_per_second: t.moved_down,
    }
}

/// The mean time of an access; `None` without tiers or accesses.
fn access_ns(tiers: &[TierUse]) -> Option<f64> {
    let all: f64 = tiers.iter().map(|t| t.accesses).sum();
    let time = |t: &TierUse| t.accesses * t.tier.latency.as_secs_f64() * 1e9;
    (all > 0.0).then(|| tiers.iter().map(time).sum::<f64>() / all)
}
