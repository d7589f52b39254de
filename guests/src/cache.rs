//! Kernels that were fetched or built, kept for later runs. A cached kernel requires no network.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::image;
use crate::kernels::{Debian, Kernels, Tree};

/// Prefix of the folder of an incomplete kernel.
const NEW: &str = "fetch-";

/// Packages that contain a kernel: the image alone, or, since version 7, all of them.
const PARTS: [&str; 4] = ["image", "base", "binary", "modules"];

/// A kernel to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// its name in `kernels.toml`
    pub series: String,
    /// release, as `uname -r` prints it
    pub release: String,
    /// an ELF file, which boots faster; `None` if only the other image boots
    pub vmlinux: Option<PathBuf>,
    /// a bzImage, which unpacks itself; may be missing
    pub vmlinuz: PathBuf,
    /// `modules.dep` and the modules that it lists, `modules.alias` and `modules.builtin`; may be missing
    pub modules: PathBuf,
}

/// A directory with kernels.
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$ISOTHERM_GUESTS_CACHE`, or else `isotherm/guests` in the cache directory of the user.
    pub fn open() -> Result<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let root = place(variable).context("HOME is not set: set ISOTHERM_GUESTS_CACHE")?;
        fs::create_dir_all(root.join("kernels"))
            .with_context(|| format!("cannot write {}", root.display()))?;
        Ok(Cache { root })
    }

    /// The cached kernel of a series.
    pub fn find(&self, kernels: &Kernels, series: &str) -> Option<Kernel> {
        let pinned = kernels.debian.iter().find(|d| d.series == series).map(|d| d.pin.as_str());
        let dir = self.root.join("kernels").join(pinned.unwrap_or(series));
        let release = fs::read_to_string(dir.join("release")).ok()?;
        Some(Kernel {
            series: series.to_owned(),
            release: release.trim().to_owned(),
            vmlinux: Some(dir.join("vmlinux")).filter(|path| path.exists()),
            vmlinuz: dir.join("vmlinuz"),
            modules: dir.join("modules"),
        })
    }

    /// Fetches the kernels of `series` that are not cached; `say` receives progress messages.
    pub fn fetch(&self, kernels: &Kernels, series: &[&str], say: impl Fn(&str)) -> Result<()> {
        let _lock = self.lock()?;
        let wanted = kernels.debian.iter().filter(|d| series.contains(&d.series.as_str()));
        let missing: Vec<&Debian> =
            wanted.filter(|d| self.find(kernels, &d.series).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.remove_halves()?;
        for debian in missing {
            say(&format!("reading the lists of Debian's packages for {}", debian.series));
            let suites: BTreeSet<&str> = debian.suites.iter().map(String::as_str).collect();
            let apt = Apt::open(&self.root.join("apt").join(&debian.series), &suites)?;
            let release = debian.choose(apt.packages()).with_context(|| {
                let suites = debian.suites.join(", ");
                format!(
                    "{suites} has no kernel {} any more: kernels.toml needs a change",
                    debian.series
                )
            })?;
            say(&format!("fetching {release}"));
            self.add(debian, release, &apt).with_context(|| format!("cannot fetch {release}"))?;
        }
        Ok(())
    }

    /// An archive of a root file system, fetched if necessary; `say` receives progress messages.
    pub fn tree(&self, tree: &Tree, say: impl Fn(&str)) -> Result<PathBuf> {
        let _lock = self.lock()?;
        let path = self.root.join("trees").join(tree.file());
        if path.is_file() {
            return Ok(path);
        }
        say(&format!("fetching {} and what they depend on", tree.packages.join(", ")));
        let trees = self.root.join("trees");
        fs::create_dir_all(&trees)?;
        self.remove_halves()?;
        let apt = Apt::open(&self.root.join("apt/tree"), &BTreeSet::from([tree.suite.as_str()]))?;
        let temporary = tempfile::Builder::new().prefix(NEW).tempdir_in(&trees)?;
        let (root, archive) = (temporary.path().join("root"), temporary.path().join("tar"));
        apt.unpack_all(&tree.packages, &root).context("cannot fetch Debian's systemd")?;
        let owned = ["--owner=0", "--group=0", "--numeric-owner"];
        apt::output(
            Command::new("tar").args(owned).arg("-cf").arg(&archive).arg("-C").arg(&root).arg("."),
        )?;
        fs::rename(archive, &path)?;
        Ok(path)
    }

    /// Prevents two concurrent runs from fetching the same kernel.
    fn lock(&self) -> Result<File> {
        let lock = File::create(self.root.join("lock"))?;
        lock.lock().context("cannot lock the cache")?;
        Ok(lock)
    }

    /// Removes incomplete kernels of runs that were killed.
    fn remove_halves(&self) -> Result<()> {
        let folders = ["kernels", "trees"].map(|name| fs::read_dir(self.root.join(name)));
        for folder in folders.into_iter().flatten().flatten() {
            let folder = folder?;
            if folder.file_name().to_string_lossy().starts_with(NEW) {
                fs::remove_dir_all(folder.path())?;
            }
        }
        Ok(())
    }

    /// Adds a kernel to the cache, either completely or not at all.
    fn add(&self, debian: &Debian, release: &str, apt: &Apt) -> Result<()> {
        let kernels = self.root.join("kernels");
        let temporary = tempfile::Builder::new().prefix(NEW).tempdir_in(&kernels)?;
        let dir = temporary.path();
        let unpacked = dir.join("unpacked");
        unpack(release, apt, dir, &unpacked)?;
        let base = if unpacked.join("lib/modules").is_dir() { "" } else { "usr" };
        let base = unpacked.join(base);
        let modules = base.join("lib/modules").join(release);
        apt::output(Command::new("depmod").arg("-b").arg(&base).arg(release))?;
        let places = [unpacked.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
        let image = places.iter().find(|p| p.is_file()).context("it has no image")?;
        image::extract(image, &dir.join("vmlinux"))?;
        fs::rename(image, dir.join("vmlinuz"))?;
        fs::rename(&modules, dir.join("modules"))?;
        fs::remove_dir_all(unpacked)?;
        fs::write(dir.join("release"), release)?;
        Ok(fs::rename(temporary.keep(), kernels.join(&debian.pin))?)
    }
}

/// Unpacks the packages of a release into `to`.
fn unpack(release: &str, apt: &Apt, dir: &Path, to: &Path) -> Result<()> {
    for part in PARTS {
        let package = format!("linux-{part}-{release}");
        if apt.packages().contains(&package) {
            apt.download(&package, dir)?;
        }
    }
    apt::unpack_from(dir, to)
}

/// The path of the cache, from environment variables.
fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let ours = variable("ISOTHERM_GUESTS_CACHE").map(PathBuf::from);
    let xdg = || variable("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    ours.or_else(|| xdg().or_else(home).map(|cache| cache.join("isotherm/guests")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(set: &[(&str, &str)]) -> Option<PathBuf> {
        place(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_nearest_variable_counts() {
        let all = [("ISOTHERM_GUESTS_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(placed(&all), Some("/c".into()));
        assert_eq!(placed(&all[1..]), Some("/x/isotherm/guests".into()));
        assert_eq!(placed(&all[2..]), Some("/h/.cache/isotherm/guests".into()));
        assert_eq!(placed(&[]), None);
    }
}
