//! Writes the compiler's version into the program: counts are comparable within one version.

use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(compiler).arg("--version").output().expect("the compiler runs");
    let version = String::from_utf8(output.stdout).expect("its version is text");
    println!("cargo:rustc-env=QUIETLINE_RUSTC={}", version.trim());
    println!("cargo:rerun-if-changed=build.rs");
}
