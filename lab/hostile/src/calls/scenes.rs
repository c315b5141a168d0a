//! Scenes: several calls that lead to a state which single random calls seldom reach.

use super::sockets::{passed, rights};
use super::{Call, calls, nothing};
use crate::kind::Kind::{Any, Bits, Fd, Limit, One, Path, Seed};
use crate::random::Random;
use libc::*;
use quietline::abi::{AF_UNIX, EPOLL_CTL_ADD, MSG_CMSG_ANYFD, MSG_DONTWAIT, SOCK_NONBLOCK};
use quietline::{EpollEvent, RecvMsg, SendMsg};

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

/// Socket types of messages with descriptors.
const TYPES: &[i64] = n![SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET];

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    // A chain of epolls, the last of which watches a descriptor, or the first epoll.
    10 scene_nested_epolls(One(&[1, 2, 3, 4, 5, 6]), Fd, Limit) |c, a| {
        let event = |fd: i32| EpollEvent { events: EPOLLIN as u32, data: fd as u64 };
        let first = c.p.epoll_create1(0)?;
        let mut last = first;
        let linked = (0..a.0[0].clamp(0, 8)).try_for_each(|_| {
            let next = c.p.epoll_create1(0)?;
            c.p.epoll_ctl(last, EPOLL_CTL_ADD, next, &event(next))?;
            last = next;
            Ok(())
        });
        let watched = if a.0[1] % 8 == 0 { first } else { a.int(1) };
        let added = c.p.epoll_ctl(last, EPOLL_CTL_ADD, watched, &event(watched));
        let waited = c.p.epoll_wait(first, &mut [EpollEvent::default(); 4], a.int(2).min(2));
        // An inner one goes first in half of the cases.
        let _ = c.p.close(if a.0[1] & 1 == 0 { last } else { first });
        linked.and(added)?;
        waited.map(|n| n as i64)
    };
    // Both ends of a pair, and a descriptor, in flight through the pair itself. Loops are left.
    15 scene_passed_sockets(One(TYPES), Fd, One(&[0, 1, 2]),
        Bits(n![MSG_DONTWAIT, MSG_PEEK, MSG_CMSG_CLOEXEC, MSG_CMSG_ANYFD])) |c, a| {
        let [one, two] = c.p.socketpair(AF_UNIX, a.int(0) & 0xf | SOCK_NONBLOCK, 0)?;
        let mut control = rights(one, 1);
        control.extend(rights(two, 1));
        control.extend(rights(a.int(1), 1));
        let message = SendMsg { name: &[], buffers: &[b"s"], control: &control, sent: 0 };
        let sent = c.p.sendmsg(one, &message, MSG_DONTWAIT);
        let mut arrived = Ok(0);
        if a.0[2] != 0 {
            let (mut control, mut byte) = ([0; 64], [0; 1]);
            let mut buffers = [&mut byte[..]];
            let mut message = RecvMsg {
                buffers: &mut buffers, control: &mut control, ..RecvMsg::default()
            };
            arrived = c.p.recvmsg(two, &mut message, a.int(3) | MSG_DONTWAIT);
            let used = message.control_len;
            passed(&control[..used]).try_for_each(|fd| c.descriptor(fd).map(drop))?;
        }
        if a.0[2] != 1 {
            let _ = c.p.close(one);
            let _ = c.p.close(two);
        }
        sent.and(arrived).map(|n| n as i64)
    };
    // A child with the same descriptors as its parent, which both close in turn.
    4 scene_duplicated_table(Seed) |c, a| {
        let child = c.p.fork()?;
        let mut random = Random::new(&[a.0[0] as u64]);
        for _ in 0..random.below(20) {
            let fd = random.below(30) as i32;
            match random.below(4) {
                0 => drop(c.p.close(fd)),
                1 => drop(child.close(fd)),
                2 => drop(child.dup2(fd, random.below(30) as i32)),
                _ => drop(child.flock(fd, LOCK_EX | LOCK_NB)),
            }
        }
        c.guest.replace(a.0[0] as usize, child);
        Ok(0)
    };
    // A file system of its own, with an open file and a directory in use, that is detached.
    4 scene_detached_mount(Path, Seed) |c, a| {
        let directory = format!("/a/t{}", a.0[1] % 4);
        let made = c.p.mkdir(&directory, 0o777);
        c.p.mount("", &directory, "tmpfs", 0)?;
        let file = c.p.open(format!("{directory}/f"), O_CREAT | O_RDWR, 0o666);
        let entered = c.p.chdir(&directory);
        let linked = c.p.link(format!("{directory}/f"), a.path(0));
        let detached = c.p.umount2(&directory, MNT_DETACH as u32);
        let written = file.and_then(|fd| c.p.write(fd, b"detached"));
        let _ = (made, entered, linked);
        let _ = c.p.rmdir(&directory);
        detached.and(written).map(|n| n as i64)
    };
    // A FIFO, opened for reading and for writing by turns, with a writer that comes and goes.
    8 scene_fifo(One(n![O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_NONBLOCK]), Any) |c, a| {
        let path = if a.0[1] & 1 == 0 { "/p" } else { "/a/p" };
        let mode = a.int(0) & (O_ACCMODE | O_NONBLOCK);
        let fd = c.p.open(path, mode, 0)?;
        let other = c.p.open(path, O_RDWR | O_NONBLOCK, 0);
        let written = other.and_then(|fd| c.p.write(fd, b"fifo"));
        let _ = other.and_then(|fd| c.p.close(fd));
        let read = c.p.read(fd, &mut [0; 4]);
        c.p.close(fd)?;
        written.or(read).map(|n| n as i64)
    };
    // Locks of bytes through two descriptors, of which one is closed.
    4 scene_closed_lock(Fd, One(n![F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW])) |c, a| {
        let mut lock = quietline::locks::Flock {
            l_type: F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 10, l_pid: 0,
        };
        let other = c.p.dup(a.int(0))?;
        let locked = c.p.fcntl_lock(other, a.int(1), &mut lock);
        c.p.close(other)?;
        locked.map(nothing)
    };
};
