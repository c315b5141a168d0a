//! The differences that are meant, in one place. Each says what it allows on our side, so that it hides no more.

use crate::differential::call::{Call, Outcome};
use quietline::abi::*;

/// Why the two outcomes may differ, if they may.
pub(crate) fn explained(call: Call, host: Outcome, ours: Outcome) -> Option<&'static str> {
    if host == ours {
        return None;
    }
    if call.wants_any_fd() {
        return (host == Err(libc::EINVAL) || matches!(call, Call::Socket { .. }))
            .then_some("O_ANYFD is a flag of quietline's; the host knows no such bit");
    }
    match call {
        Call::Socket { domain, ty, protocol } => socket(domain, ty, protocol, host, ours),
        Call::Pipe2 { flags } => (flags & O_NOTIFICATION_PIPE != 0 && ours == Err(libc::ENOPKG)).then_some(
            "no notification pipes: they carry the kernel's key and mount events, which quietline has not",
        ),
        Call::Fcntl { cmd, .. } => (offered_elsewhere(cmd) && ours == Err(libc::EINVAL)).then_some(
            "an fcntl command of a part that quietline has not yet: locks, owners, signals, leases, seals, pipe \
             sizes, hints",
        ),
        _ => None,
    }
}

fn socket(
    domain: i32,
    ty: i32,
    protocol: i32,
    host: Outcome,
    ours: Outcome,
) -> Option<&'static str> {
    const AF_MAX: i32 = 46;
    const SCTP: i32 = 132;
    const DCCP: i32 = 33;
    const L2TP: i32 = 115;
    const SMC: i32 = 256;
    const MPTCP: i32 = 262;
    let bare = ty & 0xf;
    let internet = domain == AF_INET || domain == AF_INET6;
    let no_family = ours == Err(libc::EAFNOSUPPORT);
    let no_protocol = ours == Err(libc::EPROTONOSUPPORT);
    let no_type = ours == Err(libc::ESOCKTNOSUPPORT);
    match () {
        () if !internet && domain != AF_UNIX && (0..AF_MAX).contains(&domain) && no_family => {
            Some("a family that the host has and quietline has not: netlink, packet, vsock, ...")
        }
        () if domain == AF_INET && bare == SOCK_PACKET && no_family => {
            Some("SOCK_PACKET on AF_INET means AF_PACKET, a family that quietline has not")
        }
        () if internet && bare == SOCK_STREAM && protocol == MPTCP && no_protocol => {
            Some("multipath TCP is not offered, as on a host without CONFIG_MPTCP")
        }
        () if internet
            && matches!(protocol, SCTP | DCCP | L2TP | SMC)
            && (no_protocol || no_type) =>
        {
            Some("a protocol that is a module of the host: SCTP, DCCP, L2TP, SMC")
        }
        () if internet && bare == SOCK_DGRAM && ours == Err(libc::EACCES) && host.is_ok() => {
            Some("echo sockets: the host's administrator set net.ipv4.ping_group_range")
        }
        () if internet && protocol == IPPROTO_UDPLITE && host == Err(libc::EPROTONOSUPPORT) => {
            Some("UDP-Lite: hosts after 6.18 may not have it any more")
        }
        () if domain == AF_INET6 && host == Err(libc::EAFNOSUPPORT) => {
            Some("IPv6 is switched off on the host")
        }
        () => None,
    }
}

/// Commands that Linux has beyond those for descriptors and status flags.
fn offered_elsewhere(cmd: i32) -> bool {
    let classic = 5..=17; // locks, owner, signal, owner's ids
    let open_file_locks = 36..=38;
    let linux = 1024..=1050; // leases, notification, comparison, pipe sizes, seals, hints, delegations
    classic.contains(&cmd)
        || open_file_locks.contains(&cmd)
        || (linux.contains(&cmd) && cmd != F_DUPFD_CLOEXEC)
}
