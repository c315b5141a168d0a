//! How `ql` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What is loaded is as far from the beginning in the file as in memory, where a linker asks to be told (lld): perf of Linux 6.1 takes
    // a tracepoint's address for its place in the file.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,separate-loadable-segments");
}
