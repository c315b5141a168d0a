//! The victim: a process of a user of its own, whose files and bytes no other process may have.
//!
//! Its directory can be searched by its owner alone, and its names and bytes contain [`MARKER`].
//! The root processes of the guest never draw its paths, so they never make its files public.
//! Processes without privileges draw them on purpose: each success is a finding. All processes are
//! checked: no descriptor may be one of the victim's files, and no bytes that a call returns may
//! contain the marker.
//!
//! The victim makes and ends files, pipes and sockets during the round, so memory with its bytes is
//! reused by others. It also finds out whether its bytes are as it has written them.

use crate::random::Random;
use quietline::abi::{AF_UNIX, O_NONBLOCK, SOCK_NONBLOCK, SOCK_STREAM};
use quietline::{Errno, FileHandle, Kernel, Process};

/// The victim's user and group.
pub const USER: u32 = 4242;
/// The victim's process number.
pub const PID: i32 = 1;
/// The content of all that the victim writes, and a part of its names.
pub const MARKER: &[u8] = b"SECRET-of-user-4242";
/// The victim's directory.
pub const DIRECTORY: &str = "/v";
/// The length of the victim's file.
const LENGTH: usize = 3 * 4096 + 100;

/// Paths that only the victim may use. `*` stands for [`MARKER`], `#` for a digit.
const PATHS: &[&str] = &[
    "/v/*",
    "/v/*",
    "/v/*-directory",
    "/v/*-directory/x",
    "/v/*-socket",
    "/v/*-pipe",
    "/v/../v/*",
    "/a/../v/*",
    "/proc/1/fd/#",
    "/proc/1/fd/#",
    "/proc/1/fd/#/x",
    "/proc/1/fdinfo/#",
    "/proc/1/cwd/.",
    "/proc/1/cwd/x",
    "/proc/1/root/.",
    "/proc/1/root/v/*",
    "/proc/1/cwd",
    "/proc/1/root",
    "/proc/1/fd",
    "/proc/1/fdinfo",
    "/proc/1/status",
    "/proc/1/mounts",
];
/// The number of [`PATHS`] with which no call of another user succeeds. The others lead to entries
/// that every process may look at.
const FORBIDDEN: usize = 16;

/// A bit of a drawn path or address: it stands for one of the victim's paths.
pub(crate) const SECRET: i64 = 1 << 31;

/// Returns the victim's path that a number with the bit [`SECRET`] stands for, and whether another
/// user's call with it must fail.
pub(crate) fn path(number: i64) -> (Vec<u8>, bool) {
    let number = number as usize & (SECRET as usize - 1);
    let (index, digit) = (number % PATHS.len(), number / PATHS.len() % 6);
    let marker = String::from_utf8_lossy(MARKER);
    let path = PATHS[index].replace('*', &marker).replace('#', &digit.to_string());
    (path.into_bytes(), index < FORBIDDEN)
}

/// Returns the index of the marker in bytes that a call has returned.
pub(crate) fn find_marker(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == MARKER[0]) {
        from += at;
        if bytes[from..].starts_with(MARKER) {
            return Some(from);
        }
        from += 1;
    }
    None
}

/// Panics if bytes that a call has returned contain the marker.
pub(crate) fn check_bytes(bytes: &[u8]) {
    if let Some(at) = find_marker(bytes) {
        let around = &bytes[at.saturating_sub(40)..bytes.len().min(at + 40)];
        panic!(
            "a call returns bytes of user {USER}, at {at} of {}: {:?}",
            bytes.len(),
            String::from_utf8_lossy(around)
        );
    }
}

/// Returns whether a process is neither the victim nor ever able to become it: it has no
/// capability, and none of its users is root.
pub(crate) fn is_unprivileged(p: &Process) -> bool {
    p.capabilities().is_empty() && !p.getresuid().contains(&0)
}

/// The process, and the descriptors that it keeps.
#[derive(Debug)]
pub struct Victim {
    process: Process,
    kept: Vec<i32>,
}

fn secret(suffix: &str) -> String {
    format!("{DIRECTORY}/{}{suffix}", String::from_utf8_lossy(MARKER))
}

fn content() -> Vec<u8> {
    MARKER.iter().copied().cycle().take(LENGTH).collect()
}

impl Victim {
    /// Makes the victim: the first process of a kernel.
    ///
    /// # Errors
    ///
    /// Those of the calls.
    pub(crate) fn new(kernel: &Kernel) -> Result<Self, Errno> {
        let process = kernel.process()?;
        assert_eq!(process.getpid(), PID, "the victim is the first process");
        process.mkdir(DIRECTORY, 0o700)?;
        process.chown(DIRECTORY, USER, USER)?;
        process.setresgid(USER, USER, USER)?;
        process.setresuid(USER, USER, USER)?;
        process.set_dumpable(true);
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = process.open(secret(""), flags, 0o600)?;
        process.write(file, &content())?;
        process.mkdir(secret("-directory"), 0o700)?;
        process.chdir(secret("-directory"))?;
        process.mknod(secret("-pipe"), libc::S_IFIFO | 0o600, 0)?;
        let [_, write] = process.pipe2(O_NONBLOCK)?;
        process.write(write, MARKER)?;
        let socket = process.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)?;
        process.bind(socket, &address())?;
        process.listen(socket, 3)?;
        // A watch on any directory is told neither this name nor an event of the file.
        let memory = process.memfd_create(MARKER, 0)?;
        process.write(memory, MARKER)?;
        process.open(DIRECTORY, libc::O_DIRECTORY, 0)?;
        let kept = process.open_fds()?;
        Ok(Self { process, kept })
    }

    /// Returns the victim's file.
    ///
    /// # Errors
    ///
    /// Those of [`Process::file`].
    pub(crate) fn secret_file(&self) -> Result<FileHandle<'_>, Errno> {
        self.process.file(0)
    }

    /// Changes the victim's file.
    ///
    /// # Errors
    ///
    /// Those of [`Process::pwrite`].
    pub(crate) fn deface(&self) -> Result<usize, Errno> {
        self.process.pwrite(0, b"x", 4200)
    }

    /// Panics if a descriptor of another process is one of the victim's files.
    pub(crate) fn check_file(p: &Process, fd: i32) {
        let Ok(name) = p.fd_name(fd) else { return };
        let marked = String::from_utf8_lossy(MARKER);
        let entry = ["/proc/1/fd/", "/proc/1/fdinfo/"].iter().any(|path| name.starts_with(path));
        let object = name.starts_with("pipe:") || name.starts_with("socket:");
        let own = object && p.fstat(fd).is_ok_and(|stat| stat.st_uid == USER);
        // Every process may name the directory, and none but the victim may read it.
        let flags = p.fcntl(fd, libc::F_GETFL, 0).unwrap_or(libc::O_PATH);
        let list = name == "/proc/1/fd" && flags & libc::O_PATH == 0;
        assert!(
            !(own || entry || list || name.contains(&*marked)),
            "the descriptor {fd} of process {} is a file of user {USER}: {name}",
            p.getpid()
        );
    }

    /// Makes and ends files, and checks the bytes in them. Errors are no findings: another user may
    /// use up what the kernel has, and root may hide the tree.
    pub(crate) fn turn(&self, random: &mut Random) {
        let p = &self.process;
        let expected = content();
        let mut buffer = vec![0; LENGTH];
        let check = |what: &str, found: &[u8]| {
            let changed = found.iter().zip(&expected).position(|(found, byte)| found != byte);
            assert!(changed.is_none(), "{what} of user {USER} is changed at {changed:?}");
        };
        if let Ok(n) = p.pread(0, &mut buffer, 0) {
            assert_eq!(n, LENGTH, "the file of user {USER} has changed its length");
            check("the file", &buffer);
            let _ = p.pwrite(0, &expected, 0);
        }
        match random.below(5) {
            0 => {
                if let Ok(fd) = p.open(secret(""), libc::O_RDWR, 0) {
                    if let Ok(n) = p.read(fd, &mut buffer) {
                        check("the file", &buffer[..n]);
                    }
                    let _ = p.close(fd);
                }
            }
            1 => {
                if let Ok([read, write]) = p.pipe2(O_NONBLOCK) {
                    if let Ok(n) = p.write(write, &expected) {
                        let got = p.read(read, &mut buffer);
                        assert_eq!(got, Ok(n), "a pipe of user {USER} loses bytes");
                        check("a pipe", &buffer[..n]);
                    }
                    let _ = p.close(read);
                    let _ = p.close(write);
                }
            }
            2 => {
                if let Ok([one, two]) = p.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0) {
                    if let Ok(n) = p.write(one, MARKER) {
                        let got = p.read(two, &mut buffer);
                        assert_eq!(got, Ok(n), "a socket of user {USER} loses bytes");
                        check("a socket", &buffer[..n]);
                    }
                    let _ = p.close(one);
                    let _ = p.close(two);
                }
            }
            3 => {
                let name = secret(&format!("-{}", random.word()));
                if let Ok(fd) = p.open(&name, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600) {
                    let written = p.write(fd, &expected).unwrap_or(0);
                    if let Ok(n) = p.pread(fd, &mut buffer, 0) {
                        assert_eq!(n, written, "a new file of user {USER} loses bytes");
                        check("a new file", &buffer[..n]);
                    }
                    let _ = p.unlink(&name);
                    let _ = p.close(fd);
                }
            }
            _ => {
                if let Ok(fd) = p.memfd_create(MARKER, 0) {
                    let _ = p.write(fd, MARKER);
                    let _ = p.close(fd);
                }
            }
        }
    }

    /// Returns a finding if the victim has other descriptors than in the beginning.
    pub(crate) fn leak(&self) -> Option<String> {
        let now = self.process.open_fds().unwrap_or_default();
        (now != self.kept)
            .then(|| format!("the victim has the descriptors {now:?}, and had {:?}", self.kept))
    }
}

/// Returns the address of the victim's socket.
pub(crate) fn address() -> Vec<u8> {
    let mut bytes = (AF_UNIX as u16).to_ne_bytes().to_vec();
    bytes.extend(secret("-socket").into_bytes());
    bytes
}
