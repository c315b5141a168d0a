//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The major version of the interface, not of the package.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libquietline.so.1");
    // Never unmapped: the kernel may still know a restartable sequence of it, and fork handlers stay registered.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What is loaded is as far from the beginning in the file as in memory, where a linker asks to be told (lld): perf of Linux 6.1 takes
    // a tracepoint's address for its place in the file.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    // Every symbol is bound when the library is loaded, none on the first miss of a fast path.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
}
