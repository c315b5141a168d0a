//! Processor affinity, mappings and child processes, for the tests.

use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The CPUs that the calling thread may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&c| libc::CPU_ISSET(c, &set)).collect()
    }
}

/// Keeps the calling thread on one CPU.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Runs `f` in a forked child, which must come to its end within `seconds`.
///
/// # Panics
/// In the parent, when the child panicked, died, or took too long.
pub(crate) fn in_child(seconds: u32, f: impl FnOnce()) {
    // SAFETY: the child uses what the library says a child may use, and the C library's heap, which survives forks.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: a child that hangs is ended by the signal; nothing of the process is used after _exit.
            unsafe {
                libc::signal(libc::SIGALRM, libc::SIG_DFL);
                libc::alarm(seconds);
                libc::_exit(if catch_unwind(AssertUnwindSafe(f)).is_ok() { 0 } else { 101 })
            }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child and the status are ours.
            while unsafe { libc::waitpid(pid, &mut status, 0) } == -1 {
                let error = std::io::Error::last_os_error();
                assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
            }
            let ended = if libc::WIFSIGNALED(status) { "signal" } else { "exit" };
            assert_eq!(
                status,
                0,
                "child: {ended} {} {}",
                libc::WTERMSIG(status),
                libc::WEXITSTATUS(status)
            );
        }
    }
}

/// A mapping of this process: its addresses, its permissions and its name.
pub(crate) struct Mapping {
    pub(crate) range: Range<usize>,
    pub(crate) permissions: String,
    pub(crate) name: String,
}

/// Returns the mappings of this process.
pub(crate) fn mappings() -> Vec<Mapping> {
    let address = |digits: &str| usize::from_str_radix(digits, 16).unwrap();
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let permissions = fields.next().unwrap().to_owned();
        let name = fields.nth(3).unwrap_or_default().to_owned();
        Mapping { range: address(start)..address(end), permissions, name }
    };
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().map(parse).collect()
}
