//! Compiles the BPF programs; the objects become part of the binary.

use std::path::{Path, PathBuf};

/// Files `src/bpf/NAME.bpf.c`.
const PROGRAMS: [&str; 4] = ["walk", "cache", "reads", "thin"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=src/bpf");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    PROGRAMS.iter().try_for_each(|name| compile(name, &out))
}

fn compile(name: &str, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    libbpf_cargo::SkeletonBuilder::new()
        .source(format!("src/bpf/{name}.bpf.c"))
        .clang_args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-sign-compare"])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .map_err(|e| {
            format!("{e:#}\nBuilding isotherm needs clang (Debian: apt-get install clang libelf-dev zlib1g-dev)")
        })?;
    Ok(())
}
