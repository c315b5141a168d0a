//! What the calls are made on: the descriptors are the same on both systems, but for their numbers.

use crate::descriptors::Kind;
use quietline::abi::*;
use quietline::{Config, Kernel, Process};
use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that nothing is open at.
pub(crate) const FREE: i32 = 900;

const WORDS: usize = 512;

/// The descriptor in question, and others for calls that take two.
pub(crate) struct Fds {
    pub(crate) at: i32,
    pub(crate) file: i32,
    pub(crate) counter: i32,
    pub(crate) epoll: i32,
    pub(crate) pipe: [i32; 2],
    pub(crate) pair: [i32; 2],
}

fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

pub(crate) struct Ours {
    pub(crate) process: Process,
    pub(crate) fds: Fds,
}

impl Ours {
    pub(crate) fn new(kind: Kind) -> Self {
        static KERNEL: OnceLock<Kernel> = OnceLock::new();
        static MADE: AtomicU32 = AtomicU32::new(0);
        let boot = || Kernel::boot(Config::default().privileged(is_root())).unwrap();
        let p = KERNEL.get_or_init(boot).process().unwrap();
        let own = format!("/{}", MADE.fetch_add(1, Ordering::Relaxed));
        p.mkdir(&own, 0o755).unwrap();
        p.chdir(&own).unwrap();
        p.mkdir("dir", 0o755).unwrap();
        p.mknodat(AT_FDCWD, "fifo", S_IFIFO | 0o644, 0).unwrap();
        p.symlinkat("file", AT_FDCWD, "link").unwrap();
        let file = p.openat(AT_FDCWD, "file", O_RDWR | O_CREAT, 0o644).unwrap();
        assert_eq!(p.write(file, b"words"), Ok(5));
        let (name, flags) = kind.open();
        let at =
            if kind == Kind::Closed { FREE } else { p.openat(AT_FDCWD, name, flags, 0).unwrap() };
        let fds = Fds {
            at,
            file,
            counter: p.eventfd(1, EFD_NONBLOCK).unwrap(),
            epoll: p.epoll_create1(0).unwrap(),
            pipe: p.pipe2(O_NONBLOCK).unwrap(),
            pair: p.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap(),
        };
        assert_eq!(p.write(fds.pipe[1], b"abc"), Ok(3));
        Self { process: p, fds }
    }
}

pub(crate) struct Host {
    pub(crate) fds: Fds,
    dir: PathBuf,
    /// Room for what calls read and write: zeros at first.
    room: Box<[Cell<u64>; WORDS]>,
}

impl Host {
    pub(crate) fn new(kind: Kind) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // On a tmpfs, where there is one.
        let shm = PathBuf::from("/dev/shm");
        let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
        let dir = base.join(format!("quietline-descriptors-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(dir.join("dir")).unwrap();
        std::fs::write(dir.join("file"), "words").unwrap();
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        let path = |name: &str| CString::new(dir.join(name).as_os_str().as_bytes()).unwrap();
        let (name, flags) = kind.open();
        let [mut pipe, mut pair] = [[0; 2]; 2];
        // SAFETY: the paths end with a zero, the pairs have room for two.
        let fds = unsafe {
            assert_eq!(libc::mkfifo(path("fifo").as_ptr(), 0o644), 0);
            let file = libc::open(path("file").as_ptr(), O_RDWR);
            assert_eq!(libc::lseek(file, 5, SEEK_SET), 5);
            assert_eq!(libc::pipe2(pipe.as_mut_ptr(), O_NONBLOCK), 0);
            assert_eq!(
                libc::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.as_mut_ptr()),
                0
            );
            Fds {
                at: if kind == Kind::Closed {
                    FREE
                } else {
                    libc::open(path(name).as_ptr(), flags)
                },
                file,
                counter: libc::eventfd(1, EFD_NONBLOCK),
                epoll: libc::epoll_create1(0),
                pipe,
                pair,
            }
        };
        assert!(fds.at >= 0 && fds.file >= 0);
        let host = Self { fds, dir, room: Box::new([const { Cell::new(0) }; WORDS]) };
        assert_eq!(
            host.call(libc::SYS_write, [pipe[1].into(), b"abc".as_ptr().addr() as i64, 3]),
            Ok(3)
        );
        host
    }

    /// Rows that say nothing on this host, as it is older or lets its root do less, and which of the two: it is asked once.
    pub(crate) fn passed_over() -> Vec<(&'static str, &'static str)> {
        let mut rows = Vec::new();
        let host = Self::new(Kind::Closed);
        let [room, empty] = [host.zeros(), host.text("")];
        if host.call(libc::SYS_epoll_wait, [-1, room, 0, 0]) != Err(libc::EBADF) {
            rows.push(("epoll_wait, no room", "it looks at the room before the descriptor"));
        }
        let to_nowhere = [-1, empty, -1, host.text("y"), AT_EMPTY_PATH.into()];
        if host.call(libc::SYS_linkat, to_nowhere) != Err(libc::EBADF) {
            rows.push(("linkat, it", "it wants CAP_DAC_READ_SEARCH for an empty path"));
        }
        let of_own = [host.fds.file.into(), host.text("trusted.x"), room, 1, 0];
        if is_root() && host.call(libc::SYS_fsetxattr, of_own) != Ok(0) {
            rows.extend(
                ["fsetxattr", "fremovexattr"]
                    .map(|row| (row, "its root may not set a trusted attribute")),
            );
        }
        rows
    }

    /// The address of zeros.
    pub(crate) fn zeros(&self) -> i64 {
        self.room.as_ptr().expose_provenance() as i64
    }

    /// The word at a place of the room.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.room[at].get()
    }

    /// The address of a place in the room, where these words are now.
    pub(crate) fn with(&self, at: usize, words: &[u64]) -> i64 {
        self.room[at..].iter().zip(words).for_each(|(place, word)| place.set(*word));
        self.zeros() + at as i64 * 8
    }

    /// The address of a text.
    pub(crate) fn text(&self, text: &str) -> i64 {
        let mut bytes = [0; 16];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        // Two in a call are the same, or one is empty: that is another place.
        self.with(if text.is_empty() { 500 } else { 504 }, &words.collect::<Vec<_>>())
    }

    pub(crate) fn call<const N: usize>(&self, number: i64, args: [i64; N]) -> Result<i64, i32> {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&args);
        let [a, b, c, d, e, f] = all;
        // SAFETY: the rows pass descriptors of the test's own, and addresses with as much behind them as the call takes.
        let said = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        if said >= 0 {
            Ok(said)
        } else {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap())
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Fds { at, file, counter, epoll, pipe, pair } = self.fds;
        for fd in [at, file, counter, epoll, pipe[0], pipe[1], pair[0], pair[1]] {
            // SAFETY: the test's own. One that a row has closed, or that was never open, is said to be bad.
            unsafe { libc::close(fd) };
        }
        std::env::set_current_dir("/").unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}
