//! The table has every public method of `Process` and `Kernel`, and paths lead to every entry of
//! `/proc` and `/sys`.

use quietline_hostile::{calls, kind};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the text of all sources in a directory and below.
fn sources(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(&path).unwrap());
        }
    }
    texts
}

/// Returns the public methods of a type, from the text of a crate's sources.
fn methods(texts: &[String], of: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for text in texts {
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with("impl") {
                let head = line.trim_end_matches(" {");
                inside = head.rsplit(' ').next().is_some_and(|name| name == of)
                    && !head.contains(" for ");
            } else if line.starts_with('}') {
                inside = false;
            }
            let head = line.strip_prefix("    pub ").filter(|_| inside);
            let head =
                head.map(|head| head.trim_start_matches("const ").trim_start_matches("unsafe "));
            if let Some(name) = head.and_then(|head| head.strip_prefix("fn ")) {
                names.insert(name.split(['(', '<']).next().unwrap().to_owned());
            }
        }
    }
    names
}

fn directory(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_table_has_every_method_of_a_process_and_of_a_kernel() {
    let texts = sources(&directory("../../crates/quietline/src"));
    let own = sources(&directory("src/calls")).concat();
    let own: String = own.split_whitespace().collect();
    let calls: BTreeSet<_> = calls::all().iter().map(|call| call.name).collect();
    for (of, least) in [("Process", 150), ("Kernel", 10)] {
        let names = methods(&texts, of);
        assert!(names.len() >= least, "the methods of {of} are found: {names:?}");
        let missing: Vec<_> = names.iter().filter(|name| !calls.contains(&***name)).collect();
        assert!(missing.is_empty(), "methods of {of} that the table of calls lacks: {missing:?}");
        // A call that has the name of a method also calls it.
        let called = |name: &&String| {
            own.contains(&format!(".{name}(")) || own.contains(&format!("{of}::{name}("))
        };
        let missing: Vec<_> = names.iter().filter(|name| !called(name)).collect();
        assert!(missing.is_empty(), "methods of {of} that no call calls: {missing:?}");
        println!("{of}: {} methods, all in the table", names.len());
    }
}

#[test]
fn a_method_that_the_table_lacks_is_found() {
    let text = "impl Process {\n    pub fn old(&self) {}\n    pub(crate) fn inner(&self) {}\n}\n\
                impl Kernel {\n    pub const fn other<T>() {}\n}\n\
                impl Drop for Process {\n    pub fn no_method(&self) {}\n}\n";
    let found = |of| methods(&[text.to_owned()], of).into_iter().collect::<Vec<_>>();
    assert_eq!(found("Process"), ["old"]);
    assert_eq!(found("Kernel"), ["other"]);
}

#[test]
fn paths_lead_to_every_entry_of_proc_and_sys() {
    let entries = kind::entries();
    for known in [
        "/proc/PID/status",
        "/proc/PID/cwd",
        "/proc/self",
        "/proc/sys/fs/inotify/max_user_watches",
        "/sys/kernel/slab/dentry/validate",
    ] {
        assert!(entries.iter().any(|entry| entry == known), "{known} is found: {entries:?}");
    }
    let drawn: BTreeSet<Vec<u8>> = (0..400_000).map(kind::path).collect();
    for entry in entries {
        for process in ["self", "3"] {
            let path = entry.replace("PID", process).into_bytes();
            assert!(drawn.contains(&path), "{entry} is not drawn");
        }
    }
    // Each descriptor of the caller and of other processes, in both directories.
    for directory in ["fd", "fdinfo"] {
        for fd in 0..kind::NOFILE {
            let path = format!("/proc/self/{directory}/{fd}").into_bytes();
            assert!(drawn.contains(&path), "descriptor {fd} in {directory} is not drawn");
        }
        let of_others = format!("/proc/3/{directory}/").into_bytes();
        assert!(drawn.iter().any(|path| path.starts_with(&of_others)));
    }
    println!("{} entries of /proc and /sys", entries.len());
}
