//! The configurations under which a workload is run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::slices::SliceOrder;

/// One column of the tables, or one row of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Config {
    /// only the workload
    Orig,
    /// `isotherm record`
    Rec,
    /// huge pages wherever they fit
    Thp,
    /// `schemes/ethp.txt`
    Ethp,
    /// `schemes/prcl.txt`; also the grid's row without a quota
    Prcl,
    /// the scheme of prcl with a time quota per second
    Quota {
        /// quota, in ms per second
        ms: u32,
        /// whether the oldest memory comes first
        prioritised: bool,
    },
}

const ETHP: &str = include_str!("../../schemes/ethp.txt");
const PRCL: &str = include_str!("../../schemes/prcl.txt");
/// The conditions of `schemes/prcl.txt`.
const COLD_CONDITIONS: &str = "rate = { max = \"5%\" }\nage = { min = \"5s\" }\n";
/// Selects single pages that were not touched for the same time, regardless of the state of adjacent pages.
const UNTOUCHED: &str = "filters = [{ kind = { touched_within = \"5s\" } }]\n";
/// Maximum factor by which a lead-in is lengthened.
pub const MAX_PATIENCE: u32 = 4;
/// Time in which a load without isotherm settles.
const SETTLES: Duration = Duration::from_secs(5);
/// The quotas of the grid, in ms per second.
const QUOTAS: [u32; 3] = [10, 50, 200];

/// A file for `isotherm run --scheme`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeFile {
    /// name; its extension determines the format
    pub name: &'static str,
    /// contents
    pub text: String,
}

impl Config {
    /// The columns of the tables.
    pub const COLUMNS: [Config; 5] =
        [Config::Orig, Config::Rec, Config::Thp, Config::Ethp, Config::Prcl];

    /// The rows of the grid.
    pub fn grid() -> Vec<Config> {
        let rows = [false, true]
            .into_iter()
            .flat_map(|prioritised| QUOTAS.map(|ms| Config::Quota { ms, prioritised }));
        [Config::Prcl].into_iter().chain(rows).collect()
    }

    /// All configurations.
    pub fn all() -> Vec<Config> {
        Config::COLUMNS.into_iter().chain(Config::grid().into_iter().skip(1)).collect()
    }

    /// Whether huge pages are used wherever they fit.
    pub fn always_huge(self) -> bool {
        self == Config::Thp
    }

    /// The time quota, in ms per second.
    pub fn quota(self) -> Option<u32> {
        match self {
            Config::Quota { ms, .. } => Some(ms),
            _ => None,
        }
    }

    /// The turns of isotherm at work and at rest during the measurement, in `slices` slices. Paged-out memory
    /// stays paged out while isotherm is at rest, and huge pages cannot be undone at all.
    pub fn turns(self, slices: u32) -> Option<SliceOrder> {
        match self {
            Config::Rec => Some(SliceOrder::Often(slices)),
            Config::Prcl | Config::Quota { .. } => Some(SliceOrder::Once(slices)),
            Config::Orig | Config::Thp | Config::Ethp => None,
        }
    }

    /// Time for which a workload runs before the measurement, if `asked` for: several times as long under a
    /// quota, which delays the paging out; if nothing acts, the time for settling.
    pub fn lead_in(self, asked: Duration) -> Duration {
        match self {
            Config::Orig | Config::Thp => asked.min(SETTLES),
            Config::Quota { ms, .. } => asked * (200 / ms.max(1)).clamp(1, MAX_PATIENCE),
            Config::Rec | Config::Ethp | Config::Prcl => asked,
        }
    }

    /// The scheme for `isotherm run`; `None` if it does not run.
    pub fn scheme(self) -> Option<SchemeFile> {
        match self {
            Config::Orig | Config::Rec | Config::Thp => None,
            Config::Ethp => Some(SchemeFile { name: "ethp.txt", text: ETHP.to_owned() }),
            Config::Prcl => Some(SchemeFile { name: "prcl.txt", text: PRCL.to_owned() }),
            Config::Quota { ms, prioritised } => {
                Some(SchemeFile { name: "prcl.toml", text: within(ms, prioritised) })
            }
        }
    }
}

/// The scheme of `schemes/prcl.txt` with a time quota and all weights 0. With priority, the oldest first, and
/// single cold pages in regions of any rate.
fn within(ms: u32, prioritised: bool) -> String {
    let age = u32::from(prioritised);
    let which = if prioritised { UNTOUCHED } else { COLD_CONDITIONS };
    format!(
        "[[scheme]]\nname = \"prcl\"\naction = \"pageout\"\nsize = {{ min = \"4K\" }}\n{which}\
         quota = {{ time = \"{ms}ms\", reset = \"1s\", weights = {{ size = 0, rate = 0, age = {age} }} }}\n"
    )
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Config::Orig => f.pad("orig"),
            Config::Rec => f.pad("rec"),
            Config::Thp => f.pad("thp"),
            Config::Ethp => f.pad("ethp"),
            Config::Prcl => f.pad("prcl"),
            Config::Quota { ms, prioritised: false } => f.pad(&format!("{ms}ms")),
            Config::Quota { ms, prioritised: true } => f.pad(&format!("{ms}ms-oldest")),
        }
    }
}

impl FromStr for Config {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Config::all();
        let found = all.iter().find(|c| c.to_string() == name).copied();
        found.ok_or_else(|| {
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{name} is no configuration: choose from {}", names.join(", "))
        })
    }
}

impl TryFrom<String> for Config {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Config> for String {
    fn from(config: Config) -> String {
        config.to_string()
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::scheme::Weights;

    use super::*;

    #[test]
    fn names_tell_all_apart() {
        let all = Config::all();
        assert_eq!(all.len(), 11);
        for config in all {
            assert_eq!(config.to_string().parse(), Ok(config));
        }
        assert!("50".parse::<Config>().unwrap_err().contains("50ms-oldest"));
    }

    #[test]
    fn the_grid_differs_in_weights_and_in_what_goes_by_pages() {
        let text = |prioritised| Config::Quota { ms: 50, prioritised }.scheme().unwrap().text;
        let read = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        let [with, without] = [text(true), text(false)].map(|t| read(&t));
        let quota = |t: &toml::Table| t["scheme"][0]["quota"].clone();
        assert_ne!(quota(&with), quota(&without));
        assert_eq!(quota(&with)["time"].as_str(), Some("50ms"));
        assert_eq!(quota(&with)["weights"]["age"].as_integer(), Some(1));
        assert_eq!(quota(&without)["weights"]["age"].as_integer(), Some(0));
        assert_eq!(Weights::default().age, 0, "no weights are none");
        let goes_by = |t: &toml::Table| {
            ["rate", "age", "filters"].map(|key| t["scheme"][0].get(key).is_some())
        };
        assert_eq!(
            (goes_by(&with), goes_by(&without)),
            ([false, false, true], [true, true, false])
        );
    }

    #[test]
    fn lead_ins() {
        let of = |name: &str, asked| {
            name.parse::<Config>().unwrap().lead_in(Duration::from_secs(asked)).as_secs()
        };
        assert_eq!(["orig", "thp"].map(|name| of(name, 15)), [5, 5]);
        assert_eq!(["orig", "rec", "ethp", "prcl"].map(|name| of(name, 3)), [3; 4]);
        assert_eq!(["10ms", "50ms-oldest", "200ms"].map(|name| of(name, 15)), [60, 60, 15]);
    }

    /// The grid's pattern is that of `schemes/prcl.txt`.
    #[test]
    fn the_grid_is_prcl() {
        let prcl = isotherm_core::scheme::parse(PRCL, Duration::from_millis(100)).unwrap();
        let pattern = &prcl[0].pattern;
        assert_eq!((*pattern.size.start(), *pattern.age.start()), (4096, Duration::from_secs(5)));
        let text = within(50, false);
        assert!(text.contains("\"4K\"") && text.contains("\"5s\"") && text.contains("\"5%\""));
        assert!(PRCL.contains("null 5% "));
    }
}
