//! Attributes of files.

use super::{Call, calls, into, nothing};
use crate::kind::Kind::{Any, Bits, Fd, Id, Length, One, Only, Path};
use libc::*;
use quietline::abi::Timespec;

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

const AT: &[i64] = n![0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_EACCESS];
const MODES: &[i64] = n![0, 0o644, 0o666, 0o755, 0o777, 0o6777, 0o1777];
const XATTRS: &[&str] = &[
    "user.a",
    "user.b",
    "trusted.a",
    "security.a",
    "security.capability",
    "system.posix_acl_access",
    "system.sockprotoname",
    "user.",
    "a",
    "",
];
const NAMES: &[i64] = &[0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const TIMES: &[i64] = n![UTIME_NOW, UTIME_OMIT, 0, 999_999_999, 1_000_000_000, -1];

fn name(number: i64) -> &'static str {
    XATTRS[number as usize]
}

fn times(one: i64, other: i64) -> Option<[Timespec; 2]> {
    (one & 3 != 3).then(|| [one, other].map(|tv_nsec| Timespec { tv_sec: 1000, tv_nsec }))
}

/// A size that is asked for with an empty buffer counts as nothing read.
fn sized(n: usize, room: usize) -> usize {
    if room == 0 { 0 } else { n }
}

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    8 stat(Path) |c, a| c.p.stat(a.path(0)).map(|stat| stat.st_size);
    6 lstat(Path) |c, a| c.p.lstat(a.path(0)).map(|stat| stat.st_size);
    10 fstat(Fd) |c, a| c.p.fstat(a.int(0)).map(|stat| stat.st_size);
    8 fstatat(Fd, Path, Bits(AT)) |c, a| {
        c.p.fstatat(a.int(0), a.path(1), a.int(2)).map(|stat| stat.st_size)
    };
    8 statx(Fd, Path, Bits(AT), Any) |c, a| {
        c.p.statx(a.int(0), a.path(1), a.int(2), a.word(3)).map(|_| 0)
    };
    4 statfs(Path) |c, a| c.p.statfs(a.path(0)).map(|_| 0);
    4 fstatfs(Fd) |c, a| c.p.fstatfs(a.int(0)).map(|_| 0);
    5 access(Path, One(&[0, 1, 2, 4, 7])) |c, a| c.p.access(a.path(0), a.int(1)).map(nothing);
    5 faccessat2(Fd, Path, One(&[0, 1, 2, 4, 7]), Bits(AT)) |c, a| {
        c.p.faccessat2(a.int(0), a.path(1), a.int(2), a.int(3)).map(nothing)
    };
    8 readlink(Path, Length) |c, a| into(c, a.0[1], |p, to| p.readlink(a.path(0), to));
    8 readlinkat(Fd, Path, Length) |c, a| {
        into(c, a.0[2], |p, to| p.readlinkat(a.int(0), a.path(1), to))
    };
    4 chmod(Path, One(MODES)) |c, a| c.p.chmod(a.path(0), a.word(1)).map(nothing);
    4 fchmod(Fd, One(MODES)) |c, a| c.p.fchmod(a.int(0), a.word(1)).map(nothing);
    4 fchmodat2(Fd, Path, One(MODES), Bits(AT)) |c, a| {
        c.p.fchmodat2(a.int(0), a.path(1), a.word(2), a.int(3)).map(nothing)
    };
    4 chown(Path, Id, Id) |c, a| c.p.chown(a.path(0), a.word(1), a.word(2)).map(nothing);
    4 lchown(Path, Id, Id) |c, a| c.p.lchown(a.path(0), a.word(1), a.word(2)).map(nothing);
    4 fchown(Fd, Id, Id) |c, a| c.p.fchown(a.int(0), a.word(1), a.word(2)).map(nothing);
    4 fchownat(Fd, Path, Id, Id, Bits(AT)) |c, a| {
        c.p.fchownat(a.int(0), a.path(1), a.word(2), a.word(3), a.int(4)).map(nothing)
    };
    4 utimensat(Fd, Path, One(TIMES), One(TIMES), Bits(AT)) |c, a| {
        let path = (a.0[1] & 7 != 0).then(|| a.path(1));
        c.p.utimensat(a.int(0), path, times(a.0[2], a.0[3]), a.int(4)).map(nothing)
    };
    4 futimens(Fd, One(TIMES), One(TIMES)) |c, a| {
        c.p.futimens(a.int(0), times(a.0[1], a.0[2])).map(nothing)
    };
    4 setxattr(Path, Only(NAMES), Length, One(&[0, 0, 1, 2])) |c, a| {
        c.p.setxattr(a.path(0), name(a.0[1]), c.input(a.0[2]), a.int(3)).map(nothing)
    };
    3 lsetxattr(Path, Only(NAMES), Length, One(&[0, 0, 1, 2])) |c, a| {
        c.p.lsetxattr(a.path(0), name(a.0[1]), c.input(a.0[2]), a.int(3)).map(nothing)
    };
    5 fsetxattr(Fd, Only(NAMES), Length, One(&[0, 0, 1, 2])) |c, a| {
        c.p.fsetxattr(a.int(0), name(a.0[1]), c.input(a.0[2]), a.int(3)).map(nothing)
    };
    3 getxattr(Path, Only(NAMES), Length) |c, a| {
        into(c, a.0[2], |p, to| p.getxattr(a.path(0), name(a.0[1]), to).map(|n| sized(n, to.len())))
    };
    3 lgetxattr(Path, Only(NAMES), Length) |c, a| {
        into(c, a.0[2], |p, to| p.lgetxattr(a.path(0), name(a.0[1]), to).map(|n| sized(n, to.len())))
    };
    5 fgetxattr(Fd, Only(NAMES), Length) |c, a| {
        into(c, a.0[2], |p, to| p.fgetxattr(a.int(0), name(a.0[1]), to).map(|n| sized(n, to.len())))
    };
    3 listxattr(Path, Length) |c, a| {
        into(c, a.0[1], |p, to| p.listxattr(a.path(0), to).map(|n| sized(n, to.len())))
    };
    3 llistxattr(Path, Length) |c, a| {
        into(c, a.0[1], |p, to| p.llistxattr(a.path(0), to).map(|n| sized(n, to.len())))
    };
    4 flistxattr(Fd, Length) |c, a| {
        into(c, a.0[1], |p, to| p.flistxattr(a.int(0), to).map(|n| sized(n, to.len())))
    };
    3 removexattr(Path, Only(NAMES)) |c, a| c.p.removexattr(a.path(0), name(a.0[1])).map(nothing);
    3 lremovexattr(Path, Only(NAMES)) |c, a| c.p.lremovexattr(a.path(0), name(a.0[1])).map(nothing);
    3 fremovexattr(Fd, Only(NAMES)) |c, a| c.p.fremovexattr(a.int(0), name(a.0[1])).map(nothing);
};
