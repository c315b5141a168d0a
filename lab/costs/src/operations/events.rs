//! Readiness: epoll, poll, inotify.

use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{
    AF_UNIX, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, O_ANYFD, O_CREAT, O_NONBLOCK, O_RDWR,
    SOCK_STREAM,
};
use quietline::inotify::IN_MODIFY;
use quietline::{EpollEvent, Events, PollFd, Process};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("events", name, about, scene);
    vec![
        of("epoll-add-del", "EPOLL_CTL_ADD and EPOLL_CTL_DEL of an eventfd", add_del),
        of("epoll-add-close", "socket, EPOLL_CTL_ADD and close", add_close),
        of("epoll-mod", "EPOLL_CTL_MOD of an eventfd", modify),
        of("epoll-wait-0", "epoll_wait with nothing ready, without timeout", wait_0),
        of("epoll-wait-1", "epoll_wait with one eventfd ready", wait_1),
        of("epoll-wait-8", "epoll_wait with 8 eventfds ready", wait_8),
        of("epoll-wake", "write to a watched eventfd that is ready already", wake),
        of("epoll-message", "write to a watched eventfd, epoll_wait and read", message::<1>),
        of("epoll-nested", "the same through an epoll that watches the epoll", message::<2>),
        of("poll-0", "poll of one eventfd that is not ready, without timeout", poll::<1, false>),
        of("poll-1", "poll of one eventfd that is ready", poll::<1, true>),
        of("poll-8", "poll of 8 eventfds that are ready", poll::<8, true>),
        of("inotify-add-rm", "inotify_add_watch of a file and inotify_rm_watch", inotify_watch),
        of("inotify-event", "write of a byte to a watched file, and read of the event", inotify),
    ]
}

fn eventfd(process: &Process, count: u32) -> i32 {
    process.eventfd(count, O_NONBLOCK | O_ANYFD).expect("an eventfd")
}

fn watch(process: &Process, epoll: i32, fd: i32) {
    let event = EpollEvent { events: Events::IN.bits(), data: fd as u64 };
    process.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event).expect("it can be watched");
}

/// Makes an epoll that watches descriptors for input.
fn epoll(process: &Process, fds: &[i32]) -> i32 {
    let epoll = process.epoll_create1(O_ANYFD).expect("an epoll");
    fds.iter().for_each(|fd| watch(process, epoll, *fd));
    epoll
}

fn add_del(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let (fd, epoll) = (eventfd(&process, 0), epoll(&process, &[]));
        Box::new(move || {
            watch(&process, epoll, fd);
            let event = EpollEvent::default();
            process.epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &event).expect("it is watched");
        })
    })
}

fn add_close(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let epoll = epoll(&process, &[]);
        Box::new(move || {
            let fd = process.socket(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).expect("a socket");
            watch(&process, epoll, fd);
            process.close(fd).expect("it is open");
        })
    })
}

fn modify(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = eventfd(&process, 0);
        let epoll = epoll(&process, &[fd]);
        let event = EpollEvent { events: Events::IN.bits(), data: 7 };
        Box::new(move || {
            process.epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event).expect("it is watched");
        })
    })
}

/// Scene that waits, with `N` of the watched eventfds ready.
fn wait<const N: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fds: Vec<i32> = (0..N.max(1)).map(|_| eventfd(&process, u32::from(N > 0))).collect();
        let epoll = epoll(&process, &fds);
        Box::new(move || {
            let mut events = [EpollEvent::default(); 8];
            assert_eq!(process.epoll_wait(epoll, &mut events, 0), Ok(N));
        })
    })
}

fn wait_0(sharing: Sharing) -> Scene {
    wait::<0>(sharing)
}

fn wait_1(sharing: Sharing) -> Scene {
    wait::<1>(sharing)
}

fn wait_8(sharing: Sharing) -> Scene {
    wait::<8>(sharing)
}

fn wake(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = eventfd(&process, 1);
        epoll(&process, &[fd]);
        Box::new(move || assert_eq!(process.write(fd, &1_u64.to_ne_bytes()), Ok(8)))
    })
}

/// Scene of a message through a chain of epolls.
fn message<const LEVELS: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = eventfd(&process, 0);
        let mut watched = fd;
        // Innermost first.
        let mut epolls = [0; LEVELS];
        for level in &mut epolls {
            watched = epoll(&process, &[watched]);
            *level = watched;
        }
        Box::new(move || {
            let mut events = [EpollEvent::default(); 1];
            assert_eq!(process.write(fd, &1_u64.to_ne_bytes()), Ok(8));
            for epoll in epolls.iter().rev() {
                assert_eq!(process.epoll_wait(*epoll, &mut events, 0), Ok(1));
            }
            assert_eq!(process.read(fd, &mut [0; 8]), Ok(8));
        })
    })
}

fn poll<const N: usize, const READY: bool>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let events = Events::IN.bits() as i16;
        let mut fds: [PollFd; N] =
            core::array::from_fn(|_| PollFd::new(eventfd(&process, u32::from(READY)), events));
        Box::new(move || assert_eq!(process.poll(&mut fds, 0), Ok(if READY { N } else { 0 })))
    })
}

/// Makes a file of the CPU's own. Returns its path and a descriptor.
fn file(process: &Process, cpu: usize) -> (String, i32) {
    let path = format!("/watched-{cpu}");
    let fd = process.open(&path, O_CREAT | O_RDWR | O_ANYFD, 0o644).expect("a file");
    (path, fd)
}

fn inotify_watch(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let inotify = process.inotify_init1(O_NONBLOCK | O_ANYFD).expect("an inotify");
        let (path, _) = file(&process, cpu);
        Box::new(move || {
            let watch = process.inotify_add_watch(inotify, &path, IN_MODIFY).expect("a watch");
            process.inotify_rm_watch(inotify, watch).expect("it is watched");
            // IN_IGNORED.
            assert_eq!(process.read(inotify, &mut [0; 64]), Ok(16));
        })
    })
}

fn inotify(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let inotify = process.inotify_init1(O_NONBLOCK | O_ANYFD).expect("an inotify");
        let (path, fd) = file(&process, cpu);
        process.inotify_add_watch(inotify, &path, IN_MODIFY).expect("a watch");
        Box::new(move || {
            assert_eq!(process.pwrite(fd, b"x", 0), Ok(1));
            assert_eq!(process.read(inotify, &mut [0; 64]), Ok(16));
        })
    })
}
