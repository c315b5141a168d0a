//! Calls on local sockets while memory runs out: the first allocation of a call fails, then the second, and so on. The call
//! says `ENOMEM` or makes do; nothing is lost or leaked; made again, it works.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process, RecvMsg, SendMsg};
use quietline_platform::fault;

fn name() -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], b"\0faults"].concat()
}

fn path() -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], b"/faults"].concat()
}

fn rights(fds: &[i32]) -> Vec<u8> {
    let mut bytes = (16 + 4 * fds.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(SCM_RIGHTS.to_ne_bytes());
    bytes.extend(fds.iter().flat_map(|fd| fd.to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// What a case does with a process; each allocation in `call` fails once. How often the call said so.
fn each_fault<T, R: core::fmt::Debug>(
    prepare: impl Fn(&Process) -> T,
    call: impl Fn(&Process, &T) -> Result<R, Errno>,
    after: impl Fn(&Process, &T, R),
) -> u32 {
    let mut reported = 0;
    for arm in [fault::fail_nth, fault::fail_from] {
        for n in 1.. {
            let kernel = Kernel::boot(Config::default()).unwrap();
            let p = kernel.process().unwrap();
            let on = prepare(&p);
            arm(n);
            let first = call(&p, &on);
            let met = !fault::armed() || first.is_err();
            fault::fail_nth(0);
            match first {
                Ok(done) => after(&p, &on, done),
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM, "allocation {n}");
                    reported += 1;
                    after(&p, &on, call(&p, &on).unwrap());
                }
            }
            p.close_range(0, u32::MAX, 0).unwrap();
            // What was in messages goes when another local socket does.
            for fd in p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap() {
                p.close(fd).unwrap();
            }
            assert_eq!(kernel.nr_files(), 0, "allocation {n} failed, and a file is left");
            if !met {
                break;
            }
            assert!(n < 1_000, "a call has no end of allocations");
        }
    }
    reported
}

fn pair(p: &Process, ty: i32) -> [i32; 2] {
    p.socketpair(AF_UNIX, ty, 0).unwrap()
}

#[test]
fn socketpairs() {
    quietline_testing::isolated!();
    let reported = each_fault(|_| (), |p, ()| p.socketpair(AF_UNIX, SOCK_STREAM, 0), |_, (), _| ());
    assert!(reported >= 4, "{reported}");
}

#[test]
fn names() {
    quietline_testing::isolated!();
    for address in [name(), path()] {
        let reported = each_fault(
            |p| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap(),
            |p, fd| p.bind(*fd, &address),
            |p, fd, ()| assert_eq!(p.getsockname(*fd).unwrap().bytes()[..8], address[..8]),
        );
        assert!(reported >= 3, "{reported}");
    }
}

#[test]
fn connections() {
    quietline_testing::isolated!();
    let reported = each_fault(
        |p| {
            let listener = p.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
            p.bind(listener, &name()).unwrap();
            p.listen(listener, 5).unwrap();
            [listener, p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap()]
        },
        |p, [_, client]| p.connect(*client, &name()),
        |p, [listener, client], ()| {
            let (server, _) = p.accept(*listener).unwrap();
            assert_eq!(p.write(*client, b"x"), Ok(1));
            assert_eq!(p.read(server, &mut [0; 4]), Ok(1));
            assert_eq!(p.accept(*listener).unwrap_err(), Errno::AGAIN, "one connection, not two");
        },
    );
    assert!(reported >= 2, "{reported}");
    // (What the new socket is made of may all be at hand.)
    each_fault(
        |p| {
            let listener = p.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
            p.bind(listener, &name()).unwrap();
            p.listen(listener, 5).unwrap();
            let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
            p.connect(client, &name()).unwrap();
            [listener, client]
        },
        |p, [listener, _]| p.accept(*listener),
        |p, [_, client], (server, _)| {
            assert_eq!(p.write(*client, b"x"), Ok(1));
            assert_eq!(p.read(server, &mut [0; 4]), Ok(1));
        },
    );
}

#[test]
fn bytes() {
    quietline_testing::isolated!();
    for ty in [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM] {
        for len in [1, 200, 3_000] {
            let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let reported = each_fault(
                |p| pair(p, ty),
                |p, [a, _]| p.send(*a, &data, MSG_DONTWAIT),
                |p, [_, b], n| {
                    let mut got = vec![0; 5_000];
                    assert_eq!((n, p.recv(*b, &mut got, MSG_DONTWAIT)), (len, Ok(len)));
                    assert_eq!(got[..len], data);
                    assert_eq!(
                        p.recv(*b, &mut got, MSG_DONTWAIT),
                        Err(Errno::AGAIN),
                        "once, not twice"
                    );
                },
            );
            assert!(reported >= 1, "{reported}");
        }
    }
}

#[test]
fn files() {
    quietline_testing::isolated!();
    let receive = |p: &Process, fd: i32, flags: i32| {
        let (mut byte, mut control) = ([0; 8], [0; 64]);
        let buffers: &mut [&mut [u8]] = &mut [&mut byte];
        let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
        let n = p.recvmsg(fd, &mut message, flags | MSG_DONTWAIT)?;
        let (used, cut) = (message.control_len, message.flags & MSG_CTRUNC != 0);
        let len = u64::from_ne_bytes(*control.first_chunk().unwrap()) as usize;
        Ok((n, if used == 0 { 0 } else { (len - 16) / 4 }, cut))
    };
    for ty in [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM] {
        let reported = each_fault(
            |p| {
                [pair(p, ty), [p.eventfd(0, 0).unwrap(), p.socket(AF_UNIX, SOCK_DGRAM, 0).unwrap()]]
            },
            |p, [[a, b], [event, socket]]| {
                let control = rights(&[*event, *socket, *b]);
                let message = SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
                p.sendmsg(*a, &message, MSG_DONTWAIT)
            },
            |p, [[_, b], _], n| assert_eq!((n, receive(p, *b, 0)), (1, Ok((1, 3, false)))),
        );
        assert!(reported >= 4, "{reported}");
        for flags in [0, MSG_PEEK] {
            each_fault(
                |p| {
                    let [a, b] = pair(p, ty);
                    let control = rights(&[a, b]);
                    let message =
                        SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
                    assert_eq!(p.sendmsg(a, &message, 0), Ok(1));
                    b
                },
                |p, b| receive(p, *b, flags),
                // Files for which there was no room are dropped, and that is told.
                |_, _, (n, files, cut)| assert_eq!((n, files < 2), (1, cut)),
            );
        }
    }
}
