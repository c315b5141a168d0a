//! The host kernel's side: real system calls, on a thread with a descriptor table of its own.

use crate::differential::call::{Call, Outcome};
use crate::differential::state::{Open, Raw, abstracted};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

/// Who makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Root, if the test runs as root.
    Root,
    /// A user without any rights.
    Nobody,
}

/// A thread's own descriptor table on the host.
#[derive(Debug)]
pub(crate) struct Host {
    /// Whether the thread has the capabilities that the calls ask for.
    pub(crate) privileged: bool,
    /// Descriptors from here on have never been open.
    end: i32,
    /// Whether the host lets us ask whether two descriptors are of one open file.
    kcmp: bool,
    tid: libc::pid_t,
}

/// The limit is the whole process's: one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

/// Runs `f` on a thread that has no descriptors at all, as `who`. What `f` does to descriptors and limits touches
/// nobody else.
pub(crate) fn on_bare_thread<R: Send>(who: Who, f: impl FnOnce(&mut Host) -> R + Send) -> R {
    let _one_at_a_time = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let before = limits();
    let result = std::thread::scope(|scope| {
        let bare = scope.spawn(|| f(&mut Host::enter(who)));
        bare.join()
    });
    set_limits(before);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn limits() -> libc::rlimit {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) }, 0);
    limits
}

fn set_limits(limits: libc::rlimit) {
    // SAFETY: reads the structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) };
    assert_eq!(set, 0, "below the hard limit: {limits:?}");
}

/// A system call with integers (or pointers that live long enough) as arguments.
macro_rules! sys {
    ($number:ident $(, $arg:expr)*) => {{
        // SAFETY: descriptors are the thread's own, so no one else's can be closed; pointers are valid for the call.
        let value = unsafe { libc::syscall(libc::$number $(, $arg)*) };
        if value < 0 { Err(errno()) } else { Ok(value as i32) }
    }};
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a system call failed")
}

const CAP_FOWNER: u32 = 3;
const CAP_NET_RAW: u32 = 13;
const CAP_WAKE_ALARM: u32 = 35;

/// Whether the calling thread has all, or none, of the capabilities that matter.
fn capable() -> bool {
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    sys!(SYS_capget, header.as_ptr(), sets.as_mut_ptr()).expect("capget");
    let effective = u64::from(sets[0]) | u64::from(sets[3]) << 32;
    let matter = 1 << CAP_FOWNER | 1 << CAP_NET_RAW | 1 << CAP_WAKE_ALARM;
    let has = effective & matter;
    assert!(
        has == 0 || has == matter,
        "a user with some of root's rights has no like here: {effective:#x}"
    );
    has != 0
}

impl Host {
    fn enter(who: Who) -> Self {
        // SAFETY: from here on the thread's table is a copy.
        let unshared = unsafe { libc::unshare(libc::CLONE_FILES) };
        assert_eq!(unshared, 0, "a table of one's own is for everybody");
        sys!(SYS_close_range, 0u32, u32::MAX, 0u32).expect("close_range");
        if who == Who::Nobody {
            const NOBODY: u32 = 65534;
            // The bare calls change the calling thread alone. Without root there is nothing to give up.
            let _ = sys!(SYS_setresgid, NOBODY, NOBODY, NOBODY);
            let _ = sys!(SYS_setresuid, NOBODY, NOBODY, NOBODY);
        }
        // SAFETY: asks for a number.
        let tid = unsafe { libc::gettid() };
        let mut host = Self { privileged: capable(), end: 0, kcmp: false, tid };
        let event = sys!(SYS_eventfd2, 0, 0).expect("eventfd");
        host.kcmp = sys!(SYS_kcmp, tid, tid, 0, event, event) == Ok(0);
        sys!(SYS_close, event).expect("close");
        host
    }

    /// Whether open files can be told apart.
    pub(crate) fn tells_files(&self) -> bool {
        self.kcmp
    }

    /// Back to no descriptors, and this limit.
    pub(crate) fn reset(&mut self, nofile: usize) {
        sys!(SYS_close_range, 0u32, u32::MAX, 0u32).expect("close_range");
        self.end = 0;
        self.set_limit(nofile);
    }

    fn set_limit(&mut self, nofile: usize) {
        set_limits(libc::rlimit { rlim_cur: nofile as libc::rlim_t, ..limits() });
        self.end = self.end.max(nofile as i32);
    }

    /// Makes a call.
    pub(crate) fn call(&mut self, call: Call) -> Outcome {
        let value = match call {
            Call::Socket { domain, ty, protocol } => sys!(SYS_socket, domain, ty, protocol),
            Call::Pipe2 { flags } => {
                let mut fds = [-1i32; 2];
                return sys!(SYS_pipe2, fds.as_mut_ptr(), flags).map(|_| (fds[0], Some(fds[1])));
            }
            Call::Eventfd { count, flags } => sys!(SYS_eventfd2, count, flags),
            Call::Timerfd { clock, flags } => sys!(SYS_timerfd_create, clock, flags),
            Call::Signalfd { fd, mask, flags } => {
                sys!(SYS_signalfd4, fd, &raw const mask, size_of::<u64>(), flags)
            }
            Call::Dup { fd } => sys!(SYS_dup, fd),
            // SAFETY: the thread's own descriptors. Not every machine has the call by number.
            Call::Dup2 { old, new } => match unsafe { libc::dup2(old, new) } {
                fd if fd < 0 => Err(errno()),
                fd => Ok(fd),
            },
            Call::Dup3 { old, new, flags } => sys!(SYS_dup3, old, new, flags),
            Call::Fcntl { fd, cmd, arg } => sys!(SYS_fcntl, fd, cmd, arg),
            Call::Close { fd } => sys!(SYS_close, fd),
            Call::CloseRange { first, last, flags } => sys!(SYS_close_range, first, last, flags),
            Call::Limit { nofile } => {
                self.set_limit(nofile);
                Ok(0)
            }
        };
        value.map(|value| (value, None))
    }

    /// The open descriptors.
    pub(crate) fn snapshot(&self) -> Vec<Open> {
        let mut open = Vec::new();
        for fd in 0..=self.end {
            let Ok(fd_flags) = sys!(SYS_fcntl, fd, libc::F_GETFD, 0) else { continue };
            let status = sys!(SYS_fcntl, fd, libc::F_GETFL, 0).expect("the descriptor is open");
            open.push(Raw { fd, fd_flags, status, name: name(fd) });
        }
        abstracted(&open, |a, b| self.same_file(a, b))
    }

    fn same_file(&self, a: i32, b: i32) -> bool {
        const KCMP_FILE: i32 = 0;
        self.kcmp && sys!(SYS_kcmp, self.tid, self.tid, KCMP_FILE, a, b) == Ok(0)
    }

    /// A socket option that is a number.
    pub(crate) fn socket_option(&self, fd: i32, option: i32) -> i32 {
        let (mut value, mut length) = (0i32, size_of::<i32>() as u32);
        sys!(SYS_getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut length)
            .expect("getsockopt");
        value
    }

    /// A line of `/proc/self/fdinfo/FD`, without its name.
    pub(crate) fn fdinfo(&self, fd: i32, line: &str) -> Option<String> {
        let text =
            std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}")).expect("fdinfo");
        text.lines().find_map(|l| Some(l.strip_prefix(line)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// Type and permissions of the file.
    pub(crate) fn mode(&self, fd: i32) -> u32 {
        // SAFETY: all zeroes are a value of this structure of numbers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: writes the structure.
        assert_eq!(unsafe { libc::fstat(fd, &mut stat) }, 0);
        stat.st_mode
    }
}

fn name(fd: i32) -> String {
    let path = CString::new(format!("/proc/thread-self/fd/{fd}")).expect("no zero in it");
    let mut buffer = [0u8; 64];
    let length =
        sys!(SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len())
            .expect("the descriptor is open");
    String::from_utf8_lossy(&buffer[..length as usize]).into_owned()
}
