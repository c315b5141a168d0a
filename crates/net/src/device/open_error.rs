//! Why a device of the host cannot be used.

use core::fmt;
use rustix::io::Errno;

/// What was tried, what the host said, and what that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError {
    pub(super) tried: &'static str,
    pub(super) errno: Errno,
    pub(super) hint: &'static str,
}

impl OpenError {
    /// What the host said.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    pub(super) const NAME: Self = Self {
        tried: "take the name of an interface",
        errno: Errno::INVAL,
        hint: "a name has 1 to 15 bytes, and no space or `/`",
    };

    /// A failed step on a device of the host.
    pub(super) fn of(tried: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { tried, errno, hint: hint(errno) }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "that needs root, or CAP_NET_ADMIN for a TAP device and CAP_NET_RAW for a packet socket"
        }
        Errno::NOENT => {
            "there is no /dev/net/tun: load the module `tun`, or give the container that device"
        }
        Errno::NODEV | Errno::NXIO => {
            "there is no interface of that name in this network namespace"
        }
        Errno::BUSY => "another program has it",
        Errno::INVAL => "it is no interface of that kind",
        Errno::NOTUNIQ => "it is there and of another kind",
        Errno::NETDOWN => "it is down: `ip link set NAME up`",
        Errno::AFNOSUPPORT => "this kernel has no packet sockets",
        Errno::NOMEM | Errno::NOBUFS => "there is no memory",
        _ => "see the error",
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {} ({})", self.tried, self.errno, self.hint)
    }
}

impl std::error::Error for OpenError {}
