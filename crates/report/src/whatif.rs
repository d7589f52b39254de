//! The effects of several settings: the saved memory, the memory that comes back, and the cost.

use serde::Serialize;

/// The effect that each setting would have had in the time of a record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// begin of the used part of the record
    pub from_ms: f64,
    /// its end
    pub to_ms: f64,
    /// time for which the program waits until a page is back
    pub fault_us: f64,
    /// CPU time for paging out a page
    pub page_out_us: f64,
    /// in the order that was asked for
    pub settings: Vec<WhatIfRow>,
}

/// The effect of one setting. Figures are means over the time that counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WhatIfRow {
    /// name of the setting
    pub name: String,
    /// why there are no figures
    pub refused: Option<String>,
    /// longest age that the setting demands; 0: none
    pub min_age_ms: f64,
    /// time between two looks at the record
    pub step_ms: f64,
    /// begin of the time that counts
    pub counted_from_ms: f64,
    /// memory of known age, without the setting
    pub memory_bytes: u64,
    /// the part of it that would be paged out
    pub saved_bytes: u64,
    /// memory that would be paged out per second
    pub paged_out_bytes_per_second: f64,
    /// paged-out memory that would be touched per second
    pub returned_bytes_per_second: f64,
    /// time for which the program would wait for it, in percent of the time
    pub waiting_percent: f64,
    /// CPU time for paging out, in percent of one CPU
    pub acting_percent: f64,
    /// quota windows that are used up, in percent of the time
    pub quota_full_percent: f64,
    /// memory that is skipped because a quota is used up, counted each time
    pub quota_passed_bytes: u64,
    /// No other setting saves as much, with as little that comes back.
    pub is_best: bool,
    /// mean time of an access, if there are tiers
    pub access_ns: Option<f64>,
    /// the tiers, the fastest first
    pub tiers: Vec<WhatIfTier>,
    /// all of the time, in order
    pub over_time: Vec<WhatIfPoint>,
}

/// The use of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WhatIfTier {
    /// its size
    pub size_bytes: u64,
    /// time of an access
    pub latency_ns: f64,
    /// accesses, as far as the record shows them
    pub accesses_per_second: f64,
    /// memory that moves to the next tier, or out of the last one; as much moves up
    pub moved_down_bytes_per_second: f64,
}

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WhatIfPoint {
    /// begin
    pub from_ms: f64,
    /// end
    pub to_ms: f64,
    /// memory of known age, without the setting
    pub memory_bytes: u64,
    /// the part of it that would be paged out
    pub saved_bytes: u64,
    /// memory that would be paged out per second
    pub paged_out_bytes_per_second: f64,
    /// paged-out memory that would be touched per second
    pub returned_bytes_per_second: f64,
}

impl WhatIf {
    /// The settings with figures.
    pub(crate) fn sound(&self) -> impl Iterator<Item = &WhatIfRow> {
        self.settings.iter().filter(|row| row.refused.is_none())
    }

    /// Marks the settings that no other one surpasses: the Pareto front of saved memory against memory that
    /// comes back.
    #[must_use]
    pub fn with_best(mut self) -> Self {
        let points: Vec<(u64, f64)> =
            self.sound().map(|row| (row.saved_bytes, row.returned_bytes_per_second)).collect();
        let surpasses =
            |a: &(u64, f64), b: (u64, f64)| a.0 >= b.0 && a.1 <= b.1 && (a.0 > b.0 || a.1 < b.1);
        for row in self.settings.iter_mut().filter(|row| row.refused.is_none()) {
            let own = (row.saved_bytes, row.returned_bytes_per_second);
            row.is_best = !points.iter().any(|p| surpasses(p, own));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{what_if_picture, what_if_text};

    const MIB: u64 = 1 << 20;

    fn row(name: &str, saved: u64, back: f64) -> WhatIfRow {
        let point = |i: u32| WhatIfPoint {
            from_ms: f64::from(i) * 1e3,
            to_ms: f64::from(i + 1) * 1e3,
            memory_bytes: 100 * MIB,
            saved_bytes: u64::from(i) * MIB,
            paged_out_bytes_per_second: 0.0,
            returned_bytes_per_second: back,
        };
        WhatIfRow {
            name: name.to_owned(),
            memory_bytes: 100 * MIB,
            saved_bytes: saved * MIB,
            returned_bytes_per_second: back,
            over_time: (0..40).map(point).collect(),
            ..WhatIfRow::default()
        }
    }

    fn of(settings: Vec<WhatIfRow>) -> WhatIf {
        WhatIf {
            schema_version: 1,
            title: "a server".to_owned(),
            from_ms: 0.0,
            to_ms: 40e3,
            fault_us: 20.0,
            page_out_us: 4.22,
            settings,
        }
        .with_best()
    }

    #[test]
    fn the_front_has_the_unsurpassed_settings() {
        let refused = WhatIfRow { refused: Some("too short".into()), ..row("r", 99, 0.0) };
        let rows = vec![
            row("a", 50, 9.0),
            row("b", 40, 9.0),
            row("c", 30, 5.0),
            row("d", 30, 5.0),
            refused,
        ];
        let what_if = of(rows);
        let best: Vec<bool> = what_if.settings.iter().map(|row| row.is_best).collect();
        assert_eq!(best, [true, false, true, true, false]);
        let text = what_if_text(&what_if);
        assert!(text.contains("* a ") && !text.contains("* b "), "{text}");
        assert!(text.contains("no figures: too short"), "{text}");
        let svg = what_if_picture(&what_if).unwrap().svg().unwrap();
        assert!(svg.contains("What comes back") || svg.contains("a server"));
    }

    #[test]
    fn one_setting_is_shown_over_time() {
        let what_if = of(vec![row("min-age 30s", 20, 1e6)]);
        let text = what_if_text(&what_if);
        assert!(text.contains("over time") && text.contains("20.0 MiB"), "{text}");
        assert!(!text.contains("* min-age"), "there is nothing to compare: {text}");
        assert!(what_if_picture(&what_if).unwrap().svg().unwrap().contains("memory"));
    }

    #[test]
    fn tiers_have_a_table() {
        let tier = |size, ns| WhatIfTier {
            size_bytes: size * MIB,
            latency_ns: ns,
            accesses_per_second: 1e4,
            moved_down_bytes_per_second: 1e6,
        };
        let tiers = vec![tier(64, 80.0), tier(256, 250.0)];
        let text = what_if_text(&of(vec![WhatIfRow {
            tiers,
            access_ns: Some(165.0),
            ..row("tiers 64M:80ns,256M:250ns", 0, 0.0)
        }]));
        assert!(text.contains("165 ns") && text.contains("256.0 MiB"), "{text}");
    }
}
