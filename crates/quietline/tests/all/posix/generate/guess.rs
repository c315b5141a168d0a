//! What the calls so far have made, so that most calls meet something. It need not be right.

use super::Making;
use crate::posix::arg::{CWD, Fd, Text};
use crate::posix::call::{Call, Step};
use crate::posix::outcome::Outcome;
use crate::posix::sys::PROCESSES;

/// What probably is.
#[derive(Debug, Default)]
pub(super) struct Guess {
    /// Paths from the root, without a slash before: of directories.
    dirs: Vec<String>,
    /// Of regular files.
    files: Vec<String>,
    /// Of others.
    others: Vec<String>,
    /// Descriptors of each process; whether of a directory.
    fds: [Vec<(i32, bool)>; PROCESSES],
    /// Extended attributes: a path or a process and its descriptor, and a name.
    pub(super) values: Vec<(Holder, Text)>,
    /// Processes whose relative paths do not begin at the root.
    moved: [bool; PROCESSES],
}

/// What has an extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    Path(Text),
    Fd(usize, Fd),
}

/// What a path shall be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    File,
    Directory,
    Any,
    /// Neither file nor directory.
    Other,
    /// Nothing yet, in a directory that is.
    Nothing,
}

impl Guess {
    /// The path from the root, if it can be told.
    fn absolute(&self, who: usize, at: Fd, path: &Text) -> Option<String> {
        let text = std::str::from_utf8(&path.0).ok()?;
        let rooted = text.starts_with('/') || at == CWD && !self.moved[who];
        let text = text.trim_matches('/');
        let plain = rooted
            && !text.is_empty()
            && text.len() < 60
            && !text.contains("//")
            && !text.contains('.');
        plain.then(|| text.to_owned())
    }

    fn lists(&mut self) -> [&mut Vec<String>; 3] {
        [&mut self.dirs, &mut self.files, &mut self.others]
    }

    fn gone(&mut self, path: &str) {
        self.lists().into_iter().for_each(|list| list.retain(|known| known != path));
    }

    fn made(&mut self, path: Option<String>, kind: u32) {
        let Some(path) = path else { return };
        self.gone(&path);
        let list = match kind & libc::S_IFMT {
            libc::S_IFDIR => &mut self.dirs,
            0 | libc::S_IFREG => &mut self.files,
            _ => &mut self.others,
        };
        list.push(path);
    }

    fn renamed(&mut self, old: &str, new: &str) {
        self.gone(new);
        for path in self.lists().into_iter().flatten() {
            if let Some(rest) =
                path.strip_prefix(old).filter(|rest| rest.is_empty() || rest.starts_with('/'))
            {
                *path = format!("{new}{rest}");
            }
        }
    }

    fn opened(&mut self, who: usize, fd: i64, directory: bool) {
        let fds = &mut self.fds[who];
        fds.retain(|&(open, _)| i64::from(open) != fd);
        fds.push((fd as i32, directory));
    }

    pub(super) fn has_none(&self, who: usize) -> bool {
        self.fds[who].is_empty()
    }

    pub(super) fn has_no_directory(&self, who: usize) -> bool {
        self.fds[who].iter().all(|&(_, directory)| !directory)
    }

    /// What a call did.
    pub(super) fn learn(&mut self, step: &Step, outcome: &Outcome) {
        let Outcome::Done(value) = *outcome else { return };
        let who = step.who;
        match &step.call {
            Call::Openat { at, path, flags, .. } | Call::Openat2 { at, path, flags, .. } => {
                let temporary = flags.0 & libc::O_TMPFILE as u64 == libc::O_TMPFILE as u64;
                let path = self.absolute(who, *at, path);
                let known = path.as_ref().is_some_and(|path| self.dirs.contains(path));
                let directory = known || flags.0 & libc::O_DIRECTORY as u64 != 0;
                self.opened(who, value, directory && !temporary);
                let new = path
                    .as_ref()
                    .is_some_and(|path| self.lists().iter().all(|list| !list.contains(path)));
                if flags.0 & libc::O_CREAT as u64 != 0 && new && !temporary {
                    self.made(path, libc::S_IFREG);
                }
            }
            Call::Dup { fd } | Call::Dup3 { old: fd, .. } => {
                let directory = self.fds[who].contains(&(fd.0, true));
                self.opened(who, value, directory);
            }
            Call::Close { fd } => self.fds[who].retain(|&(open, _)| open != fd.0),
            Call::Fork { child } => {
                self.fds[*child as usize] = self.fds[who].clone();
                self.moved[*child as usize] = self.moved[who];
            }
            Call::Chdir { path } => self.moved[who] = path.0 != b"/",
            Call::Fchdir { .. } => self.moved[who] = true,
            Call::Mkdirat { at, path, .. } => {
                self.made(self.absolute(who, *at, path), libc::S_IFDIR)
            }
            Call::Mknodat { at, path, mode, .. } => {
                self.made(self.absolute(who, *at, path), mode.0)
            }
            Call::Symlinkat { at, path, .. } => {
                self.made(self.absolute(who, *at, path), libc::S_IFLNK)
            }
            Call::Linkat { to, new, .. } => self.made(self.absolute(who, *to, new), libc::S_IFREG),
            Call::Unlinkat { at, path, .. } => {
                if let Some(path) = self.absolute(who, *at, path) {
                    self.gone(&path);
                }
            }
            Call::Renameat2 { from, old, to, new, flags }
                if flags.0 & u64::from(libc::RENAME_EXCHANGE) == 0 =>
            {
                if let (Some(old), Some(new)) =
                    (self.absolute(who, *from, old), self.absolute(who, *to, new))
                {
                    self.renamed(&old, &new);
                }
            }
            Call::Setxattr { path, name, .. } => {
                self.values.push((Holder::Path(path.clone()), name.clone()))
            }
            Call::Fsetxattr { fd, name, .. } => {
                self.values.push((Holder::Fd(who, *fd), name.clone()))
            }
            _ => {}
        }
    }
}

impl Making {
    /// A descriptor that is probably open, or just some.
    pub(super) fn fd_of(&mut self, of: Of) -> Fd {
        let directory = of == Of::Directory;
        let fits = |&&(_, dir): &&(i32, bool)| of == Of::Any || dir == directory;
        let open: Vec<i32> =
            self.guess.fds[self.who].iter().filter(fits).map(|&(fd, _)| fd).collect();
        if open.is_empty() || self.dice.once_in(8) {
            self.any_fd()
        } else {
            Fd(self.dice.one_of(&open))
        }
    }

    /// A path that is probably one of those, or just some.
    fn path_of(&mut self, of: Of) -> Text {
        if self.dice.once_in(6) {
            return self.any_path();
        }
        let Guess { dirs, files, others, .. } = &self.guess;
        let pick = |list: &[String], n: usize| list.get(n % list.len().max(1)).cloned();
        let n = self.dice.below(1000);
        let found = match of {
            Of::File => pick(files, n),
            Of::Directory => pick(dirs, n),
            Of::Other => pick(others, n),
            Of::Any => match n % 5 {
                0 | 1 => pick(files, n / 5),
                2 | 3 => pick(dirs, n / 5),
                _ => pick(others, n / 5),
            },
            Of::Nothing => {
                // A symlink may lead to a directory.
                let dir = match n % 12 {
                    0..4 => None,
                    4 => pick(others, n),
                    _ => pick(dirs, n),
                };
                let name = String::from_utf8(self.name()).expect("names are text");
                Some(dir.map_or_else(|| name.clone(), |dir| format!("{dir}/{name}")))
            }
        };
        match found {
            None => self.any_path(),
            Some(path) if self.dice.once_in(40) => Text(format!("{path}/").into_bytes()),
            Some(path) if self.guess.moved[self.who] || self.dice.once_in(4) => {
                Text(format!("/{path}").into_bytes())
            }
            Some(path) => Text(path.into_bytes()),
        }
    }

    /// A path alone.
    pub(super) fn path(&mut self, of: Of) -> Text {
        self.path_of(of)
    }

    /// Where a path begins, and the path: now and then none, so that the descriptor is meant.
    pub(super) fn place(&mut self, of: Of) -> (Fd, Text) {
        match self.dice.below(16) {
            0 => (self.fd_of(of), Text::from("")),
            1 => (self.any_fd(), self.any_path()),
            2 | 3 if !self.guess.has_no_directory(self.who) => {
                (self.fd_of(Of::Directory), self.any_path())
            }
            _ => (CWD, self.path_of(of)),
        }
    }
}
