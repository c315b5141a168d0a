//! Mount namespaces and `pivot_root`, beside the host's.
#![allow(unsafe_code, reason = "system calls of the host, in a thread")]

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, MS_BIND, Process};
use std::ffi::CString;
use std::ptr;

#[derive(Debug, Clone, Copy)]
enum Step {
    Mkdir(&'static str),
    Mount(&'static str),
    Bind(&'static str, &'static str),
    Umount(&'static str, i32),
    Pivot(&'static str, &'static str),
    Chdir(&'static str),
    Chroot(&'static str),
    Exists(&'static str),
    Unshare(i32),
}

use Step::{Bind, Chdir, Chroot, Exists, Mkdir, Mount, Pivot, Umount, Unshare};

const DETACH: i32 = libc::MNT_DETACH;

/// In a root that is a mount of its own.
const STEPS: &[Step] = &[
    Mkdir("/new"),
    Mkdir("/new/old"),
    Mkdir("/other"),
    Pivot("/new", "/new/old"),
    Pivot("/", "/"),
    Mount("/new"),
    Mkdir("/new/old"),
    Mkdir("/new/sub"),
    Pivot("/new", "/new"),
    Pivot("/new", "/other"),
    Pivot("/new/sub", "/new/old"),
    Pivot("/missing", "/new/old"),
    Pivot("/new", "/missing"),
    Pivot("", "/new/old"),
    Pivot("/new", ""),
    Chdir("/other"),
    Pivot("/new", "/new/old"),
    Exists("/sub"),
    Exists("/old/other"),
    Exists("/new"),
    // The working directory was not the root, so it stays.
    Exists("../new"),
    Umount("/old", 0),
    Chdir("/"),
    Umount("/old", 0),
    Exists("/old/other"),
    Unshare(0x800),
    Unshare(CLONE_NEWNS),
    Exists("/sub"),
    Mount("/sub"),
    Mkdir("/sub/a"),
    Bind("/sub", "/old"),
    Exists("/old/a"),
    // The new root on the old one, in one place.
    Mount("/sub/a"),
    Chdir("/sub/a"),
    Pivot(".", "."),
    Exists("/a"),
    Umount(".", DETACH),
    Exists("/old"),
    Exists("."),
    Chroot("/"),
    Unshare(CLONE_NEWNS | CLONE_FS | CLONE_FILES),
    Pivot("/", "/"),
];

fn ours(p: &Process, step: Step) -> Result<(), Errno> {
    match step {
        Mkdir(path) => p.mkdir(path, 0o755),
        Mount(path) => p.mount("", path, "tmpfs", 0),
        Bind(from, to) => p.mount(from, to, "", MS_BIND),
        Umount(path, flags) => p.umount2(path, flags as u32),
        Pivot(new, old) => p.pivot_root(new, old),
        Chdir(path) => p.chdir(path),
        Chroot(path) => p.chroot(path),
        Exists(path) => p.stat(path).map(drop),
        Unshare(flags) => p.unshare(flags),
    }
}

fn c(path: &str) -> CString {
    CString::new(path).expect("no zero in it")
}

fn host(step: Step) -> i32 {
    let none = ptr::null();
    let tmpfs = c"tmpfs".as_ptr();
    // SAFETY: paths that end with a zero; a structure of our own.
    let result = unsafe {
        match step {
            Mkdir(path) => libc::mkdir(c(path).as_ptr(), 0o755),
            Mount(path) => libc::mount(c"".as_ptr(), c(path).as_ptr(), tmpfs, 0, none),
            Bind(from, to) => {
                let flags = libc::MS_BIND;
                libc::mount(c(from).as_ptr(), c(to).as_ptr(), ptr::null(), flags, none)
            }
            Umount(path, flags) => libc::umount2(c(path).as_ptr(), flags),
            Pivot(new, old) => {
                let (new, old) = (c(new), c(old));
                libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) as i32
            }
            Chdir(path) => libc::chdir(c(path).as_ptr()),
            Chroot(path) => libc::chroot(c(path).as_ptr()),
            Exists(path) => libc::access(c(path).as_ptr(), 0),
            Unshare(flags) => libc::unshare(flags),
        }
    };
    if result == 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// A thread of the host has a place and a mount namespace of its own once it says so.
fn host_answers(root: String) -> Option<Vec<i32>> {
    // SAFETY: concerns this thread only; paths end with a zero.
    let ready = unsafe {
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        libc::unshare(CLONE_NEWNS | CLONE_FS) == 0
            && libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null()) == 0
            && libc::mount(c"".as_ptr(), c(&root).as_ptr(), c"tmpfs".as_ptr(), 0, ptr::null()) == 0
            && libc::chroot(c(&root).as_ptr()) == 0
            && libc::chdir(c"/".as_ptr()) == 0
    };
    ready.then(|| STEPS.iter().map(|step| host(*step)).collect())
}

#[test]
fn pivot_root_does_what_it_does_on_the_host() {
    quietline_testing::isolated!();
    let root = std::env::temp_dir().join(format!("quietline-pivot-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let path = root.to_str().unwrap().to_owned();
    let theirs = std::thread::spawn(move || host_answers(path)).join().unwrap();
    std::fs::remove_dir(&root).unwrap();
    let Some(theirs) = theirs else {
        return quietline_testing::skip_without_root("this program cannot mount");
    };
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    p.mkdir("/root", 0o755).unwrap();
    p.mount("", "/root", "tmpfs", 0).unwrap();
    p.chroot("/root").unwrap();
    p.chdir("/").unwrap();
    for (step, host) in STEPS.iter().zip(theirs) {
        let here = ours(&p, *step).map_or_else(Errno::raw_os_error, |()| 0);
        assert_eq!(here, host, "{step:?}");
    }
}

/// A mount in a namespace is seen by its processes only.
#[test]
fn a_namespace_is_shared_with_children() {
    let kernel = Kernel::boot(Config::default().owner(0, 0).proc(true)).unwrap();
    let p = kernel.process().unwrap();
    for directory in ["/a", "/b", "/r"] {
        p.mkdir(directory, 0o755).unwrap();
    }
    p.mount("", "/a", "tmpfs", 0).unwrap();
    let inside = p.fork().unwrap();
    inside.unshare(CLONE_NEWNS).unwrap();
    let child = inside.fork().unwrap();
    child.mount("", "/b", "tmpfs", 0).unwrap();
    child.umount2("/a", 0).unwrap();
    let mounts = |of: &Process| {
        let mut text = [0; 1000];
        let fd = of.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
        let n = of.read(fd, &mut text).unwrap();
        of.close(fd).unwrap();
        let text = str::from_utf8(&text[..n]).unwrap().to_owned();
        let line = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
        text.lines().map(line).filter(|at| at.len() == 2).collect::<Vec<_>>()
    };
    assert_eq!((mounts(&p), mounts(&inside)), (vec!["/a".into()], vec!["/b".to_owned()]));
    // All processes with the old root are moved.
    for process in [&inside, &child] {
        process.chroot("/b").unwrap();
    }
    inside.mkdir("/n", 0o755).unwrap();
    inside.mount("", "/n", "tmpfs", 0).unwrap();
    inside.mkdir("/n/old", 0o755).unwrap();
    inside.pivot_root("/n", "/n/old").unwrap();
    for process in [&inside, &child] {
        assert!(process.stat("/old/n").is_ok());
    }
    let user = p.fork().unwrap();
    user.setresuid(5, 5, 5).unwrap();
    assert_eq!(user.unshare(CLONE_NEWNS), Err(Errno::PERM));
    assert_eq!(user.pivot_root("", ""), Err(Errno::PERM));
    assert_eq!(user.unshare(CLONE_FS), Ok(()));
    // The mounts of a namespace are gone with its last process.
    drop((inside, child));
    assert_eq!(mounts(&p), ["/a"]);
    p.umount2("/a", 0).unwrap();
}
