//! The calls that programs are made of.

use crate::posix::arg::*;

/// Declares the calls, and how they are written in a script, read from one, and made simpler.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* })*) => {
        /// A call with its arguments.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Call {
            $($(#[$doc])* $name { $($field: $ty),* },)*
        }

        impl Call {
            /// The names of all calls.
            pub(crate) const NAMES: &[&'static str] = &[$(stringify!($name)),*];

            /// The call's name.
            pub(crate) fn name(&self) -> &'static str {
                match self { $(Call::$name { .. } => stringify!($name),)* }
            }

            /// The call as a line of a script.
            pub(crate) fn show(&self) -> String {
                match self {
                    $(Call::$name { $($field),* } => {
                        let args: Vec<String> = vec![$($field.show()),*];
                        format!("{}({})", stringify!($name), args.join(", "))
                    })*
                }
            }

            /// The inverse of `show`.
            pub(crate) fn read(text: &str) -> Option<Call> {
                let (name, args) = text.split_once('(')?;
                let mut args = split(args.strip_suffix(')')?).into_iter();
                match name {
                    $(stringify!($name) => {
                        $(let $field = Arg::read(args.next()?)?;)*
                        args.next().is_none().then_some(Call::$name { $($field),* })
                    })*
                    _ => None,
                }
            }

            /// With descriptors above `fd` one lower.
            pub(crate) fn lower(&mut self, fd: i32) {
                let _ = fd;
                match self { $(Call::$name { $($field),* } => { $($field.lower(fd);)* })* }
            }

            /// The same call with one argument made simpler, in each way.
            pub(crate) fn simpler(&self) -> Vec<Call> {
                let mut all = Vec::new();
                match self {
                    $(Call::$name { $($field),* } => {
                        $(for simpler in $field.simpler() {
                            let mut call = self.clone();
                            if let Call::$name { $field: place, .. } = &mut call {
                                *place = simpler;
                            }
                            all.push(call);
                        })*
                    })*
                }
                all
            }
        }
    };
}

/// Arguments, parted by commas that stand in no quotes.
fn split(args: &str) -> Vec<&str> {
    let (mut all, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in args.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                all.push(args[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if !args.is_empty() {
        all.push(args[from..].trim());
    }
    all
}

calls! {
    // Processes.
    /// A child of the caller becomes process `child`; who was that ends first.
    Fork { child: u32 }
    /// `setgroups`, `setresgid`, `setresuid` to these alone.
    Become { uid: u32, gid: u32, group: u32 }
    Setresuid { real: u32, effective: u32, saved: u32 }
    Setresgid { real: u32, effective: u32, saved: u32 }
    Setfsuid { uid: u32 }
    Setfsgid { gid: u32 }
    Setgroups { groups: u32, first: u32 }
    Umask { mask: Mode }
    Chdir { path: Text }
    Fchdir { fd: Fd }
    Chroot { path: Text }
    Getcwd { size: usize }

    // Descriptors.
    Openat { at: Fd, path: Text, flags: Open, mode: Mode }
    Openat2 { at: Fd, path: Text, flags: Open, mode: Mode, resolve: Resolve }
    Close { fd: Fd }
    Dup { fd: Fd }
    Dup3 { old: Fd, new: Fd, flags: Open }
    Getfd { fd: Fd }
    Getfl { fd: Fd }
    Setfl { fd: Fd, flags: Open }

    // Data.
    Read { fd: Fd, length: usize }
    Pread { fd: Fd, length: usize, offset: i64 }
    /// In three pieces.
    Readv { fd: Fd, length: usize }
    Preadv { fd: Fd, length: usize, offset: i64 }
    /// Bytes that differ by `fill`.
    Write { fd: Fd, length: usize, fill: u32 }
    Pwrite { fd: Fd, length: usize, fill: u32, offset: i64 }
    Writev { fd: Fd, length: usize, fill: u32 }
    Pwritev { fd: Fd, length: usize, fill: u32, offset: i64 }
    Lseek { fd: Fd, offset: i64, whence: i32 }
    Truncate { path: Text, length: i64 }
    Ftruncate { fd: Fd, length: i64 }
    Fallocate { fd: Fd, mode: Falloc, offset: i64, length: i64 }
    /// An offset of -1 means the file's own.
    CopyFileRange { from: Fd, from_offset: i64, to: Fd, to_offset: i64, length: usize, flags: u32 }
    Fsync { fd: Fd }
    Fdatasync { fd: Fd }
    Syncfs { fd: Fd }

    // Names.
    Mkdirat { at: Fd, path: Text, mode: Mode }
    Mknodat { at: Fd, path: Text, mode: Mode, major: u32, minor: u32 }
    Symlinkat { target: Text, at: Fd, path: Text }
    Linkat { from: Fd, old: Text, to: Fd, new: Text, flags: At }
    Unlinkat { at: Fd, path: Text, flags: Unlink }
    Renameat2 { from: Fd, old: Text, to: Fd, new: Text, flags: Rename }
    Readlinkat { at: Fd, path: Text, size: usize }
    /// All names, from the start, by a buffer of `size`; then the position is the start again.
    Getdents { fd: Fd, size: usize }
    /// Removes names while it reads them, as `rm` does: the names that could be removed.
    Sweep { fd: Fd, size: usize }
    /// Makes, renames and removes a name after each read of names: the names that were read.
    Churn { fd: Fd, size: usize }

    // Attributes.
    Fstatat { at: Fd, path: Text, flags: At }
    Fstat { fd: Fd }
    Statx { at: Fd, path: Text, flags: At, mask: u32 }
    Statfs { path: Text }
    Fstatfs { fd: Fd }
    Faccessat2 { at: Fd, path: Text, mode: i32, flags: Access }
    Fchmod { fd: Fd, mode: Mode }
    Fchmodat2 { at: Fd, path: Text, mode: Mode, flags: At }
    Fchown { fd: Fd, uid: u32, gid: u32 }
    Fchownat { at: Fd, path: Text, uid: u32, gid: u32, flags: At }
    Utimensat { at: Fd, path: Text, atime: Time, mtime: Time, flags: At }
    /// `utimensat` without a path, without times: all of it now.
    Futimens { fd: Fd, atime: Time, mtime: Time }

    // Extended attributes.
    Setxattr { path: Text, follow: bool, name: Text, size: usize, fill: u32, flags: Xflags }
    Fsetxattr { fd: Fd, name: Text, size: usize, fill: u32, flags: Xflags }
    Getxattr { path: Text, follow: bool, name: Text, size: usize }
    Fgetxattr { fd: Fd, name: Text, size: usize }
    Listxattr { path: Text, follow: bool, size: usize }
    Flistxattr { fd: Fd, size: usize }
    Removexattr { path: Text, follow: bool, name: Text }
    Fremovexattr { fd: Fd, name: Text }

    // Locks, none of which waits.
    FlockNb { fd: Fd, operation: Flock }
    /// `F_SETLK` or, with `ofd`, `F_OFD_SETLK`.
    Setlk { fd: Fd, ofd: bool, ty: i32, whence: i32, start: i64, length: i64 }
    /// `F_GETLK` or, with `ofd`, `F_OFD_GETLK`.
    Getlk { fd: Fd, ofd: bool, ty: i32, whence: i32, start: i64, length: i64 }

    // Watches. All processes have one instance of inotify, which says at once if it has no events.
    /// `inotify_add_watch`: the program's first watch has number 1.
    Watch { path: Text, mask: Watching }
    Unwatch { wd: i32 }
    /// All events that there are.
    Events {}

    // What a look sees.
    /// The whole tree: names, attributes, bodies, contents, holes.
    Tree {}
    /// The caller's descriptors: their flags, positions and files.
    Fds {}
}

/// A call of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) who: usize,
    pub(crate) call: Call,
}

impl Step {
    pub(crate) fn show(&self) -> String {
        format!("{}: {}", self.who, self.call.show())
    }

    pub(crate) fn read(line: &str) -> Option<Step> {
        let (who, call) = line.split_once(": ")?;
        Some(Step { who: who.trim().parse().ok()?, call: Call::read(call.trim())? })
    }
}

/// A script: one step in each line, and lines of remarks that begin with `#`.
pub(crate) fn script(program: &[Step]) -> String {
    program.iter().map(|step| step.show() + "\n").collect()
}

/// The inverse of `script`. An error is the line that cannot be read.
pub(crate) fn read_script(text: &str) -> Result<Vec<Step>, String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Step::read(line).ok_or_else(|| line.to_owned())).collect()
}
