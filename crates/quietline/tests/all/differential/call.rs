//! The calls that are made on both sides.

use quietline::abi::*;

/// A system call with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Socket {
        domain: i32,
        ty: i32,
        protocol: i32,
    },
    Pipe2 {
        flags: i32,
    },
    Eventfd {
        count: u32,
        flags: i32,
    },
    Timerfd {
        clock: i32,
        flags: i32,
    },
    Signalfd {
        fd: i32,
        mask: u64,
        flags: i32,
    },
    Dup {
        fd: i32,
    },
    Dup2 {
        old: i32,
        new: i32,
    },
    Dup3 {
        old: i32,
        new: i32,
        flags: i32,
    },
    Fcntl {
        fd: i32,
        cmd: i32,
        arg: u64,
    },
    Close {
        fd: i32,
    },
    CloseRange {
        first: u32,
        last: u32,
        flags: u32,
    },
    /// `setrlimit(RLIMIT_NOFILE)`.
    Limit {
        nofile: usize,
    },
}

impl Call {
    /// Whether the flags have quietline's own bit, which the host does not know.
    pub(crate) fn wants_any_fd(self) -> bool {
        let flags = match self {
            Call::Socket { ty: flags, .. }
            | Call::Pipe2 { flags }
            | Call::Eventfd { flags, .. }
            | Call::Timerfd { flags, .. }
            | Call::Signalfd { flags, .. } => flags,
            _ => 0,
        };
        flags & O_ANYFD != 0
    }
}

/// What a call returned: the value, and for a pipe its second descriptor; or the error's number.
pub(crate) type Outcome = Result<(i32, Option<i32>), i32>;
