//! `isotherm whatif`: plays a record through schemes, limits and tiers.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use isotherm::reading::PlayedRecord;
use isotherm::schemes::TARGETS;
use isotherm::whatif::figures;
use isotherm_core::scheme::MemoryMetrics;
use isotherm_report::{what_if_picture, what_if_text};
use isotherm_sim::whatif::{DelayModel, Player, Surroundings};
use tracing::warn;

use super::report::output::Output;
use crate::cli::{UsageError, WhatIf};

/// Plays the record, and prints what each setting would have done.
pub fn run(o: WhatIf) -> Result<ExitCode> {
    let output = Output::of(o.output.as_deref(), &o.record, o.json)?;
    let part = o.part();
    let prices = DelayModel { page_out: o.page_out, fault: o.fault, ..DelayModel::default() };
    let prices = prices.with_monitor();
    let record = PlayedRecord::open(&part)?;
    let settings = o.settings().list(record.interval())?;
    let mut surroundings = Surroundings { memory: o.memory, metrics: record.metrics() };
    surroundings.metrics.groups = BTreeMap::from([(TARGETS.into(), MemoryMetrics::default())]);
    let player =
        Player::new(settings, prices, &surroundings).map_err(|e| UsageError::new(e.to_string()))?;
    let (span, effects) = record.play(player)?;
    let what_if = figures(record.title(), span, prices, effects);
    let refused =
        what_if.settings.iter().filter_map(|row| Some((&row.name, row.refused.as_ref()?)));
    let has_figures = refused.clone().count() < what_if.settings.len();
    if let Some(path) = output.path().filter(|_| !has_figures) {
        let whys: Vec<String> = refused.map(|(name, why)| format!("{name}: {why}")).collect();
        bail!(
            "{} is not written, because no setting has figures: {}",
            path.display(),
            whys.join("; ")
        );
    }
    if output.form().is_picture() {
        refused.for_each(|(name, why)| warn!("{name} is not in the picture: {why}"));
    }
    let code = output.write(&what_if, || what_if_text(&what_if), || what_if_picture(&what_if))?;
    Ok(if has_figures { code } else { ExitCode::FAILURE })
}
