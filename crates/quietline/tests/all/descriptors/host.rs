//! The host's kernel.

use super::room::Room;
use super::system::{NOFILE, Outcome, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls that change the file at a path, or its directory.
const CHANGES: [i64; 11] = [
    libc::SYS_fchmodat2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_openat2,
];

/// The host's kernel, for one thread: its descriptors and its working directory are its own.
pub(crate) struct Host {
    room: Room,
    dir: PathBuf,
}

impl Host {
    /// Gives the calling thread a descriptor table and a working directory of its own: an empty
    /// directory on a tmpfs, if the host has one, and no descriptor above the standard ones.
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let dir = base.join(format!("quietline-descriptors-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let host = Self { room: Room::new(), dir };
        host.must(libc::SYS_unshare, &[(libc::CLONE_FILES | libc::CLONE_FS).into()]);
        host.must(libc::SYS_close_range, &[3, i64::from(u32::MAX), 0]);
        host.must(libc::SYS_umask, &[0o022]);
        host.enter();
        host
    }

    /// Sets the limit on descriptors of the test's process.
    pub(crate) fn limit_descriptors() {
        let limit = libc::rlimit { rlim_cur: NOFILE as u64, rlim_max: NOFILE as u64 };
        // SAFETY: the structure is valid for the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    }

    /// Makes the case's directory the working directory.
    pub(crate) fn enter(&self) {
        let path = self.room.text(0, self.dir.to_str().unwrap());
        self.must(libc::SYS_chdir, &[path]);
        self.room.text(0, "");
    }
}

impl System for Host {
    fn room(&self) -> &Room {
        &self.room
    }

    fn call(&self, number: i64, args: &[i64]) -> Outcome {
        if CHANGES.contains(&number) {
            self.room.assert_inside();
        }
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let [a, b, c, d, e, f] = all;
        // SAFETY: descriptors are the thread's own, and addresses lie in the room, which has as
        // many bytes behind them as a call takes.
        let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        if value >= 0 {
            Ok(value)
        } else {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap())
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.must(libc::SYS_close_range, &[3, i64::from(u32::MAX), 0]);
        std::env::set_current_dir("/").unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}
