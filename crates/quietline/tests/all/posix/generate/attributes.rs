//! Attributes, credentials and directories of processes, extended attributes.

use super::Making;
use super::guess::{Holder, Of};
use crate::posix::arg::{Mode, Text, Time, Xflags};
use crate::posix::call::Call;
use crate::posix::names::{USERS, XATTRS};
use crate::posix::sys::PROCESSES;

impl Making {
    fn user(&mut self) -> u32 {
        if !self.root {
            // Users that the namespace does not know are refused; ours has no namespaces.
            return self.dice.one_of(&[0, u32::MAX]);
        }
        match self.dice.below(6) {
            0 => u32::MAX,
            _ => self.dice.one_of(USERS),
        }
    }

    fn time(&mut self) -> Time {
        match self.dice.below(10) {
            0..3 => Time::NOW,
            3..5 => Time::OMIT,
            5 => Time { nanos: self.dice.one_of(&[-1, 1_000_000_000, 1 << 40]), seconds: 5 },
            6 => Time {
                seconds: self.dice.one_of(&[-1, -(1 << 40), i64::MIN, i64::MAX, 1 << 32, 1 << 34]),
                nanos: 7,
            },
            7 => Time { seconds: 4_102_444_800, nanos: 999_999_999 },
            8 => Time { seconds: 9, nanos: self.dice.one_of(&[libc::UTIME_NOW, libc::UTIME_OMIT]) },
            _ => Time { seconds: 1_000_000_000, nanos: self.dice.below(1_000_000_000) as i64 },
        }
    }

    pub(super) fn attributes(&mut self) -> Call {
        let (at, path) = self.place(Of::Any);
        let empty = path.0.is_empty();
        let flags = [libc::AT_SYMLINK_NOFOLLOW];
        match self.dice.below(20) {
            0..5 => {
                let mode =
                    if self.dice.once_in(20) { Mode(self.dice.word() as u32) } else { self.mode() };
                Call::Fchmodat2 { at, path, mode, flags: self.at_for(empty, &flags) }
            }
            5..7 => Call::Fchmod { fd: self.fd(), mode: self.mode() },
            7..11 => Call::Fchownat {
                at,
                path,
                uid: self.user(),
                gid: self.user(),
                flags: self.at_for(empty, &flags),
            },
            11 | 12 => Call::Fchown { fd: self.fd(), uid: self.user(), gid: self.user() },
            13..18 => Call::Utimensat {
                at,
                path,
                atime: self.time(),
                mtime: self.time(),
                flags: self.at_for(empty, &flags),
            },
            _ => Call::Futimens { fd: self.fd(), atime: self.time(), mtime: self.time() },
        }
    }

    pub(super) fn process(&mut self) -> Call {
        match self.dice.below(40) {
            0..8 => Call::Chdir { path: self.path(Of::Directory) },
            8..13 if self.guess.has_no_directory(self.who) => self.open_directory(),
            8..13 => Call::Fchdir { fd: self.fd_of(Of::Directory) },
            13..15 => Call::Chroot { path: self.path(Of::Directory) },
            15..20 => {
                Call::Getcwd { size: self.dice.one_of(&[0, 1, 2, 3, 4, 64, 5000, 5000, 5000]) }
            }
            20..24 => Call::Umask {
                mask: Mode(self.dice.one_of(&[0, 0o22, 0o77, 0o777, 0o1777, 0o27, 0o7077])),
            },
            24..30 => Call::Fork {
                child: 1 + ((self.who + self.dice.below(PROCESSES - 2)) % (PROCESSES - 1)) as u32,
            },
            _ if !self.root || (self.theme != super::Theme::Rights && !self.dice.once_in(6)) => {
                Call::Chdir { path: Text::from("/") }
            }
            30..33 => {
                Call::Become { uid: self.user(), gid: self.user(), group: self.dice.one_of(USERS) }
            }
            33..35 => {
                Call::Setresuid { real: self.user(), effective: self.user(), saved: self.user() }
            }
            35 | 36 => {
                Call::Setresgid { real: self.user(), effective: self.user(), saved: self.user() }
            }
            37 => Call::Setfsuid { uid: self.user() },
            38 => Call::Setfsgid { gid: self.user() },
            _ => Call::Setgroups {
                groups: self.dice.below(4) as u32,
                first: self.dice.one_of(&[0, 999, 1000, 50]),
            },
        }
    }

    fn xattr_name(&mut self) -> Text {
        if !self.root {
            // Some attributes are for the machine's own root.
            return Text::from(
                self.dice
                    .one_of(&["user.a", "user.a", "user.b", "user.c", "nosuch.a", "user.", ""]),
            );
        }
        match self.dice.below(16) {
            0..10 => Text::from(self.dice.one_of(&XATTRS[..2])),
            10..13 => Text::from(self.dice.one_of(&XATTRS[..5])),
            13..15 => Text::from(self.dice.one_of(XATTRS)),
            _ => {
                let mut name = b"user.".to_vec();
                name.resize(self.dice.one_of(&[254, 255, 256, 300]), b'n');
                Text(name)
            }
        }
    }

    fn value_size(&mut self) -> usize {
        match self.dice.below(24) {
            0 => self.dice.one_of(&[65535, 65536, 65537]),
            1 | 2 => self.dice.one_of(&[1000, 5000]),
            _ => self.dice.one_of(&[0, 1, 2, 3, 8, 30, 100]),
        }
    }

    pub(super) fn xattr(&mut self) -> Call {
        let (path, fd) = (self.path(Of::Any), self.fd_of(Of::Any));
        let follow = !self.dice.once_in(4);
        let name = self.xattr_name();
        let room = self.dice.one_of(&[0, 1, 8, 20, 100, 100, 70_000, 70_000]);
        match self.dice.below(24) {
            0..5 => {
                let (size, flags) = (self.value_size(), self.xflags());
                Call::Setxattr { path, follow, name, size, fill: self.dice.below(20) as u32, flags }
            }
            5..9 => {
                let (size, flags) = (self.value_size(), self.xflags());
                Call::Fsetxattr { fd, name, size, fill: self.dice.below(20) as u32, flags }
            }
            9..23 if !self.guess.values.is_empty() && self.dice.once_in(2) => {
                self.known_xattr(follow, room)
            }
            9..12 => Call::Getxattr { path, follow, name, size: room },
            12..15 => Call::Fgetxattr { fd, name, size: room },
            15..18 => Call::Listxattr { path, follow, size: room },
            18..20 => Call::Flistxattr { fd, size: room },
            20..22 => Call::Removexattr { path, follow, name },
            _ => Call::Fremovexattr { fd, name },
        }
    }

    /// Asks for, or removes, one that was set.
    fn known_xattr(&mut self, follow: bool, size: usize) -> Call {
        let (holder, name) = self.guess.values[self.dice.below(self.guess.values.len())].clone();
        let choice = self.dice.below(8);
        match holder {
            Holder::Path(path) => match choice {
                0..4 => Call::Getxattr { path, follow, name, size },
                4..6 => Call::Removexattr { path, follow, name },
                _ => Call::Listxattr { path, follow, size },
            },
            Holder::Fd(who, fd) => {
                self.who = who;
                match choice {
                    0..4 => Call::Fgetxattr { fd, name, size },
                    4..6 => Call::Fremovexattr { fd, name },
                    _ => Call::Flistxattr { fd, size },
                }
            }
        }
    }

    fn xflags(&mut self) -> Xflags {
        Xflags(self.dice.one_of(&[0, 0, 0, 0, 1, 2, 3, 4]))
    }
}
