//! Sockets of the internet that are connected to each other, on the host and on quietline.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use quietline::abi::{AF_INET, SOCK_DGRAM, SOCK_STREAM};
use quietline::{Errno, Process};
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::owned::Owned;

/// `127.0.0.1` and no port yet, as quietline takes it.
pub(super) fn localhost() -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    address
}

fn host_socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)
}

/// A listener of the host's at a port of its own.
pub(super) fn host_listener() -> Result<OwnedFd, Errno> {
    let listener = host_socket(SocketType::STREAM)?;
    net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    net::listen(&listener, 1)?;
    Ok(listener)
}

/// The two ends of a TCP connection of the host's. Calls wait; no byte waits for another one.
pub(super) fn host_tcp() -> Result<[OwnedFd; 2], Errno> {
    let listener = host_listener()?;
    let near = host_socket(SocketType::STREAM)?;
    net::connect(&near, &net::getsockname(&listener)?)?;
    let far = net::accept_with(&listener, SocketFlags::CLOEXEC)?;
    for end in [&near, &far] {
        sockopt::set_tcp_nodelay(end, true)?;
    }
    Ok([near, far])
}

/// Two UDP sockets of the host's, each connected to the other. Calls wait.
pub(super) fn host_udp() -> Result<[OwnedFd; 2], Errno> {
    let [near, far] = [host_socket(SocketType::DGRAM)?, host_socket(SocketType::DGRAM)?];
    for end in [&near, &far] {
        net::bind(end, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    }
    net::connect(&near, &net::getsockname(&far)?)?;
    net::connect(&far, &net::getsockname(&near)?)?;
    Ok([near, far])
}

fn socket(process: &Arc<Process>, kind: i32) -> Result<Owned, Errno> {
    Ok(Owned { process: process.clone(), fd: process.socket(AF_INET, kind, 0)? })
}

/// As [`host_tcp`], of quietline's.
pub(super) fn tcp(process: &Arc<Process>) -> Result<[Owned; 2], Errno> {
    let listener = socket(process, SOCK_STREAM)?;
    process.bind(listener.fd, &localhost())?;
    process.listen(listener.fd, 1)?;
    let near = socket(process, SOCK_STREAM)?;
    process.connect(near.fd, process.getsockname(listener.fd)?.bytes())?;
    let far = Owned { process: process.clone(), fd: process.accept(listener.fd)?.0 };
    Ok([near, far])
}

/// As [`host_udp`], of quietline's.
pub(super) fn udp(process: &Arc<Process>) -> Result<[Owned; 2], Errno> {
    let [near, far] = [socket(process, SOCK_DGRAM)?, socket(process, SOCK_DGRAM)?];
    for end in [&near, &far] {
        process.bind(end.fd, &localhost())?;
    }
    process.connect(near.fd, process.getsockname(far.fd)?.bytes())?;
    process.connect(far.fd, process.getsockname(near.fd)?.bytes())?;
    Ok([near, far])
}
