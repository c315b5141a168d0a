//! The host's answers: the same questions about a forked process, asked by another one.
#![allow(unsafe_code, reason = "system calls of the host, in children")]

use super::{Answer, FD, Ids, NO_DIRECTORY, Question, WalkStart};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::PermissionsExt;

/// Whether this program may become every user of the host, and every user may walk from its root.
pub(super) fn is_usable() -> bool {
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() == 0 };
    is_root && std::fs::metadata("/").is_ok_and(|root| root.permissions().mode() & 0o1 != 0)
}

/// A child of this program, which is ended when this is dropped.
struct Child(i32);

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: ends and reaps our own child.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Forks a child that calls `f`, writes the result into a pipe, and waits to be ended.
fn child<const N: usize>(f: impl FnOnce() -> [i64; N]) -> (Child, [i64; N]) {
    let mut ends = [0; 2];
    // SAFETY: the child uses system calls and the C library's heap, which survives forks.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        match libc::fork() {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                let answers = f();
                libc::write(ends[1], answers.as_ptr().cast(), size_of_val(&answers));
                libc::close(ends[1]);
                loop {
                    libc::pause();
                }
            }
            pid => {
                libc::close(ends[1]);
                let child = Child(pid);
                let mut bytes = Vec::new();
                let mut file = File::from_raw_fd(ends[0]).take(size_of::<[i64; N]>() as u64);
                file.read_to_end(&mut bytes).expect("a pipe");
                assert_eq!(bytes.len(), size_of::<[i64; N]>(), "the child failed");
                let mut answers = [0; N];
                for (answer, bytes) in answers.iter_mut().zip(bytes.as_chunks().0) {
                    *answer = i64::from_ne_bytes(*bytes);
                }
                (child, answers)
            }
        }
    }
}

fn become_user(ids: &Ids) {
    // SAFETY: calls of the child on itself; the structures are as the kernel wants them.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        // By way of the kernel: the C library would ask other threads, which are gone.
        let [real, effective, saved] = ids.gids;
        assert_eq!(libc::syscall(libc::SYS_setresgid, real, effective, saved), 0);
        let [real, effective, saved] = ids.uids;
        assert_eq!(libc::syscall(libc::SYS_setresuid, real, effective, saved), 0);
        if let Some(capabilities) = ids.capabilities {
            let (low, high) = (capabilities as u32, (capabilities >> 32) as u32);
            let header = [0x2008_0522_u32, 0];
            let data = [low, low, 0, high, high, 0];
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()), 0);
        }
        if ids.dumpable {
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
    }
}

fn errno() -> i64 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0).into()
}

fn opened(at: i32, path: &CString, flags: i32, read: bool) -> i64 {
    // SAFETY: a path that ends with a zero, and a buffer of our own.
    unsafe {
        let fd = libc::openat(at, path.as_ptr(), flags | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return errno();
        }
        let mut byte = 0_u8;
        let error = if read && libc::read(fd, (&raw mut byte).cast(), 1) < 0 { errno() } else { 0 };
        libc::close(fd);
        error
    }
}

fn ask(question: &Question, pid: i32) -> Answer {
    let path = format!("/proc/{pid}/{}", question.path);
    let (dir, name) = path.rsplit_once('/').expect("an absolute path");
    let [path, dir, name] =
        [&path, dir, name].map(|path: &str| CString::new(path).expect("no zero in it"));
    // SAFETY: paths that end with a zero; the descriptor is our own.
    unsafe {
        match question.start {
            WalkStart::Root => ask_from(question, libc::AT_FDCWD, &path),
            WalkStart::Descriptor => match libc::open(dir.as_ptr(), libc::O_PATH) {
                -1 => [errno(), NO_DIRECTORY, 0, 0],
                fd => {
                    let answer = ask_from(question, fd, &name);
                    libc::close(fd);
                    answer
                }
            },
            WalkStart::Cwd if libc::chdir(dir.as_ptr()) < 0 => [errno(), NO_DIRECTORY, 0, 0],
            WalkStart::Cwd => {
                let answer = ask_from(question, libc::AT_FDCWD, &name);
                libc::chdir(c"/".as_ptr());
                answer
            }
        }
    }
}

fn ask_from(question: &Question, at: i32, path: &CString) -> Answer {
    let tell = |result: i32| if result < 0 { errno() } else { 0 };
    let none = |error| [error, 0, 0, 0];
    let described = |flags: i32| {
        // SAFETY: a path that ends with a zero, and a structure of our own.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (tell(libc::fstatat(at, path.as_ptr(), &mut stat, flags)), stat)
        }
    };
    // SAFETY: a path that ends with a zero; buffers of our own.
    unsafe {
        match question.call {
            "readlink" => {
                let (mut buffer, len) = ([0_u8; 200], 200);
                let buffer = buffer.as_mut_ptr().cast();
                none(tell(libc::readlinkat(at, path.as_ptr(), buffer, len) as i32))
            }
            "lstat" => match described(libc::AT_SYMLINK_NOFOLLOW) {
                (0, stat) => [0, stat.st_mode.into(), stat.st_uid.into(), stat.st_gid.into()],
                (error, _) => none(error),
            },
            "stat" => none(described(0).0),
            "open" => none(opened(at, path, libc::O_RDONLY, false)),
            "open or create" => none(opened(at, path, libc::O_RDONLY | libc::O_CREAT, false)),
            "open a path" => none(opened(at, path, libc::O_PATH, false)),
            "read" => none(opened(at, path, libc::O_RDONLY, true)),
            "chdir" => {
                let error = tell(libc::chdir(path.as_ptr()));
                libc::chdir(c"/".as_ptr());
                none(error)
            }
            "access" => none(tell(libc::faccessat(at, path.as_ptr(), question.mode, 0))),
            "eaccess" => {
                none(tell(libc::faccessat(at, path.as_ptr(), question.mode, libc::AT_EACCESS)))
            }
            call => unreachable!("{call}"),
        }
    }
}

/// Asks the questions about the process `target` as the process `caller`, or as the target itself.
pub(super) fn answers(target: &Ids, caller: Option<&Ids>, questions: &[Question]) -> Vec<Answer> {
    const MOST: usize = 256;
    assert!(questions.len() <= MOST, "room for the answers");
    let all = |pid: i32| {
        let mut answers = [0; 4 * MOST];
        for (question, answer) in questions.iter().zip(answers.as_chunks_mut().0) {
            *answer = ask(question, pid);
        }
        answers
    };
    let (target, mut told) = child(|| {
        // SAFETY: a descriptor that nothing else has.
        unsafe {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            assert_eq!(libc::dup2(null, FD), FD, "{}", std::io::Error::last_os_error());
            become_user(target);
            match caller {
                Some(_) => [0; 4 * MOST],
                None => all(libc::getpid()),
            }
        }
    });
    if let Some(caller) = caller {
        (_, told) = child(|| {
            become_user(caller);
            all(target.0)
        });
    }
    told.as_chunks().0[..questions.len()].to_vec()
}
