//! Records which compiler built the bench, since its version is one of the facts printed beside every result, and
//! compiles the C side of the DPDK column where that is asked for.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=QUIETLINE_RUSTC={version}");

    println!("cargo::rustc-check-cfg=cfg(quietline_dpdk)");
    #[cfg(feature = "peer-dpdk")]
    dpdk::build();
}

#[cfg(feature = "peer-dpdk")]
mod dpdk {
    use std::process::Command;

    const SOURCE: &str = "src/raw/slab/heaps/dpdk.c";

    /// Compiles the C file and names the libraries. Without libdpdk: a warning, and a column that says so.
    pub(crate) fn build() {
        println!("cargo::rerun-if-changed={SOURCE}");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
        let Some(flags) = pkg_config(&["--cflags", "libdpdk"]) else {
            println!(
                "cargo::warning=pkg-config knows no libdpdk (Debian: libdpdk-dev): peer-dpdk will not run"
            );
            return;
        };
        let mut cc = cc::Build::new();
        for flag in flags {
            cc.flag(flag);
        }
        // Its headers are for speed, whatever profile this is built in.
        cc.opt_level(3).file(SOURCE).compile("quietline-dpdk");
        let paths = pkg_config(&["--libs-only-L", "libdpdk"]).unwrap_or_default();
        let paths = paths.iter().filter_map(|flag| flag.strip_prefix("-L"));
        paths.for_each(|path| println!("cargo::rustc-link-search=native={path}"));
        for library in ["rte_mempool", "rte_eal"] {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        println!("cargo::rustc-cfg=quietline_dpdk");
    }

    /// What pkg-config prints, in words, if it succeeds.
    fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
        let output = Command::new("pkg-config").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
    }
}
