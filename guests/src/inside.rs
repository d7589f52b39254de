//! What a guest finds inside when it boots: its first root file system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::apt;
use crate::cache::Kernel;
use crate::cpio::Archive;
use crate::lab::Lab;
use crate::modules;
use crate::room;
use crate::topology::Topology;

/// Where busybox is; from the package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

/// What differs from guest to guest.
pub struct Inside<'a> {
    /// with isotherm, and what modules to have
    pub lab: &'a Lab,
    /// whose modules
    pub kernel: &'a Kernel,
    /// what its script may compare with
    pub topology: &'a Topology,
    /// what its script is told, as the script of a shell
    pub variables: String,
    /// a folder with its script; none: a prompt
    pub scenario: Option<&'a Path>,
    /// an archive of the root file system that systemd boots, if it does
    pub tree: Option<&'a Path>,
}

impl Inside<'_> {
    /// Writes it to a file in `dir`, as the kernel takes it.
    ///
    /// # Errors
    /// If something of it is not there.
    pub fn write(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("initramfs");
        std::fs::write(&path, self.archive()?)?;
        Ok(path)
    }

    fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for dir in ["proc", "sys", "dev", "tmp", "run", "root", "out"] {
            archive.directory(dir);
        }
        busybox(&mut archive)?;
        archive.program("bin/isotherm", &read(&self.lab.program)?);
        archive.program("bin/guest-tool", &read(&self.lab.tool)?);
        for name in ["init", "script", "lib.sh", "interleave.sh", "workload.toml"] {
            archive.program(name, &read(&room().join("inside").join(name))?);
        }
        archive.file("etc/topology", self.topology.facts().as_bytes());
        archive.file("etc/variables", self.variables.as_bytes());
        self.add_modules(&mut archive)?;
        if let Some(folder) = self.scenario {
            for file in std::fs::read_dir(folder)? {
                let file = file?;
                let name = format!("scenario/{}", file.file_name().to_string_lossy());
                archive.file(&name, &read(&file.path())?);
            }
        }
        if let Some(tree) = self.tree {
            archive.file("debian.tar", &read(tree)?);
            archive.file("isotherm.deb", &package(&self.lab.program)?);
        }
        Ok(archive.finish())
    }

    fn add_modules(&self, archive: &mut Archive) -> Result<()> {
        let from = &self.kernel.modules;
        if !from.is_dir() {
            return Ok(());
        }
        let to = format!("lib/modules/{}", self.kernel.release);
        let text = |name: &str| std::fs::read_to_string(from.join(name));
        let (dep, alias) = (text("modules.dep")?, text("modules.alias")?);
        let needed = modules::needed(&dep, &self.lab.kernels.modules);
        for path in needed.iter().filter_map(|line| modules::paths(line).next()) {
            let file = format!("{to}/{}", modules::unpacked(path));
            archive.file(&file, &unpacked(&from.join(path))?);
        }
        let lines: String = needed.iter().map(|line| unpacked_line(line)).collect();
        archive.file(&format!("{to}/modules.dep"), lines.as_bytes());
        let aliases = modules::aliases(&alias, &needed).join("\n") + "\n";
        archive.file(&format!("{to}/modules.alias"), aliases.as_bytes());
        Ok(())
    }
}

/// The package, with this program in it, and not packed, which takes long to unpack inside.
fn package(program: &Path) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let made = apt::output(
        Command::new(room().join("../packaging/deb")).arg(program).arg(dir.path()).arg("-Znone"),
    )?;
    read(Path::new(made.trim()))
}

/// A line of `modules.dep` that names modules as they are inside.
fn unpacked_line(line: &str) -> String {
    let mut paths = modules::paths(line).map(modules::unpacked);
    let module = paths.next().unwrap_or_default();
    let dependencies: Vec<&str> = paths.collect();
    format!("{module}: {}\n", dependencies.join(" "))
}

/// busybox, by all its names.
fn busybox(archive: &mut Archive) -> Result<()> {
    archive.program("bin/busybox", &read(Path::new(BUSYBOX))?);
    let names = apt::output(Command::new(BUSYBOX).arg("--list"))?;
    for name in names.lines().filter(|n| *n != "busybox") {
        archive.link(&format!("bin/{name}"), "busybox");
    }
    // The kernel itself looks for it here.
    archive.link("sbin/modprobe", "../bin/busybox");
    Ok(())
}

/// A module, without what it is packed with.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let packer = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return read(path),
    };
    let out = Command::new(packer).arg("-dc").arg(path).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(out.status.success(), "{packer} cannot unpack {}", path.display());
    Ok(out.stdout)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
