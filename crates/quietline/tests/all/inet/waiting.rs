//! Calls that wait: they go on when they can, and not before; they are told when they cannot.

use crate::support::spawn_asleep;
use quietline::abi::{AF_INET, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
use quietline::{Config, Errno, Interrupt, Kernel, PollFd, Process, Shared};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(30);

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

fn loopback(port: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&port.to_be_bytes());
    raw[4..8].copy_from_slice(&[127, 0, 0, 1]);
    raw
}

fn listener(process: &Process, backlog: i32) -> (i32, Vec<u8>) {
    let fd = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.bind(fd, &loopback(0)).unwrap();
    process.listen(fd, backlog).unwrap();
    (fd, process.getsockname(fd).unwrap().bytes().to_vec())
}

fn pair(process: &Process) -> (i32, i32) {
    let (listener, address) = listener(process, 1);
    let client = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.connect(client, &address).unwrap();
    let (server, _) = process.accept(listener).unwrap();
    process.close(listener).unwrap();
    (client, server)
}

/// Runs `wait` in a thread, and `then` while it waits: what it says, and that it waited.
fn while_waiting<R: Send>(wait: impl FnOnce() -> R + Send, then: impl FnOnce()) -> R {
    thread::scope(|scope| {
        let waiter = spawn_asleep(scope, wait);
        assert!(!waiter.is_finished(), "it did not wait");
        then();
        waiter.join().unwrap()
    })
}

fn timeval(time: Duration) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&time.as_secs().to_ne_bytes());
    raw[8..].copy_from_slice(&u64::from(time.subsec_micros()).to_ne_bytes());
    raw
}

#[test]
fn a_reader_waits_for_bytes_and_for_the_end() {
    quietline_testing::isolated!();
    let process = &process();
    let (client, server) = pair(process);
    let mut buffer = [0; 10];
    let got = while_waiting(
        || process.read(server, &mut buffer),
        || assert_eq!(process.write(client, b"hello"), Ok(5)),
    );
    assert_eq!(got, Ok(5));
    let got = while_waiting(
        || process.recv(server, &mut [0; 10], 0),
        || process.shutdown(client, 1).unwrap(),
    );
    assert_eq!(got, Ok(0));
    // Unread bytes make the close a reset.
    process.write(server, b"unread").unwrap();
    let (client, server) = pair(process);
    process.write(server, b"unread").unwrap();
    let got =
        while_waiting(|| process.recv(server, &mut [0; 10], 0), || process.close(client).unwrap());
    assert_eq!(got, Err(Errno::CONNRESET));
}

#[test]
fn a_reader_that_wants_all_gets_all_or_the_rest() {
    quietline_testing::isolated!();
    let process = &process();
    let (client, server) = pair(process);
    let mut buffer = [0; 10];
    process.write(client, b"01234").unwrap();
    let got = while_waiting(
        || process.recv(server, &mut buffer, libc::MSG_WAITALL),
        || assert_eq!(process.write(client, b"56789abc"), Ok(8)),
    );
    assert_eq!((got, &buffer[..]), (Ok(10), &b"0123456789"[..]));
    let got = while_waiting(
        || process.recv(server, &mut [0; 10], libc::MSG_WAITALL),
        || process.shutdown(client, 1).unwrap(),
    );
    assert_eq!(got, Ok(3));
}

#[test]
fn a_writer_waits_for_room() {
    quietline_testing::isolated!();
    let process = &process();
    let (client, server) = pair(process);
    let all = vec![7; 9_000_000];
    let (sent, received) = thread::scope(|scope| {
        let writer = spawn_asleep(scope, || process.write(client, &all));
        assert!(!writer.is_finished(), "there is a limit");
        let mut buffer = vec![0; 100_000];
        let mut received = 0;
        while received < all.len() {
            let n = process.read(server, &mut buffer).unwrap();
            assert!(n > 0 && buffer[..n].iter().all(|&byte| byte == 7));
            received += n;
        }
        (writer.join().unwrap(), received)
    });
    assert_eq!((sent, received), (Ok(all.len()), all.len()));
    // A reset ends the wait; what was sent before is told.
    let sent = while_waiting(|| process.send(client, &all, 0), || process.close(server).unwrap());
    assert!(matches!(sent, Ok(1..9_000_000)), "{sent:?}");
    assert_eq!(process.send(client, &all, 0), Err(Errno::CONNRESET));
    assert_eq!(process.write(client, &all), Err(Errno::PIPE));
}

/// More room on either side is told to whoever waits for it, and to whoever polls.
#[test]
fn a_writer_waits_until_there_may_be_more() {
    quietline_testing::isolated!();
    let process = &process();
    let set = |fd, name, value: i32| {
        process.setsockopt(fd, libc::SOL_SOCKET, name, &value.to_ne_bytes()).unwrap();
    };
    for own in [true, false] {
        let (client, server) = pair(process);
        set(client, libc::SO_SNDBUF, 1);
        set(server, libc::SO_RCVBUF, 1);
        let writable = || {
            let mut fds = [PollFd { fd: client, events: libc::POLLOUT, revents: 0 }];
            process.poll(&mut fds, 0).unwrap() == 1
        };
        let all = vec![7; 100_000];
        let more = || {
            assert!(!writable());
            if own {
                set(client, libc::SO_SNDBUF, 200_000)
            } else {
                set(server, libc::SO_RCVBUF, 400_000)
            }
        };
        let sent = while_waiting(|| process.write(client, &all), more);
        assert_eq!(sent, Ok(all.len()));
        assert!(writable());
        // Less room is told at once to who sends and is asked.
        set(client, libc::SO_SNDBUF, 1);
        set(server, libc::SO_RCVBUF, 1);
        assert_eq!(process.send(client, b"x", libc::MSG_DONTWAIT), Err(Errno::AGAIN));
        assert!(!writable());
        // And a poller that waits.
        let polled = while_waiting(
            || {
                let mut fds = [PollFd { fd: client, events: libc::POLLOUT, revents: 0 }];
                process.poll(&mut fds, 10_000).map(|n| (n, fds[0].revents))
            },
            || {
                if own {
                    set(client, libc::SO_SNDBUF, 200_000)
                } else {
                    set(server, libc::SO_RCVBUF, 400_000)
                }
            },
        );
        assert_eq!(polled, Ok((1, libc::POLLOUT)));
    }
}

#[test]
fn an_acceptor_waits_for_a_connection_and_is_told_of_the_end() {
    quietline_testing::isolated!();
    let process = &process();
    let (listener, address) = listener(process, 1);
    let client = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    let accepted =
        while_waiting(|| process.accept(listener), || process.connect(client, &address).unwrap());
    let (_, name) = accepted.unwrap();
    assert_eq!(name, process.getsockname(client).unwrap());
    let accepted =
        while_waiting(|| process.accept(listener), || process.shutdown(listener, 0).unwrap());
    assert_eq!(accepted.unwrap_err(), Errno::INVAL);
}

#[test]
fn a_connection_waits_for_a_place_in_a_full_backlog() {
    quietline_testing::isolated!();
    let process = &process();
    let (listener, address) = listener(process, 0);
    let client = |flags| process.socket(AF_INET, SOCK_STREAM | flags, 0).unwrap();
    process.connect(client(0), &address).unwrap();
    let waits = client(0);
    let connected = while_waiting(
        || process.connect(waits, &address),
        || {
            process.accept(listener).unwrap();
        },
    );
    assert_eq!(connected, Ok(()));
    // One that does not wait is told so, and hears of the end later.
    let polls = client(SOCK_NONBLOCK);
    assert_eq!(process.connect(polls, &address), Err(Errno::INPROGRESS));
    assert_eq!(process.connect(polls, &address), Err(Errno::ALREADY));
    assert_eq!(process.write(polls, b"x"), Err(Errno::AGAIN));
    process.accept(listener).unwrap();
    assert_eq!(process.write(polls, b"x"), Ok(1));
    assert_eq!(process.connect(polls, &address), Ok(()));
    assert_eq!(process.connect(polls, &address), Err(Errno::ISCONN));
    // The listener goes while one waits.
    let refused = client(0);
    let connected =
        while_waiting(|| process.connect(refused, &address), || process.close(listener).unwrap());
    assert_eq!(connected, Err(Errno::CONNREFUSED));
    assert_eq!(process.read(polls, &mut [0; 4]), Err(Errno::CONNRESET), "never accepted");
}

/// A backlog that becomes longer has places for those that wait.
#[test]
fn a_connection_gets_a_place_in_a_longer_backlog() {
    quietline_testing::isolated!();
    let process = &process();
    let (listener, address) = listener(process, 0);
    let client = |flags| process.socket(AF_INET, SOCK_STREAM | flags, 0).unwrap();
    process.connect(client(0), &address).unwrap();
    let [polls, waits] = [client(SOCK_NONBLOCK), client(0)];
    assert_eq!(process.connect(polls, &address), Err(Errno::INPROGRESS));
    let connected =
        while_waiting(|| process.connect(waits, &address), || process.listen(listener, 2).unwrap());
    assert_eq!(connected, Ok(()));
    assert_eq!(process.connect(polls, &address), Ok(()));
}

/// A socket that has waited for one listener and now waits for another is not taken in by the first.
#[test]
fn a_connection_that_was_given_up_is_not_made() {
    quietline_testing::isolated!();
    let process = &process();
    let [(one, first), (two, second)] = [listener(process, 0), listener(process, 0)];
    let client = |flags| process.socket(AF_INET, SOCK_STREAM | flags, 0).unwrap();
    for address in [&first, &second] {
        process.connect(client(0), address).unwrap();
    }
    let moved = client(SOCK_NONBLOCK);
    assert_eq!(process.connect(moved, &first), Err(Errno::INPROGRESS));
    assert_eq!(process.connect(moved, &[0; 16]), Ok(()), "given up");
    // What giving up has left.
    let mut error = [0; 4];
    process.getsockopt(moved, libc::SOL_SOCKET, libc::SO_ERROR, &mut error).unwrap();
    assert_eq!(process.connect(moved, &second), Err(Errno::INPROGRESS));
    process.accept(one).unwrap();
    assert_eq!(process.connect(moved, &second), Err(Errno::ALREADY), "still waits for the second");
    process.close(one).unwrap();
    assert_eq!(process.connect(moved, &second), Err(Errno::ALREADY));
    process.accept(two).unwrap();
    assert_eq!(process.connect(moved, &second), Ok(()));
    assert_eq!(process.getpeername(moved).unwrap().bytes(), &second[..]);
}

#[test]
fn times_run_out_and_interrupts_come_through() {
    quietline_testing::isolated!();
    let process = &process();
    let (client, server) = pair(process);
    for (level, name) in
        [(libc::SOL_SOCKET, libc::SO_RCVTIMEO), (libc::SOL_SOCKET, libc::SO_SNDTIMEO)]
    {
        process.setsockopt(client, level, name, &timeval(SOON)).unwrap();
    }
    let start = Instant::now();
    assert_eq!(process.recv(client, &mut [0; 4], 0), Err(Errno::AGAIN));
    assert_eq!(process.read(client, &mut [0; 4]), Err(Errno::AGAIN));
    assert!(start.elapsed() >= 2 * SOON);
    let all = vec![7; 9_000_000];
    let sent = process.send(client, &all, 0).unwrap();
    assert!(sent < all.len());
    assert_eq!(process.send(client, &all, 0), Err(Errno::AGAIN));
    // Of a listener the time is that of accept.
    let (listener, address) = listener(process, 0);
    process.setsockopt(listener, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeval(SOON)).unwrap();
    assert_eq!(process.accept(listener).unwrap_err(), Errno::AGAIN);
    process.connect(process.socket(AF_INET, SOCK_STREAM, 0).unwrap(), &address).unwrap();
    let late = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.setsockopt(late, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeval(SOON)).unwrap();
    assert_eq!(process.connect(late, &address), Err(Errno::INPROGRESS));
    // An interrupt.
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    let got = while_waiting(
        || {
            let _entered = Interrupt::enter(&interrupt);
            process.recv(server, &mut vec![0; sent + 1], libc::MSG_WAITALL).and(process.recv(
                server,
                &mut [0],
                0,
            ))
        },
        || interrupt.raise(),
    );
    assert_eq!(got, Err(Errno::INTR));
}

#[test]
fn a_datagram_is_waited_for() {
    quietline_testing::isolated!();
    let process = &process();
    let receiver = process.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    process.bind(receiver, &loopback(0)).unwrap();
    let address = process.getsockname(receiver).unwrap();
    let sender = process.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    let mut buffer = [0; 10];
    let got = while_waiting(
        || process.recvfrom(receiver, &mut buffer, 0),
        || assert_eq!(process.sendto(sender, b"hello", 0, address.bytes()), Ok(5)),
    );
    let (n, from) = got.unwrap();
    assert_eq!((n, &buffer[..5]), (5, &b"hello"[..]));
    assert_eq!(from.bytes()[2..4], process.getsockname(sender).unwrap().bytes()[2..4]);
    // Who is connected to nobody is told of it, also while he waits.
    process.close(receiver).unwrap();
    process.connect(sender, address.bytes()).unwrap();
    let got = while_waiting(
        || process.recv(sender, &mut [0; 4], 0),
        || assert_eq!(process.send(sender, b"x", 0), Ok(1)),
    );
    assert_eq!(got, Err(Errno::CONNREFUSED));
    let got = while_waiting(
        || process.recv(sender, &mut [0; 4], 0),
        || process.shutdown(sender, 0).unwrap(),
    );
    assert_eq!(got, Ok(0));
}
