//! Directories that are being read while they change.

use super::model::{Entry, Id, Model};
use quietline::{Process, abi, dirents};
use std::collections::BTreeSet;

/// An open directory.
#[derive(Debug)]
pub(super) struct Cursor {
    fd: i32,
    dir: Id,
    /// What must come before the end, unless it goes away: the names of the moment when the reading began.
    owed: BTreeSet<u64>,
    /// What has come, and where the directory stood after it.
    came: Vec<(Option<u64>, i64)>,
}

impl Cursor {
    pub(super) fn new(model: &Model, fd: i32, dir: Id) -> Self {
        let mut cursor = Self { fd, dir, owed: BTreeSet::new(), came: Vec::new() };
        cursor.begin(model);
        cursor
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd
    }

    pub(super) fn dir(&self) -> Id {
        self.dir
    }

    fn begin(&mut self, model: &Model) {
        self.owed = model.dir(self.dir).names.values().map(|entry| entry.given).collect();
        self.came.clear();
    }

    /// From the beginning again (`rewinddir`).
    pub(super) fn rewind(&mut self, model: &Model, process: &Process) {
        assert_eq!(process.lseek(self.fd, 0, abi::SEEK_SET), Ok(0));
        self.begin(model);
    }

    /// Back to where the directory was (`seekdir`).
    pub(super) fn seek(&mut self, process: &Process, back: usize) {
        let Some(left) = self.came.len().checked_sub(back) else { return };
        let Some(&(_, place)) = left.checked_sub(1).and_then(|last| self.came.get(last)) else {
            return;
        };
        assert_eq!(process.lseek(self.fd, place, abi::SEEK_SET), Ok(place));
        self.came.truncate(left);
    }

    /// Reads on; how many entries came.
    pub(super) fn read(&mut self, model: &Model, process: &Process, room: usize) -> u64 {
        let mut buffer = vec![0; room];
        let directory = model.dir(self.dir);
        let n = match process.getdents64(self.fd, &mut buffer) {
            Ok(n) => n,
            Err(errno) => {
                assert!(
                    directory.removed && errno == quietline::Errno::NOENT,
                    "getdents64: {errno:?}"
                );
                return 0;
            }
        };
        assert!(!directory.removed, "a directory that was removed has no entries");
        let mut entries = 0;
        for entry in dirents(&buffer[..n]) {
            entries += 1;
            let name = std::str::from_utf8(entry.name).expect("names are letters");
            let (id, given) = match name {
                "." => (self.dir, None),
                ".." => (directory.parent, None),
                _ => {
                    let Entry { id, given } = *directory
                        .names
                        .get(name)
                        .unwrap_or_else(|| panic!("{name} was listed, and is not there"));
                    (id, Some(given))
                }
            };
            assert_eq!(entry.ino, model.nodes[id].ino, "the number of {name}");
            let twice = given.is_some() && self.came.iter().any(|(came, _)| *came == given);
            assert!(!twice, "{name} came twice");
            self.came.push((given, entry.next));
        }
        if n == 0 {
            let came: BTreeSet<u64> = self.came.iter().filter_map(|(given, _)| *given).collect();
            for (name, entry) in &directory.names {
                let missed = self.owed.contains(&entry.given) && !came.contains(&entry.given);
                assert!(!missed, "{name} was there all the time, and did not come");
            }
        }
        entries
    }
}
