//! The table has every call of `Process` that takes a descriptor.

use std::fs;
use std::path::Path;

/// Calls without a system call of their own.
const WITHOUT: &[(&str, &str)] = &[
    ("file", "returns a handle"),
    ("openat_file", "returns a handle"),
    ("fd_name", "the text of a link in /proc, which the tests of /proc compare"),
    ("ioctl_bytes", "is ioctl, for arguments of embedders' files"),
    ("pidfd_send_signal", "the tests of processes compare it"),
    ("take_pages", "has no counterpart on the host"),
    ("ioctl_bytes", "`ioctl` with an argument of another length"),
    ("vmsplice_gift", "has no counterpart on the host"),
];

/// Names of parameters that are descriptors.
const DESCRIPTORS: &[&str] =
    &["fd", "epfd", "dirfd", "olddir", "newdir", "old", "new", "from", "to", "fds"];

/// The text of the source files below a directory.
fn text_below(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text_below(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The public methods that take a descriptor.
fn methods() -> Vec<String> {
    let mut text = String::new();
    text_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
    let mut methods = Vec::new();
    for (_, item) in
        text.match_indices("    pub fn ").map(|(at, start)| (at, &text[at + start.len()..]))
    {
        let Some((name, rest)) = item.split_once('(') else { continue };
        let params = &rest[..rest.find(") ").or_else(|| rest.find(')')).unwrap_or(0)];
        if !params.trim_start().starts_with("&self") && !params.trim_start().starts_with("&'") {
            continue;
        }
        let takes = |param: &str| match param.split_once(':') {
            Some((name, ty)) => {
                let ty = ty.trim();
                DESCRIPTORS.contains(&name.trim())
                    && (ty == "i32" || ty.starts_with("&mut [PollFd"))
            }
            None => false,
        };
        let name = name.split('<').next().unwrap();
        if params.split(',').any(takes) && !["insert", "remove", "contains"].contains(&name) {
            methods.push(name.to_owned());
        }
    }
    methods
}

#[test]
fn the_table_has_every_call_that_takes_a_descriptor() {
    let (methods, calls) = (methods(), include_str!("ours.rs"));
    assert!(methods.len() >= 80, "{methods:?}");
    for name in &methods {
        let called = calls.contains(&format!("p.{name}("));
        let without = WITHOUT.iter().any(|(without, _)| without == name);
        assert!(
            called != without,
            "{name}: called {called}, listed as without a system call {without}"
        );
    }
    for (name, why) in WITHOUT {
        assert!(methods.iter().any(|method| method == name), "no method {name}: {why}");
    }
    for name in ["select", "close_range", "epoll_pwait2", "ppoll"] {
        assert!(calls.contains(&format!("p.{name}(")), "{name}");
    }
}
