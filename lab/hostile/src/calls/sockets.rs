//! Sockets.

use super::{Call, calls, into, nothing, within};
use crate::kind::Kind::{Address, Any, Bits, Fd, Length, Limit, One, Only};
use libc::*;
use quietline::abi::MSG_CMSG_ANYFD;
use quietline::{RecvMsg, SendMsg};

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

const SEND: &[i64] = n![MSG_DONTWAIT, MSG_NOSIGNAL, MSG_EOR, MSG_MORE, MSG_OOB, MSG_DONTROUTE, 0];
const RECEIVE: &[i64] = n![
    MSG_DONTWAIT,
    MSG_PEEK,
    MSG_TRUNC,
    MSG_WAITALL,
    MSG_ERRQUEUE,
    MSG_OOB,
    MSG_CMSG_CLOEXEC,
    MSG_CMSG_ANYFD,
    0,
];
const LEVELS: &[i64] = n![SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP];

/// A control message with `count` descriptors from `first` on.
pub(crate) fn rights(first: i32, count: i64) -> Vec<u8> {
    let count = count.clamp(0, 300);
    if count == 0 {
        return Vec::new();
    }
    let mut bytes = (16 + 4 * count as u64).to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(SCM_RIGHTS.to_ne_bytes());
    (0..count as i32).for_each(|n| bytes.extend(first.wrapping_add(n / 2).to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the descriptors of a control message that has arrived.
pub(super) fn passed(control: &[u8]) -> impl Iterator<Item = i32> {
    let int = |at: usize| {
        let bytes = control.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        i32::from_ne_bytes(bytes.unwrap_or_default())
    };
    let end =
        if int(12) == SCM_RIGHTS && int(8) == SOL_SOCKET { int(0).max(16) as usize } else { 16 };
    control
        .get(16..end)
        .unwrap_or_default()
        .as_chunks::<4>()
        .0
        .iter()
        .copied()
        .map(i32::from_ne_bytes)
}

/// Numbers of descriptors in a message; 254 are too many.
const RIGHTS: &[i64] = &[0, 0, 1, 2, 5, 254];
const CONTROL: &[i64] = &[0, 8, 24, 64, 256];

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    15 bind(Fd, Address) |c, a| c.p.bind(a.int(0), &a.address(1)).map(nothing);
    12 listen(Fd, One(&[0, 1, 2, 128, -1])) |c, a| c.p.listen(a.int(0), a.int(1)).map(nothing);
    25 connect(Fd, Address) |c, a| c.p.connect(a.int(0), &a.address(1)).map(nothing);
    10 accept(Fd) |c, a| c.descriptor(c.p.accept(a.int(0))?.0);
    12 accept4(Fd, Bits(n![SOCK_NONBLOCK, SOCK_CLOEXEC])) |c, a| {
        c.descriptor(c.p.accept4(a.int(0), a.int(1))?.0)
    };
    5 getsockname(Fd) |c, a| c.p.getsockname(a.int(0)).map(|name| name.len() as i64);
    5 getpeername(Fd) |c, a| c.p.getpeername(a.int(0)).map(|name| name.len() as i64);
    6 shutdown(Fd, One(&[0, 1, 2])) |c, a| c.p.shutdown(a.int(0), a.int(1)).map(nothing);
    20 send(Fd, Length, Bits(SEND)) |c, a| {
        within(c.p.send(a.int(0), c.input(a.0[1]), a.int(2))?, c.input(a.0[1]).len())
    };
    15 sendto(Fd, Length, Bits(SEND), Address) |c, a| {
        let input = c.input(a.0[1]);
        within(c.p.sendto(a.int(0), input, a.int(2), &a.address(3))?, input.len())
    };
    20 sendmsg(Fd, Length, Bits(SEND), Address, Any, One(RIGHTS), Fd) |c, a| {
        let (input, address) = (c.input(a.0[1]), a.address(3));
        let name: &[u8] = if a.0[4] & 3 == 0 { &address } else { &[] };
        let control = rights(a.int(6), a.0[5]);
        let message = SendMsg { name, buffers: &[input], control: &control, sent: 0 };
        within(c.p.sendmsg(a.int(0), &message, a.int(2))?, input.len())
    };
    8 sendmmsg(Fd, Length, Bits(SEND), One(&[0, 1, 3]), One(RIGHTS), Fd) |c, a| {
        let buffers = [c.input(a.0[1])];
        let control = rights(a.int(5), a.0[4]);
        let message = SendMsg { name: &[], buffers: &buffers, control: &control, sent: 0 };
        let mut messages = vec![message; a.0[3].clamp(0, 8) as usize];
        within(c.p.sendmmsg(a.int(0), &mut messages, a.int(2))?, messages.len())
    };
    // With MSG_TRUNC a message's length exceeds the buffer.
    20 recv(Fd, Length, Bits(RECEIVE)) |c, a| into(c, a.0[1], |p, to| {
        let most = to.len();
        p.recv(a.int(0), to, a.int(2)).map(|n| n.min(most))
    });
    12 recvfrom(Fd, Length, Bits(RECEIVE)) |c, a| into(c, a.0[1], |p, to| {
        let most = to.len();
        p.recvfrom(a.int(0), to, a.int(2)).map(|(n, _)| n.min(most))
    });
    25 recvmsg(Fd, Length, Bits(RECEIVE), One(CONTROL)) |c, a| {
        let p = c.p;
        let mut control = vec![0; a.0[3].clamp(0, 1024) as usize];
        let mut buffers = [c.output(a.0[1])];
        let mut message =
            RecvMsg { buffers: &mut buffers, control: &mut control, ..RecvMsg::default() };
        let n = p.recvmsg(a.int(0), &mut message, a.int(2))?;
        let used = message.control_len;
        within(used, control.len())?;
        passed(&control[..used]).try_for_each(|fd| c.descriptor(fd).map(drop))?;
        Ok(n as i64)
    };
    8 recvmmsg(Fd, Length, Bits(RECEIVE), One(CONTROL), Limit) |c, a| {
        let p = c.p;
        let mut control = vec![0; a.0[3].clamp(0, 1024) as usize];
        let mut buffers = [c.output(a.0[1])];
        let message =
            RecvMsg { buffers: &mut buffers, control: &mut control, ..RecvMsg::default() };
        let (mut limit, mut messages) = (a.limit(4), [message]);
        let n = p.recvmmsg(a.int(0), &mut messages, a.int(2), limit.as_mut())?;
        let used = if n == 0 { 0 } else { messages[0].control_len };
        within(used, control.len())?;
        passed(&control[..used]).try_for_each(|fd| c.descriptor(fd).map(drop))?;
        within(n, 1)
    };
    20 setsockopt(Fd, Only(LEVELS), One(OPTIONS), Any, One(&[4, 4, 8, 16, 0, 1, 32])) |c, a| {
        let mut value = [0; 32];
        value[..8].copy_from_slice(&a.0[3].to_ne_bytes());
        let length = a.0[4].clamp(0, 32) as usize;
        c.p.setsockopt(a.int(0), a.int(1), a.int(2), &value[..length]).map(nothing)
    };
    15 getsockopt(Fd, Only(LEVELS), One(OPTIONS), One(&[4, 4, 8, 16, 0, 1, 256])) |c, a| {
        into(c, a.0[3], |p, to| p.getsockopt(a.int(0), a.int(1), a.int(2), to))
    };
};

/// The numbers of all options of the levels.
const OPTIONS: &[i64] = &{
    let mut numbers = [0; 75];
    let mut n = 0;
    while n < numbers.len() {
        numbers[n] = n as i64;
        n += 1;
    }
    numbers
};
