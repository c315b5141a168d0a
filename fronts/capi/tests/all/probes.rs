//! Tracers of the system find the tracepoints of packets in the C library.

#[path = "../../../../crates/net/tests/probes/notes.rs"]
mod notes;

#[test]
#[ignore = "builds the library: .ci/capi"]
fn the_library_has_tracepoints() {
    // Tests of a library for C do not have it built.
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "quietline-capi", "--target-dir"]).arg(target);
    assert!(build.status().unwrap().success());
    notes::check(&target.join("debug/libquietline.so"), true);
}
