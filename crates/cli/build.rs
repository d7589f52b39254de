//! Has the linker lay out the program so that perf finds its tracepoints: it takes their addresses for
//! offsets in the file.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,separate-loadable-segments");
}
