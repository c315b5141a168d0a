//! Control messages and what they are about, beside the host: from which address a datagram comes, what its receiver is told, and
//! what is no such message.

use quietline::abi::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET};
use quietline::{Config, Errno, Kernel, Process, RecvMsg, SendMsg};
use std::mem::zeroed;

const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const IPV6_PKTINFO: i32 = 50;
const IPV6_RECVPKTINFO: i32 = 49;

/// What came: how many bytes, from where (without the port), and its control messages.
type Came = Result<(usize, Vec<u8>, Vec<u8>), i32>;

/// Where sockets are.
trait System {
    fn socket(&self, family: i32, ty: i32) -> i32;
    fn bind(&self, fd: i32, address: &[u8]);
    fn name(&self, fd: i32) -> Vec<u8>;
    fn connect(&self, fd: i32, address: &[u8]) -> Result<(), i32>;
    fn listen(&self, fd: i32);
    fn shutdown(&self, fd: i32);
    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), i32>;
    fn get(&self, fd: i32, level: i32, name: i32) -> Vec<u8>;
    fn send(&self, fd: i32, to: &[u8], control: &[u8]) -> Result<usize, i32>;
    fn receive(&self, fd: i32) -> Came;
}

fn raw<T>(done: Result<T, Errno>) -> Result<T, i32> {
    done.map_err(Errno::raw_os_error)
}

impl System for Process {
    fn socket(&self, family: i32, ty: i32) -> i32 {
        Process::socket(self, family, ty, 0).unwrap()
    }

    fn bind(&self, fd: i32, address: &[u8]) {
        Process::bind(self, fd, address).unwrap();
    }

    fn name(&self, fd: i32) -> Vec<u8> {
        self.getsockname(fd).unwrap().bytes().to_vec()
    }

    fn connect(&self, fd: i32, address: &[u8]) -> Result<(), i32> {
        raw(Process::connect(self, fd, address))
    }

    fn listen(&self, fd: i32) {
        Process::listen(self, fd, 1).unwrap();
    }

    fn shutdown(&self, fd: i32) {
        Process::shutdown(self, fd, libc::SHUT_WR).unwrap();
    }

    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), i32> {
        raw(self.setsockopt(fd, level, name, value))
    }

    fn get(&self, fd: i32, level: i32, name: i32) -> Vec<u8> {
        let mut value = [0; 16];
        let n = self.getsockopt(fd, level, name, &mut value).unwrap();
        value[..n].to_vec()
    }

    fn send(&self, fd: i32, to: &[u8], control: &[u8]) -> Result<usize, i32> {
        let message = SendMsg { name: to, buffers: &[b"x"], control, ..SendMsg::default() };
        raw(self.sendmsg(fd, &message, libc::MSG_NOSIGNAL))
    }

    fn receive(&self, fd: i32) -> Came {
        let (mut byte, mut control) = ([0; 4], [0; 256]);
        let buffers: &mut [&mut [u8]] = &mut [&mut byte];
        let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
        let n = raw(self.recvmsg(fd, &mut message, 0))?;
        assert_eq!(message.flags, 0);
        let (from, used) = (message.name.bytes().to_vec(), message.control_len);
        Ok((n, without_port(from), control[..used].to_vec()))
    }
}

fn without_port(mut address: Vec<u8>) -> Vec<u8> {
    if address.len() > 4 {
        address[2..4].fill(0);
    }
    address
}

struct Host;

fn done(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

impl System for Host {
    fn socket(&self, family: i32, ty: i32) -> i32 {
        // SAFETY: no memory is passed.
        done(unsafe { libc::socket(family, ty | libc::SOCK_CLOEXEC, 0) } as isize).unwrap() as i32
    }

    fn bind(&self, fd: i32, address: &[u8]) {
        // SAFETY: the address has as many bytes as are said; so below.
        done(unsafe { libc::bind(fd, address.as_ptr().cast(), address.len() as u32) } as isize)
            .unwrap();
    }

    fn name(&self, fd: i32) -> Vec<u8> {
        let mut address = vec![0; 128];
        let mut len = 128;
        // SAFETY: as above.
        done(unsafe { libc::getsockname(fd, address.as_mut_ptr().cast(), &mut len) } as isize)
            .unwrap();
        address.truncate(len as usize);
        address
    }

    fn connect(&self, fd: i32, address: &[u8]) -> Result<(), i32> {
        // SAFETY: as above.
        done(unsafe { libc::connect(fd, address.as_ptr().cast(), address.len() as u32) } as isize)
            .map(drop)
    }

    fn listen(&self, fd: i32) {
        // SAFETY: no memory is passed.
        done(unsafe { libc::listen(fd, 1) } as isize).unwrap();
    }

    fn shutdown(&self, fd: i32) {
        // SAFETY: no memory is passed.
        done(unsafe { libc::shutdown(fd, libc::SHUT_WR) } as isize).unwrap();
    }

    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), i32> {
        // SAFETY: the value has as many bytes as are said.
        let set =
            unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) };
        done(set as isize).map(drop)
    }

    fn get(&self, fd: i32, level: i32, name: i32) -> Vec<u8> {
        let mut value = vec![0; 16];
        let mut len = 16;
        // SAFETY: as above.
        let got = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
        done(got as isize).unwrap();
        value.truncate(len as usize);
        value
    }

    fn send(&self, fd: i32, to: &[u8], control: &[u8]) -> Result<usize, i32> {
        let mut buffer = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: all zeroes is a message of nothing; what it points to outlives the call.
        let sent = done(unsafe {
            let mut message: libc::msghdr = zeroed();
            (message.msg_name, message.msg_namelen) =
                (to.as_ptr().cast_mut().cast(), to.len() as u32);
            (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
            message.msg_control = control.as_ptr().cast_mut().cast();
            message.msg_controllen = control.len() as _;
            libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
        });
        // The loopback device may be late.
        std::thread::sleep(std::time::Duration::from_micros(300));
        sent
    }

    fn receive(&self, fd: i32) -> Came {
        let (mut byte, mut control, mut from) = ([0u8; 4], [0u8; 256], [0u8; 128]);
        let mut buffer = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 4 };
        // SAFETY: as above.
        unsafe {
            let mut message: libc::msghdr = zeroed();
            (message.msg_name, message.msg_namelen) = (from.as_mut_ptr().cast(), 128);
            (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), 256);
            let n = done(libc::recvmsg(fd, &mut message, 0))?;
            assert_eq!(message.msg_flags, 0);
            let (from, used) =
                (&from[..message.msg_namelen as usize], message.msg_controllen as usize);
            Ok((n, without_port(from.to_vec()), control[..used].to_vec()))
        }
    }
}

/// A control message that says how long it is.
fn of(level: i32, ty: i32, data: &[u8]) -> Vec<u8> {
    let len = (16 + data.len()) as u64;
    let mut bytes =
        [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &ty.to_ne_bytes(), data].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn info4(device: i32, source: [u8; 4]) -> Vec<u8> {
    [&device.to_ne_bytes()[..], &source, &[9; 4]].concat()
}

fn info6(source: &str, device: i32) -> Vec<u8> {
    let source: std::net::Ipv6Addr = source.parse().unwrap();
    [&source.octets()[..], &device.to_ne_bytes()].concat()
}

/// Control messages: right ones and wrong ones.
fn controls() -> Vec<Vec<u8>> {
    let int = |n: i32| n.to_ne_bytes();
    let mut all = vec![
        // From where.
        of(IP, libc::IP_PKTINFO, &info4(0, [127, 0, 0, 7])),
        of(IP, libc::IP_PKTINFO, &info4(1, [127, 0, 0, 1])),
        of(IP, libc::IP_PKTINFO, &info4(1, [0; 4])),
        of(IP, libc::IP_PKTINFO, &info4(0, [10, 1, 2, 3])),
        of(IP, libc::IP_PKTINFO, &info4(0, [127, 255, 255, 255])),
        of(IP, libc::IP_PKTINFO, &info4(0, [224, 0, 0, 1])),
        of(IP, libc::IP_PKTINFO, &info4(0, [255; 4])),
        of(IP, libc::IP_PKTINFO, &info4(0, [0, 0, 0, 1])),
        of(IP, libc::IP_PKTINFO, &info4(77, [127, 0, 0, 1])),
        of(IP, libc::IP_PKTINFO, &info4(1, [127, 0, 0, 1])[..8]),
        of(IP, libc::IP_PKTINFO, &[info4(1, [127, 0, 0, 1]), vec![0; 4]].concat()),
        of(IPV6, IPV6_PKTINFO, &info6("::1", 0)),
        of(IPV6, IPV6_PKTINFO, &info6("::1", 1)),
        of(IPV6, IPV6_PKTINFO, &info6("::", 0)),
        of(IPV6, IPV6_PKTINFO, &info6("::2", 0)),
        of(IPV6, IPV6_PKTINFO, &info6("fe80::1", 0)),
        of(IPV6, IPV6_PKTINFO, &info6("::1", 77)),
        of(IPV6, IPV6_PKTINFO, &info6("::ffff:127.0.0.9", 0)),
        of(IPV6, IPV6_PKTINFO, &info6("::ffff:10.0.0.9", 1)),
        of(IPV6, IPV6_PKTINFO, &info6("::1", 1)[..16]),
        of(IPV6, IPV6_PKTINFO, &[info6("::1", 1), vec![0; 4]].concat()),
        // What is remembered, and what is only checked.
        of(IP, libc::IP_TTL, &int(33)),
        of(IP, libc::IP_TTL, &int(0)),
        of(IP, libc::IP_TTL, &int(256)),
        of(IP, libc::IP_TTL, &[33]),
        of(IP, libc::IP_TOS, &int(0x28)),
        of(IP, libc::IP_TOS, &[0x2b]),
        of(IP, libc::IP_TOS, &int(256)),
        of(IP, libc::IP_TOS, &[0; 2]),
        of(IPV6, libc::IPV6_HOPLIMIT, &int(9)),
        of(IPV6, libc::IPV6_HOPLIMIT, &int(-1)),
        of(IPV6, libc::IPV6_HOPLIMIT, &int(256)),
        of(IPV6, libc::IPV6_HOPLIMIT, &[9]),
        of(IPV6, libc::IPV6_TCLASS, &int(-1)),
        of(IPV6, libc::IPV6_TCLASS, &int(-2)),
        of(IPV6, libc::IPV6_DONTFRAG, &int(1)),
        of(IPV6, libc::IPV6_DONTFRAG, &int(2)),
        // Not known, and not theirs.
        of(IP, 99, &int(1)),
        of(IPV6, 99, &int(1)),
        of(SOL_SOCKET, libc::SCM_RIGHTS, &int(0)),
        of(SOL_SOCKET, libc::SCM_CREDENTIALS, &[0; 12]),
        of(SOL_SOCKET, 99, &int(1)),
        of(99, 99, &int(1)),
        of(libc::IPPROTO_UDP, 99, &int(1)),
        // Two, the second of which is wrong.
        [of(IP, libc::IP_TTL, &int(33)), of(IP, libc::IP_TTL, &int(0))].concat(),
        [of(99, 99, &[]), of(99, 99, &[1; 30])[..24].to_vec()].concat(),
        // Shorter than a header is nothing.
        vec![1; 15],
    ];
    for len in [0u64, 15, 25, u64::MAX] {
        let mut wrong = of(99, 99, &[0; 8]);
        wrong[..8].copy_from_slice(&len.to_ne_bytes());
        all.push(wrong);
    }
    all
}

fn address(family: i32, ip: &str, port: &[u8]) -> Vec<u8> {
    let family = (family as u16).to_ne_bytes();
    match ip.parse().unwrap() {
        std::net::IpAddr::V4(ip) => [&family[..], port, &ip.octets(), &[0; 8]].concat(),
        std::net::IpAddr::V6(ip) => [&family[..], port, &[0; 4], &ip.octets(), &[0; 4]].concat(),
    }
}

/// What becomes of a datagram with each of the control messages, and of one with none.
fn datagrams(
    system: &dyn System,
    family: i32,
    to: &str,
    connected: bool,
    bound: Option<&str>,
) -> Vec<String> {
    let [sender, receiver] = [(); 2].map(|()| system.socket(family, SOCK_DGRAM | SOCK_NONBLOCK));
    let any = if family == AF_INET { "0.0.0.0" } else { "::" };
    system.bind(receiver, &address(family, any, &[0; 2]));
    for (level, name) in [
        (IP, libc::IP_PKTINFO),
        (IP, libc::IP_RECVTTL),
        (IP, libc::IP_RECVTOS),
        (IPV6, IPV6_RECVPKTINFO),
    ] {
        if level == IP || family == AF_INET6 {
            system.set(receiver, level, name, &1i32.to_ne_bytes()).unwrap();
        }
    }
    system.set(sender, IP, libc::IP_TTL, &77i32.to_ne_bytes()).unwrap();
    system.set(sender, IP, libc::IP_TOS, &0x10i32.to_ne_bytes()).unwrap();
    if let Some(bound) = bound {
        system.bind(sender, &address(family, bound, &[0; 2]));
    }
    let to = address(family, to, &system.name(receiver)[2..4]);
    if connected {
        system.connect(sender, &to).unwrap();
    }
    let to = if connected { &[][..] } else { &to[..] };
    let mut seen = Vec::new();
    for control in controls().into_iter().chain([Vec::new()]) {
        let sent = system.send(sender, to, &control);
        let came = system.receive(receiver);
        seen.push(format!("{control:?}: {sent:?}, {came:?}"));
    }
    seen
}

#[test]
fn datagrams_with_control_messages_are_those_of_the_host() {
    quietline_testing::isolated!();
    let ours = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let mut all = Vec::new();
    for (family, to, bound) in [
        (AF_INET, "127.0.0.1", None),
        (AF_INET, "127.0.0.3", Some("127.0.0.2")),
        (AF_INET6, "::1", None),
        (AF_INET6, "::1", Some("::1")),
        (AF_INET6, "::ffff:127.0.0.1", None),
    ] {
        for connected in [false, true] {
            let host = datagrams(&Host, family, to, connected, bound);
            let own = datagrams(&ours, family, to, connected, bound);
            for (own, host) in own.iter().zip(&host).filter(|(own, host)| own != host) {
                all.push(format!(
                    "to {to}, connected: {connected}, bound: {bound:?}: {own}, host {host}"
                ));
            }
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

/// What becomes of a byte of a stream with each of them; and of one on a socket that sends no more, or is not connected.
fn bytes(system: &dyn System) -> Vec<String> {
    let [listener, client, unconnected] = [(); 3].map(|()| system.socket(AF_INET, SOCK_STREAM));
    system.listen(listener);
    system.connect(client, &system.name(listener)).unwrap();
    let mut seen = Vec::new();
    for control in controls() {
        seen.push(format!("{control:?}: {:?}", system.send(client, &[], &control)));
    }
    system.shutdown(client);
    for fd in [client, unconnected] {
        seen.push(format!("{:?}", system.send(fd, &[], &of(SOL_SOCKET, 99, &[]))));
    }
    for name in [&b"reno"[..], b"cubic", b"none such"] {
        seen.push(format!(
            "{:?}",
            system.set(client, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
        ));
        seen.push(format!("{:?}", system.get(client, libc::IPPROTO_TCP, libc::TCP_CONGESTION)));
    }
    seen
}

#[test]
fn streams_with_control_messages_are_those_of_the_host() {
    quietline_testing::isolated!();
    let ours = Kernel::boot(Config::default()).unwrap().process().unwrap();
    for (own, host) in bytes(&ours).iter().zip(&bytes(&Host)) {
        assert_eq!(own, host);
    }
}
