//! Tracers of the system find the tracepoints of packets in `ql`.

#[path = "../../../../crates/net/tests/probes/notes.rs"]
mod notes;

#[test]
fn ql_has_tracepoints() {
    notes::check(std::path::Path::new(env!("CARGO_BIN_EXE_ql")), true);
}
