//! Where nobody handles violations: a report on standard error, and the end of the process. And the environment, which
//! switches checks on. Each case is a process of its own: this program again, with one test.
#![cfg(not(loom))]

use quietline_slab::{Options, RawCache};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// Set in the processes that the tests start.
const IN_CHILD: &str = "QUIETLINE_TEST_IN_CHILD";

/// Runs `body` in a process of its own with `QUIETLINE_SLAB_DEBUG` set to `environment`. Returns
/// `None` in that process, which is this program with one test.
fn run(test: &str, environment: &str, body: fn()) -> Option<(Output, String)> {
    if std::env::var_os(IN_CHILD).is_some() {
        body();
        return None;
    }
    let output = quietline_testing::program()
        .args(["--exact", "--nocapture", &format!("debug_default::{test}")])
        .env(IN_CHILD, "1")
        .env("QUIETLINE_SLAB_DEBUG", environment)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output, error))
}

fn cache(name: &'static str) -> RawCache {
    RawCache::new(Options::new(name, 64, 8)).unwrap()
}

fn child_frees_twice() {
    let cache = cache("default");
    let object = cache.alloc().unwrap();
    // SAFETY: the second time is what is under test.
    unsafe {
        cache.free(object);
        cache.free(object);
    }
    println!("went on");
}

fn child_leaks() {
    let cache = cache("default");
    for _ in 0..25 {
        cache.alloc().unwrap();
    }
    drop(cache);
    println!("went on");
}

fn child_looks() {
    for name in ["default", "inode", "dentry_1"] {
        println!("{name}={}", cache(name).debug());
    }
}

#[test]
fn the_default_is_to_abort() {
    let test = "the_default_is_to_abort";
    let Some((output, error)) = run(test, "FZPU", child_frees_twice) else { return };
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{error}");
    for part in
        ["quietline: slab cache 'default': double free", "allocated by thread", "child_frees_twice"]
    {
        assert!(error.contains(part), "no {part} in {error}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("went on"));
}

#[test]
fn leaks_are_told_and_no_more() {
    let test = "leaks_are_told_and_no_more";
    let Some((output, error)) = run(test, "U", child_leaks) else { return };
    assert!(output.status.success(), "{error}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("went on"));
    assert_eq!(error.matches("leak: object").count(), 10, "{error}");
    assert!(error.contains("15 more") && error.contains("child_leaks"), "{error}");
}

#[test]
fn the_environment_switches() {
    let seen = |environment| {
        let (output, error) = run("the_environment_switches", environment, child_looks)?;
        assert!(output.status.success(), "{error}");
        Some((String::from_utf8_lossy(&output.stdout).into_owned(), error))
    };
    let Some((all, error)) = seen("FZPU") else { return };
    assert!(
        all.contains("default=FZPU") && all.contains("inode=FZPU") && error.is_empty(),
        "{all} {error}"
    );
    let (some, _) = seen("Z,inode,dentry*").unwrap();
    assert!(
        some.contains("default=-") && some.contains("inode=FZ") && some.contains("dentry_1=FZ"),
        "{some}"
    );
    let (none, error) = seen("FX").unwrap();
    assert!(
        none.contains("default=-") && error.contains("QUIETLINE_SLAB_DEBUG=FX is ignored"),
        "{none} {error}"
    );
    assert!(seen("").unwrap().0.contains("default=-"), "set to nothing is not set");
}
