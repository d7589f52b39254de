//! A choice of a scheme with an objective: as a line of the log, and as text.

use std::time::SystemTime;

use isotherm_core::scheme::{AimReason, AimStep};
use isotherm_report::bytes;
use serde::Serialize;

/// A line of the log: `docs/abi/testing/audit-log.md`.
#[derive(Debug, Serialize)]
pub struct AimLine<'a> {
    time: String,
    scheme: &'a str,
    action: &'static str,
    cgroup: Option<&'a str>,
    age_seconds: Option<f64>,
    why: &'static str,
    idle: u64,
    kept: u64,
    expected_per_minute: u64,
    returned_per_minute: u64,
    #[serde(skip)]
    reason: AimReason,
}

impl<'a> AimLine<'a> {
    /// The line for a choice.
    pub fn new(step: &'a AimStep) -> Self {
        AimLine {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            scheme: &step.scheme,
            action: "aim",
            cgroup: step.group.as_deref(),
            age_seconds: step.age.map(|age| age.as_secs_f64()),
            why: step.why.name(),
            idle: step.idle,
            kept: step.kept,
            expected_per_minute: step.expected,
            returned_per_minute: step.returned,
            reason: step.why,
        }
    }

    /// The choice as text, for people.
    pub fn words(&self) -> String {
        let share = |part: u64| format!("{:.2} %", part as f64 * 100.0 / self.kept.max(1) as f64);
        let came = share(self.returned_per_minute);
        let of = self.cgroup.map_or_else(String::new, |path| format!(" in {path}"));
        let choice = self.age_seconds.map_or_else(String::new, |age| {
            format!(
                "pages out memory that is idle for {age:.0} s, {} of {}; each minute, {} of the \
                 rest should come back",
                bytes(self.idle),
                bytes(self.idle + self.kept),
                share(self.expected_per_minute)
            )
        });
        let text = match self.reason {
            AimReason::Curve => format!("{choice}, and {came} came back"),
            AimReason::TooMuch => {
                format!("too much came back ({came} of the rest each minute): {choice}")
            }
            AimReason::FarTooMuch => format!(
                "far too much came back ({came} of the rest each minute): pages out nothing until the next choice"
            ),
            AimReason::NoAge => {
                "pages out nothing: at no idle time that is known so far, the objective is met"
                    .to_owned()
            }
            AimReason::NoAgeInRange => {
                "pages out nothing: at no idle time up to 30 min, the longest that --aim chooses, the objective is met; \
                 choose a larger share, or --min-age instead of --aim"
                    .to_owned()
            }
            AimReason::FewCounted => {
                "pages out nothing: too few of its pages are counted to know that the objective is \
                 met"
                .to_owned()
            }
            AimReason::Cache => format!(
                "asks the kernel to reclaim {} of {} of page cache that no process maps within a minute; {came} of \
                 the rest was read again",
                bytes(self.idle),
                bytes(self.idle + self.kept)
            ),
            AimReason::TooMuchCache => format!(
                "too much page cache was read again ({came} each minute): none is reclaimed until the next choice"
            ),
            AimReason::Lost => {
                "pages out nothing: how long memory is idle, or what comes back, is not known \
                                any more"
                    .to_owned()
            }
        };
        format!("{}{of}: {text}", self.scheme)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::Nanos;

    use super::*;

    #[test]
    fn each_reason_is_a_sentence() {
        let step = |why, age: Option<u64>| AimStep {
            at: Nanos(0),
            scheme: Arc::from("reclaim"),
            group: Some(Arc::from("/shop")),
            age: age.map(Duration::from_secs),
            why,
            idle: 30 << 20,
            kept: 100 << 20,
            expected: 1 << 20,
            returned: 2 << 20,
        };
        let words = |why, age| AimLine::new(&step(why, age)).words();
        assert_eq!(
            words(AimReason::Curve, Some(42)),
            "reclaim in /shop: pages out memory that is idle for 42 s, 30.0 MiB of 130.0 MiB; \
             each minute, 1.00 % of the rest should come back, and 2.00 % came back"
        );
        let much = words(AimReason::TooMuch, Some(50));
        assert!(much.contains("too much came back (2.00 %") && much.contains("idle for 50 s"));
        use AimReason::{FarTooMuch, FewCounted, Lost, NoAge, NoAgeInRange};
        for why in [FarTooMuch, NoAge, NoAgeInRange, FewCounted, Lost] {
            assert!(words(why, None).contains("pages out nothing"));
        }
        assert_eq!(
            words(AimReason::Cache, None),
            "reclaim in /shop: asks the kernel to reclaim 30.0 MiB of 130.0 MiB of page cache that no process maps within \
             a minute; 2.00 % of the rest was read again"
        );
        let much = words(AimReason::TooMuchCache, None);
        assert!(much.contains("page cache was read again (2.00 % each minute): none"), "{much}");
    }
}
