//! Calls, made and foretold.
//!
//! What Linux answers when several things are wrong is in the order of the checks here: `fs/namei.c`'s.

use super::Tally;
use super::cursor::Cursor;
use super::model::{Id, Kind, Model, ROOT};
use super::walk::{BENEATH, IN_ROOT, Last, NO_SYMLINKS, NO_XDEV, Named, Rules};
use crate::input::Input;
use quietline::abi::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY,
    O_RDWR, RENAME_EXCHANGE, RENAME_NOREPLACE, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
};
use quietline::{Errno, OpenHow, Process};

/// Directories that are open at a time.
const CURSORS: usize = 4;
const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "a", "b", "c", "longer-than-a-word", "ab", "..", ".", "e"];

/// Number, type and count of names.
type Facts = (u64, u32, u64);

/// A process and what it should see.
pub(super) struct Player<'p> {
    process: &'p Process,
    model: Model,
    cwd: Id,
    cursors: Vec<Cursor>,
    tally: Tally,
}

const STAY: Rules = Rules { follow: false, resolve: 0 };
const FOLLOW: Rules = Rules { follow: true, resolve: 0 };

impl<'p> Player<'p> {
    pub(super) fn new(process: &'p Process) -> Self {
        let root = process.stat("/").expect("there is a root");
        let model = Model::new(root.st_ino);
        Self { process, model, cwd: ROOT, cursors: Vec::new(), tally: Tally::default() }
    }

    /// One call.
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        self.tally.operations += 1;
        match input.below(32) {
            0..5 => self.mkdir(&path(input)),
            5..9 => self.create(&path(input)),
            9..12 => self.symlink(&path(input), &path(input)),
            12..14 => self.link(&path(input), &path(input)),
            14 | 15 => self.unlink(&path(input)),
            16 => self.rmdir(&path(input)),
            17..20 => {
                let flags = input.pick(&[
                    0,
                    0,
                    RENAME_NOREPLACE,
                    RENAME_EXCHANGE,
                    RENAME_EXCHANGE | RENAME_NOREPLACE,
                ]);
                self.rename(&path(input), &path(input), flags);
            }
            20 => self.chdir(&path(input)),
            21 => self.getcwd(),
            22 => self.readlink(&path(input)),
            23..26 => self.stat(&path(input), input.one_in(2)),
            26..29 => self.open(input),
            29 => self.open_directory(&path(input)),
            30 if input.one_in(64) => self.chain(37 + input.below(8)),
            _ => self.read_directory(input),
        }
    }

    /// Compares the whole tree, and lets go of it.
    pub(super) fn end(self) -> Tally {
        let Self { process, model, cursors, mut tally, .. } = self;
        for cursor in cursors {
            assert_eq!(process.close(cursor.fd()), Ok(()));
        }
        for id in 0..model.nodes.len() {
            if !model.is_dir(id) {
                continue;
            }
            let Some(path) = model.path(id) else { continue };
            let fd = process.open(&path, O_RDONLY | O_DIRECTORY, 0).expect("it is there");
            let mut cursor = Cursor::new(&model, fd, id);
            let mut entries = 0;
            loop {
                match cursor.read(&model, process, 4096) {
                    0 => break,
                    more => entries += more,
                }
            }
            assert_eq!(entries, 2 + model.dir(id).names.len() as u64, "{path}");
            tally.entries += entries;
            assert_eq!(process.close(fd), Ok(()));
        }
        tally
    }

    /// Both said the same.
    fn same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        ours: Result<T, Errno>,
        model: Result<T, Errno>,
        call: impl FnOnce() -> String,
    ) {
        self.tally.refused += u64::from(model.is_err());
        assert!(ours == model, "{}: the kernel says {ours:?}, the model {model:?}", call());
    }

    fn number(&self, path: &str) -> u64 {
        self.process.lstat(path).expect("it was just made").st_ino
    }

    fn facts(&self, id: Id) -> Facts {
        let kind = match self.model.nodes[id].kind {
            Kind::File => S_IFREG,
            Kind::Link(_) => S_IFLNK,
            Kind::Directory(_) => S_IFDIR,
        };
        (self.model.nodes[id].ino, kind, self.model.nlink(id))
    }

    /// Where a new name may come (`filename_create`).
    fn place(&self, path: &str, directory: bool) -> Result<(Id, String), Errno> {
        let Last { dir, name, slash } = self.model.last(self.cwd, path)?;
        let Named::Name(name) = name else { return Err(Errno::EXIST) };
        if self.model.dir(dir).removed {
            return Err(Errno::NOENT);
        }
        match self.model.find(dir, &name) {
            Some(_) => Err(Errno::EXIST),
            None if slash && !directory => Err(Errno::NOENT),
            None => Ok((dir, name)),
        }
    }

    /// Makes something, if the model says so.
    fn make(&mut self, path: &str, made: Result<(), Errno>, kind: Kind, call: &str) {
        let place = self.place(path, matches!(kind, Kind::Directory(_)));
        self.same(made, place.as_ref().map(|_| ()).map_err(|errno| *errno), || {
            format!("{call} {path:?}")
        });
        if let Ok((dir, name)) = place {
            let id = self.model.add(kind, self.number(path.trim_end_matches('/')));
            self.model.link(dir, &name, id);
        }
    }

    fn mkdir(&mut self, path: &str) {
        let made = self.process.mkdir(path, 0o777);
        self.make(path, made, Kind::directory(ROOT), "mkdir");
    }

    fn create(&mut self, path: &str) {
        // What comes of `O_CREAT` with a slash behind depends on the kernel.
        if path.ends_with('/')
            || self.model.last(self.cwd, path).is_ok_and(|last| last.name().is_none())
        {
            return;
        }
        let made = self.process.open(path, O_CREAT | O_EXCL | O_RDWR, 0o666);
        let made = made.map(|fd| assert_eq!(self.process.close(fd), Ok(())));
        self.make(path, made, Kind::File, "open(O_CREAT | O_EXCL)");
    }

    fn symlink(&mut self, target: &str, path: &str) {
        let made = self.process.symlink(target, path);
        if target.is_empty() {
            return self.same(made, Err(Errno::NOENT), || format!("symlink to nothing, {path:?}"));
        }
        self.make(path, made, Kind::Link(target.to_owned()), "symlink");
    }

    /// Links to links, as many as a walk follows, or one more.
    fn chain(&mut self, links: usize) {
        for link in 1..=links {
            self.symlink(&format!("l{}", link - 1), &format!("l{link}"));
        }
        self.mkdir("l0");
        self.stat(&format!("l{links}"), true);
        self.stat(&format!("l{links}/l{links}"), true);
    }

    fn link(&mut self, old: &str, new: &str) {
        let linked = self.process.link(old, new);
        let place = self.model.walk(self.cwd, old, STAY).and_then(|id| {
            let place = self.place(new, false)?;
            if self.model.is_dir(id) { Err(Errno::PERM) } else { Ok((id, place)) }
        });
        self.same(linked, place.as_ref().map(|_| ()).map_err(|errno| *errno), || {
            format!("link {old:?} {new:?}")
        });
        if let Ok((id, (dir, name))) = place {
            self.model.link(dir, &name, id);
        }
    }

    fn unlink(&mut self, path: &str) {
        let gone = self.process.unlink(path);
        let last = self.model.last(self.cwd, path).and_then(|last| {
            let Some(name) = last.name() else { return Err(Errno::ISDIR) };
            let id = self.model.find(last.dir, name).ok_or(Errno::NOENT)?;
            match (self.model.is_dir(id), last.slash) {
                (true, _) => Err(Errno::ISDIR),
                (false, true) => Err(Errno::NOTDIR),
                (false, false) => Ok((last.dir, name.to_owned())),
            }
        });
        self.same(gone, last.as_ref().map(|_| ()).map_err(|errno| *errno), || {
            format!("unlink {path:?}")
        });
        if let Ok((dir, name)) = last {
            self.model.unlink(dir, &name);
        }
    }

    fn rmdir(&mut self, path: &str) {
        let gone = self.process.rmdir(path);
        let last = self.model.last(self.cwd, path).and_then(|last| {
            let name = match last.name {
                Named::Name(name) => name,
                Named::Dot => return Err(Errno::INVAL),
                Named::DotDot => return Err(Errno::NOTEMPTY),
                Named::Root => return Err(Errno::BUSY),
            };
            let id = self.model.find(last.dir, &name).ok_or(Errno::NOENT)?;
            if !self.model.is_dir(id) {
                return Err(Errno::NOTDIR);
            }
            if self.model.dir(id).names.is_empty() {
                Ok((last.dir, name))
            } else {
                Err(Errno::NOTEMPTY)
            }
        });
        self.same(gone, last.as_ref().map(|_| ()).map_err(|errno| *errno), || {
            format!("rmdir {path:?}")
        });
        if let Ok((dir, name)) = last {
            let id = self.model.unlink(dir, &name);
            self.model.remove(id);
        }
    }

    fn rename(&mut self, old: &str, new: &str, flags: u32) {
        let renamed = self.process.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags);
        let foretold = self.renames(old, new, flags);
        let said = foretold.as_ref().map(|_| ()).map_err(|errno| *errno);
        self.same(renamed, said, || format!("renameat2 {old:?} {new:?} {flags}"));
        let Ok(Some([from, to])) = foretold else { return };
        let model = &mut self.model;
        let moved = model.unlink(from.0, &from.1);
        let replaced = model.find(to.0, &to.1).map(|_| model.unlink(to.0, &to.1));
        model.link(to.0, &to.1, moved);
        match replaced {
            Some(other) if flags & RENAME_EXCHANGE != 0 => model.link(from.0, &from.1, other),
            Some(other) => model.remove(other),
            None => {}
        }
    }

    /// From where and to where; none if nothing is to be done.
    fn renames(
        &self,
        old: &str,
        new: &str,
        flags: u32,
    ) -> Result<Option<[(Id, String); 2]>, Errno> {
        let (exchange, keeps) = (flags & RENAME_EXCHANGE != 0, flags & RENAME_NOREPLACE != 0);
        if exchange && keeps {
            return Err(Errno::INVAL);
        }
        let model = &self.model;
        let (from, to) = (model.last(self.cwd, old)?, model.last(self.cwd, new)?);
        let from_name = from.name().ok_or(Errno::BUSY)?;
        let to_name = to.name().ok_or(if keeps { Errno::EXIST } else { Errno::BUSY })?;
        let source = model.find(from.dir, from_name).ok_or(Errno::NOENT)?;
        // A name is looked up in both directories before anything is said of the two files.
        if model.dir(to.dir).removed {
            return Err(Errno::NOENT);
        }
        let target = model.find(to.dir, to_name);
        match target {
            Some(_) if keeps => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            Some(target) if exchange && to.slash && !model.is_dir(target) => {
                return Err(Errno::NOTDIR);
            }
            _ => {}
        }
        if !model.is_dir(source) && (from.slash || !exchange && to.slash) {
            return Err(Errno::NOTDIR);
        }
        if from.dir != to.dir {
            if model.is_dir(source) && model.is_in(to.dir, source) {
                return Err(Errno::INVAL);
            }
            if target.is_some_and(|target| model.is_dir(target) && model.is_in(from.dir, target)) {
                return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
        }
        if target == Some(source) {
            return Ok(None);
        }
        if let Some(target) = target.filter(|_| !exchange) {
            match (model.is_dir(source), model.is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !model.dir(target).names.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        Ok(Some([(from.dir, from_name.to_owned()), (to.dir, to_name.to_owned())]))
    }

    fn chdir(&mut self, path: &str) {
        let went = self.process.chdir(path);
        let to = self.model.walk(self.cwd, path, FOLLOW);
        let to = to.and_then(|id| if self.model.is_dir(id) { Ok(id) } else { Err(Errno::NOTDIR) });
        self.same(went, to.map(|_| ()), || format!("chdir {path:?}"));
        self.cwd = to.unwrap_or(self.cwd);
    }

    fn getcwd(&mut self) {
        let ours = self.process.getcwd().map(|path| String::from_utf8_lossy(&path).into_owned());
        let model = self.model.path(self.cwd).ok_or(Errno::NOENT);
        self.same(ours, model, || "getcwd".to_owned());
    }

    fn readlink(&mut self, path: &str) {
        let mut buffer = [0; 512];
        let ours = self.process.readlink(path, &mut buffer);
        let ours = ours.map(|n| String::from_utf8_lossy(&buffer[..n]).into_owned());
        let model = self.model.walk(self.cwd, path, STAY);
        let model =
            model.and_then(|id| self.model.target(id).map(str::to_owned).ok_or(Errno::INVAL));
        self.same(ours, model, || format!("readlink {path:?}"));
    }

    fn stat(&mut self, path: &str, follow: bool) {
        let flags = if follow { 0 } else { AT_SYMLINK_NOFOLLOW };
        let ours = self.process.fstatat(AT_FDCWD, path, flags);
        let ours = ours.map(|stat| (stat.st_ino, stat.st_mode & S_IFMT, stat.st_nlink));
        let model = self.model.walk(self.cwd, path, if follow { FOLLOW } else { STAY });
        let model = model.map(|id| self.facts(id));
        self.same(ours, model, || format!("fstatat {path:?}, follow: {follow}"));
    }

    /// `openat2` with any of its flags that say how to walk, from any directory that is open.
    fn open(&mut self, input: &mut Input<'_>) {
        let (from, path) = (input.below(CURSORS + 2), path(input));
        let (dirfd, start) = match self.cursors.get(from) {
            Some(cursor) => (cursor.fd(), cursor.dir()),
            None => (AT_FDCWD, self.cwd),
        };
        let flags =
            [O_PATH, O_NOFOLLOW, O_DIRECTORY].into_iter().filter(|_| input.one_in(2)).sum::<i32>();
        let resolve = input.pick(&[
            0,
            0,
            NO_SYMLINKS,
            BENEATH,
            IN_ROOT,
            NO_XDEV | BENEATH,
            NO_SYMLINKS | IN_ROOT,
            BENEATH | IN_ROOT,
        ]);
        let how = OpenHow { flags: flags as u64, mode: 0, resolve };
        let ours = self.process.openat2(dirfd, &path, &how).map(|fd| {
            let stat = self.process.fstat(fd).expect("it is open");
            assert_eq!(self.process.close(fd), Ok(()));
            (stat.st_ino, stat.st_mode & S_IFMT, stat.st_nlink)
        });
        let model = self.opens(start, &path, flags, resolve).map(|id| self.facts(id));
        self.same(ours, model, || format!("openat2 {path:?} {flags:#o}, resolve {resolve:#x}"));
    }

    fn opens(&self, start: Id, path: &str, flags: i32, resolve: u64) -> Result<Id, Errno> {
        if resolve & BENEATH != 0 && resolve & IN_ROOT != 0 {
            return Err(Errno::INVAL);
        }
        let id =
            self.model.walk(start, path, Rules { follow: flags & O_NOFOLLOW == 0, resolve })?;
        if flags & O_DIRECTORY != 0 && !self.model.is_dir(id) {
            return Err(Errno::NOTDIR);
        }
        if self.model.target(id).is_some() && flags & O_PATH == 0 {
            return Err(Errno::LOOP);
        }
        Ok(id)
    }

    /// Opens a directory to be read, in place of the one that was opened first.
    fn open_directory(&mut self, path: &str) {
        let ours = self.process.open(path, O_RDONLY | O_DIRECTORY, 0);
        let model = self.opens(self.cwd, path, O_DIRECTORY, 0);
        self.same(ours.map(|_| ()), model.map(|_| ()), || format!("open {path:?} as a directory"));
        if let (Ok(fd), Ok(dir)) = (ours, model) {
            if self.cursors.len() == CURSORS {
                assert_eq!(self.process.close(self.cursors.remove(0).fd()), Ok(()));
            }
            self.cursors.push(Cursor::new(&self.model, fd, dir));
        }
    }

    fn read_directory(&mut self, input: &mut Input<'_>) {
        let cursor = input.below(CURSORS);
        let Some(cursor) = self.cursors.get_mut(cursor) else { return };
        match input.below(8) {
            0 => cursor.rewind(&self.model, self.process),
            1 => cursor.seek(self.process, input.below(8)),
            _ => {
                self.tally.entries += cursor.read(&self.model, self.process, 64 + input.below(256))
            }
        }
    }
}

/// A path of up to five components, with slashes in odd places.
fn path(input: &mut Input<'_>) -> String {
    let mut path = String::new();
    let shape = input.byte();
    if shape.is_multiple_of(4) {
        path.push('/');
    }
    for component in 0..shape / 4 % 6 {
        if component > 0 {
            path.push_str(input.pick(&["/", "/", "/", "//"]));
        }
        path.push_str(input.pick(&NAMES));
    }
    if (shape / 24).is_multiple_of(6) {
        path.push('/');
    }
    path
}
