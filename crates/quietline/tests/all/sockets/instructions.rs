//! How many locked instructions it takes to make, connect and close sockets that can carry data,
//! and why not fewer: see `locked_instructions.rs`.

use quietline::abi::*;
use quietline::{Config, Kernel, Process, RecvMsg, SendMsg};
use quietline_count::{Error, count};
use quietline_platform::percpu::{Body, active};

/// That `f` executes `locked` locked instructions and calls the host for nothing.
#[track_caller]
fn assert_locked(what: &str, locked: u64, mut f: impl FnMut()) {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    for _ in 0..100 {
        f();
    }
    match count(f) {
        Ok(counts) => {
            println!("{what}: {} locked, {} instructions", counts.locked, counts.instructions);
            assert_eq!((counts.locked, counts.syscalls), (locked, 0), "{what}: {counts}");
        }
        Err(Error::Refused(e)) => {
            let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
            assert!(!required, "counting is required here, but this system refuses to trace: {e}");
            eprintln!("not checked: this system refuses to trace: {e}");
        }
        Err(e) => panic!("{e}"),
    }
}

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

#[test]
fn pairs() {
    quietline_testing::isolated!();
    let p = process();
    // 1, 2: the files' counts, as of any socket. 3, 4: each end's lock, to take what was not read.
    // 5: the other's lock, of the first end to go, to tell it. 6, 7: the first's references to both
    // states; the second's are the last, and nobody else can be counting.
    assert_locked("socketpair_files and drop", 7, || {
        drop(p.socketpair_files(AF_UNIX, SOCK_STREAM, 0).unwrap());
    });
    // 8: the table's lock, once for both numbers. 9, 10: the lock, to give each back.
    assert_locked("socketpair and two close", 10, || {
        p.socketpair(AF_UNIX, SOCK_STREAM, 0)
            .unwrap()
            .into_iter()
            .for_each(|fd| p.close(fd).unwrap());
    });
}

/// Sends a descriptor through a pair, and closes what came.
fn pass(p: &Process, [from, to]: [i32; 2], fd: i32, flags: i32) {
    let mut control = [0; 24];
    control[..8].copy_from_slice(&20_u64.to_ne_bytes());
    control[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
    control[16..20].copy_from_slice(&fd.to_ne_bytes());
    let message = SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
    assert_eq!(p.sendmsg(from, &message, 0), Ok(1));
    let (mut byte, mut control) = ([0], [0; 24]);
    let buffers: &mut [&mut [u8]] = &mut [&mut byte];
    let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
    assert_eq!(p.recvmsg(to, &mut message, flags), Ok(1));
    p.close(i32::from_ne_bytes(*control[16..].first_chunk().unwrap())).unwrap();
}

#[test]
fn descriptors_in_messages() {
    quietline_testing::isolated!();
    let p = process();
    let pair = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let [event, socket] = [p.eventfd(0, 0).unwrap(), p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap()];
    // Sent: the sender's file held and let go, for it may sleep; the file in the message held; the
    // receiver's lock. Received: the receiver's lock. Closed: the number's slot, and the file let
    // go.
    assert_locked("a descriptor passed to any number", 7, || pass(&p, pair, event, MSG_CMSG_ANYFD));
    // The table's lock, twice, instead of the slot.
    assert_locked("a descriptor passed", 8, || pass(&p, pair, event, 0));
    // The socket's own lock, to count the message, and again when it has arrived.
    assert_locked("a socket passed", 10, || pass(&p, pair, socket, 0));
}

fn connect(p: &Process, family: i32, listener: i32, address: &[u8]) {
    let client = p.socket(family, SOCK_STREAM, 0).unwrap();
    p.connect(client, address).unwrap();
    let (server, _) = p.accept(listener).unwrap();
    p.close(client).unwrap();
    p.close(server).unwrap();
}

#[test]
fn local_connections() {
    quietline_testing::isolated!();
    let p = process();
    let address = [&(AF_UNIX as u16).to_ne_bytes()[..], b"\0here"].concat();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &address).unwrap();
    p.listen(listener, 1).unwrap();
    // Socket: the table's lock. Connect: the file's count up and down; the state is set, and held;
    // the name's bucket, and the listener held; both locks; the listener's name held, and the new
    // state, for both ends; the listener let go. Accept: the table's lock; the listener's. Closed:
    // twice the table's lock, the file's count, and the end's own lock; the other end's, of the
    // first to go. Then three references to states are given back (two more are the last of
    // theirs), and one to the name.
    assert_locked("connect, accept and two close", 24, || connect(&p, AF_UNIX, listener, &address));
}

#[test]
fn tcp_connections() {
    quietline_testing::isolated!();
    let p = process();
    let listener = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    p.listen(listener, 1).unwrap();
    let name = p.getsockname(listener).unwrap();
    let mut address = name.bytes().to_vec();
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    // As above for the files and the table. Each end has more locks (who changes it, what it sends,
    // what it receives), which are taken once when it is connected and when it is closed; the
    // port's bucket is locked when it is taken, looked up, joined, and let go by either; and flags
    // are changed by exchanges, so that who waits may look at them.
    assert_locked("TCP connect, accept and two close", 48, || {
        connect(&p, AF_INET, listener, &address)
    });
}
