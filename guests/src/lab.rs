//! What all guests share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Kernel};
use crate::kernels::Kernels;
use crate::room;

/// Kernels, and the program to run on them.
pub struct Lab {
    /// which there are
    pub kernels: Kernels,
    /// where they are
    pub cache: Cache,
    /// the static isotherm
    pub program: PathBuf,
    /// what scripts need besides busybox, static too
    pub tool: PathBuf,
}

impl Lab {
    /// # Errors
    /// If something of it is not there.
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
    #[must_use]
    pub fn kernel(&self, series: &str) -> Option<Kernel> {
        self.cache.find(&self.kernels, series)
    }

    /// A kernel, fetched if need be; `say` is told.
    ///
    /// # Errors
    /// If it is not to be had.
    pub fn fetched(&self, series: &str, say: impl Fn(&str)) -> Result<Kernel> {
        known(series, self.kernels.series())?;
        self.cache.fetch(&self.kernels, &[series], say)?;
        self.kernel(series).with_context(|| self.not_built(series))
    }

    /// Why a kernel is in no cache, and what to do.
    #[must_use]
    pub fn not_built(&self, series: &str) -> String {
        let built = self.kernels.built.iter().find(|b| b.series == series);
        format!("not built: make {}", built.map_or("guests", |b| &b.make))
    }
}

/// # Errors
/// If a name is none of `names`.
pub fn known<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let names: Vec<&str> = names.collect();
    if !names.contains(&name) {
        bail!("{name} is not there: take of {}", names.join(", "));
    }
    Ok(())
}

/// The static program, beside which this one was built; `$ISOTHERM_GUESTS_BINARY` if that is set.
fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ISOTHERM_GUESTS_BINARY") {
        return Ok(path.into());
    }
    built("isotherm", "make release")
}

/// A static program beside which this one was built, and what makes it.
fn built(name: &str, make: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let release = Path::new("x86_64-unknown-linux-gnu/release").join(name);
    let there = own.ancestors().map(|d| d.join(&release)).find(|path| path.is_file());
    there.with_context(|| format!("the static {name} is not there: {make}"))
}
