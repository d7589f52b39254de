//! Compiles the BPF program; the object becomes part of the binary.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = "src/bpf/walk.bpf.c";
    println!("cargo:rerun-if-changed=src/bpf");
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("walk.skel.rs");
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .clang_args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-sign-compare"])
        .build_and_generate(&out)
        .map_err(|e| {
            format!("{e:#}\nBuilding isotherm needs clang (Debian: apt-get install clang libelf-dev zlib1g-dev)")
        })?;
    Ok(())
}
