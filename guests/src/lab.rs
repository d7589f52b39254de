//! The parts that all guests share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Kernel};
use crate::kernels::Kernels;
use crate::room;

/// Kernels, and the program to test on them.
pub struct Lab {
    /// known kernels
    pub kernels: Kernels,
    /// cached kernels
    pub cache: Cache,
    /// the static isotherm
    pub program: PathBuf,
    /// a static tool that scripts require in addition to busybox
    pub tool: PathBuf,
}

impl Lab {
    /// The kernels, the cache and the programs; fails if one is missing.
    pub fn open() -> Result<Self> {
        let kernels = Kernels::read(&room().join("kernels.toml"))?;
        Ok(Lab {
            kernels,
            cache: Cache::open()?,
            program: program()?,
            tool: built("guest-tool", "make guest-tool")?,
        })
    }

    /// A kernel that is in the cache.
    pub fn kernel(&self, series: &str) -> Option<Kernel> {
        self.cache.find(&self.kernels, series)
    }

    /// A kernel, fetched if necessary; `say` receives progress messages.
    pub fn fetched(&self, series: &str, say: impl Fn(&str)) -> Result<Kernel> {
        known(series, self.kernels.series())?;
        self.cache.fetch(&self.kernels, &[series], say)?;
        self.kernel(series).with_context(|| self.not_built(series))
    }

    /// A message that says why a kernel is not cached, and what to do.
    pub fn not_built(&self, series: &str) -> String {
        let built = self.kernels.built.iter().find(|b| b.series == series);
        format!("not built: make {}", built.map_or("guests", |b| &b.make))
    }
}

/// Fails if `name` is none of `names`.
pub fn known<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let names: Vec<&str> = names.collect();
    if !names.contains(&name) {
        bail!("{name} does not exist: choose one of {}", names.join(", "));
    }
    Ok(())
}

/// Path of the static program in the target directory of this one, or `$ISOTHERM_GUESTS_BINARY` if that is set.
fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ISOTHERM_GUESTS_BINARY") {
        return Ok(path.into());
    }
    built("isotherm", "make release")
}

/// Path of a static program in the target directory of this one; the error names the make target `make`.
fn built(name: &str, make: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let release = Path::new("x86_64-unknown-linux-gnu/release").join(name);
    let there = own.ancestors().map(|d| d.join(&release)).find(|path| path.is_file());
    there.with_context(|| format!("the static {name} is not there: {make}"))
}
