//! Programs that have differed, cut down to what mattered.

use crate::sockets::call::{Call, To};

const STREAM: i32 = libc::SOCK_STREAM;
const DGRAM: i32 = libc::SOCK_DGRAM;
const SEQPACKET: i32 = libc::SOCK_SEQPACKET;

fn send(from: usize, len: usize, files: &[usize]) -> Call {
    Call::Send { from, to: None, len, flags: 0, files: files.to_vec(), ids: None }
}

fn recv(on: usize) -> Call {
    Call::Recv { on, len: 10, flags: 0, control: 200 }
}

/// A listener 0, and 1, which is to be connected to it.
fn server(ty: i32) -> Vec<Call> {
    vec![Call::Socket(0, ty), Call::Bind(0, To::Name(0)), Call::Listen(0, 5), Call::Socket(1, ty)]
}

pub(crate) fn all() -> Vec<Vec<Call>> {
    let connect = Call::Connect(1, To::Name(0));
    let passcred = |slot| Call::Set(slot, libc::SO_PASSCRED, 1);
    let error = |slot| Call::Get(slot, libc::SO_ERROR, 4);
    let mut programs = Vec::new();
    for ty in [STREAM, SEQPACKET] {
        // Who has sent it is told to one who asks when it has been accepted; but not if it was sent after that.
        let accept = Call::Accept(0, 2);
        let early = [connect.clone(), send(1, 5, &[]), accept.clone()];
        let late = [connect.clone(), accept.clone(), send(1, 5, &[])];
        let rest = [passcred(2), recv(2)];
        programs.extend([early, late].map(|middle| [&server(ty)[..], &middle, &rest].concat()));
        // A connection has one option of its listener's, if that had it at the time.
        let options =
            [passcred(0), Call::Set(0, libc::SO_SNDBUF, 1), Call::Set(0, libc::SO_PRIORITY, 3)]
                .to_vec();
        let look = [libc::SO_PASSCRED, libc::SO_SNDBUF, libc::SO_PRIORITY]
            .map(|option| Call::Get(2, option, 4));
        let before = [&options[..], &[connect.clone(), accept.clone()]].concat();
        let after = [&[connect.clone()][..], &options, &[accept]].concat();
        programs.extend([before, after].map(|middle| [&server(ty)[..], &middle, &look].concat()));
    }
    // A long message lies in a power of two of bytes, and pages.
    programs.push(vec![
        Call::Pair(0, 1, DGRAM),
        Call::Set(0, libc::SO_SNDBUF, -1),
        send(0, 250_000, &[]),
        Call::Ioctl(0, libc::TIOCOUTQ),
    ]);
    // A datagram that is written.
    programs.push(vec![
        Call::Socket(0, DGRAM),
        Call::Bind(0, To::Name(0)),
        Call::Socket(1, DGRAM),
        connect.clone(),
        passcred(0),
        Call::Write(1, 5),
        recv(0),
    ]);
    // Who is connected to one that has no room, and then to another or to nobody, has room.
    let full = Call::SendMany { from: 1, count: 12, lens: [1, 1], flags: 0 };
    let named = |slot, name| [Call::Socket(slot, DGRAM), Call::Bind(slot, To::Name(name))];
    for to in [To::Name(1), To::Unspec] {
        let begun =
            [&named(0, 0)[..], &named(2, 1), &[Call::Socket(1, DGRAM), connect.clone()]].concat();
        programs.push([&begun[..], &[full.clone(), Call::Connect(1, to), recv(0)]].concat());
    }
    // Who is full has room once it is connected to the sender, of which a look at a message tells.
    let named_both = [&named(0, 0)[..], &named(1, 1), &[connect.clone(), full]].concat();
    let look = Call::Recv { on: 0, len: 0, flags: libc::MSG_PEEK, control: 0 };
    programs.push([&named_both[..], &[Call::Connect(0, To::Name(1)), look]].concat());
    for ty in [DGRAM, SEQPACKET] {
        // An empty message is looked at once, where looks go on.
        let look = Call::Recv { on: 0, len: 10, flags: libc::MSG_PEEK, control: 0 };
        let looks =
            [look.clone(), look.clone(), Call::Set(0, libc::SO_PEEK_OFF, 0), look.clone(), look];
        let sent = [Call::Pair(0, 1, ty), send(1, 0, &[]), send(1, 3, &[]), send(1, 0, &[])];
        programs.push([&sent[..], &looks, &[recv(0), recv(0), recv(0)]].concat());
    }
    for ty in [STREAM, SEQPACKET] {
        // A message may have the last file of the other end, which is closed when the call is over, not before the next message.
        let many = Call::RecvMany { on: 1, count: 4, len: 10, flags: 0 };
        let sent = [Call::Pair(0, 1, ty), send(0, 3, &[0]), send(0, 2, &[]), Call::Close(0)];
        programs.push([&sent[..], &[many.clone(), many]].concat());
        let pairs = [Call::Pair(0, 1, ty), Call::Pair(2, 3, ty), Call::Pair(4, 5, ty)];
        let ends = [Call::Close(0), Call::Close(2), Call::Close(4), error(1), error(3), error(5)];
        // What is lost with a loop but is not in one tells of it; who is in one does not; a loop that a loop holds is one.
        for sent in [
            vec![send(1, 5, &[]), send(3, 1, &[0, 2])],
            vec![send(1, 5, &[]), send(1, 1, &[2]), send(3, 1, &[0])],
            vec![send(1, 5, &[]), send(3, 1, &[0]), send(1, 1, &[2])],
            vec![
                send(1, 1, &[0]),
                send(1, 5, &[]),
                send(5, 5, &[]),
                send(1, 1, &[4]),
                send(3, 1, &[2, 0]),
            ],
        ] {
            programs.push([&pairs[..], &sent, &ends].concat());
        }
    }
    programs
}
