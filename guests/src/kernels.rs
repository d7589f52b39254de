//! The known kernels, and the Debian packages that contain them.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The contents of `kernels.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// modules that go into a guest, if the kernel has them as modules
    pub modules: Vec<String>,
    /// kernels from packages
    pub debian: Vec<Debian>,
    /// additional root file system of guests that run Debian's systemd
    pub tree: Tree,
    /// kernels that we build
    #[serde(default)]
    pub built: Vec<Built>,
}

/// A kernel from Debian.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// `6.12`
    pub series: String,
    /// its release, as `uname -r` prints it
    pub pin: String,
    /// suffix of its releases
    pub flavour: String,
    /// suites with its packages
    pub suites: Vec<String>,
}

/// Packages that make up a root file system.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// suite with the packages
    pub suite: String,
    /// packages, without their dependencies, which are added
    pub packages: Vec<String>,
}

impl Tree {
    /// Name of its file, which changes with the list of packages.
    pub fn file(&self) -> String {
        format!("{}-{}.tar", self.suite, self.packages.join("-"))
    }
}

/// A kernel that we build.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Built {
    /// its name
    pub series: String,
    /// the make target that builds it
    pub make: String,
}

impl Kernels {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Names of all series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        let debian = self.debian.iter().map(|d| d.series.as_str());
        debian.chain(self.built.iter().map(|b| b.series.as_str()))
    }
}

impl Debian {
    /// The release to use of those in `packages`: the pinned one, or the newest of the same series and flavour.
    pub fn choose<'a>(&self, packages: &'a [String]) -> Option<&'a str> {
        let releases = packages.iter().filter_map(|p| p.strip_prefix("linux-image-"));
        let same = releases.filter(|r| self.is_of_series(r));
        same.max_by_key(|r| (*r == self.pin, numbers(r)))
    }

    fn is_of_series(&self, release: &str) -> bool {
        let version = release.strip_suffix(&self.flavour).and_then(|v| v.strip_suffix('-'));
        let rest = version.and_then(|v| v.strip_prefix(&self.series));
        // Other flavours and release candidates have additional letters.
        rest.is_some_and(|rest| {
            let own = rest.replace("+deb", "").replace("+bpo", "");
            rest.starts_with('.') && own.chars().all(|c| c.is_ascii_digit() || ".-+".contains(c))
        })
    }
}

/// The numbers of a release, so that 6.12.9 sorts before 6.12.10.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(series: &str, pin: &str) -> Debian {
        Debian {
            series: series.to_owned(),
            pin: pin.to_owned(),
            flavour: "cloud-amd64".to_owned(),
            suites: Vec::new(),
        }
    }

    fn chosen(of: &Debian, releases: &[&str]) -> Option<String> {
        let packages: Vec<String> = releases.iter().map(|r| format!("linux-image-{r}")).collect();
        of.choose(&packages).map(str::to_owned)
    }

    #[test]
    fn a_pin_that_is_there_is_taken() {
        let there = ["6.1.0-9-cloud-amd64", "6.1.0-56-cloud-amd64"];
        let chosen = chosen(&series("6.1", "6.1.0-9-cloud-amd64"), &there);
        assert_eq!(chosen.as_deref(), Some("6.1.0-9-cloud-amd64"));
    }

    #[test]
    fn otherwise_the_newest_of_the_series() {
        let there = [
            "6.12.9+deb12-cloud-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.12.118+deb12-amd64",
            "6.12.118+deb12-cloud-amd64-unsigned",
            "6.12.118+deb12-rt-cloud-amd64",
            "6.1.0-200-cloud-amd64",
            "6.18.3+deb13-cloud-amd64",
        ];
        let pinned = series("6.12", "6.12.1-cloud-amd64");
        assert_eq!(chosen(&pinned, &there).as_deref(), Some("6.12.117+deb12-cloud-amd64"));
        let backport = ["6.12.9+bpo-cloud-amd64"];
        assert_eq!(chosen(&pinned, &backport).as_deref(), Some(backport[0]));
    }

    #[test]
    fn none_if_the_series_is_gone() {
        assert_eq!(chosen(&series("6.1", "6.1.0-9-cloud-amd64"), &["6.12.9-cloud-amd64"]), None);
    }

    #[test]
    fn series_and_pins_agree() {
        let kernels = Kernels::read(&crate::room().join("kernels.toml")).unwrap();
        assert!(kernels.debian.iter().all(|d| d.is_of_series(&d.pin)));
        assert_eq!(kernels.debian.len(), 4);
    }
}
