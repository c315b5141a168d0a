//! Calls on local sockets: what waits, what is passed, and what nobody can reach any more.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process, RecvMsg, SendMsg};
use std::time::{Duration, Instant};

fn kernel() -> Kernel {
    Kernel::boot(Config::default()).unwrap()
}

fn abstract_name(name: &str) -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], b"\0", name.as_bytes()].concat()
}

fn path_name(path: &str) -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], path.as_bytes(), b"\0"].concat()
}

fn pair(p: &Process, ty: i32) -> [i32; 2] {
    p.socketpair(AF_UNIX, ty, 0).unwrap()
}

fn rights(fds: &[i32]) -> Vec<u8> {
    let mut bytes = (16 + 4 * fds.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(SCM_RIGHTS.to_ne_bytes());
    bytes.extend(fds.iter().flat_map(|fd| fd.to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn pass(p: &Process, on: i32, fds: &[i32]) -> Result<usize, Errno> {
    p.sendmsg(on, &SendMsg { buffers: &[b"f"], control: &rights(fds), ..SendMsg::default() }, 0)
}

fn take(p: &Process, on: i32, flags: i32) -> Result<Vec<i32>, Errno> {
    let (mut byte, mut control) = ([0; 8], [0; 1200]);
    let buffers: &mut [&mut [u8]] = &mut [&mut byte];
    let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
    p.recvmsg(on, &mut message, flags)?;
    if message.control_len == 0 {
        return Ok(Vec::new());
    }
    let len = u64::from_ne_bytes(*control.first_chunk().unwrap()) as usize;
    Ok(control[16..len].as_chunks::<4>().0.iter().map(|fd| i32::from_ne_bytes(*fd)).collect())
}

/// Runs `f` on another thread, which sleeps in a call, while `then` is done here: what it says.
fn while_asleep<R: Send>(f: impl FnOnce() -> R + Send, then: impl FnOnce()) -> R {
    std::thread::scope(|scope| {
        let sleeper = crate::support::spawn_asleep(scope, f);
        assert!(!sleeper.is_finished(), "the call did not wait");
        let slept_on = sleeper.sleeps_on();
        then();
        let told = sleeper.join().unwrap();
        assert!(slept_on, "somebody has woken it before");
        told
    })
}

#[test]
fn a_reader_waits_for_a_writer_and_a_writer_for_room() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for ty in [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM] {
        let [a, b] = pair(p, ty);
        let mut buffer = [0; 10];
        let n = while_asleep(|| p.read(b, &mut buffer), || assert_eq!(p.write(a, b"hello"), Ok(5)));
        assert_eq!((n, &buffer[..5]), (Ok(5), &b"hello"[..]));
        let mut full = 0;
        while p.send(a, &[1; 4000], MSG_DONTWAIT).is_ok() {
            full += 1;
        }
        assert!(full > 20);
        let sent = while_asleep(
            || p.write(a, &[2; 4000]),
            || {
                for _ in 0..full {
                    assert_eq!(p.recv(b, &mut [0; 4000], 0), Ok(4000));
                }
            },
        );
        assert_eq!(sent, Ok(4000));
        // A reader at the end of a stream is told.
        p.recv(b, &mut [0; 4000], 0).unwrap();
        if ty != SOCK_DGRAM {
            let end = while_asleep(|| p.read(b, &mut [0; 10]), || p.close(a).unwrap());
            assert_eq!(end, Ok(0));
        }
    }
}

#[test]
fn a_long_write_goes_through_in_pieces() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, b] = pair(p, SOCK_STREAM);
    let all: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let got = std::thread::scope(|scope| {
        let writer = scope.spawn(|| p.send(a, &all, 0));
        let mut got = vec![0; all.len()];
        assert_eq!(p.recv(b, &mut got, MSG_WAITALL), Ok(all.len()));
        assert_eq!(writer.join().unwrap(), Ok(all.len()));
        got
    });
    assert!(got == all);
}

#[test]
fn connections_wait_for_room_and_for_each_other() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for name in [abstract_name("listener"), path_name("/socket")] {
        let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
        p.bind(listener, &name).unwrap();
        p.listen(listener, 0).unwrap();
        let [one, two] = [(); 2].map(|()| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap());
        let (server, _) =
            while_asleep(|| p.accept(listener), || p.connect(one, &name).unwrap()).unwrap();
        assert_eq!(p.write(one, b"x"), Ok(1));
        assert_eq!(p.read(server, &mut [0; 4]), Ok(1));
        assert_eq!(p.getpeername(one).unwrap().bytes(), &name[..]);
        p.connect(two, &name).unwrap();
        let three = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
        let connected =
            while_asleep(|| p.connect(three, &name), || assert!(p.accept(listener).is_ok()));
        assert_eq!(connected, Ok(()));
        // The third is in the queue; a fourth is refused when the listener goes.
        let four = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
        let refused = while_asleep(|| p.connect(four, &name), || p.close(listener).unwrap());
        assert_eq!(refused, Err(Errno::CONNREFUSED));
        assert_eq!(p.read(three, &mut [0; 4]), Err(Errno::CONNRESET));
        assert_eq!(p.read(three, &mut [0; 4]), Ok(0));
    }
    let mode = p.stat("/socket").unwrap().st_mode;
    assert_eq!(mode & S_IFMT, S_IFSOCK);
}

/// Who was woken for a place in a backlog and does not take it, because another thread has
/// connected his socket meanwhile, leaves it to the next.
#[test]
fn a_place_that_is_not_taken_is_the_next_ones() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let names = ["listener", "another"].map(abstract_name);
    let [listener, another] = [0, 1].map(|n: usize| {
        let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
        p.bind(listener, &names[n]).unwrap();
        p.listen(listener, 0).unwrap();
        listener
    });
    let [first, twice, last] = [(); 3].map(|()| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap());
    p.connect(first, &names[0]).unwrap();
    std::thread::scope(|scope| {
        let waiting = crate::support::spawn_asleep(scope, || p.connect(twice, &names[0]));
        let next = crate::support::spawn_asleep(scope, || p.connect(last, &names[0]));
        p.connect(twice, &names[1]).unwrap();
        let both_wait = waiting.sleeps_on() && next.sleeps_on();
        p.accept(listener).unwrap();
        assert_eq!(waiting.join().unwrap(), Err(Errno::ISCONN));
        // If nobody tells it, it sleeps on: let it go then.
        for _ in 0..20_000 {
            if next.is_finished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let slept_on = !next.is_finished();
        if slept_on {
            p.shutdown(listener, SHUT_RDWR).unwrap();
        }
        assert_eq!((slept_on, next.join().unwrap()), (false, Ok(())), "beside a place");
        assert!(both_wait, "woken for no place");
        p.accept(listener).unwrap();
    });
    p.accept(another).unwrap();
}

/// As on Linux: a datagram that has room with its sender waits for a place with the receiver, and
/// what becomes of its sender meanwhile is of no matter; what becomes of the receiver is told when
/// there is a place.
#[test]
fn who_waits_for_a_place_is_not_woken_by_a_shutdown() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for (of_sender, how, sent) in [
        (true, SHUT_RD, Ok(1)),
        (true, SHUT_WR, Ok(1)),
        (true, SHUT_RDWR, Ok(1)),
        (false, SHUT_RD, Err(Errno::PIPE)),
        (false, SHUT_WR, Ok(1)),
        (false, SHUT_RDWR, Err(Errno::PIPE)),
    ] {
        let [receiver, sender] = [(); 2].map(|()| p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap());
        let name = abstract_name("receiver");
        p.bind(receiver, &name).unwrap();
        p.connect(sender, &name).unwrap();
        while p.send(sender, b"x", MSG_DONTWAIT).is_ok() {}
        std::thread::scope(|scope| {
            let waiting =
                crate::support::spawn_asleep(scope, || p.send(sender, b"y", MSG_NOSIGNAL));
            p.shutdown(if of_sender { sender } else { receiver }, how).unwrap();
            let slept_on = waiting.sleeps_on();
            p.recv(receiver, &mut [0; 8], 0).unwrap();
            assert_eq!((slept_on, waiting.join().unwrap()), (true, sent), "{of_sender} {how}");
        });
        [receiver, sender].into_iter().for_each(|fd| p.close(fd).unwrap());
    }
}

#[test]
fn a_path_asks_for_the_right_to_write() {
    let kernel = Kernel::boot(Config::default().owner(0, 0).root_mode(0o777)).unwrap();
    let p = kernel.process().unwrap();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &path_name("/s")).unwrap();
    p.listen(listener, 5).unwrap();
    p.chmod("/s", 0o755).unwrap();
    let other = p.fork().unwrap();
    other.setresuid(1000, 1000, 1000).unwrap();
    let client = other.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    assert_eq!(other.connect(client, &path_name("/s")), Err(Errno::ACCESS));
    p.chmod("/s", 0o777).unwrap();
    assert_eq!(other.connect(client, &path_name("/s")), Ok(()));
    p.write(client + 1, b"").unwrap_err();
    let mut ids = [0; 12];
    assert_eq!(other.getsockopt(client, SOL_SOCKET, SO_PEERCRED, &mut ids), Ok(12));
    assert_eq!(i32::from_ne_bytes(*ids.first_chunk().unwrap()), p.getpid());
}

#[test]
fn waits_end_by_their_timeouts() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, b] = pair(p, SOCK_STREAM);
    let mut time = [0; 16];
    time[8..].copy_from_slice(&30_000i64.to_ne_bytes());
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        p.setsockopt(a, SOL_SOCKET, option, &time).unwrap();
        let mut told = [0; 16];
        assert_eq!(p.getsockopt(a, SOL_SOCKET, option, &mut told), Ok(16));
        assert_eq!(told, time);
    }
    let begun = Instant::now();
    assert_eq!(p.recv(a, &mut [0; 4], 0), Err(Errno::AGAIN));
    assert_eq!(p.read(a, &mut [0; 4]), Err(Errno::AGAIN));
    assert!(begun.elapsed() >= Duration::from_millis(60));
    while p.send(a, &[0; 10_000], MSG_DONTWAIT).is_ok() {}
    let begun = Instant::now();
    assert_eq!(p.send(a, &[0; 10_000], 0), Err(Errno::AGAIN));
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert!(p.recv(b, &mut [0; 4], 0).is_ok());
}

#[test]
fn a_wait_can_be_interrupted() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, _b] = pair(p, SOCK_STREAM);
    let interrupt = quietline::Shared::new(quietline::Interrupt::new()).unwrap();
    let told = while_asleep(
        || {
            let _entered = quietline::Interrupt::enter(&interrupt);
            p.recv(a, &mut [0; 4], 0)
        },
        || interrupt.raise(),
    );
    assert_eq!(told, Err(Errno::INTR));
}

#[test]
fn files_that_are_passed_are_the_same_files() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for ty in [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM] {
        let before = kernel.nr_files();
        let [a, b] = pair(p, ty);
        let event = p.eventfd(0, 0).unwrap();
        assert_eq!(pass(p, a, &[event, b, event]), Ok(1));
        p.close(event).unwrap();
        // A look makes descriptors of its own.
        let looked = take(p, b, MSG_PEEK).unwrap();
        let got = take(p, b, MSG_CMSG_CLOEXEC).unwrap();
        assert_eq!((looked.len(), got.len()), (3, 3));
        p.write(looked[0], &7u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        p.read(got[2], &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 7);
        assert_eq!(p.fd_name(got[1]).unwrap(), p.fd_name(b).unwrap());
        assert_eq!(p.fcntl(got[0], F_GETFD, 0), Ok(1));
        assert_eq!(p.fcntl(looked[0], F_GETFD, 0), Ok(0));
        for fd in looked.into_iter().chain(got).chain([a, b]) {
            p.close(fd).unwrap();
        }
        assert_eq!(kernel.nr_files(), before);
    }
}

/// Descriptors that arrive are the lowest that are free, unless any will do: then one that was
/// closed on this CPU is taken again, as for `O_ANYFD`, and the call does not say that it was asked
/// for that.
#[test]
fn what_arrives_takes_the_lowest_number_or_any() {
    crate::support::pin(crate::support::allowed_cpus()[0]);
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, b] = pair(p, SOCK_STREAM);
    let low = p.eventfd(0, 0).unwrap();
    let sent = p.eventfd(0, 0).unwrap();
    p.close(low).unwrap();
    pass(p, a, &[sent]).unwrap();
    assert_eq!(take(p, b, 0), Ok(vec![low]));
    p.close(low).unwrap();
    let (mut byte, mut control) = ([0; 8], [0; 64]);
    let buffers: &mut [&mut [u8]] = &mut [&mut byte];
    let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
    pass(p, a, &[sent, sent]).unwrap();
    assert_eq!(p.recvmsg(b, &mut message, MSG_CMSG_ANYFD), Ok(1));
    assert_eq!((message.flags, message.control_len), (0, 24));
    let fd = |at: usize| i32::from_ne_bytes(*control[at..].first_chunk().unwrap());
    let fds = [fd(16), fd(20)];
    assert_ne!(fds[0], fds[1]);
    for fd in fds {
        assert_eq!(p.fd_name(fd).unwrap(), p.fd_name(sent).unwrap());
        p.close(fd).unwrap();
    }
    let next = p.eventfd(0, O_ANYFD).unwrap();
    assert!(fds.contains(&next), "it lies in the CPU's store: {next}, {fds:?}");
}

/// Files for which there is no descriptor are closed when the call is over, in the middle of a
/// message's files as at its first: what comes next in the same call does not find the other end,
/// which is one of them, gone.
#[test]
fn what_finds_no_descriptor_is_closed_when_the_call_is_over() {
    // The other end is in the message behind all that find one.
    let cases = (0..3).flat_map(|free| {
        (free..3).flat_map(move |at| [SOCK_STREAM, SOCK_SEQPACKET].map(|ty| (ty, free, at)))
    });
    for (ty, free, at) in cases {
        let kernel = Kernel::boot(Config::default().nofile(4)).unwrap();
        let p = &kernel.process().unwrap();
        let [a, b] = pair(p, ty);
        let events: Vec<i32> = (0..2).map(|_| p.eventfd(0, 0).unwrap()).collect();
        let mut files = events.clone();
        files.insert(at, a);
        assert_eq!(pass(p, a, &files), Ok(1));
        p.close(a).unwrap();
        let last = p.eventfd(0, 0).unwrap();
        events.iter().take(free).for_each(|event| p.close(*event).unwrap());
        let mut bytes = [[0; 8]; 2];
        let mut controls = [[0; 64]; 2];
        let [first, second] = &mut bytes;
        let mut buffers: [[&mut [u8]; 1]; 2] = [[first], [second]];
        let mut messages: Vec<_> = buffers
            .iter_mut()
            .zip(&mut controls)
            .map(|(buffers, control)| RecvMsg { buffers, control, ..RecvMsg::default() })
            .collect();
        assert_eq!(p.recvmmsg(b, &mut messages, MSG_DONTWAIT, None), Ok(1), "{free} and {at}");
        assert_eq!((messages[0].received, messages[0].flags), (1, MSG_CTRUNC));
        assert_eq!(messages[0].control_len, [0, 24][usize::from(free != 0)]);
        assert_eq!(p.recv(b, &mut [0; 8], 0), Ok(0), "it is gone");
        p.close(last).unwrap();
        assert_eq!(kernel.nr_files(), 3, "the other two, and the receiver");
    }
}

/// Closes a pair: what makes the kernel look for what nobody can reach.
fn collect(p: &Process) {
    for fd in pair(p, SOCK_STREAM) {
        p.close(fd).unwrap();
    }
}

#[test]
fn what_nobody_can_reach_is_closed() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let before = kernel.nr_files();
    // Each in a message to itself, with an event counter that goes with it.
    let [a, b] = pair(p, SOCK_STREAM);
    let event = p.eventfd(0, 0).unwrap();
    pass(p, a, &[a, b, event]).unwrap();
    pass(p, b, &[b, a]).unwrap();
    // A ring of three pairs.
    let ring: Vec<[i32; 2]> = (0..3).map(|_| pair(p, SOCK_DGRAM)).collect();
    for n in 0..3 {
        pass(p, ring[n][0], &[ring[(n + 1) % 3][0], ring[(n + 1) % 3][1]]).unwrap();
    }
    // A listener in a message to a connection that it has not accepted.
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let name = abstract_name("lost");
    p.bind(listener, &name).unwrap();
    p.listen(listener, 5).unwrap();
    let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.connect(client, &name).unwrap();
    pass(p, client, &[listener, client]).unwrap();
    // One that can still be reached, through another message.
    let [c, d] = pair(p, SOCK_STREAM);
    let [kept, other] = pair(p, SOCK_STREAM);
    pass(p, other, &[kept]).unwrap();
    pass(p, c, &[kept]).unwrap();
    p.write(other, b"still here").unwrap();
    for fd in [a, b, event, listener, client, kept].into_iter().chain(ring.into_iter().flatten()) {
        p.close(fd).unwrap();
    }
    collect(p);
    assert_eq!(kernel.nr_files() - before, 4, "c, d, other, and what is in the message to d");
    let kept = take(p, d, 0).unwrap()[0];
    let again = take(p, kept, 0).unwrap()[0];
    let mut buffer = [0; 20];
    assert_eq!(p.read(again, &mut buffer), Ok(10));
    for fd in [c, d, kept, again, other] {
        p.close(fd).unwrap();
    }
    assert_eq!(kernel.nr_files(), before);
}

#[test]
fn a_kernel_ends_with_what_nobody_can_reach() {
    let kernel = kernel();
    let p = kernel.process().unwrap();
    let [a, b] = pair(&p, SOCK_STREAM);
    pass(&p, a, &[a, b]).unwrap();
    pass(&p, b, &[a, b]).unwrap();
    drop(p);
    drop(kernel);
}

/// Loops that are held by loops, more of them than one close ends.
#[test]
fn a_kernel_ends_with_loops_in_loops() {
    let kernel = kernel();
    let p = kernel.process().unwrap();
    let pairs: Vec<_> = (0..250).map(|_| pair(&p, SOCK_DGRAM)).collect();
    for (n, [a, b]) in pairs.iter().enumerate() {
        pass(&p, *b, &[*a]).unwrap();
        if let Some([next, _]) = pairs.get(n + 1) {
            pass(&p, *b, &[*next]).unwrap();
        }
    }
    for [a, b] in pairs.into_iter().rev() {
        p.close(b).unwrap();
        p.close(a).unwrap();
    }
    assert!(kernel.nr_files() > 0, "this is about what is left");
    drop(p);
    drop(kernel);
}

#[test]
fn a_long_chain_of_messages_ends_without_a_deep_stack() {
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(|| {
            let kernel = kernel();
            let p = &kernel.process().unwrap();
            let [mut a, mut b] = pair(p, SOCK_DGRAM);
            for _ in 0..20_000 {
                let [c, d] = pair(p, SOCK_DGRAM);
                pass(p, c, &[a, b]).unwrap();
                p.close(a).unwrap();
                p.close(b).unwrap();
                (a, b) = (c, d);
            }
            p.close(a).unwrap();
            p.close(b).unwrap();
            assert_eq!(kernel.nr_files(), 0);
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn limits_are_exact() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, b] = pair(p, SOCK_STREAM);
    // Files in a message.
    assert_eq!(pass(p, a, &[a; SCM_MAX_FD]), Ok(1));
    assert_eq!(take(p, b, 0).unwrap().len(), SCM_MAX_FD);
    assert_eq!(pass(p, a, &[a; SCM_MAX_FD + 1]), Err(Errno::INVAL));
    // A message's size.
    let [c, d] = pair(p, SOCK_SEQPACKET);
    assert_eq!(p.send(c, &[0; 212_992 - 32], 0), Ok(212_960));
    assert_eq!(p.send(c, &[0; 212_992 - 31], 0), Err(Errno::MSGSIZE));
    assert_eq!(p.recv(d, &mut [0; 300_000], 0), Ok(212_960));
    // Datagrams of those who are not connected.
    let receiver = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let name = abstract_name("receiver");
    p.bind(receiver, &name).unwrap();
    let sender = p.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0).unwrap();
    let sent = (0..).take_while(|_| p.sendto(sender, b"x", 0, &name).is_ok()).count();
    assert_eq!(sent, 11);
    // A sender that waits is woken by a read.
    let waiting = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let sent = while_asleep(
        || p.sendto(waiting, b"y", 0, &name),
        || assert_eq!(p.recv(receiver, &mut [0; 4], 0), Ok(1)),
    );
    assert_eq!(sent, Ok(1));
    // Descriptors: the connection stays in the queue.
    let listener = p.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
    p.bind(listener, &abstract_name("l")).unwrap();
    p.listen(listener, 5).unwrap();
    let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.connect(client, &abstract_name("l")).unwrap();
    let limit = p.nofile();
    p.set_nofile(client as usize + 1).unwrap();
    assert_eq!(p.accept(listener), Err(Errno::MFILE));
    p.set_nofile(limit).unwrap();
    assert!(p.accept(listener).is_ok());
    assert_eq!(p.accept(listener), Err(Errno::AGAIN));
}

/// How many bytes an end has sent that nobody has read.
fn unread(p: &Process, fd: i32) -> i32 {
    let mut answer = -1;
    p.ioctl(fd, 0x5411, &mut answer).unwrap();
    answer
}

#[test]
fn a_receive_that_comes_to_sockets_loses_and_doubles_nothing() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let [a, b] = pair(p, SOCK_STREAM);
    let passed = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    assert_eq!(p.write(a, b"first"), Ok(5));
    assert_eq!(pass(p, a, &[passed]), Ok(1));
    let mut buffer = [0; 20];
    assert_eq!(p.recv(b, &mut buffer, MSG_PEEK), Ok(6));
    assert_eq!(&buffer[..6], b"firstf");
    assert_eq!(p.recv(b, &mut buffer, 0), Ok(6));
    assert_eq!(&buffer[..6], b"firstf");
    assert_eq!(unread(p, a), 0, "what was read is room again");
    assert_eq!(p.write(a, b"x"), Ok(1));
    assert_eq!((p.read(b, &mut buffer), unread(p, a)), (Ok(1), 0));
}

/// Two threads send from one socket, each to a receiver that has no room. The first that waited is
/// not the one for whom there is room again.
#[test]
fn two_who_wait_for_two_receivers_are_each_told_of_theirs() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let sender = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let receiver = |name: &str| {
        let fd = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
        p.bind(fd, &abstract_name(name)).unwrap();
        while p.sendto(sender, b"x", MSG_DONTWAIT, &abstract_name(name)).is_ok() {}
        fd
    };
    let (one, two) = (receiver("one"), receiver("two"));
    // So that a fault is a failure, not a test without an end.
    let second = [5i64.to_ne_bytes(), 0i64.to_ne_bytes()].concat();
    p.setsockopt(sender, SOL_SOCKET, SO_SNDTIMEO, &second).unwrap();
    std::thread::scope(|scope| {
        let send = |name: &'static str| move || p.sendto(sender, b"y", 0, &abstract_name(name));
        let first = crate::support::spawn_asleep(scope, send("one"));
        let second = crate::support::spawn_asleep(scope, send("two"));
        assert!(first.sleeps_on() && second.sleeps_on(), "both wait");
        p.read(two, &mut [0; 4]).unwrap();
        assert_eq!(second.join().unwrap(), Ok(1));
        assert!(first.sleeps_on(), "there is no room in his");
        p.read(one, &mut [0; 4]).unwrap();
        assert_eq!(first.join().unwrap(), Ok(1));
    });
}

/// A listener goes, and another one that is as full stands at its path: who waits for a place has
/// waited, and has what is left of his time.
#[test]
fn a_connect_that_waits_again_waits_for_what_is_left() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let full = |path| {
        let [listener, first] = [(); 2].map(|()| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap());
        p.bind(listener, &path_name(path)).unwrap();
        p.listen(listener, 0).unwrap();
        p.connect(first, &path_name(path)).unwrap();
        listener
    };
    let mut listener = full("/at");
    let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let time = [0i64.to_ne_bytes(), 300_000i64.to_ne_bytes()].concat();
    p.setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &time).unwrap();
    let began = Instant::now();
    let mut moved = 0;
    let connected = std::thread::scope(|scope| {
        let waits = scope.spawn(|| p.connect(client, &path_name("/at")));
        while !waits.is_finished() && moved < 50 {
            let next = full("/next");
            p.rename("/next", "/at").unwrap();
            p.close(listener).unwrap();
            listener = next;
            moved += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        waits.join().unwrap()
    });
    assert_eq!(connected, Err(Errno::AGAIN));
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(moved < 50, "its time began anew, again and again");
}

/// Whether a thread that is to be told something comes to its end.
fn ends<R>(thread: &crate::support::Asleep<'_, R>) -> bool {
    let begun = Instant::now();
    while !thread.is_finished() {
        if begun.elapsed() > Duration::from_secs(120) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// As on Linux, who waits for a place has had room of his own: when it is his turn he sends, and is
/// not lost where his socket has sent elsewhere meanwhile, what it may.
#[test]
fn who_waits_for_a_place_has_had_room_of_his_own() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let sender = || p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let receiver = |name: &str| {
        let fd = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
        p.bind(fd, &abstract_name(name)).unwrap();
        fd
    };
    let (one, two, shared, next, fill) =
        (receiver("one"), receiver("two"), sender(), sender(), sender());
    p.setsockopt(shared, SOL_SOCKET, SO_SNDBUF, &1i32.to_ne_bytes()).unwrap();
    while p.sendto(fill, b"x", MSG_DONTWAIT, &abstract_name("one")).is_ok() {}
    std::thread::scope(|scope| {
        let waiting = crate::support::spawn_asleep(scope, || {
            p.sendto(shared, b"y", 0, &abstract_name("one"))
        });
        let next =
            crate::support::spawn_asleep(scope, || p.sendto(next, b"z", 0, &abstract_name("one")));
        let mut unread = 0;
        while p.sendto(shared, &[7; 1000], MSG_DONTWAIT, &abstract_name("two")).is_ok() {
            unread += 1;
        }
        assert!((1..10).contains(&unread), "{unread}: two has places, and the sender no room");
        let both_wait = waiting.sleeps_on() && next.sleeps_on();
        p.read(one, &mut [0; 4]).unwrap();
        let was_first = ends(&waiting) && next.sleeps_on();
        p.read(one, &mut [0; 4]).unwrap();
        let was_second = ends(&next);
        // Whom nobody has told goes on now.
        p.close(two).unwrap();
        while p.recv(one, &mut [0; 4], MSG_DONTWAIT).is_ok() {}
        let sent = (waiting.join().unwrap(), next.join().unwrap());
        assert_eq!((both_wait, was_first, was_second, sent), (true, true, true, (Ok(1), Ok(1))));
    });
}

/// A sender that takes the place that he was woken for does not wake the next, who would lose his
/// turn for nothing: also where the receiver is told by name.
#[test]
fn who_sends_by_name_waits_in_turn_too() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let receiver = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    p.bind(receiver, &abstract_name("turn")).unwrap();
    let sender = || p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let fill = sender();
    while p.sendto(fill, b"x", MSG_DONTWAIT, &abstract_name("turn")).is_ok() {}
    std::thread::scope(|scope| {
        let waiting = [b"1", b"2", b"3"].map(|turn| {
            let fd = sender();
            crate::support::spawn_asleep(scope, move || {
                p.sendto(fd, turn, 0, &abstract_name("turn"))
            })
        });
        let in_turn = [0, 1, 2].map(|turn| {
            p.read(receiver, &mut [0; 4]).unwrap();
            ends(&waiting[turn]) && waiting[turn + 1..].iter().all(|next| next.sleeps_on())
        });
        // Whose turn did not come goes on now.
        while p.recv(receiver, &mut [0; 4], MSG_DONTWAIT).is_ok() {}
        let sent = waiting.map(|sender| sender.join().unwrap());
        assert_eq!((in_turn, sent), ([true; 3], [Ok(1); 3]));
    });
}

#[test]
fn who_waits_for_a_place_gets_it_in_turn() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    let connected = || {
        let fd = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
        p.connect(fd, &abstract_name("turn")).unwrap();
        fd
    };
    let receiver = p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    p.bind(receiver, &abstract_name("turn")).unwrap();
    let fill = connected();
    while p.send(fill, b"x", MSG_DONTWAIT).is_ok() {}
    let senders = [connected(), connected(), connected()];
    std::thread::scope(|scope| {
        let first = crate::support::spawn_asleep(scope, || p.send(senders[0], b"1", 0));
        let second = crate::support::spawn_asleep(scope, || p.write(senders[1], b"2"));
        let third = crate::support::spawn_asleep(scope, || p.send(senders[2], b"3", 0));
        p.read(receiver, &mut [0; 4]).unwrap();
        assert_eq!(first.join().unwrap(), Ok(1));
        // Told when nobody sleeps any more: a failure is to have an end.
        let first_alone = second.sleeps_on() && third.sleeps_on();
        p.read(receiver, &mut [0; 4]).unwrap();
        assert_eq!(second.join().unwrap(), Ok(1));
        let second_alone = third.sleeps_on();
        p.close(receiver).unwrap();
        assert_eq!(third.join().unwrap(), Err(Errno::CONNREFUSED));
        assert_eq!((first_alone, second_alone), (true, true), "there was one place, and one more");
    });
}

#[test]
fn each_message_wakes_one_reader_and_he_wakes_nobody() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for ty in [SOCK_DGRAM, SOCK_SEQPACKET] {
        let [a, b] = pair(p, ty);
        std::thread::scope(|scope| {
            // They are woken in this order, and who only looks uses up the wake-up of what he
            // leaves there.
            let looks =
                crate::support::spawn_asleep(scope, move || p.recv(a, &mut [0; 10], MSG_PEEK));
            let reads = crate::support::spawn_asleep(scope, move || p.read(a, &mut [0; 10]));
            let last = crate::support::spawn_asleep(scope, move || p.read(a, &mut [0; 10]));
            assert_eq!(p.send(b, &[0; 5], 0), Ok(5));
            assert_eq!(looks.join().unwrap(), Ok(5));
            assert_eq!(p.send(b, &[0; 3], 0), Ok(3));
            assert_eq!(reads.join().unwrap(), Ok(5));
            let slept_on = last.sleeps_on();
            assert_eq!(p.send(b, &[0; 2], 0), Ok(2));
            assert_eq!(last.join().unwrap(), Ok(3));
            assert!(slept_on, "woken for a message whose wake-up another has had");
        });
        assert_eq!(p.recv(a, &mut [0; 10], MSG_DONTWAIT), Ok(2));
    }
}

#[test]
fn the_other_end_of_what_nobody_can_reach_is_told_of_an_end_and_of_no_loss() {
    let kernel = kernel();
    let p = &kernel.process().unwrap();
    for ty in [SOCK_STREAM, SOCK_SEQPACKET] {
        let [a, b] = pair(p, ty);
        assert_eq!(pass(p, b, &[a]), Ok(1));
        assert_eq!(p.send(b, b"more", 0), Ok(4));
        p.close(a).unwrap();
        assert_eq!(p.recv(b, &mut [0; 4], MSG_DONTWAIT), Err(Errno::AGAIN), "still there");
        for fd in pair(p, SOCK_STREAM) {
            p.close(fd).unwrap();
        }
        assert_eq!(p.recv(b, &mut [0; 4], MSG_DONTWAIT), Ok(0));
        p.close(b).unwrap();
    }
}
