//! What is in the filesystem before the first operation, and under which names.

use std::ffi::CString;

use crate::workloads::{Dcache, Job, OpenFile, Unlink, Whose};

/// Bytes in each file that is there from the beginning.
pub(super) const SIZE: usize = 100;
/// What users of the AIM7 mix share besides directories.
pub(super) const TERMINAL: &str = "terminal";
/// The same.
pub(super) const PROGRAM: &str = "program";

/// Directories, each after the one that it is in, and files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) directories: Vec<String>,
    pub(super) files: Vec<String>,
}

impl Layout {
    /// What `threads` threads need for a job.
    pub(super) fn of(job: Job, threads: usize) -> Self {
        let mut layout = Self::default();
        match job {
            Job::Dcache(Dcache::Stat(whose, depth)) | Job::Open(OpenFile { whose, depth }) => {
                owners(whose, threads).for_each(|owner| layout.file(&file(&owner, depth)));
            }
            Job::Dcache(Dcache::Get(whose)) => {
                owners(whose, threads).for_each(|owner| layout.file(&file(&owner, 1)))
            }
            // A file for each thread, in a directory of its own or of all.
            Job::Dcache(Dcache::GetParent(whose)) => {
                (0..threads).for_each(|thread| layout.file(&inside(whose, thread)));
            }
            Job::Dcache(Dcache::Short(_)) => {
                (0..threads).for_each(|thread| layout.file(&inside(Whose::Shared, thread)));
                [TERMINAL, PROGRAM].into_iter().for_each(|path| layout.file(path));
            }
            Job::Unlink(Unlink { directory, .. }) => {
                owners(directory, threads).for_each(|owner| layout.directory(&top(&owner)));
            }
            _ => {}
        }
        layout
    }

    fn directory(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if !self.directories.iter().any(|other| other == path) {
            self.directories.push(path.to_owned());
        }
    }

    fn file(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.files.push(path.to_owned());
    }
}

/// Who has something: one name for all, or one for each thread.
fn owners(whose: Whose, threads: usize) -> impl Iterator<Item = String> {
    (0..if whose == Whose::Own { threads } else { 1 }).map(move |thread| owner(whose, thread))
}

/// The name of that which a thread uses.
fn owner(whose: Whose, thread: usize) -> String {
    match whose {
        Whose::Own => thread.to_string(),
        Whose::Shared => "all".to_owned(),
    }
}

/// A directory in the working directory.
fn top(owner: &str) -> String {
    format!("dir-{owner}")
}

/// A path of so many components.
fn file(owner: &str, depth: usize) -> String {
    let directories = match depth {
        0 | 1 => String::new(),
        _ => format!("{}/{}", top(owner), "sub/".repeat(depth - 2)),
    };
    format!("{directories}file-{owner}")
}

/// The path of a thread's own file, in a directory of its own or of all.
pub(super) fn inside(whose: Whose, thread: usize) -> String {
    format!("{}/file-{thread}", top(&owner(whose, thread)))
}

/// The path that a thread looks up.
pub(super) fn path(whose: Whose, depth: usize, thread: usize) -> CString {
    string(file(&owner(whose, thread), depth))
}

/// The names that a thread makes and removes.
pub(super) fn names(unlink: Unlink, thread: usize) -> Vec<CString> {
    let directory = top(&owner(unlink.directory, thread));
    (0..unlink.batch).map(|number| string(format!("{directory}/new-{thread}-{number}"))).collect()
}

/// A name for a system call.
pub(super) fn string(path: String) -> CString {
    CString::new(path).expect("no name here has a zero in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_and_owners() {
        assert_eq!(path(Whose::Own, 1, 3).to_str(), Ok("file-3"));
        assert_eq!(path(Whose::Shared, 2, 3).to_str(), Ok("dir-all/file-all"));
        for depth in 1..9 {
            let path = path(Whose::Own, depth, 0);
            assert_eq!(path.to_bytes().split(|&byte| byte == b'/').count(), depth, "{path:?}");
        }
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let layout = Layout::of(Job::Dcache(Dcache::Stat(Whose::Own, 4)), 2);
        assert_eq!(
            layout.directories,
            ["dir-0", "dir-0/sub", "dir-0/sub/sub", "dir-1", "dir-1/sub", "dir-1/sub/sub"]
        );
        assert_eq!(layout.files, ["dir-0/sub/sub/file-0", "dir-1/sub/sub/file-1"]);
        let shared = Layout::of(Job::Dcache(Dcache::GetParent(Whose::Shared)), 2);
        assert_eq!(shared.directories, ["dir-all"]);
        assert_eq!(shared.files, ["dir-all/file-0", "dir-all/file-1"]);
    }
}
