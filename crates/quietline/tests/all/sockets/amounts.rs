//! How much a call takes: what a reader waits for (`SO_RCVLOWAT`), beside the host; and several
//! messages with one call.

use crate::support::{Random, spawn_asleep, spawn_asleep_in};
use quietline::abi::*;
use quietline::{Config, Errno, Interrupt, Kernel, PollFd, Process, RecvMsg, SendMsg, Shared};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(30);

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

/// Where sockets are.
trait System: Sync {
    /// Two ends of a local stream, or of a TCP connection.
    fn ends(&self, tcp: bool) -> [i32; 2];
    fn set(&self, fd: i32, name: i32, value: &[u8]);
    fn read(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, i32>;
    fn recv(&self, fd: i32, buffer: &mut [u8], flags: i32) -> Result<usize, i32>;
    fn write(&self, fd: i32, bytes: &[u8]) -> Result<usize, i32>;
    fn poll(&self, fd: i32) -> i16;
    fn close(&self, fd: i32);
    /// The host's call in which a thread is that waits in `recv`.
    fn sleeps_in(&self) -> i64;
}

struct Ours(Process);

fn raw<T>(done: Result<T, Errno>) -> Result<T, i32> {
    done.map_err(Errno::raw_os_error)
}

impl System for Ours {
    fn ends(&self, tcp: bool) -> [i32; 2] {
        let p = &self.0;
        if !tcp {
            return p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
        }
        let [listener, client] = [(); 2].map(|()| p.socket(AF_INET, SOCK_STREAM, 0).unwrap());
        p.listen(listener, 1).unwrap();
        p.connect(client, p.getsockname(listener).unwrap().bytes()).unwrap();
        [client, p.accept(listener).unwrap().0]
    }

    fn set(&self, fd: i32, name: i32, value: &[u8]) {
        self.0.setsockopt(fd, SOL_SOCKET, name, value).unwrap();
    }

    fn read(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
        raw(self.0.read(fd, buffer))
    }

    fn recv(&self, fd: i32, buffer: &mut [u8], flags: i32) -> Result<usize, i32> {
        raw(self.0.recv(fd, buffer, flags))
    }

    fn write(&self, fd: i32, bytes: &[u8]) -> Result<usize, i32> {
        raw(self.0.write(fd, bytes))
    }

    fn poll(&self, fd: i32) -> i16 {
        let mut fds = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        self.0.poll(&mut fds, 0).unwrap();
        fds[0].revents
    }

    fn close(&self, fd: i32) {
        self.0.close(fd).unwrap();
    }

    fn sleeps_in(&self) -> i64 {
        libc::SYS_futex
    }
}

struct Host;

fn done(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

#[allow(unsafe_code, reason = "the host's calls")]
impl System for Host {
    fn ends(&self, tcp: bool) -> [i32; 2] {
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::IntoRawFd;
        use std::os::unix::net::UnixStream;
        if tcp {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [client.into_raw_fd(), listener.accept().unwrap().0.into_raw_fd()]
        } else {
            let (one, two) = UnixStream::pair().unwrap();
            [one.into_raw_fd(), two.into_raw_fd()]
        }
    }

    fn set(&self, fd: i32, name: i32, value: &[u8]) {
        // SAFETY: the value has as many bytes as are said.
        let set = unsafe {
            libc::setsockopt(fd, SOL_SOCKET, name, value.as_ptr().cast(), value.len() as u32)
        };
        assert_eq!(set, 0);
    }

    fn read(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
        // SAFETY: the buffer has as many bytes as are said; so below.
        done(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
    }

    fn recv(&self, fd: i32, buffer: &mut [u8], flags: i32) -> Result<usize, i32> {
        // SAFETY: as above.
        done(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
    }

    fn write(&self, fd: i32, bytes: &[u8]) -> Result<usize, i32> {
        // SAFETY: as above.
        done(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
    }

    fn poll(&self, fd: i32) -> i16 {
        // What was written has to come through the loopback device.
        std::thread::sleep(Duration::from_millis(5));
        let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one of them.
        unsafe { libc::poll(&mut asked, 1, 0) };
        asked.revents
    }

    fn close(&self, fd: i32) {
        // SAFETY: the test's own.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }

    fn sleeps_in(&self) -> i64 {
        libc::SYS_recvfrom
    }
}

fn timeval(time: Duration) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&time.as_secs().to_ne_bytes());
    raw[8..].copy_from_slice(&u64::from(time.subsec_micros()).to_ne_bytes());
    raw
}

/// What a reader gets who wants at least `low` bytes, and what `poll` says, step by step.
fn few(system: &dyn System, tcp: bool, low: usize) -> Vec<String> {
    let mut seen = Vec::new();
    let [writer, reader] = system.ends(tcp);
    let mut say = |what: &str, said: &dyn std::fmt::Debug| seen.push(format!("{what}: {said:?}"));
    let (bytes, room) = (vec![1; 2 * low], &mut vec![0; 2 * low]);
    system.set(reader, SO_RCVLOWAT, &(low as i32).to_ne_bytes());
    say("one less", &system.write(writer, &bytes[..low - 1]));
    say("poll", &system.poll(reader));
    say("read of less", &system.read(reader, &mut room[..low - 1]));
    system.write(writer, &bytes[..low - 1]).unwrap();
    say("no wait", &system.recv(reader, room, MSG_DONTWAIT));
    // The rest comes while it waits.
    let got = std::thread::scope(|scope| {
        let reading = scope.spawn(|| system.read(reader, &mut vec![0; 2 * low]));
        std::thread::sleep(SOON);
        system.write(writer, &bytes[..low - 1]).unwrap();
        std::thread::sleep(SOON);
        assert!(!reading.is_finished(), "it did not wait");
        system.write(writer, &bytes[..1]).unwrap();
        reading.join().unwrap()
    });
    say("waited", &got);
    system.write(writer, &bytes[..low]).unwrap();
    say("poll", &system.poll(reader));
    say("at once", &system.read(reader, room));
    // The time runs out: what came is told.
    system.set(reader, SO_RCVTIMEO, &timeval(SOON));
    system.write(writer, &bytes[..low - 1]).unwrap();
    say("late", &system.read(reader, room));
    say("nothing", &system.read(reader, room));
    seen
}

#[test]
fn a_reader_waits_for_as_much_as_he_wants() {
    quietline_testing::isolated!();
    let ours = Ours(process());
    for tcp in [false, true] {
        for low in [2, 100, 3000] {
            assert_eq!(few(&ours, tcp, low), few(&Host, tcp, low), "tcp {tcp}, {low}");
        }
    }
}

/// What one is told who wants no bytes at all: at once, when the time is up, and when something
/// comes while he waits.
fn none(system: &dyn System, tcp: bool) -> Vec<String> {
    let mut seen = Vec::new();
    let mut say = |what: &str, said: &dyn std::fmt::Debug| seen.push(format!("{what}: {said:?}"));
    let [writer, reader] = system.ends(tcp);
    say("read", &system.read(reader, &mut []));
    say("no wait", &system.recv(reader, &mut [], MSG_DONTWAIT));
    system.set(reader, SO_RCVTIMEO, &timeval(SOON));
    for flags in [0, MSG_PEEK, MSG_WAITALL, MSG_TRUNC] {
        let begun = Instant::now();
        say("the time is up", &system.recv(reader, &mut [], flags));
        say("not before", &(begun.elapsed() >= SOON));
    }
    // So that a test that fails comes to an end.
    system.set(reader, SO_RCVTIMEO, &timeval(Duration::from_secs(60)));
    let waiting = |then: &dyn Fn()| {
        std::thread::scope(|scope| {
            let waiting =
                spawn_asleep_in(scope, system.sleeps_in(), || system.recv(reader, &mut [], 0));
            assert!(!waiting.is_finished(), "it did not wait");
            then();
            waiting.join().unwrap()
        })
    };
    say("bytes come", &waiting(&|| assert_eq!(system.write(writer, b"ab"), Ok(2))));
    say("they are there", &system.recv(reader, &mut [], 0));
    say("and stay", &system.recv(reader, &mut [0; 4], MSG_DONTWAIT));
    // The end is a reset.
    system.write(reader, b"unread").unwrap();
    let begun = Instant::now();
    while system.poll(writer) & libc::POLLIN == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
    }
    say("it ends", &waiting(&|| system.close(writer)));
    say("how", &system.recv(reader, &mut [0; 4], MSG_DONTWAIT));
    say("told once", &system.recv(reader, &mut [], 0));
    system.close(reader);
    seen
}

#[test]
fn a_reader_who_wants_nothing_waits_all_the_same() {
    quietline_testing::isolated!();
    let ours = Ours(process());
    for tcp in [false, true] {
        assert_eq!(none(&ours, tcp), none(&Host, tcp), "tcp {tcp}");
    }
}

/// A stream's reader who wants nothing is not told of an interrupt, as on Linux.
#[test]
fn a_reader_who_wants_nothing_may_be_interrupted() {
    quietline_testing::isolated!();
    let ours = Ours(process());
    for (tcp, says) in [(false, Err(Errno::INTR)), (true, Ok(0))] {
        let [_writer, reader] = ours.ends(tcp);
        let interrupt = Shared::new(Interrupt::new()).unwrap();
        let said = std::thread::scope(|scope| {
            let waiting = spawn_asleep(scope, || {
                let _entered = Interrupt::enter(&interrupt);
                ours.0.recv(reader, &mut [], 0)
            });
            assert!(!waiting.is_finished(), "it did not wait");
            interrupt.raise();
            waiting.join().unwrap()
        });
        assert_eq!(said, says, "tcp {tcp}");
    }
}

/// More than the queue has room for: both go on to the end.
fn many(system: &dyn System, tcp: bool, len: usize) -> [Result<usize, i32>; 2] {
    let [writer, reader] = system.ends(tcp);
    system.set(reader, SO_RCVLOWAT, &(len as i32).to_ne_bytes());
    // So that a test that fails comes to an end.
    system.set(reader, SO_RCVTIMEO, &timeval(Duration::from_secs(60)));
    system.set(writer, SO_SNDTIMEO, &timeval(Duration::from_secs(60)));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut room = vec![0; len];
            let n = system.read(reader, &mut room);
            assert!(room[..n.unwrap_or(0)].iter().enumerate().all(|(at, byte)| *byte == at as u8));
            n
        });
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let written = system.write(writer, &bytes);
        [reading.join().unwrap(), written]
    })
}

#[test]
fn a_reader_who_wants_more_than_there_is_room_for_gets_it() {
    quietline_testing::isolated!();
    let ours = Ours(process());
    for (tcp, len) in [(false, 500_000), (true, 4_000_000)] {
        let host = many(&Host, tcp, len);
        assert_eq!(host, [Ok(len), Ok(len)]);
        assert_eq!(many(&ours, tcp, len), host, "tcp {tcp}");
    }
}

/// Long and short segments go into buffers of any lengths, none included: each byte to its place,
/// and no more than was there.
#[test]
fn segments_go_into_several_buffers() {
    quietline_testing::isolated!();
    let p = &process();
    let mut dice = Random(7);
    for round in 0..2_000 {
        let [writer, reader] = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
        let mut sent = 0;
        for _ in 0..dice.below(24) {
            let len = [1, 56, 257, 4_096, 4_097, 6_000][dice.below(6)];
            let bytes: Vec<u8> = (sent..sent + len).map(|at| at as u8 ^ (at >> 8) as u8).collect();
            assert_eq!(p.write(writer, &bytes), Ok(len));
            sent += len;
        }
        p.close(writer).unwrap();
        let mut read = 0;
        loop {
            let lens: Vec<usize> = (0..1 + dice.below(5))
                .map(|_| [0, 1, 255, 4_097, 10_000, 60_000][dice.below(6)])
                .collect();
            let wanted: usize = lens.iter().sum();
            let mut bytes: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
            let mut buffers: Vec<&mut [u8]> =
                bytes.iter_mut().map(|buffer| &mut buffer[..]).collect();
            let got = p.recvmsg(reader, &mut room(&mut buffers), 0).unwrap();
            assert_eq!(got, wanted.min(sent - read), "round {round}: {lens:?}");
            let bytes = bytes.concat();
            let right =
                |(at, byte): (usize, &u8)| *byte == (read + at) as u8 ^ ((read + at) >> 8) as u8;
            assert!(bytes[..got].iter().enumerate().all(right), "round {round}: {lens:?}");
            assert!(bytes[got..].iter().all(|byte| *byte == 0), "round {round}: {lens:?}");
            read += got;
            if read == sent {
                break;
            }
        }
        assert_eq!(p.read(reader, &mut [0; 8]), Ok(0));
        p.close(reader).unwrap();
    }
}

fn room<'a, 'b>(buffers: &'a mut [&'b mut [u8]]) -> RecvMsg<'a, 'b> {
    RecvMsg { buffers, ..RecvMsg::default() }
}

fn message<'a>(buffers: &'a [&'a [u8]]) -> SendMsg<'a> {
    SendMsg { buffers, ..SendMsg::default() }
}

#[test]
fn several_messages_go_with_one_call() {
    quietline_testing::isolated!();
    let p = &process();
    for ty in [SOCK_DGRAM, SOCK_SEQPACKET] {
        let [a, b] = p.socketpair(AF_UNIX, ty, 0).unwrap();
        let mut three = [message(&[b"one"]), message(&[b"tw", b"o"]), message(&[b"three"])];
        assert_eq!(p.sendmmsg(a, &mut three, 0), Ok(3));
        assert_eq!(three.map(|message| message.sent), [3, 3, 5]);
        let mut bytes = [[0u8; 8]; 4];
        let [w, x, y, z] = &mut bytes;
        let (w, x, y, z) =
            (&mut [&mut w[..]], &mut [&mut x[..]], &mut [&mut y[..4]], &mut [&mut z[..]]);
        let mut four = [room(w), room(x), room(y), room(z)];
        assert_eq!(p.recvmmsg(b, &mut four, MSG_DONTWAIT, None), Ok(3));
        assert_eq!(four.each_ref().map(|message| message.received), [3, 3, 4, 0]);
        assert_eq!(four.each_ref().map(|message| message.flags), [0, 0, MSG_TRUNC, 0]);
        assert_eq!(bytes.map(|bytes| bytes[0]), *b"ott\0");
        // None.
        assert_eq!(p.sendmmsg(a, &mut [], 0), Ok(0));
        assert_eq!(p.recvmmsg(b, &mut [], 0, None), Ok(0));
        assert_eq!(
            p.recvmmsg(b, &mut [room(&mut [&mut [0; 4]])], MSG_DONTWAIT, None),
            Err(Errno::AGAIN)
        );
    }
    assert_eq!(p.sendmmsg(-1, &mut [], 0), Err(Errno::BADF));
    assert_eq!(p.recvmmsg(-1, &mut [], 0, None), Err(Errno::BADF));
}

/// As the host does it (Linux 6.18): what is left of a message that went in part does not come
/// after the next one.
#[test]
fn several_messages_end_with_one_that_does_not_go() {
    quietline_testing::isolated!();
    let p = &process();
    // One that goes in part.
    let [a, b] = p.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
    let long = vec![1; 1_000_000];
    let parts: [&[u8]; 1] = [&long];
    let mut two = [message(&parts), message(&[b"x"])];
    assert_eq!(p.sendmmsg(a, &mut two, 0), Ok(1));
    assert!((1..long.len()).contains(&two[0].sent), "{}", two[0].sent);
    let mut got = 0;
    while let Ok(n) = p.read(b, &mut [0; 4096]) {
        got += n;
    }
    assert_eq!((got, two[1].sent), (two[0].sent, 0));
    // One that is wrong: the first tells, a later one does not.
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let many: Vec<&[u8]> = vec![b"x"; 1025];
    assert_eq!(p.sendmmsg(a, &mut [message(&many), message(&[b"y"])], 0), Err(Errno::MSGSIZE));
    assert_eq!(p.sendmmsg(a, &mut [message(&[b"y"]), message(&many), message(&[b"z"])], 0), Ok(1));
    assert_eq!(p.recv(b, &mut [0; 4], MSG_DONTWAIT), Ok(1));
    assert_eq!(p.recv(b, &mut [0; 4], MSG_DONTWAIT), Err(Errno::AGAIN));
    assert_eq!(p.send(a, b"no error is left", 0), Ok(16));
    // More than a thousand go as a thousand.
    let sender = p.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    p.bind(sender, &[&2u16.to_ne_bytes()[..], &[0; 14]].concat()).unwrap();
    p.connect(sender, p.getsockname(sender).unwrap().bytes()).unwrap();
    p.setsockopt(sender, SOL_SOCKET, SO_RCVBUF, &(4i32 << 20).to_ne_bytes()).unwrap();
    let mut all = vec![message(&[b"x"]); 1100];
    assert_eq!(p.sendmmsg(sender, &mut all, 0), Ok(1024));
    assert_eq!(p.sendmmsg(sender, &mut all[1024..], 0), Ok(76));
    // Not so when they are received.
    let mut bytes = vec![[0u8; 1]; 1200];
    let mut buffers: Vec<[&mut [u8]; 1]> = bytes.iter_mut().map(|byte| [&mut byte[..]]).collect();
    let mut rooms: Vec<_> = buffers.iter_mut().map(|buffers| room(buffers)).collect();
    assert_eq!(p.recvmmsg(sender, &mut rooms, MSG_DONTWAIT, None), Ok(1100));
}

/// An error after the first message is told by the next call, whichever that is.
#[test]
fn an_error_after_the_first_message_is_kept() {
    quietline_testing::isolated!();
    let p = &process();
    let udp = || {
        let fd = p.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
        p.bind(fd, &[&2u16.to_ne_bytes()[..], &[0; 14]].concat()).unwrap();
        p.connect(fd, p.getsockname(fd).unwrap().bytes()).unwrap();
        [fd, fd]
    };
    for [a, b] in [p.socketpair(AF_UNIX, SOCK_SEQPACKET, 0).unwrap(), udp()] {
        for _ in 0..2 {
            assert_eq!(p.send(a, b"x", 0), Ok(1));
        }
        let mut bytes = [[0u8; 1]; 1100];
        let mut many: Vec<&mut [u8]> = bytes.iter_mut().map(|byte| &mut byte[..]).collect();
        let first: &mut [&mut [u8]] = &mut [&mut [0; 1]];
        assert_eq!(p.recvmmsg(b, &mut [room(first), room(&mut many)], MSG_DONTWAIT, None), Ok(1));
        let mut error = [0; 4];
        p.getsockopt(b, SOL_SOCKET, SO_ERROR, &mut error).unwrap();
        assert_eq!(i32::from_ne_bytes(error), libc::EMSGSIZE);
        // The other one is there still; and so it goes when the error is not asked for.
        assert_eq!(p.send(a, b"x", 0), Ok(1));
        assert_eq!(p.recvmmsg(b, &mut [room(first), room(&mut many)], MSG_DONTWAIT, None), Ok(1));
        assert_eq!(p.recvmmsg(b, &mut [room(first)], MSG_DONTWAIT, None), Err(Errno::MSGSIZE));
        assert_eq!(p.recvmmsg(b, &mut [room(first)], MSG_DONTWAIT, None), Ok(1));
        // That there is nothing more is no error.
        assert_eq!(p.recvmmsg(b, &mut [room(first)], MSG_DONTWAIT, None), Err(Errno::AGAIN));
        assert_eq!(p.getsockopt(b, SOL_SOCKET, SO_ERROR, &mut error), Ok(4));
        assert_eq!(error, [0; 4]);
    }
}

/// `MSG_WAITFORONE` waits for the first, a time ends with the first message after it, and without
/// either all are waited for.
#[test]
fn several_messages_are_waited_for() {
    quietline_testing::isolated!();
    let p = &process();
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let receive = |flags, time: Option<&mut Duration>| {
        let mut bytes = [[0u8; 1]; 3];
        let [x, y, z] = &mut bytes;
        let (x, y, z) = (&mut [&mut x[..]], &mut [&mut y[..]], &mut [&mut z[..]]);
        p.recvmmsg(b, &mut [room(x), room(y), room(z)], flags, time)
    };
    let waiting = |flags, then: &dyn Fn()| {
        std::thread::scope(|scope| {
            let waiting = spawn_asleep(scope, || receive(flags, None));
            assert!(!waiting.is_finished(), "it did not wait");
            then();
            waiting.join().unwrap()
        })
    };
    assert_eq!(waiting(MSG_WAITFORONE, &|| assert_eq!(p.send(a, b"x", 0), Ok(1))), Ok(1));
    for _ in 0..2 {
        p.send(a, b"x", 0).unwrap();
    }
    assert_eq!(receive(MSG_WAITFORONE, None), Ok(2));
    let all = waiting(0, &|| (0..3).for_each(|_| assert_eq!(p.send(a, b"x", 0), Ok(1))));
    assert_eq!(all, Ok(3));
    // No time at all is enough for one.
    for _ in 0..3 {
        p.send(a, b"x", 0).unwrap();
    }
    let mut time = Duration::ZERO;
    assert_eq!(receive(0, Some(&mut time)), Ok(1));
    time = Duration::from_secs(1000);
    assert_eq!(receive(MSG_DONTWAIT, Some(&mut time)), Ok(2));
    assert!(time < Duration::from_secs(1000) && time > Duration::from_secs(900), "{time:?}");
}

/// The messages of a call come from, and go to, the socket that it began with, whatever becomes of
/// the descriptor.
#[test]
fn several_messages_are_of_one_socket() {
    quietline_testing::isolated!();
    let p = &process();
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let [other, other_end] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    assert_eq!(p.send(a, b"1", 0), Ok(1));
    assert_eq!(p.send(other, b"x", 0), Ok(1));
    let (n, bytes) = std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || {
            let mut bytes = [[0u8; 1]; 3];
            let [x, y, z] = &mut bytes;
            let (x, y, z) = (&mut [&mut x[..]], &mut [&mut y[..]], &mut [&mut z[..]]);
            (p.recvmmsg(b, &mut [room(x), room(y), room(z)], 0, None), bytes)
        });
        assert!(!waiting.is_finished(), "it did not wait for the second");
        assert_eq!(p.dup2(other_end, b), Ok(b));
        for byte in [b"2", b"3"] {
            assert_eq!(p.send(a, byte, 0), Ok(1));
        }
        waiting.join().unwrap()
    });
    assert_eq!((n, bytes), (Ok(3), [*b"1", *b"2", *b"3"]));
    // Some fit, and the rest waits.
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    // So that a test that fails comes to an end.
    p.setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &timeval(Duration::from_secs(60))).unwrap();
    let sent = std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || p.sendmmsg(a, &mut [message(&[&[7; 10_000]]); 40], 0));
        assert!(!waiting.is_finished(), "all fitted");
        assert_eq!(p.dup2(other, a), Ok(a));
        let got = (0..40).take_while(|_| p.recv(b, &mut [0; 4], 0) == Ok(4)).count();
        assert_eq!(got, 40, "the rest went elsewhere");
        waiting.join().unwrap()
    });
    assert_eq!(sent, Ok(40));
}
