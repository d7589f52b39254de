//! The initial root file system of a guest.

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

/// Path of busybox; from the package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

/// The parts that differ between guests.
pub struct Inside<'a> {
    /// provides isotherm, and the list of modules
    pub lab: &'a Lab,
    /// the kernel, with its modules
    pub kernel: &'a Kernel,
    /// the topology, with which its script may compare results
    pub topology: &'a Topology,
    /// variables for its script, as shell assignments
    pub variables: String,
    /// folder of its script; `None`: a shell
    pub scenario: Option<&'a Path>,
    /// archive of the root file system with systemd; `None`: no systemd
    pub tree: Option<&'a Path>,
}

impl Inside<'_> {
    /// Writes it to a file in `dir`, in the format that the kernel expects.
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
        archive.file(&format!("{to}/modules.builtin"), text("modules.builtin")?.as_bytes());
        Ok(())
    }
}

/// The Debian package with this program, uncompressed, because decompression inside of the guest is slow.
fn package(program: &Path) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let made = apt::output(
        Command::new(room().join("../packaging/deb")).arg(program).arg(dir.path()).arg("-Znone"),
    )?;
    read(Path::new(made.trim()))
}

/// A line of `modules.dep`, with the names that modules have inside of the guest.
fn unpacked_line(line: &str) -> String {
    let mut paths = modules::paths(line).map(modules::unpacked);
    let module = paths.next().unwrap_or_default();
    let dependencies: Vec<&str> = paths.collect();
    format!("{module}: {}\n", dependencies.join(" "))
}

/// Adds busybox under all its names.
fn busybox(archive: &mut Archive) -> Result<()> {
    archive.program("bin/busybox", &read(Path::new(BUSYBOX))?);
    let names = apt::output(Command::new(BUSYBOX).arg("--list"))?;
    for name in names.lines().filter(|n| *n != "busybox") {
        archive.link(&format!("bin/{name}"), "busybox");
    }
    // The kernel itself starts modprobe at this path.
    archive.link("sbin/modprobe", "../bin/busybox");
    Ok(())
}

/// A module, decompressed.
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
