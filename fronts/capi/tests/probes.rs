//! Tracers of the system find the tracepoints of packets in the C library.

#[path = "../../../crates/net/tests/probes/notes.rs"]
mod notes;

#[test]
fn the_library_has_tracepoints() {
    // This test is built into `deps`, and the library into the directory above.
    let test = std::env::current_exe().unwrap();
    let library = test.ancestors().map(|above| above.join("libquietline.so")).find(|file| file.exists());
    notes::check(&library.expect("the library is built with its tests"), true);
}
