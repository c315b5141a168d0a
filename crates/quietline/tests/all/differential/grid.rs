//! Single calls over a whole grid of arguments.

use crate::differential::call::Call;
use crate::differential::compare::Report;
use crate::differential::host::Host;
use crate::differential::ours::Ours;
use quietline::abi::*;
use quietline::{EventFd, Protocol, SignalFd, Socket, TimerFd};
use std::path::Path;

/// Every argument of every call that makes a descriptor, with room for descriptors and without.
pub(crate) fn creating_calls() -> Vec<Call> {
    let mut calls = sockets();
    for flags in flag_words(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_NOTIFICATION_PIPE) {
        calls.push(Call::Pipe2 { flags });
    }
    for flags in flag_words(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK) {
        for count in [0, 1, 7, u32::MAX] {
            calls.push(Call::Eventfd { count, flags });
        }
    }
    for flags in flag_words(TFD_CLOEXEC | TFD_NONBLOCK) {
        for clock in (-20..40).chain([i32::MIN, 1 << 16, i32::MAX]) {
            calls.push(Call::Timerfd { clock, flags });
        }
    }
    for flags in flag_words(SFD_CLOEXEC | SFD_NONBLOCK) {
        for mask in [0, 1, 1 << 8 | 1 << 18, 1 << 63, u64::MAX] {
            for fd in [-1, -2, 0, 5, i32::MIN, i32::MAX] {
                calls.push(Call::Signalfd { fd, mask, flags });
            }
        }
    }
    calls
}

/// All combinations of `known` bits, and every single bit beside none and all of them.
fn flag_words(known: i32) -> Vec<i32> {
    let mut words = Vec::new();
    let mut subset = known;
    loop {
        words.push(subset);
        if subset == 0 {
            break;
        }
        subset = (subset - 1) & known;
    }
    for bit in (0..32).map(|n| 1 << n).filter(|bit| known & bit == 0) {
        words.extend([bit, bit | known]);
    }
    words
}

fn sockets() -> Vec<Call> {
    let mut calls = Vec::new();
    // On a host with modules each protocol that it does not know starts a search for one: fewer of them there.
    let stride = if Path::new("/proc/sys/kernel/modprobe").exists() { 29 } else { 1 };
    let named = [-1, 0, 1, 6, 17, 58, 132, 136, 255, 256, 262, 263, i32::MIN, i32::MAX];
    let protocols: Vec<i32> = (-1..=300).step_by(stride).chain(named).collect();
    let out_of_range = [i32::MIN, -2, -1, 46, 47, 48, 255, 65536, i32::MAX];
    for domain in (0..46).chain(out_of_range) {
        for ty in (0..=15).chain([-1, i32::MIN]) {
            match domain {
                // Packet sockets wait long when they are closed.
                AF_INET if ty == SOCK_PACKET => {
                    calls.push(Call::Socket { domain, ty, protocol: 0 })
                }
                AF_UNIX | AF_INET | AF_INET6 => {
                    calls.extend(protocols.iter().map(|&protocol| Call::Socket {
                        domain,
                        ty,
                        protocol,
                    }));
                }
                AF_PACKET if ty != SOCK_PACKET => {}
                _ => {
                    calls.extend([0, 1, 300].map(|protocol| Call::Socket { domain, ty, protocol }))
                }
            }
        }
    }
    for domain in [AF_UNIX, AF_INET, AF_INET6, 45, 46] {
        for ty in [0, SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, 11] {
            for flags in flag_words(SOCK_CLOEXEC | SOCK_NONBLOCK) {
                for protocol in [0, 6, 17, 300] {
                    calls.push(Call::Socket { domain, ty: ty | (flags & !0xf), protocol });
                }
            }
        }
    }
    calls
}

/// The step by which the grids are thinned by default. It divides none of their sides.
pub(super) const THINNED: usize = 11;

/// Makes each call alone: with room for 64 descriptors, with room for one, and with none.
pub(crate) fn run_creating(host: &mut Host, report: &mut Report) -> Result<(), String> {
    let stride = quietline_testing::stride(THINNED);
    for call in creating_calls().into_iter().step_by(stride) {
        for nofile in [64, 1, 0] {
            if nofile == 1 && !matches!(call, Call::Pipe2 { .. }) {
                continue;
            }
            host.reset(nofile);
            let ours = Ours::new(host.privileged, nofile);
            if let Some(Ok((fd, _))) = report.step(host, &ours, call)? {
                same_objects(host, &ours, call, fd)?;
            }
            ours.assert_clean();
        }
    }
    Ok(())
}

/// Compares what is behind a new descriptor.
fn same_objects(host: &Host, ours: &Ours, call: Call, fd: i32) -> Result<(), String> {
    let file = ours.process.file(fd).expect("open");
    let mine: Vec<String>;
    let theirs: Vec<String>;
    match call {
        Call::Socket { .. } => {
            let socket = file.payload::<Socket>().expect("a socket");
            let number = match socket.protocol() {
                Protocol::Unix => 0,
                Protocol::Tcp => IPPROTO_TCP,
                Protocol::Udp => IPPROTO_UDP,
                Protocol::UdpLite => IPPROTO_UDPLITE,
                Protocol::Raw(n) => n.into(),
            };
            mine = [socket.family(), socket.ty(), number].map(|n| n.to_string()).to_vec();
            theirs = [libc::SO_DOMAIN, libc::SO_TYPE, libc::SO_PROTOCOL]
                .map(|option| host.socket_option(fd, option).to_string())
                .to_vec();
            same_mode(host, fd, file.pseudo_mode().expect("its own"))?;
        }
        Call::Pipe2 { .. } => {
            return same_mode(host, fd, file.pseudo_mode().expect("its own"));
        }
        Call::Eventfd { .. } => {
            let event = file.payload::<EventFd>().expect("an eventfd");
            mine = vec![format!("{:x}", event.count()), u8::from(event.is_semaphore()).to_string()];
            theirs = vec![
                host.fdinfo(fd, "eventfd-count").unwrap_or_else(|| mine[0].clone()),
                // Older hosts do not show it.
                host.fdinfo(fd, "eventfd-semaphore").unwrap_or_else(|| mine[1].clone()),
            ];
        }
        Call::Timerfd { .. } => {
            mine = vec![file.payload::<TimerFd>().expect("a timerfd").clockid.to_string()];
            theirs = vec![host.fdinfo(fd, "clockid").unwrap_or_else(|| mine[0].clone())];
        }
        Call::Signalfd { .. } => {
            mine = vec![format!("{:016x}", file.payload::<SignalFd>().expect("a signalfd").mask())];
            theirs = vec![host.fdinfo(fd, "sigmask").unwrap_or_else(|| mine[0].clone())];
        }
        _ => return Ok(()),
    }
    if mine == theirs {
        Ok(())
    } else {
        Err(format!("{call:?} made: host {theirs:?}, quietline {mine:?}"))
    }
}

fn same_mode(host: &Host, fd: i32, mine: u32) -> Result<(), String> {
    let theirs = host.mode(fd);
    if mine == theirs { Ok(()) } else { Err(format!("mode: host {theirs:o}, quietline {mine:o}")) }
}

/// One descriptor of each kind, at 0 to 8, on both sides.
fn one_of_each(host: &mut Host, ours: &Ours, report: &mut Report) -> Result<(), String> {
    let kinds = [
        Call::Socket { domain: AF_INET, ty: SOCK_STREAM, protocol: 0 },
        Call::Socket { domain: AF_UNIX, ty: SOCK_DGRAM | SOCK_CLOEXEC, protocol: 0 },
        Call::Pipe2 { flags: O_NONBLOCK },
        Call::Eventfd { count: 1, flags: 0 },
        Call::Timerfd { clock: CLOCK_MONOTONIC, flags: TFD_CLOEXEC },
        Call::Signalfd { fd: -1, mask: 1, flags: 0 },
        Call::Pipe2 { flags: O_DIRECT },
    ];
    kinds.iter().try_for_each(|&call| report.step_without_state(host, ours, call))
}

/// Descriptors, among them some that are not open.
const FDS: [i32; 14] = [i32::MIN, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, i32::MAX];
/// Numbers around the limit that is set below.
const NUMBERS: [i32; 13] = [i32::MIN, -1, 0, 3, 9, 10, 15, 16, 17, 63, 64, 1 << 20, i32::MAX];
const LIMIT: usize = 16;

/// Every call on a descriptor, on one of each kind.
pub(crate) fn run_using(host: &mut Host, report: &mut Report) -> Result<(), String> {
    let mut calls = Vec::new();
    for fd in FDS {
        calls.extend([Call::Dup { fd }, Call::Close { fd }]);
        for cmd in (-2..64).chain(1020..1060).chain([i32::MIN, 2000, i32::MAX]) {
            // Commands that would wait, or signal somebody, are not tried.
            if !matches!(cmd, 8 | 10 | 15) {
                calls.push(Call::Fcntl { fd, cmd, arg: 0 });
            }
        }
        for bit in (0..64).map(|n| 1u64 << n).chain([u64::MAX]) {
            calls.push(Call::Fcntl { fd, cmd: F_SETFL, arg: bit });
            calls.push(Call::Fcntl { fd, cmd: F_SETFD, arg: bit });
        }
        for n in NUMBERS {
            calls.push(Call::Fcntl { fd, cmd: F_DUPFD, arg: n as u64 });
            calls.push(Call::Fcntl { fd, cmd: F_DUPFD_CLOEXEC, arg: n as u64 });
            calls.push(Call::Dup2 { old: fd, new: n });
            calls.extend(flag_words(O_CLOEXEC).into_iter().map(|flags| Call::Dup3 {
                old: fd,
                new: n,
                flags,
            }));
        }
        for flags in flag_words(SFD_CLOEXEC | SFD_NONBLOCK) {
            calls.push(Call::Signalfd { fd, mask: 6, flags });
        }
    }
    let edges = [0, 1, 4, 9, 15, 16, 64, 1 << 20, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    for first in edges {
        for last in edges {
            for flags in [0, 1, 2, 4, 6, 7, 8, 1 << 31] {
                calls.push(Call::CloseRange { first, last, flags });
            }
        }
    }
    let mut ours = Ours::new(host.privileged, LIMIT);
    let mut fresh = false;
    for call in calls.into_iter().step_by(quietline_testing::stride(THINNED)) {
        for limit in [LIMIT, 9, 4, 0] {
            if !fresh {
                host.reset(LIMIT);
                ours = Ours::new(host.privileged, LIMIT);
                one_of_each(host, &ours, report)?;
            }
            report.step(host, &ours, Call::Limit { nofile: limit })?;
            // A call that failed has changed nothing, which `step` has just seen.
            fresh = matches!(report.step(host, &ours, call)?, Some(Err(_)));
            if !matches!(
                call,
                Call::Fcntl { cmd: F_DUPFD | F_DUPFD_CLOEXEC, .. } | Call::Dup { .. }
            ) && !matches!(call, Call::Dup2 { .. } | Call::Dup3 { .. } | Call::Signalfd { .. })
            {
                break;
            }
        }
    }
    Ok(())
}
