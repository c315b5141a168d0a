//! What the processes of a round leave in a kernel when they have ended: descriptors, process
//! numbers, ports and names of sockets, and counts of limits.
//!
//! Each check adds its findings as lines of text. A planted fault is an occupant that holds what
//! the check looks for.

use crate::calls::rights;
use crate::kind::{ABSTRACT_NAMES, NOFILE, PORTS, USERS, abstract_name};
use crate::plant::Plant;
use crate::victim;
use quietline::abi::{
    AF_INET, AF_INET6, AF_UNIX, EPOLL_CTL_ADD, MSG_DONTWAIT, O_ANYFD, O_NONBLOCK, SOCK_DGRAM,
    SOCK_SEQPACKET, SOCK_STREAM,
};
use quietline::{EpollEvent, Errno, Kernel, Process, SendMsg};

/// The limit to which counts are checked.
const FEW: usize = 2;
/// The first and the last port that the kernel chooses.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Checks that a process can open as many descriptors as its limit allows, in order, when it has
/// closed all.
pub(crate) fn check_descriptors(p: &Process, plant: Option<Plant>, findings: &mut Vec<String>) {
    let pid = p.getpid();
    let closed = p.set_nofile(NOFILE).and_then(|()| p.close_range(0, u32::MAX, 0));
    if let Err(errno) = closed {
        findings.push(format!("process {pid} cannot close all descriptors: {errno}"));
        return;
    }
    if plant == Some(Plant::Descriptor) {
        let _ = p.eventfd(0, 0);
    }
    match p.open_fds() {
        Ok(open) if open.is_empty() => {}
        open => {
            findings.push(format!("process {pid} has descriptors when all are closed: {open:?}"))
        }
    }
    if plant == Some(Plant::Reserved) {
        let _ = p.set_nofile(NOFILE - 1);
    }
    for any in [0, O_ANYFD] {
        let opened: Vec<_> = (0..NOFILE).map(|_| p.eventfd(0, any)).collect();
        let in_order = opened.iter().zip(0..).all(|(fd, n)| *fd == Ok(n));
        if !(in_order || any != 0 && opened.iter().all(Result::is_ok)) {
            let good = opened.iter().filter(|fd| fd.is_ok()).count();
            findings.push(format!(
                "process {pid} opens {good} of {NOFILE} descriptors (flags {any:#x}): {opened:?}"
            ));
        }
        if p.eventfd(0, any) != Err(Errno::MFILE) {
            findings.push(format!("process {pid} opens more descriptors than its limit"));
        }
        let _ = p.close_range(0, u32::MAX, 0);
    }
}

/// Checks that no process has a number but the caller's own.
pub(crate) fn check_pids(p: &Process, findings: &mut Vec<String>) {
    let left: Vec<_> = (1..p.getpid()).filter(|pid| p.kill(*pid, 0) != Err(Errno::SRCH)).collect();
    if !left.is_empty() {
        findings.push(format!("processes are left: {left:?}"));
    }
}

/// Checks that the ports and names that were drawn can be bound again; with `sweep`, also each port
/// that the kernel chooses.
pub(crate) fn check_names(p: &Process, sweep: bool, findings: &mut Vec<String>) {
    let mut bind = |domain: i32, ty: i32, address: &[u8], what: &dyn Fn() -> String| {
        let bound = p.socket(domain, ty, 0).and_then(|socket| {
            let bound = p.bind(socket, address);
            p.close(socket)?;
            bound
        });
        if let Err(errno) = bound {
            findings.push(format!("{} cannot be bound: {errno}", what()));
        }
    };
    let ports = PORTS.iter().copied().chain(EPHEMERAL.filter(|_| sweep));
    for port in ports {
        for (domain, length) in [(AF_INET, 16), (AF_INET6, 28)] {
            let mut address = (domain as u16).to_ne_bytes().to_vec();
            address.extend(port.to_be_bytes());
            address.resize(length, 0);
            for (ty, name) in [(SOCK_STREAM, "TCP"), (SOCK_DGRAM, "UDP")] {
                bind(domain, ty, &address, &|| format!("port {port} of {name}, family {domain}"));
            }
        }
    }
    for number in 0..ABSTRACT_NAMES {
        for ty in [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET] {
            bind(AF_UNIX, ty, &abstract_name(number), &|| {
                format!("the local name {number} of type {ty}")
            });
        }
    }
}

/// Checks that each user has as much as the limits allow. `root` has a tree of its own making.
///
/// # Errors
///
/// Those of the calls that prepare the check.
pub(crate) fn check_limits(
    kernel: &Kernel,
    root: &Process,
    findings: &mut Vec<String>,
) -> Result<(), Errno> {
    root.umask(0);
    for directory in ["/proc", "/w0", "/w1", "/w2"] {
        root.mkdir(directory, 0o777)?;
    }
    match root.mount("", "/proc", "proc", 0) {
        // The guest has detached the root, with `/proc` and its settings: nothing can be mounted.
        Err(Errno::INVAL) => {
            let made = ["/proc", "/w0", "/w1", "/w2"];
            return made.into_iter().try_for_each(|directory| root.rmdir(directory));
        }
        mounted => mounted?,
    }
    for limit in
        ["inotify/max_user_instances", "inotify/max_user_watches", "epoll/max_user_watches"]
    {
        let fd = root.open(format!("/proc/sys/fs/{limit}"), libc::O_WRONLY, 0)?;
        root.write(fd, FEW.to_string().as_bytes())?;
        root.close(fd)?;
    }
    for &user in USERS.iter().chain(&[victim::USER]) {
        let p = kernel.process()?;
        p.setresuid(user, user, user)?;
        let mut expect =
            |what: &str, end: Errno, mut take: Box<dyn FnMut(usize) -> Result<(), Errno> + '_>| {
                let taken: Vec<_> = (0..=FEW).map(&mut take).collect();
                if !(taken[..FEW].iter().all(Result::is_ok) && taken[FEW] == Err(end)) {
                    findings.push(format!("user {user} has no {FEW} {what}: {taken:?}"));
                }
            };
        expect(
            "inotify instances",
            Errno::MFILE,
            Box::new(|_| p.inotify_init1(O_NONBLOCK).map(drop)),
        );
        let watch = |n: usize| {
            p.inotify_add_watch(0, format!("/w{n}"), quietline::inotify::IN_CREATE).map(drop)
        };
        expect("inotify watches", Errno::NOSPC, Box::new(watch));
        let epoll = p.epoll_create1(0)?;
        let add = |_| p.epoll_ctl(epoll, EPOLL_CTL_ADD, p.eventfd(0, 0)?, &EpollEvent::default());
        expect("watches of epolls", Errno::NOSPC, Box::new(add));
        if user != 0 {
            let flight = in_flight(&p);
            if flight != Ok(()) {
                findings.push(format!("user {user} cannot send a file: {flight:?}"));
            }
        }
    }
    root.umount2("/proc", libc::MNT_DETACH as u32)?;
    ["/proc", "/w0", "/w1", "/w2"].into_iter().try_for_each(|directory| root.rmdir(directory))
}

/// Files in flight by which the kernel's count may be off: it is a per-CPU counter that is read
/// without its parts.
const FLIGHT_ERROR: usize = 2048;

/// Sends a file while few may be in flight. The sum of all processes counts.
fn in_flight(p: &Process) -> Result<(), Errno> {
    let [one, two] = p.socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let nofile = p.nofile();
    p.set_nofile(FLIGHT_ERROR)?;
    let control = rights(one, 1);
    let message = SendMsg { name: &[], buffers: &[b"f"], control: &control, sent: 0 };
    let sent = p.sendmsg(one, &message, MSG_DONTWAIT).map(drop);
    p.set_nofile(nofile)?;
    p.close(one)?;
    p.close(two)?;
    sent
}

/// Holds what a planted fault leaks, as long as it lives.
///
/// # Errors
///
/// Those of the calls.
pub(crate) fn occupant(kernel: &Kernel, plant: Plant) -> Result<Option<Process>, Errno> {
    let p = kernel.process()?;
    let user = USERS[1];
    match plant {
        Plant::Pid => {}
        Plant::Port | Plant::EphemeralPort => {
            let port = if plant == Plant::Port { PORTS[4] } else { 40_001 };
            let mut address = (AF_INET as u16).to_ne_bytes().to_vec();
            address.extend(port.to_be_bytes());
            address.resize(16, 0);
            p.bind(p.socket(AF_INET, SOCK_STREAM, 0)?, &address)?;
        }
        Plant::SocketName => p.bind(p.socket(AF_UNIX, SOCK_DGRAM, 0)?, &abstract_name(2))?,
        Plant::InstanceCount | Plant::WatchCount => {
            p.setresuid(user, user, user)?;
            p.inotify_init1(0)?;
            if plant == Plant::WatchCount {
                p.inotify_add_watch(0, "/", quietline::inotify::IN_CREATE)?;
            }
        }
        Plant::EpollCount => {
            p.setresuid(user, user, user)?;
            let event = EpollEvent::default();
            p.epoll_ctl(p.epoll_create1(0)?, EPOLL_CTL_ADD, p.eventfd(0, 0)?, &event)?;
        }
        Plant::FlightCount => {
            let [one, _] = p.socketpair(AF_UNIX, SOCK_STREAM, 0)?;
            let control = rights(p.eventfd(0, 0)?, 2).repeat(100);
            let message = SendMsg { name: &[], buffers: &[b"f"], control: &control, sent: 0 };
            for _ in 0..2 * FLIGHT_ERROR / 200 + 1 {
                p.sendmsg(one, &message, MSG_DONTWAIT)?;
            }
        }
        Plant::InodeCount | Plant::PageCount => {
            let fd = p.open("/", libc::O_TMPFILE | libc::O_RDWR, 0o600)?;
            if plant == Plant::PageCount {
                p.write(fd, b"page")?;
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(p))
}
