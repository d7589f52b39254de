//! `isotherm whatif`: plays a record through schemes, limits and tiers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::files::text_of;
use isotherm::schemes::{self, TARGETS};
use isotherm::whatif::figures;
use isotherm_core::scheme::{Figures, Quota, Scheme, Weights};
use isotherm_report::{bytes, time, what_if_picture, what_if_text};
use isotherm_sim::whatif::{Player, Policy, Prices, Setting, Surroundings};

use super::reclaim::untouched;
use super::report::output::Output;
use super::report::play;
use crate::cli::{Pace, Sweep, UsageError, WhatIf};

/// The default minimum age of `reclaim`.
const MIN_AGE: Duration = Duration::from_secs(120);
const MOST_SETTINGS: usize = 64;

/// Plays the record, and prints what each setting would have done.
pub fn run(o: WhatIf) -> Result<ExitCode> {
    let output = Output::of(o.output.as_deref(), &o.record, o.json)?;
    let part = o.part();
    let prices = Prices { page_out: o.page_out, fault: o.fault };
    let record = play::Record::open(&part)?;
    let settings = settings(&o, record.interval())?;
    let mut surroundings = Surroundings { memory: o.memory, metrics: record.metrics() };
    surroundings.metrics.groups = BTreeMap::from([(TARGETS.into(), Figures::default())]);
    let mut player =
        Player::new(settings, prices, &surroundings).map_err(|e| UsageError::new(e.to_string()))?;
    let span = record.play(&mut player)?;
    let what_if = figures(record.title(), span, prices, player.finish()?);
    output.write(&what_if, || what_if_text(&what_if), || what_if_picture(&what_if))
}

/// The settings, in the order of the options. An age without a unit counts intervals of length `interval`.
fn settings(o: &WhatIf, interval: Duration) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    for path in &o.scheme {
        let text = text_of(path, || format!("cannot read the schemes {}", path.display()))?;
        let mut schemes = Vec::new();
        schemes::load(path, text.as_str(), interval, &mut schemes)?;
        all.push(Setting { name: name_of(path), policy: Policy::Schemes(schemes) });
    }
    let (mut ages, mut limits) = (o.min_age.clone(), o.limit.clone());
    for sweep in &o.sweep {
        match sweep {
            Sweep::MinAge(swept) => ages.extend(swept),
            Sweep::Limit(swept) => limits.extend(swept),
        }
    }
    let others = !o.limit.is_empty() || !o.tiers.is_empty() || !o.sweep.is_empty();
    if all.is_empty() && ages.is_empty() && !others {
        ages.push(MIN_AGE);
    }
    for age in &ages {
        for quota in &o.quota {
            let scheme = reclaim(o, *age, *quota);
            scheme.check().map_err(|e| UsageError::new(format!("--min-age, --quota: {e}")))?;
            let mut name = format!("min-age {}", time(*age));
            if o.quota.len() > 1 {
                name += &format!(", quota {}", text_of_pace(*quota));
            }
            all.push(Setting { name, policy: Policy::Schemes(vec![scheme]) });
        }
    }
    for limit in limits {
        let name = format!("limit {}", bytes(limit));
        all.push(Setting { name, policy: Policy::Limit(limit) });
    }
    for list in &o.tiers {
        let name = format!("tiers {}", list.text);
        all.push(Setting { name, policy: Policy::Tiers(list.tiers.clone()) });
    }
    if all.len() > MOST_SETTINGS {
        let text =
            format!("{} settings are too many: at most {MOST_SETTINGS} are played", all.len());
        return Err(UsageError::new(text).into());
    }
    Ok(all)
}

/// The scheme of `isotherm reclaim`. It has no watermarks, as a record does not show free memory.
fn reclaim(o: &WhatIf, age: Duration, quota: Pace) -> Scheme {
    let weights = Weights { age: 1, ..Weights::default() };
    let (time, bytes, reset) = (quota.time, o.quota_size.0, quota.window);
    let quota = Quota { time, bytes, reset, weights, goals: Vec::new() };
    Scheme { quota, ..untouched(age, o.pages) }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
}

fn text_of_pace(pace: Pace) -> String {
    match pace.time {
        None => "none".to_owned(),
        Some(of) => format!("{}/{}", time(of), time(pace.window)),
    }
}
