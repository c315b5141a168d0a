//! The table has every method of `Process`.

use quietline_hostile::calls;
use std::fs;
use std::path::Path;

/// Files of the crate whose methods are not those of a process.
const OTHERS: &[&str] = &["config.rs", "kernel.rs", "observe.rs", "raw.rs"];
/// Directories of that kind.
const OTHER_DIRECTORIES: &[&str] = &["observe", "proc", "raw"];
/// Methods of other types in files that have methods of a process: sets of descriptors, and the
/// lists that `poll` takes.
const OTHER_METHODS: &[&str] = &["new", "insert", "remove", "contains", "iter"];

fn methods(directory: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            if !OTHER_DIRECTORIES.contains(&&*name) {
                methods(&path, names);
            }
        } else if !OTHERS.contains(&&*name) {
            let text = fs::read_to_string(&path).unwrap();
            let methods = text.lines().filter_map(|line| line.strip_prefix("    pub fn "));
            let name = |line: &str| line.split(['(', '<']).next().unwrap().to_owned();
            names.extend(methods.map(name).filter(|name| !OTHER_METHODS.contains(&&**name)));
        }
    }
}

#[test]
fn the_table_has_every_method_of_a_process() {
    let mut names = Vec::new();
    methods(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/quietline/src"), &mut names);
    assert!(names.len() > 100, "the methods are found: {names:?}");
    let calls = calls::all();
    names.retain(|name| !calls.iter().any(|call| call.name == name));
    assert!(names.is_empty(), "methods that the table of calls lacks: {names:?}");
}
