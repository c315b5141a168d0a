//! Limits: ports, backlogs, sizes, and what is refused.

use quietline::abi::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
use quietline::{Config, Errno, Kernel, PollFd, Process, RecvMsg};

fn process() -> Process {
    Kernel::boot(Config::default().privileged(true).nofile(100_000)).unwrap().process().unwrap()
}

fn address(ip: [u8; 4], port: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&port.to_be_bytes());
    raw[4..8].copy_from_slice(&ip);
    raw
}

const LO: [u8; 4] = [127, 0, 0, 1];

fn stream(process: &Process) -> i32 {
    process.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap()
}

fn datagrams(process: &Process) -> i32 {
    process.socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0).unwrap()
}

fn name(process: &Process, fd: i32) -> Vec<u8> {
    process.getsockname(fd).unwrap().bytes().to_vec()
}

fn port(process: &Process, fd: i32) -> u16 {
    let name = name(process, fd);
    u16::from_be_bytes([name[2], name[3]])
}

fn switch(process: &Process, fd: i32, option: i32) {
    process.setsockopt(fd, libc::SOL_SOCKET, option, &1i32.to_ne_bytes()).unwrap();
}

/// Every port of the range can be had once; then none; and one that was given back again.
#[test]
fn ports_run_out_and_come_back() {
    quietline_testing::isolated!();
    const PORTS: usize = 60999 - 32768 + 1;
    let process = process();
    let listener = stream(&process);
    process.bind(listener, &address(LO, 80)).unwrap();
    process.listen(listener, 4096).unwrap();
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..PORTS {
        let client = stream(&process);
        assert_eq!(process.connect(client, &address(LO, 80)), Err(Errno::INPROGRESS));
        clients.push(client);
        servers.push(process.accept(listener).unwrap().0);
    }
    let mut ports: Vec<u16> = clients.iter().map(|&fd| port(&process, fd)).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), PORTS);
    let late = stream(&process);
    assert_eq!(process.connect(late, &address(LO, 80)), Err(Errno::ADDRNOTAVAIL));
    // To another place each of them can be used once more.
    let other = stream(&process);
    process.bind(other, &address([127, 0, 0, 2], 80)).unwrap();
    process.listen(other, 5).unwrap();
    let again = stream(&process);
    assert_eq!(process.connect(again, &address([127, 0, 0, 2], 80)), Err(Errno::INPROGRESS));
    let shared = port(&process, again);
    assert!(ports.binary_search(&shared).is_ok());
    process.close(again).unwrap();
    process.close(listener).unwrap();
    let freed = port(&process, clients[1234]);
    process.close(clients[1234]).unwrap();
    let bound = stream(&process);
    process.bind(bound, &address(LO, 0)).unwrap();
    assert_eq!(port(&process, bound), freed);
    let none = stream(&process);
    assert_eq!(process.bind(none, &address(LO, 0)), Err(Errno::ADDRINUSE));
    assert_eq!(process.listen(none, 1), Err(Errno::ADDRINUSE));
    // Datagrams have ports of their own.
    process.bind(datagrams(&process), &address(LO, 0)).unwrap();
}

#[test]
fn a_backlog_holds_one_more_than_it_says() {
    quietline_testing::isolated!();
    let process = process();
    for backlog in [0, 1, 5] {
        let listener = stream(&process);
        process.listen(listener, backlog).unwrap();
        let to = address(LO, port(&process, listener));
        let clients: Vec<i32> = (0..backlog + 3).map(|_| stream(&process)).collect();
        for &client in &clients {
            assert_eq!(process.connect(client, &to), Err(Errno::INPROGRESS));
        }
        let connected = |fd: &&i32| process.getpeername(**fd).is_ok();
        assert_eq!(clients.iter().filter(connected).count() as i32, backlog + 1);
        // Each that is accepted makes room for one.
        process.accept(listener).unwrap();
        assert_eq!(clients.iter().filter(connected).count() as i32, backlog + 2);
        // One that is not there any more is passed over.
        process.close(clients[backlog as usize + 2]).unwrap();
        process.accept(listener).unwrap();
        for _ in 0..backlog {
            process.accept(listener).unwrap();
        }
        assert_eq!(process.accept(listener).unwrap_err(), Errno::AGAIN);
    }
}

#[test]
fn connections_are_spread_over_listeners() {
    quietline_testing::isolated!();
    let process = process();
    let listeners: Vec<i32> = (0..4).map(|_| stream(&process)).collect();
    for &fd in &listeners {
        switch(&process, fd, libc::SO_REUSEPORT);
        let port = port(&process, listeners[0]);
        process.bind(fd, &address(LO, port)).unwrap();
        process.listen(fd, 4096).unwrap();
    }
    let to = name(&process, listeners[0]);
    for _ in 0..4000 {
        let _ = process.connect(stream(&process), &to);
    }
    let counts: Vec<usize> = listeners
        .iter()
        .map(|&fd| std::iter::from_fn(|| process.accept(fd).ok()).count())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 4000);
    assert!(counts.iter().all(|&n| (850..1150).contains(&n)), "{counts:?}");
}

#[test]
fn datagrams_have_their_sizes() {
    quietline_testing::isolated!();
    let process = process();
    let (sender, receiver) = (datagrams(&process), datagrams(&process));
    process.bind(receiver, &address(LO, 0)).unwrap();
    let to = name(&process, receiver);
    let bytes = vec![5; 70_000];
    for (len, result) in [
        (65_507, Ok(65_507)),
        (65_508, Err(Errno::MSGSIZE)),
        (70_000, Err(Errno::MSGSIZE)),
        (0, Ok(0)),
    ] {
        assert_eq!(process.sendto(sender, &bytes[..len], 0, &to), result, "{len}");
    }
    let mut buffer = vec![0; 70_000];
    assert_eq!(process.recv(receiver, &mut buffer, 0), Ok(65_507));
    assert!(buffer[..65_507].iter().all(|&byte| byte == 5));
    assert_eq!(process.recv(receiver, &mut buffer, 0), Ok(0));
    assert_eq!(process.recv(receiver, &mut buffer, 0), Err(Errno::AGAIN));
    // What has no room is lost, and nobody is told.
    for n in 0..1000u32 {
        assert_eq!(process.sendto(sender, &n.to_ne_bytes(), 0, &to), Ok(4));
    }
    for n in 0..256u32 {
        let mut number = [0; 4];
        assert_eq!(process.recv(receiver, &mut number, 0), Ok(4));
        assert_eq!(u32::from_ne_bytes(number), n, "the last ones are lost");
    }
    assert_eq!(process.recv(receiver, &mut buffer, 0), Err(Errno::AGAIN));
}

#[test]
fn groups_and_strangers_are_refused() {
    quietline_testing::isolated!();
    let process = process();
    let fd = datagrams(&process);
    for (ip, errno) in [
        ([224, 0, 0, 1], Errno::NETUNREACH),
        ([10, 1, 2, 3], Errno::NETUNREACH),
        ([255, 255, 255, 255], Errno::ACCESS),
        ([127, 255, 255, 255], Errno::ACCESS),
    ] {
        assert_eq!(process.sendto(fd, b"x", 0, &address(ip, 9)), Err(errno), "{ip:?}");
        assert_eq!(process.connect(fd, &address(ip, 9)), Err(errno), "{ip:?}");
        assert_eq!(
            process.connect(stream(&process), &address(ip, 9)),
            Err(Errno::NETUNREACH),
            "{ip:?}"
        );
    }
    assert_eq!(
        process.bind(datagrams(&process), &address([10, 1, 2, 3], 0)),
        Err(Errno::ADDRNOTAVAIL)
    );
    let group = [[224, 0, 0, 5], LO].concat();
    let join = process.setsockopt(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &group);
    assert_eq!(join, Err(Errno::NODEV));
    assert_eq!(process.send(stream(&process), b"!", libc::MSG_OOB), Err(Errno::OPNOTSUPP));
    // Ports below 1024 are for the privileged.
    let common = Kernel::boot(Config::default().privileged(false)).unwrap().process().unwrap();
    for fd in [stream(&common), datagrams(&common)] {
        assert_eq!(common.bind(fd, &address(LO, 1023)), Err(Errno::ACCESS));
        assert_eq!(common.bind(fd, &address(LO, 1024)), Ok(()));
    }
}

#[test]
fn a_receiver_is_told_where_a_datagram_was_sent() {
    quietline_testing::isolated!();
    let process = process();
    let (sender, receiver) = (datagrams(&process), datagrams(&process));
    process.bind(receiver, &address([0; 4], 0)).unwrap();
    process.setsockopt(receiver, libc::IPPROTO_IP, libc::IP_PKTINFO, &1i32.to_ne_bytes()).unwrap();
    let to = address([127, 4, 5, 6], port(&process, receiver));
    process.sendto(sender, b"hello", 0, &to).unwrap();
    let (mut data, mut control) = ([0; 8], [0; 64]);
    let mut buffers = [&mut data[..]];
    let mut message =
        RecvMsg { buffers: &mut buffers, control: &mut control, ..RecvMsg::default() };
    assert_eq!(process.recvmsg(receiver, &mut message, 0), Ok(5));
    assert_eq!((message.control_len, message.flags), (32, 0));
    assert_eq!(
        control[8..16],
        [libc::IPPROTO_IP.to_ne_bytes(), libc::IP_PKTINFO.to_ne_bytes()].concat()
    );
    assert_eq!(control[24..28], [127, 4, 5, 6]);
}

/// A stream holds about as much as on Linux, and is writable again when a third is free.
#[test]
fn a_full_stream_is_writable_again_later() {
    quietline_testing::isolated!();
    let process = process();
    let listener = process.socket(AF_INET6, SOCK_STREAM, 0).unwrap();
    process.listen(listener, 1).unwrap();
    let client = stream(&process);
    let _ = process.connect(client, &address(LO, port(&process, listener)));
    let (server, peer) = process.accept(listener).unwrap();
    // Of version 4, shown by a socket of version 6.
    assert_eq!((peer.len(), &peer.bytes()[18..24]), (28, &[255, 255, 127, 0, 0, 1][..]));
    let writable = || {
        let mut fds = [PollFd { fd: client, events: libc::POLLOUT, revents: 0 }];
        process.poll(&mut fds, 0).unwrap() == 1
    };
    let bytes = vec![3; 50_000];
    let mut sent = 0;
    while let Ok(n) = process.send(client, &bytes, 0) {
        sent += n;
        assert_eq!(writable(), sent * 3 <= (2_626_560 + 65_536) * 2, "{sent}");
    }
    assert_eq!(sent, 2_626_560 + 65_536);
    assert_eq!(process.send(client, &bytes, 0), Err(Errno::AGAIN));
    let mut buffer = vec![0; 10_000];
    let mut left = sent;
    while !writable() {
        left -= process.recv(server, &mut buffer, 0).unwrap();
    }
    assert!(left * 3 <= sent * 2 && (left + 10_000) * 3 > sent * 2, "{left} of {sent}");
}
