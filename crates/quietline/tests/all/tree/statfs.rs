//! `statfs`: how a filesystem is mounted, and which one it is.

use quietline::abi::*;
use quietline::{Config, Kernel};
use quietline_vfs::MountFlags;

#[test]
fn every_mount_flag_is_told() {
    let p = Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap();
    p.mkdir("/d", 0o755).unwrap();
    // The numbers are those that the host tells of a tmpfs mounted with each option.
    for (flags, told) in [
        (MountFlags::empty(), ST_RELATIME),
        (MountFlags::RDONLY, ST_RDONLY | ST_RELATIME),
        (MountFlags::NOSUID, ST_NOSUID | ST_RELATIME),
        (MountFlags::NODEV, ST_NODEV | ST_RELATIME),
        (MountFlags::NOEXEC, ST_NOEXEC | ST_RELATIME),
        (MountFlags::NOSYMFOLLOW, 0x2000 | ST_RELATIME),
        (MountFlags::NOATIME, ST_NOATIME),
        (MountFlags::NODIRATIME, ST_NODIRATIME | ST_RELATIME),
    ] {
        p.mount("", "/d", "tmpfs", u64::from(flags.bits())).unwrap();
        assert_eq!(p.statfs("/d").unwrap().f_flags, told | ST_VALID, "{flags:?}");
        p.umount2("/d", 0).unwrap();
    }
    p.mount("", "/d", "tmpfs", quietline::MS_STRICTATIME).unwrap();
    assert_eq!(p.statfs("/d").unwrap().f_flags, ST_VALID);
}

#[test]
fn every_filesystem_has_a_number_of_its_own() {
    let kernel = Kernel::boot(Config::default().privileged(true).proc(true)).unwrap();
    let p = kernel.process().unwrap();
    p.mkdir("/d", 0o755).unwrap();
    p.mkdir("/again", 0o755).unwrap();
    p.mount("", "/d", "tmpfs", 0).unwrap();
    p.mount("/d", "/again", "", quietline::MS_BIND).unwrap();
    let id = |path: &str| p.statfs(path).unwrap().f_fsid;
    let all = [id("/"), id("/d"), id("/proc"), id("/sys")];
    for (n, fsid) in all.iter().enumerate() {
        assert_ne!(*fsid, [0; 2]);
        assert!(!all[..n].contains(fsid), "{all:?}");
    }
    assert_eq!(id("/again"), id("/d"), "the same filesystem");
}
