//! Tests that cannot run everywhere.

/// Says that the calling test, which needs a process of root that may become other users, does not
/// run on this host.
///
/// # Panics
/// If the environment variable `QUIETLINE_REQUIRE_ROOT` is 1: there the test must run.
pub fn skip_without_root(why: &str) {
    let required = std::env::var_os("QUIETLINE_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{why}");
    println!("skipped: {why}");
}
