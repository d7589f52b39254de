//! Sizes, times, rates and shares in a file of schemes.

use std::time::Duration;

use isotherm_core::Action;
use isotherm_core::scheme::{parse_action, parse_age, parse_rate};
use serde::Deserialize;

use crate::units;

/// A number, or a text with a unit.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a number, or a text with a unit")]
enum Scalar {
    Whole(u64),
    Real(f64),
    Text(String),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Scalar::Whole(n) => n.to_string(),
            Scalar::Real(x) => x.to_string(),
            Scalar::Text(text) => text,
        }
    }
}

/// Bytes, or with K, M, G, T: 4096, "4K", "2MiB".
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "Scalar")]
pub struct Size(pub u64);

impl TryFrom<Scalar> for Size {
    type Error = String;
    fn try_from(s: Scalar) -> Result<Self, String> {
        units::size(&s.text()).map(Size)
    }
}

/// A time with its unit: "500ms", "5s", "2min", "1h".
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(try_from = "String"))]
#[serde(try_from = "Scalar")]
pub struct Time(pub Duration);

impl TryFrom<Scalar> for Time {
    type Error = String;
    /// A plain number could be mistaken for intervals, as in ages.
    fn try_from(s: Scalar) -> Result<Self, String> {
        match s {
            Scalar::Text(text) => units::duration(&text).map(Time),
            number => {
                let n = number.text();
                Err(format!("{n} is no time without its unit: write \"{n}ms\" or \"{n}s\""))
            }
        }
    }
}

/// "10Hz", or percent of pages found accessed within 5 ms: 5, "5%".
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "Scalar")]
pub struct Rate(pub f64);

impl TryFrom<Scalar> for Rate {
    type Error = String;
    fn try_from(s: Scalar) -> Result<Self, String> {
        let text = s.text();
        let wrong = || format!("{text:?} is no rate: write percent at 5 ms, as 5%, or 10Hz");
        parse_rate(&text).map(Rate).ok_or_else(wrong)
    }
}

/// A time with its unit, as "5s", or a number of aggregation intervals.
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "Scalar")]
pub enum Age {
    /// a time
    Time(Duration),
    /// aggregation intervals
    Intervals(u32),
}

impl TryFrom<Scalar> for Age {
    type Error = String;
    fn try_from(s: Scalar) -> Result<Self, String> {
        let text = s.text();
        if let Ok(n) = text.parse() {
            return Ok(Age::Intervals(n));
        }
        let wrong = || format!("{text:?} is no age: write 500ms, 5s, 2m, or a number of intervals");
        parse_age(&text, Duration::ZERO).map(Age::Time).ok_or_else(wrong)
    }
}

impl Age {
    /// The time, with this length of an interval.
    pub fn at(self, interval: Duration) -> Duration {
        match self {
            Age::Time(time) => time,
            Age::Intervals(n) => interval.saturating_mul(n),
        }
    }
}

/// A share: "20%", or a number of percent.
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "Scalar")]
pub struct Share(f64);

impl TryFrom<Scalar> for Share {
    type Error = String;
    fn try_from(s: Scalar) -> Result<Self, String> {
        units::percent(&s.text()).map(Share)
    }
}

impl Share {
    /// The share in basis points.
    pub fn bp(self) -> u32 {
        (self.0 * 100.0).round() as u32
    }

    /// The share in millionths.
    pub fn ppm(self) -> u32 {
        (self.0 * 10_000.0).round() as u32
    }
}

/// An action: pageout, cold, willneed, hugepage, nohugepage, lru_prio, lru_deprio, "migrate_hot NODES",
/// "migrate_cold NODES" or stat. NODES is 1, or 0:2,1:1 with weights. For files, drop, prefetch and protect are other
/// names of pageout, willneed and lru_prio.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String")]
pub struct ActionText(#[cfg_attr(test, schemars(with = "String"))] pub Action);

impl TryFrom<String> for ActionText {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        parse_action(&text).map(ActionText).map_err(|e| e.what.to_string())
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::scheme::hz_of_percent;

    use super::*;

    fn read<T: TryFrom<Scalar, Error = String>>(text: &str) -> Result<T, String> {
        T::try_from(Scalar::Text(text.to_owned()))
    }

    #[test]
    fn common_spellings_are_accepted() {
        assert_eq!(read::<Size>("2MiB").unwrap().0, 2 << 20);
        assert_eq!(read::<Rate>("10Hz").unwrap().0, 10.0);
        assert_eq!(read::<Rate>("5%").unwrap().0, hz_of_percent(5.0));
        assert_eq!(Rate::try_from(Scalar::Real(2.5)).unwrap().0, hz_of_percent(2.5));
        let interval = Duration::from_millis(400);
        assert_eq!(read::<Age>("5s").unwrap().at(interval), Duration::from_secs(5));
        let intervals = Age::try_from(Scalar::Whole(3)).unwrap();
        assert_eq!(intervals.at(interval), Duration::from_millis(1200));
        let share: Share = read("0.2%").unwrap();
        assert_eq!((share.bp(), share.ppm()), (20, 2000));
    }

    #[test]
    fn errors_show_a_valid_value() {
        assert!(read::<Size>("5Q").unwrap_err().contains("64M"));
        assert!(read::<Rate>("often").unwrap_err().contains("10Hz"));
        assert!(Rate::try_from(Scalar::Real(-1.0)).unwrap_err().contains("10Hz"));
        assert!(read::<Age>("old").unwrap_err().contains("5s"));
        assert!(read::<Share>("101%").unwrap_err().contains("0 to 100"));
        assert!(ActionText::try_from("explode".to_owned()).unwrap_err().contains("pageout"));
        assert!(ActionText::try_from("pageout 1".to_owned()).unwrap_err().contains("too much"));
    }
}
