//! The settings that are played: schemes, minimum ages, limits and tiers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::scheme::{Quota, Scheme, Weights};
use isotherm_report::{bytes, time};
use isotherm_sim::whatif::{Setting, SettingPolicy};

use super::{Sweep, TierList};
use crate::reclaim::{SizeQuota, TimeQuota, untouched};
use crate::schemes;
use crate::text_file::{TextError, text_of};
use crate::usage::UsageError;

/// The default minimum age of `isotherm reclaim`.
const MIN_AGE: Duration = Duration::from_secs(120);
/// The default quota of `isotherm reclaim`.
const QUOTA: TimeQuota =
    TimeQuota { time: Some(Duration::from_millis(10)), window: Duration::from_secs(1) };
const QUOTA_SIZE: u64 = 128 << 20;
/// Maximum number of settings.
const MAX_SETTINGS: usize = 64;

/// The chosen settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// files of schemes, each of which is a setting
    pub schemes: Vec<PathBuf>,
    /// minimum ages of the scheme of `isotherm reclaim`
    pub min_ages: Vec<Duration>,
    /// quotas, each of which is combined with each minimum age; empty: the default one
    pub quotas: Vec<TimeQuota>,
    /// maximum number of bytes in each window of a quota; `None`: the default
    pub quota_size: Option<SizeQuota>,
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
            all.push(Setting { name: name_of(path), policy: SettingPolicy::Schemes(schemes) });
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
        let is_of_age = self.pages || !self.quotas.is_empty() || self.quota_size.is_some();
        if ages.is_empty() && is_of_age {
            let text = "--pages, --quota and --quota-size belong to --min-age, and have no effect on other settings: \
                        add --min-age or --sweep min-age=FROM..TO, or leave them out";
            return Err(UsageError::new(text).into());
        }
        let quotas = if self.quotas.is_empty() { &[QUOTA][..] } else { &self.quotas };
        for age in &ages {
            for quota in quotas {
                let scheme = self.reclaim(*age, *quota);
                scheme.check().map_err(|e| UsageError::new(format!("--min-age, --quota: {e}")))?;
                let mut name = format!("min-age {}", time(*age));
                if quotas.len() > 1 {
                    name += &format!(", quota {}", text_of_quota(*quota));
                }
                all.push(Setting { name, policy: SettingPolicy::Schemes(vec![scheme]) });
            }
        }
        for limit in limits {
            let name = format!("limit {}", bytes(limit));
            all.push(Setting { name, policy: SettingPolicy::Limit(limit) });
        }
        for list in &self.tiers {
            let name = format!("tiers {}", list.text);
            all.push(Setting { name, policy: SettingPolicy::Tiers(list.tiers.clone()) });
        }
        if all.len() > MAX_SETTINGS {
            let text =
                format!("{} settings are too many: at most {MAX_SETTINGS} are played", all.len());
            return Err(UsageError::new(text).into());
        }
        Ok(all)
    }

    /// The scheme of `isotherm reclaim`. It has no watermarks, as a record does not show free memory.
    fn reclaim(&self, age: Duration, quota: TimeQuota) -> Scheme {
        let weights = Weights { age: 1, ..Weights::default() };
        let bytes = self.quota_size.map_or(Some(QUOTA_SIZE), |size| size.0);
        let (time, reset) = (quota.time, quota.window);
        let quota = Quota { time, bytes, reset, weights, goals: Vec::new() };
        Scheme { quota, ..untouched(age, self.pages) }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
}

fn text_of_quota(quota: TimeQuota) -> String {
    match quota.time {
        None => "none".to_owned(),
        Some(of) => format!("{}/{}", time(of), time(quota.window)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings with no options but these.
    fn list(change: impl Fn(&mut Settings)) -> Result<Vec<Setting>, SettingsError> {
        let mut settings = Settings {
            schemes: Vec::new(),
            min_ages: Vec::new(),
            quotas: Vec::new(),
            quota_size: None,
            pages: false,
            limits: Vec::new(),
            tiers: Vec::new(),
            sweeps: Vec::new(),
        };
        change(&mut settings);
        settings.list(Duration::from_secs(1))
    }

    #[test]
    fn options_of_a_minimum_age_require_one() {
        let options: [fn(&mut Settings); 3] = [
            |s| s.pages = true,
            |s| s.quotas.push(QUOTA),
            |s| s.quota_size = Some(SizeQuota(None)),
        ];
        for option in options {
            let refused = list(|s| {
                s.limits.push(1 << 30);
                option(s);
            });
            assert!(refused.unwrap_err().to_string().contains("add --min-age"));
            let both = list(|s| {
                s.limits.push(1 << 30);
                s.min_ages.push(MIN_AGE);
                option(s);
            });
            assert_eq!(both.unwrap().len(), 2);
            assert_eq!(list(option).unwrap().len(), 1, "the default minimum age");
        }
    }

    #[test]
    fn a_minimum_age_has_a_quota() {
        let quota = |change: fn(&mut Settings)| match &list(change).unwrap()[0].policy {
            SettingPolicy::Schemes(schemes) => schemes[0].quota.clone(),
            other => panic!("{other:?}"),
        };
        let default = quota(|_| ());
        assert_eq!(
            (default.time, default.bytes, default.reset),
            (Some(Duration::from_millis(10)), Some(128 << 20), Duration::from_secs(1)),
            "as of reclaim"
        );
        assert_eq!(quota(|s| s.quota_size = Some(SizeQuota(None))).bytes, None);
    }
}
