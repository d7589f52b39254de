//! The settings that are played: schemes, minimum ages, limits and tiers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::scheme::{Quota, Scheme, Weights};
use isotherm_report::{bytes, time};
use isotherm_sim::whatif::{Policy, Setting};

use super::{Sweep, TierList};
use crate::files::{TextError, text_of};
use crate::reclaim::{Pace, untouched};
use crate::schemes;
use crate::usage::UsageError;

/// The default minimum age of `isotherm reclaim`.
const MIN_AGE: Duration = Duration::from_secs(120);
/// Maximum number of settings.
const MAX_SETTINGS: usize = 64;

/// The chosen settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// files of schemes, each of which is a setting
    pub schemes: Vec<PathBuf>,
    /// minimum ages of the scheme of `isotherm reclaim`
    pub min_ages: Vec<Duration>,
    /// quotas, each of which is combined with each minimum age
    pub quotas: Vec<Pace>,
    /// maximum number of bytes in each window of a quota; `None`: no limit
    pub quota_size: Option<u64>,
    /// whether minimum ages decide page by page
    pub pages: bool,
    /// memory limits, in bytes
    pub limits: Vec<u64>,
    /// tiers of memory
    pub tiers: Vec<TierList>,
    /// further minimum ages and limits
    pub sweeps: Vec<Sweep>,
}

/// Failures of reading the settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// a file of schemes cannot be read
    #[error("{0}")]
    File(#[from] TextError),
    /// invalid schemes or values
    #[error("{0}")]
    Usage(#[from] UsageError),
}

impl Settings {
    /// The settings, in the order of the options. An age without a unit counts intervals of length `interval`.
    ///
    /// # Errors
    /// If a file of schemes cannot be read, a value is out of range, or there are too many settings.
    pub fn list(&self, interval: Duration) -> Result<Vec<Setting>, SettingsError> {
        let mut all = Vec::new();
        for path in &self.schemes {
            let text = text_of(path, || format!("cannot read the schemes {}", path.display()))?;
            let mut schemes = Vec::new();
            schemes::load(path, text.as_str(), interval, &mut schemes)?;
            all.push(Setting { name: name_of(path), policy: Policy::Schemes(schemes) });
        }
        let (mut ages, mut limits) = (self.min_ages.clone(), self.limits.clone());
        for sweep in &self.sweeps {
            match sweep {
                Sweep::MinAge(swept) => ages.extend(swept),
                Sweep::Limit(swept) => limits.extend(swept),
            }
        }
        let others = !self.limits.is_empty() || !self.tiers.is_empty() || !self.sweeps.is_empty();
        if all.is_empty() && ages.is_empty() && !others {
            ages.push(MIN_AGE);
        }
        for age in &ages {
            for quota in &self.quotas {
                let scheme = self.reclaim(*age, *quota);
                scheme.check().map_err(|e| UsageError::new(format!("--min-age, --quota: {e}")))?;
                let mut name = format!("min-age {}", time(*age));
                if self.quotas.len() > 1 {
                    name += &format!(", quota {}", text_of_pace(*quota));
                }
                all.push(Setting { name, policy: Policy::Schemes(vec![scheme]) });
            }
        }
        for limit in limits {
            let name = format!("limit {}", bytes(limit));
            all.push(Setting { name, policy: Policy::Limit(limit) });
        }
        for list in &self.tiers {
            let name = format!("tiers {}", list.text);
            all.push(Setting { name, policy: Policy::Tiers(list.tiers.clone()) });
        }
        if all.len() > MAX_SETTINGS {
            let text =
                format!("{} settings are too many: at most {MAX_SETTINGS} are played", all.len());
            return Err(UsageError::new(text).into());
        }
        Ok(all)
    }

    /// The scheme of `isotherm reclaim`. It has no watermarks, as a record does not show free memory.
    fn reclaim(&self, age: Duration, quota: Pace) -> Scheme {
        let weights = Weights { age: 1, ..Weights::default() };
        let (time, bytes, reset) = (quota.time, self.quota_size, quota.window);
        let quota = Quota { time, bytes, reset, weights, goals: Vec::new() };
        Scheme { quota, ..untouched(age, self.pages) }
    }
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
