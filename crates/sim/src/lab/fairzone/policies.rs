//! Rules by name.

use isotherm_mm::{FAIR, Fair, Rules, ZoneBalance};

/// Rules with a name: those of [`FAIR`], and of the series of June 2014, which had kswapd leave lower
/// zones alone.
#[must_use]
pub fn policies() -> Vec<(&'static str, Rules)> {
    let mut all: Vec<_> = FAIR.map(|f| (f.name(), f.rules())).into();
    let high_only = Rules { balance: ZoneBalance::HighOnly, ..Fair::Landed.rules() };
    all.push(("high-only", high_only));
    all
}

/// The rules of this name.
#[must_use]
pub fn find(name: &str) -> Option<Rules> {
    policies().into_iter().find(|p| p.0 == name).map(|p| p.1)
}

/// Why something is no set of rules.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// no TOML, or other keys than there are
    #[error("the policy cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// a number
    #[error(
        "the policy has a number out of range: choose a scale of 1 to 1000, min_free_kbytes of \
         128 to 16777216, swappiness of 0 to 100"
    )]
    Number,
}

/// Reads a file of rules; missing ones are as in Linux 3.15.
///
/// # Errors
/// If it is no such thing, or has numbers out of range.
pub fn parse(text: &str) -> Result<Rules, RulesError> {
    let rules: Rules = toml::from_str(text)?;
    if rules.is_plausible() { Ok(rules) } else { Err(RulesError::Number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_mm::{LruScope, WatermarkRule};

    #[test]
    fn rules_from_a_file() {
        let text = "fair = 'v1'\nlru = 'node'\nwatermarks = { scale = 100 }\nswappiness = 10";
        let rules = parse(text).unwrap();
        assert_eq!((rules.fair, rules.lru), (Fair::V1, LruScope::Node));
        assert_eq!(rules.watermarks, WatermarkRule::Scale(100));
        for bad in ["swappiness = 101", "watermarks = { scale = 0 }", "fare = 'v1'", "fair = 'v2'"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(find("v1").map(|r| r.fair), Some(Fair::V1));
        assert_eq!(find("v2"), None);
        assert_eq!(policies().len(), 6);
    }
}
