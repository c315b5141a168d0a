//! Names in the tree, and mounts.

use super::{Call, calls, nothing};
use crate::custom::Custom;
use crate::guest::mount_id;
use crate::kind::Kind::{Any, Bits, Fd, One, Only, Path, Seed};
use libc::*;
use quietline::{Caller, FileSystem, MountRequest};
use std::sync::Arc;

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

const AT: &[i64] =
    n![0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW, AT_REMOVEDIR, AT_EACCESS];
const NODES: &[i64] = n![S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFDIR, S_IFIFO | 0o666];
const MODES: &[i64] = n![0o755, 0o777, 0o700, 0o1777, 0o2777, 0];
const FLAGS: &[i64] = n![
    MS_RDONLY,
    MS_NOSUID,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOATIME,
    MS_NODIRATIME,
    MS_RELATIME,
    MS_STRICTATIME,
    256,
];
const OPTIONS: &[&str] = &["", "size=1m", "nr_inodes=20,mode=700", "ro,size=50%", "hidepid=0"];
const KINDS: &[&str] = &["tmpfs", "tmpfs", "proc", "sysfs", "ext4"];

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    8 mkdir(Path, One(MODES)) |c, a| c.p.mkdir(a.path(0), a.word(1)).map(nothing);
    8 mkdirat(Fd, Path, One(MODES)) |c, a| c.p.mkdirat(a.int(0), a.path(1), a.word(2)).map(nothing);
    6 mknod(Path, One(NODES), One(&[0, 259])) |c, a| {
        c.p.mknod(a.path(0), a.word(1), a.0[2] as u64).map(nothing)
    };
    4 mknodat(Fd, Path, One(NODES), One(&[0, 259])) |c, a| {
        c.p.mknodat(a.int(0), a.path(1), a.word(2), a.0[3] as u64).map(nothing)
    };
    8 symlink(Path, Path) |c, a| c.p.symlink(a.path(0), a.path(1)).map(nothing);
    4 symlinkat(Path, Fd, Path) |c, a| {
        c.p.symlinkat(a.path(0), a.int(1), a.path(2)).map(nothing)
    };
    8 link(Path, Path) |c, a| c.p.link(a.path(0), a.path(1)).map(nothing);
    6 linkat(Fd, Path, Fd, Path, Bits(AT)) |c, a| {
        c.p.linkat(a.int(0), a.path(1), a.int(2), a.path(3), a.int(4)).map(nothing)
    };
    12 unlink(Path) |c, a| c.p.unlink(a.path(0)).map(nothing);
    8 rmdir(Path) |c, a| c.p.rmdir(a.path(0)).map(nothing);
    6 unlinkat(Fd, Path, Bits(AT)) |c, a| c.p.unlinkat(a.int(0), a.path(1), a.int(2)).map(nothing);
    15 rename(Path, Path) |c, a| c.p.rename(a.path(0), a.path(1)).map(nothing);
    6 renameat(Fd, Path, Fd, Path) |c, a| {
        c.p.renameat(a.int(0), a.path(1), a.int(2), a.path(3)).map(nothing)
    };
    12 renameat2(Fd, Path, Fd, Path, Bits(&[0, 1, 2, 4])) |c, a| {
        c.p.renameat2(a.int(0), a.path(1), a.int(2), a.path(3), a.word(4)).map(nothing)
    };
    6 mount(Path, Path, Only(&[0, 1, 2, 3, 4]), Bits(FLAGS)) |c, a| {
        let flags = a.0[3] as u64 & !(MS_BIND | MS_MOVE | MS_REMOUNT);
        c.p.mount(a.path(0), a.path(1), KINDS[a.0[2] as usize], flags).map(nothing)
    };
    8 mount(Path, Path, Only(n![MS_BIND, MS_BIND | MS_REC, MS_MOVE, MS_REMOUNT,
        MS_REMOUNT | MS_BIND, MS_REMOUNT | MS_BIND | MS_RDONLY]), Bits(FLAGS)) |c, a| {
        c.p.mount(a.path(0), a.path(1), "", (a.0[2] | a.0[3] & !(MS_REC as i64)) as u64)
            .map(nothing)
    };
    4 mount_with(Path, Path, Only(&[0, 2, 3, 4]), Bits(FLAGS), Only(&[0, 1, 2, 3, 4])) |c, a| {
        let flags = a.0[3] as u64 & !(MS_BIND | MS_MOVE | MS_REMOUNT);
        let (kind, options) = (KINDS[a.0[2] as usize], OPTIONS[a.0[4] as usize]);
        c.p.mount_with(a.path(0), a.path(1), kind, flags, options).map(nothing)
    };
    1 register_file_system(Seed) |c, a| {
        let (kernel, seed) = (c.p.kernel(), a.0[0] as u64);
        kernel.register_file_system("custom", move |_: &Caller<'_>, _: &MountRequest<'_>| {
            let fs: Arc<dyn FileSystem> = Custom::new(seed);
            Ok(fs)
        })?;
        kernel.unregister_file_system("custom").map(nothing)
    };
    1 unregister_file_system(Seed) |c, a| {
        let (kernel, seed) = (c.p.kernel(), a.0[0] as u64);
        kernel.register_file_system("other", move |_: &Caller<'_>, _: &MountRequest<'_>| {
            let fs: Arc<dyn FileSystem> = Custom::new(seed);
            Ok(fs)
        })?;
        kernel.unregister_file_system("other").map(nothing)
    };
    6 mount_fs(Path, Seed, Bits(FLAGS)) |c, a| {
        let path = a.path(0);
        // On a root that cannot be changed a round's end checks little, so that is rare.
        let number = |path: &[u8]| c.p.stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        if a.0[1] % 64 != 0 && number(&path) == number(b"/") {
            return Err(quietline::Errno::BUSY);
        }
        c.p.mount_fs(path, Custom::new(a.0[1] as u64), a.0[2] as u64).map(nothing)
    };
    14 umount2(Path, Bits(n![0, MNT_DETACH, MNT_DETACH, MNT_FORCE, MNT_EXPIRE, 8])) |c, a| {
        let (path, mut flags) = (a.path(0), a.word(1));
        // Without a root in the tree nothing more can be mounted, so that is rare.
        if a.0[0] % 64 != 0 && mount_id(c.p, &path) == mount_id(c.p, b"/") {
            flags &= !(MNT_DETACH as u32);
        }
        c.p.umount2(path, flags).map(nothing)
    };
    1 umount2(Any) |c, a| c.p.umount2("/m", a.word(0)).map(nothing);
};
