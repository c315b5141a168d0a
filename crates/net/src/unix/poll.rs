//! What can be done with a local socket now.

use super::UnixEnd;
use super::packet::{hope, is_full};
use super::sock::{CLOSE, LISTEN, RCV, SEND, Sock, WRITABLE};
use crate::abi::{SOCK_DGRAM, SOCK_STREAM};
use crate::socket::Socket;
use quietline_platform::atomic::Ordering;
use quietline_vfs::{Events, Ioctl, PollTable};
use rustix::io::Errno;

/// `poll`: of what has no state yet, it makes one.
pub(super) fn poll(end: &UnixEnd, socket: &Socket, table: &mut PollTable<'_>) -> Events {
    let Ok(sock) = end.sock(socket) else { return Events::ERR };
    table.wait_on(&sock.waiters);
    let paired = socket.ty() != SOCK_DGRAM;
    let mut events = Events::empty();
    let (peer, shutdown, phase) = {
        let state = sock.lock();
        // Under the lock, as it was set by whoever has gone.
        if sock.has_error() {
            events |= Events::ERR;
        }
        let waiting = state
            .listener
            .as_ref()
            .map_or(!state.queue.is_empty(), |listener| !listener.queue.is_empty());
        if waiting {
            events |= Events::IN | Events::RDNORM;
        }
        (state.peer.clone(), sock.shutdown(), sock.phase())
    };
    if shutdown & (RCV | SEND) == RCV | SEND {
        events |= Events::HUP;
    }
    if shutdown & RCV != 0 {
        events |= Events::RDHUP | Events::IN | Events::RDNORM;
    }
    if paired && phase == CLOSE {
        events |= Events::HUP;
    }
    if phase != LISTEN
        && is_writable(end, sock)
        && peer.is_none_or(|peer| has_room(end, sock, &peer))
    {
        events |= WRITABLE;
    }
    events
}

/// Whether the socket has room for more of what it sends.
fn is_writable(end: &UnixEnd, sock: &Sock) -> bool {
    let charged = match end.peer.get() {
        Some(peer) => peer.lock().charged,
        // Relaxed: who makes room wakes by an exchange of this word, and the queue's fence comes before this look.
        None => sock.sent.load(Ordering::Relaxed),
    };
    sock.is_writable(charged)
}

/// Whether the receiver of a connected socket for datagrams has room; if not, it will tell.
fn has_room(end: &UnixEnd, sock: &Sock, peer: &Sock) -> bool {
    let mut theirs = peer.lock();
    if !is_full(sock, peer, &theirs) {
        return true;
    }
    // Without memory to be told, the socket stays writable: the send will say more.
    end.share().is_none_or(|own| hope(&own, &mut theirs).is_err())
}

/// `FIONREAD`, `SIOCOUTQ`.
pub(super) fn ioctl(end: &UnixEnd, socket: &Socket, request: Ioctl) -> Result<i32, Errno> {
    // There is no urgent data.
    if request == Ioctl::AtMark && socket.ty() == SOCK_STREAM {
        return Ok(0);
    }
    let Some(sock) = end.get() else {
        return match request {
            Ioctl::Readable | Ioctl::Unread => Ok(0),
            Ioctl::AtMark => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::NOTTY),
        };
    };
    match request {
        Ioctl::Readable if sock.phase() == LISTEN => Err(Errno::INVAL),
        Ioctl::Readable => {
            let state = sock.lock();
            let all = if socket.ty() == SOCK_DGRAM { 1 } else { usize::MAX };
            let bytes: usize =
                state.queue.iter().take(all).map(|segment| segment.rest().len()).sum();
            Ok(bytes.min(i32::MAX as usize) as i32)
        }
        Ioctl::Unread => Ok(match end.peer.get() {
            Some(peer) => peer.lock().charged,
            None => sock.sent.load(Ordering::Relaxed),
        } as i32),
        Ioctl::AtMark => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOTTY),
    }
}
