//! Compiles the BPF programs and the preload library; the objects become part of the binary.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Files `src/bpf/NAME.bpf.c`.
const PROGRAMS: [&str; 4] = ["walk", "cache", "reads", "thin"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/allocations/preload.c");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    PROGRAMS.iter().try_for_each(|name| compile(name, &out))?;
    preload(&out)
}

/// The library that samples allocations inside of a program. Its functions have frame pointers, and clang must not
/// make a call of `calloc` out of `malloc` and `memset`.
fn preload(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let done = Command::new("clang")
        .args(["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-omit-frame-pointer"])
        .args(["-fno-builtin", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(out.join("libisotherm-alloc.so"))
        .arg("src/allocations/preload.c")
        .status()?;
    if done.success() { Ok(()) } else { Err("cannot compile src/allocations/preload.c".into()) }
}

fn compile(name: &str, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    libbpf_cargo::SkeletonBuilder::new()
        .source(format!("src/bpf/{name}.bpf.c"))
        .clang_args([
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-sign-compare",
            // Otherwise the object contains the folder of its sources, and each folder gives other bytes.
            "-ffile-compilation-dir=.",
        ])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .map_err(|e| {
            format!("{e:#}\nBuilding isotherm needs clang (Debian: apt-get install clang libelf-dev zlib1g-dev)")
        })?;
    Ok(())
}
