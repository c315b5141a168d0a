//! Files in memory without a path: the same calls on the host and here.
#![allow(unsafe_code, reason = "calls of the host with arguments that no safe wrapper offers")]

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, MFD_CLOEXEC, MFD_EXEC, MS_BIND, MS_REMOUNT};
use quietline_testing::heap;
use quietline_vfs::MountFlags;
use std::ffi::CString;

/// Mode, whether it has a link, size, status flags and the name that `/proc` shows.
type Told = (u32, bool, i64, i32, Vec<u8>);

fn host(name: &str, flags: u32) -> Result<Told, i32> {
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero; zeroes are a `stat`.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), flags);
        if fd < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        let mut stat: libc::stat = core::mem::zeroed();
        assert_eq!(libc::fstat(fd, &raw mut stat), 0);
        let shown = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let shown = std::os::unix::ffi::OsStringExt::into_vec(shown.into_os_string());
        let status = libc::fcntl(fd, F_GETFL);
        libc::close(fd);
        Ok((stat.st_mode, stat.st_nlink != 0, stat.st_size, status, shown))
    }
}

fn ours(p: &quietline::Process, name: &str, flags: u32) -> Result<Told, i32> {
    let fd = p.memfd_create(name, flags).map_err(Errno::raw_os_error)?;
    let stat = p.fstat(fd).unwrap();
    let mut shown = [0; 4096];
    let n = p.readlink(format!("/proc/self/fd/{fd}"), &mut shown).unwrap();
    assert_eq!(p.fd_name(fd).unwrap().as_bytes(), &shown[..n]);
    let status = p.fcntl(fd, F_GETFL, 0).unwrap();
    p.close(fd).unwrap();
    Ok((stat.st_mode, stat.st_nlink != 0, stat.st_size, status, shown[..n].to_vec()))
}

#[test]
fn names_and_modes_are_those_of_the_host() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().privileged(true).proc(true)).unwrap().process().unwrap();
    // SAFETY: sets a number, of this process alone.
    unsafe { libc::umask(0o077) };
    p.umask(0o077);
    let long = "x".repeat(249);
    let too_long = "x".repeat(250);
    for name in ["a", "", "a/b", "with a space", "a\nb", &long, &too_long] {
        for flags in [0, MFD_CLOEXEC, MFD_EXEC, 0x20, 0x8000_0000] {
            assert_eq!(ours(&p, name, flags), host(name, flags), "{name:?} {flags:#x}");
        }
    }
    // In another root, too.
    p.mkdir("/jail", 0o755).unwrap();
    let fd = p.memfd_create("a", 0).unwrap();
    p.chroot("/jail").unwrap();
    assert_eq!(p.fd_name(fd).unwrap(), "/memfd:a (deleted)");
}

#[test]
fn the_root_directory_has_no_part_in_it() {
    quietline_testing::isolated!();
    let config = Config::default().privileged(true).fs_size(8 << 12);
    let kernel = Kernel::boot(config).unwrap();
    let p = kernel.process().unwrap();
    // Files in the root directory get its group.
    p.chown("/", 7, 7).unwrap();
    p.chmod("/", 0o2555).unwrap();
    let user = p.fork().unwrap();
    user.setresgid(1000, 1000, 1000).unwrap();
    user.setresuid(1000, 1000, 1000).unwrap();
    let fd = user.memfd_create("a", 0).unwrap();
    let stat = user.fstat(fd).unwrap();
    assert_eq!((stat.st_uid, stat.st_gid, stat.st_mode), (1000, 1000, S_IFREG | 0o777));
    // It is on a mount of its own, which nothing else is on.
    user.chdir("/").unwrap();
    let link = |p: &quietline::Process, fd| p.linkat(fd, "", AT_FDCWD, "/name", AT_EMPTY_PATH);
    assert_eq!(link(&user, fd), Err(Errno::XDEV));
    let read_only = MS_REMOUNT | MS_BIND | u64::from(MountFlags::RDONLY.bits());
    p.mount("", "/", "", read_only).unwrap();
    assert_eq!(p.mkdir("/d", 0o755), Err(Errno::ROFS));
    let fd = p.memfd_create("a", 0).unwrap();
    // Its pages are the root filesystem's.
    assert_eq!(p.write(fd, &[1; 9 << 12]), Ok(8 << 12));
    assert_eq!(p.write(fd, &[1]), Err(Errno::NOSPC));
    p.close(fd).unwrap();
    let fd = p.memfd_create("b", 0).unwrap();
    assert_eq!(p.write(fd, &[1; 8 << 12]), Ok(8 << 12));
}

/// All files in memory are on one mount, on the host and here.
#[test]
fn all_are_on_one_mount() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let ours = [(); 2].map(|()| {
        let fd = p.memfd_create("a", 0).unwrap();
        p.statx(fd, "", AT_EMPTY_PATH, 0x1000).unwrap().stx_mnt_id
    });
    // SAFETY: the name ends with a zero; zeroes are a `statx`.
    let theirs = [(); 2].map(|()| unsafe {
        let fd = libc::memfd_create(c"a".as_ptr(), 0);
        let mut statx: libc::statx = core::mem::zeroed();
        let (path, to) = (c"".as_ptr(), &raw mut statx);
        assert_eq!(libc::statx(fd, path, AT_EMPTY_PATH, libc::STATX_MNT_ID, to), 0);
        statx.stx_mnt_id
    });
    assert_eq!(theirs[0], theirs[1]);
    assert_eq!(ours[0], ours[1]);
}

/// A file in memory ends completely in a thread to which the host refuses `membarrier`. Its memory
/// is free when another thread has ended a grace period.
#[test]
fn nothing_is_left_where_membarrier_is_refused() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    heap::start();
    let turn = |n: usize| {
        let refused = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let refused = quietline_testing::refuse_membarrier();
                for _ in 0..n {
                    let fd = p.memfd_create("a", 0).unwrap();
                    p.close(fd).unwrap();
                }
                refused
            });
            thread.join().unwrap()
        });
        p.kernel().shrink();
        refused.then(heap::bytes)
    };
    turn(300);
    let (Some(few), Some(many)) = (turn(1), turn(300)) else {
        return println!("skipped: no system call can be refused");
    };
    // Threads leave some bytes of their own.
    assert!(many < few + 300 * 32, "{few} bytes, and {many} after 300 files");
}
