//! Paths, opening, and calls that change or follow names.

use super::guess::Of;
use super::{Making, Theme};
use crate::posix::arg::{Access, At, Fd, Mode, Open, Rename, Resolve, Text, Unlink};
use crate::posix::call::Call;
use crate::posix::names::{DEVICES, NAMES};

/// A word of `libc`'s flags.
const fn bit(flag: i32) -> u64 {
    flag as u32 as u64
}

impl Making {
    fn component(&mut self) -> Vec<u8> {
        if self.theme == Theme::Wide && !self.dice.once_in(8) {
            return self.name();
        }
        match self.dice.below(60) {
            0..46 => self.name(),
            46..51 => b"..".into(),
            51..55 => b".".into(),
            55 => b"...".into(),
            56 => vec![b'x'; self.dice.one_of(&[254, 255, 255, 256])],
            57 => b"\xff\xc3 ,\"(\\\n".into(),
            58 => vec![b'y'; self.dice.one_of(&[20, 23, 24, 25, 31, 32, 39, 40, 63, 64])],
            _ => b"f".into(),
        }
    }

    /// One of the names.
    pub(super) fn name(&mut self) -> Vec<u8> {
        match self.theme {
            Theme::Wide => {
                let number = self.dice.below(100);
                let length = if number < 90 { 4 } else { number };
                format!("n{number:0length$}").into_bytes()
            }
            Theme::Data | Theme::Extras => NAMES[self.dice.below(2)].into(),
            _ => self.dice.one_of(NAMES).into(),
        }
    }

    /// Any path of the few names.
    pub(super) fn any_path(&mut self) -> Text {
        let components = match self.dice.below(40) {
            0..22 => 1,
            22..32 => 2,
            32..36 => 3,
            36 => 4,
            37 => 6,
            38 => return self.odd_path(),
            _ => 1,
        };
        let mut path = Vec::new();
        if self.dice.once_in(7) {
            path.push(b'/');
        }
        for n in 0..components {
            if n > 0 {
                path.push(b'/');
                if self.dice.once_in(20) {
                    path.push(b'/');
                }
            }
            path.extend(self.component());
        }
        match self.dice.below(40) {
            0..2 => path.push(b'/'),
            2 => path.extend(b"//"),
            3 => path.extend(b"/."),
            4 => path.extend(b"/.."),
            _ => {}
        }
        Text(path)
    }

    fn odd_path(&mut self) -> Text {
        let long = |length: usize| {
            let mut path = b"a/../".repeat(length / 5);
            path.resize(length - 1, b'/');
            path.push(b'a');
            Text(path)
        };
        match self.dice.below(12) {
            0..4 => Text::from(""),
            4 => Text::from("/"),
            5 => Text::from("//"),
            6 => Text::from("."),
            7 => Text::from(".."),
            8 => Text::from("./"),
            9 => Text::from("../"),
            10 => {
                let length = self.dice.one_of(&[4094, 4095, 4096, 4097]);
                long(length)
            }
            _ => Text(vec![b'z'; self.dice.one_of(&[4000, 4095, 4096])]),
        }
    }

    pub(super) fn mode(&mut self) -> Mode {
        Mode(match self.dice.below(12) {
            0 => self.dice.word() as u32 & 0o7777,
            1..4 => self.dice.one_of(crate::posix::names::MODES),
            4 => 0o600,
            5 => 0o644,
            6 => 0o755,
            _ => 0o777,
        })
    }

    /// `AT_*`: those in `bits`, now and then one that the call does not know.
    pub(super) fn at(&mut self, bits: &[i32]) -> At {
        let bits: Vec<u64> = bits.iter().map(|&b| bit(b)).collect();
        let flags = self.dice.some_of(&bits, 4);
        At(if self.dice.once_in(60) {
            flags | self.dice.one_of(&[1, 0x200, 0x400, 0x800, 0x1000, 1 << 31])
        } else {
            flags
        })
    }

    /// As `at`, with `AT_EMPTY_PATH` mostly where the path is empty.
    pub(super) fn at_for(&mut self, empty: bool, bits: &[i32]) -> At {
        let flags = self.at(bits);
        let add = if empty { !self.dice.once_in(4) } else { self.dice.once_in(20) };
        At(if add { flags.0 | bit(libc::AT_EMPTY_PATH) } else { flags.0 })
    }

    fn open_flags(&mut self) -> Open {
        let mut flags = self.dice.one_of(&[
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_RDWR,
            libc::O_RDWR,
        ]);
        if self.dice.once_in(40) {
            flags = libc::O_ACCMODE;
        }
        if self.dice.once_in(2) {
            flags |= libc::O_CREAT;
        }
        let often = [libc::O_TRUNC, libc::O_APPEND, libc::O_NOFOLLOW, libc::O_EXCL].map(bit);
        let seldom =
            [libc::O_CLOEXEC, libc::O_DIRECT, libc::O_NOATIME, libc::O_SYNC, libc::O_DSYNC]
                .map(bit);
        let mut flags = bit(flags) | self.dice.some_of(&often, 8) | self.dice.some_of(&seldom, 30);
        match self.dice.below(30) {
            0..3 => flags |= bit(libc::O_DIRECTORY),
            3..5 => flags |= bit(libc::O_PATH),
            5..7 => flags = flags & !bit(libc::O_CREAT) | bit(libc::O_TMPFILE),
            7 => flags |= bit(libc::O_TMPFILE),
            8 => flags |= bit(libc::O_TMPFILE) & !bit(libc::O_DIRECTORY),
            _ => {}
        }
        // A fifo would wait for its other end.
        Open(flags | bit(libc::O_NONBLOCK))
    }

    /// A file to read and to write.
    pub(super) fn open_new(&mut self) -> Call {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NONBLOCK;
        let flags = if self.dice.once_in(5) { flags | libc::O_APPEND } else { flags };
        let of = if self.dice.once_in(2) { Of::Nothing } else { Of::File };
        let (at, path) = self.place(of);
        Call::Openat { at, path, flags: Open(bit(flags)), mode: Mode(0o666) }
    }

    /// A directory, to read and to begin paths at.
    pub(super) fn open_directory(&mut self) -> Call {
        let (at, path) = self.place(Of::Directory);
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK;
        Call::Openat { at, path, flags: Open(bit(flags)), mode: Mode(0) }
    }

    pub(super) fn open(&mut self) -> Call {
        if self.dice.once_in(6) {
            return self.open_directory();
        }
        let flags = self.open_flags();
        let creates = flags.0 & bit(libc::O_CREAT) != 0 && self.dice.once_in(2);
        let kind = if creates {
            Of::Nothing
        } else if flags.0 & bit(libc::O_DIRECTORY) != 0 {
            Of::Directory
        } else {
            Of::File
        };
        let (at, path) = self.place(kind);
        if self.dice.once_in(6) {
            let all = [
                libc::RESOLVE_NO_XDEV,
                libc::RESOLVE_NO_MAGICLINKS,
                libc::RESOLVE_NO_SYMLINKS,
                libc::RESOLVE_BENEATH,
                libc::RESOLVE_IN_ROOT,
            ];
            let mut resolve = self.dice.some_of(&all, 4);
            if self.dice.once_in(50) {
                resolve |= self.dice.one_of(&[1 << 6, 1 << 31, 1 << 40]);
            }
            let mut flags = flags.0;
            if self.dice.once_in(30) {
                flags |= self.dice.one_of(&[1 << 28, 1 << 32, 1 << 63]);
            }
            let creates = flags & bit(libc::O_CREAT) != 0
                || flags & bit(libc::O_TMPFILE) == bit(libc::O_TMPFILE);
            // Unlike `openat` it refuses a mode that is not used.
            let mode = if creates != self.dice.once_in(20) { self.mode() } else { Mode(0) };
            return Call::Openat2 { at, path, flags: Open(flags), mode, resolve: Resolve(resolve) };
        }
        Call::Openat { at, path, flags, mode: self.mode() }
    }

    fn link_body(&mut self) -> Text {
        match self.dice.below(16) {
            0 => Text(vec![b'l'; self.dice.one_of(&[126, 127, 128, 129, 255, 256, 4000, 4095])]),
            1 => Text::from("../a"),
            2 => Text::from("/"),
            3 => Text::from("."),
            4 => Text::from("a/"),
            5 => Text::from("a/b"),
            _ => self.path(Of::Any),
        }
    }

    pub(super) fn change_names(&mut self) -> Call {
        let choice = self.dice.below(40);
        let (at, path) = self.place(if choice < 16 { Of::Nothing } else { Of::Any });
        match choice {
            0..7 => Call::Mkdirat { at, path, mode: self.mode() },
            7..11 => self.mknod(at, path),
            11..16 => Call::Symlinkat { target: self.link_body(), at, path },
            16..21 => {
                let (to, new) = self.place(Of::Nothing);
                let (from, old) = match self.dice.below(8) {
                    0 => (at, path),
                    1 => (self.fd_of(Of::File), Text::from("")),
                    2 => self.place(Of::Other),
                    _ => self.place(Of::File),
                };
                let flags = self.at_for(old.0.is_empty(), &[libc::AT_SYMLINK_FOLLOW]);
                Call::Linkat { from, old, to, new, flags }
            }
            21..29 => {
                let mut flags = if self.dice.once_in(3) { bit(libc::AT_REMOVEDIR) } else { 0 };
                if self.dice.once_in(60) {
                    flags |= self.dice.one_of(&[bit(libc::AT_SYMLINK_NOFOLLOW), 1, 1 << 31]);
                }
                Call::Unlinkat { at, path, flags: Unlink(flags) }
            }
            29..39 => {
                let of = if self.dice.once_in(2) { Of::Nothing } else { Of::Any };
                let (to, new) = self.place(of);
                // A whiteout is a device, and those are for the machine's own root.
                let whiteout = if self.root { u64::from(libc::RENAME_WHITEOUT) } else { 0 };
                let flags = match self.dice.below(24) {
                    0..4 => u64::from(libc::RENAME_NOREPLACE),
                    4..9 => u64::from(libc::RENAME_EXCHANGE),
                    9 => u64::from(libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE),
                    10 => u64::from(libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT),
                    11 => 1 << 3,
                    12 => whiteout,
                    13 => whiteout | u64::from(libc::RENAME_NOREPLACE),
                    _ => 0,
                };
                Call::Renameat2 { from: at, old: path, to, new, flags: Rename(flags) }
            }
            _ if self.guess.has_no_directory(self.who) => self.open_directory(),
            _ => {
                let (fd, size) =
                    (self.fd_of(Of::Directory), self.dice.one_of(&[24, 120, 280, 1024, 32768]));
                if self.dice.once_in(3) {
                    Call::Sweep { fd, size }
                } else {
                    Call::Churn { fd, size }
                }
            }
        }
    }

    fn mknod(&mut self, at: Fd, path: Text) -> Call {
        let kinds = [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK];
        let kind = match self.dice.below(12) {
            0 => self.dice.one_of(&[libc::S_IFDIR, libc::S_IFLNK, 0o150_000, libc::S_IFMT]),
            _ if self.root => self.dice.one_of(&kinds),
            // Devices are for the machine's own root.
            _ => self.dice.one_of(&kinds[..4]),
        };
        let (major, minor) = self.dice.one_of(DEVICES);
        Call::Mknodat { at, path, mode: Mode(kind | self.mode().0), major, minor }
    }

    pub(super) fn look_up(&mut self) -> Call {
        let (at, path) = self.place(Of::Any);
        match self.dice.below(40) {
            0..9 => {
                let flags = self.stat_flags(path.0.is_empty());
                Call::Fstatat { at, path, flags }
            }
            9..16 => {
                let mask = match self.dice.below(6) {
                    0 => self.dice.word() as u32 & 0xfff,
                    1 => self.dice.one_of(&[0, libc::STATX_SIZE, libc::STATX_INO, 1 << 31]),
                    _ => libc::STATX_BASIC_STATS | libc::STATX_BTIME,
                };
                let mut flags = self.stat_flags(path.0.is_empty());
                if self.dice.once_in(10) {
                    flags.0 |= self.dice.one_of(&[0x2000, 0x4000, 0x6000]);
                }
                Call::Statx { at, path, flags, mask }
            }
            16..23 => {
                let flags = self.dice.some_of(
                    &[libc::AT_EACCESS, libc::AT_SYMLINK_NOFOLLOW, libc::AT_EMPTY_PATH].map(bit),
                    3,
                );
                let flags =
                    if path.0.is_empty() { flags | bit(libc::AT_EMPTY_PATH) } else { flags };
                let flags = if self.dice.once_in(50) { flags | 1 } else { flags };
                let mode = if self.dice.once_in(40) {
                    self.dice.one_of(&[8, -1])
                } else {
                    self.dice.below(8) as i32
                };
                Call::Faccessat2 { at, path, mode, flags: Access(flags) }
            }
            23..30 => {
                let (at, path) =
                    if self.dice.once_in(4) { (at, path) } else { self.place(Of::Other) };
                Call::Readlinkat { at, path, size: self.dice.one_of(&[0, 1, 3, 100, 5000, 5000]) }
            }
            30..38 if self.guess.has_no_directory(self.who) => self.open_directory(),
            30..38 => {
                let size = self.dice.one_of(&[0, 20, 24, 32, 280, 1024, 32768, 32768]);
                Call::Getdents { fd: self.fd_of(Of::Directory), size }
            }
            38 => Call::Statfs { path },
            _ => Call::Fstatfs { fd: self.fd() },
        }
    }

    fn stat_flags(&mut self, empty: bool) -> At {
        self.at_for(empty, &[libc::AT_SYMLINK_NOFOLLOW, libc::AT_NO_AUTOMOUNT])
    }
}
