//! Messages with addresses and ancillary data, and bytes that move between files.

use crate::operations::connections::{address, bound};
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{
    AF_INET, AF_UNIX, MSG_CMSG_ANYFD, O_ANYFD, O_NONBLOCK, SCM_RIGHTS, SOCK_DGRAM, SOCK_NONBLOCK,
    SOCK_STREAM, SOL_SOCKET,
};
use quietline::{Process, RecvMsg, SendMsg};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("messages", name, about, scene);
    vec![
        of("udp-sendto-recvfrom", "sendto and recvfrom of 64 bytes, UDP", sendto),
        of("unix-sendmsg-recvmsg", "sendmsg and recvmsg of 64 bytes, AF_UNIX stream", sendmsg),
        of("scm-rights-eventfd", "SCM_RIGHTS with an eventfd, and close", pass_eventfd),
        of("scm-rights-socket", "SCM_RIGHTS with a socket, and close", pass_socket),
        of("splice-pipe", "splice of 4,096 bytes from pipe to pipe, with write and read", splice),
    ]
}

fn sendto(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [one, two] = [(); 2].map(|()| bound(&process, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
        let to = address(&process, two);
        Box::new(move || {
            assert_eq!(process.sendto(one, &[7; 64], 0, &to), Ok(64));
            let mut bytes = [0; 64];
            let (n, from) = process.recvfrom(two, &mut bytes, 0).expect("a datagram");
            assert_eq!((n, bytes[63], from.bytes().len()), (64, 7, 16));
        })
    })
}

fn pair(process: &Process) -> [i32; 2] {
    let flags = SOCK_STREAM | SOCK_NONBLOCK | O_ANYFD;
    process.socketpair(AF_UNIX, flags, 0).expect("a pair")
}

fn sendmsg(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [from, to] = pair(&process);
        Box::new(move || {
            let message = SendMsg { buffers: &[&[7; 64]], ..SendMsg::default() };
            assert_eq!(process.sendmsg(from, &message, 0), Ok(64));
            let mut bytes = [0; 64];
            let buffers: &mut [&mut [u8]] = &mut [&mut bytes];
            let mut message = RecvMsg { buffers, ..RecvMsg::default() };
            assert_eq!(process.recvmsg(to, &mut message, 0), Ok(64));
            assert_eq!(bytes[63], 7);
        })
    })
}

/// Scene that passes a descriptor through a pair, and closes the received one.
fn pass(sharing: Sharing, open: fn(&Process) -> i32) -> Scene {
    in_process(sharing, move |process, _| {
        let ([from, to], fd) = (pair(&process), open(&process));
        let mut sent = [0; 24];
        sent[..8].copy_from_slice(&20_u64.to_ne_bytes());
        sent[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
        sent[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
        sent[16..20].copy_from_slice(&fd.to_ne_bytes());
        Box::new(move || {
            let message = SendMsg { buffers: &[b"f"], control: &sent, ..SendMsg::default() };
            assert_eq!(process.sendmsg(from, &message, 0), Ok(1));
            let (mut byte, mut control) = ([0], [0; 24]);
            let buffers: &mut [&mut [u8]] = &mut [&mut byte];
            let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
            assert_eq!(process.recvmsg(to, &mut message, MSG_CMSG_ANYFD), Ok(1));
            let received = control[16..].first_chunk().expect("there are 24 bytes");
            process.close(i32::from_ne_bytes(*received)).expect("it is open");
        })
    })
}

fn pass_eventfd(sharing: Sharing) -> Scene {
    pass(sharing, |process| process.eventfd(0, O_ANYFD).expect("an eventfd"))
}

fn pass_socket(sharing: Sharing) -> Scene {
    pass(sharing, |process| process.socket(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).expect("a socket"))
}

fn splice(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [one, two] = [(); 2].map(|()| process.pipe2(O_NONBLOCK | O_ANYFD).expect("a pipe"));
        let (sent, mut received) = (vec![7; 4096], vec![0; 4096]);
        Box::new(move || {
            assert_eq!(process.write(one[1], &sent), Ok(4096));
            assert_eq!(process.splice(one[0], None, two[1], None, 4096, 0), Ok(4096));
            assert_eq!(process.read(two[0], &mut received), Ok(4096));
            assert_eq!(received[4095], 7);
        })
    })
}
