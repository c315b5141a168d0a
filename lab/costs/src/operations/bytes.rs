//! Bytes through each kind of file, in several sizes.

use crate::operations::connections::{address, bound};
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use core::time::Duration;
use quietline::abi::{
    AF_INET, AF_UNIX, CLOCK_MONOTONIC, O_ANYFD, O_CREAT, O_NONBLOCK, O_RDWR, SOCK_DGRAM,
    SOCK_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM,
};
use quietline::{ItimerSpec, Process, TFD_TIMER_ABSTIME};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("bytes", name, about, scene);
    vec![
        of("pipe-1", "write and read of 1 byte through a pipe", pipe::<1>),
        of("pipe-64", "write and read of 64 bytes through a pipe", pipe::<64>),
        of("pipe-4096", "write and read of 4,096 bytes through a pipe", pipe::<4096>),
        of("pipe-65536", "write and read of 65,536 bytes through a pipe", pipe::<65536>),
        of("unix-stream-1", "1 byte through a pair of AF_UNIX streams", unix_stream::<1>),
        of("unix-stream-64", "64 bytes through a pair of AF_UNIX streams", unix_stream::<64>),
        of("unix-stream-4096", "4,096 bytes through AF_UNIX streams", unix_stream::<4096>),
        of("unix-stream-65536", "65,536 bytes through AF_UNIX streams", unix_stream::<65536>),
        of("unix-dgram-1", "a datagram of 1 byte through AF_UNIX", unix_dgram::<1>),
        of("unix-dgram-64", "a datagram of 64 bytes through AF_UNIX", unix_dgram::<64>),
        of("unix-dgram-4096", "a datagram of 4,096 bytes through AF_UNIX", unix_dgram::<4096>),
        of("unix-dgram-65536", "a datagram of 65,536 bytes through AF_UNIX", unix_dgram::<65536>),
        of("unix-seqpacket-64", "a message of 64 bytes through AF_UNIX", unix_seqpacket::<64>),
        of(
            "unix-seqpacket-4096",
            "a message of 4,096 bytes through AF_UNIX",
            unix_seqpacket::<4096>,
        ),
        of("tcp-1", "1 byte through a TCP connection", tcp::<1>),
        of("tcp-64", "64 bytes through a TCP connection", tcp::<64>),
        of("tcp-4096", "4,096 bytes through a TCP connection", tcp::<4096>),
        of("tcp-65536", "65,536 bytes through a TCP connection", tcp::<65536>),
        of("udp-1", "a datagram of 1 byte between connected UDP sockets", udp::<1>),
        of("udp-64", "a datagram of 64 bytes between connected UDP sockets", udp::<64>),
        of("udp-4096", "a datagram of 4,096 bytes between UDP sockets", udp::<4096>),
        of("udp-60000", "a datagram of 60,000 bytes between UDP sockets", udp::<60000>),
        of("eventfd-write-read", "write and read of an eventfd", eventfd),
        of("timerfd-read", "timerfd_settime of a time that has passed, and read", timerfd),
        of("signalfd-read", "kill of the process itself, and read of a signalfd", signalfd),
        of("procfs-read", "lseek to the start and read of /proc/filesystems", procfs),
        of("pread-1", "pread of 1 byte of a file in memory", pread::<1>),
        of("pread-64", "pread of 64 bytes of a file in memory", pread::<64>),
        of("pread-4096", "pread of 4,096 bytes of a file in memory", pread::<4096>),
        of("pread-65536", "pread of 65,536 bytes of a file in memory", pread::<65536>),
        of("pwrite-1", "pwrite of 1 byte over a file in memory", pwrite::<1>),
        of("pwrite-64", "pwrite of 64 bytes over a file in memory", pwrite::<64>),
        of("pwrite-4096", "pwrite of 4,096 bytes over a file in memory", pwrite::<4096>),
        of("pwrite-65536", "pwrite of 65,536 bytes over a file in memory", pwrite::<65536>),
        of("lseek-read-64", "lseek to the start and read of 64 bytes", seek_read),
        of("lseek-write-64", "lseek to the start and write of 64 bytes", seek_write::<64>),
        of("lseek-write-4096", "lseek to the start and write of 4,096 bytes", seek_write::<4096>),
        of("writev-readv-pipe", "writev and readv of 4 buffers of 16 bytes by a pipe", vectors),
    ]
}

/// Scene that moves `SIZE` bytes from one descriptor to another.
fn through<const SIZE: usize>(sharing: Sharing, make: fn(&Process) -> [i32; 2]) -> Scene {
    in_process(sharing, move |process, _| {
        let [from, to] = make(&process);
        let (sent, mut received) = (vec![7; SIZE], vec![0; SIZE]);
        Box::new(move || {
            received[SIZE - 1] = 0;
            assert_eq!(process.write(from, &sent), Ok(SIZE));
            assert_eq!(process.read(to, &mut received), Ok(SIZE));
            assert_eq!(received[SIZE - 1], 7);
        })
    })
}

fn pipe<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| {
        let [reader, writer] = p.pipe2(O_NONBLOCK | O_ANYFD).expect("a pipe");
        [writer, reader]
    })
}

fn pair(p: &Process, ty: i32) -> [i32; 2] {
    p.socketpair(AF_UNIX, ty | SOCK_NONBLOCK | O_ANYFD, 0).expect("a pair")
}

fn unix_stream<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| pair(p, SOCK_STREAM))
}

fn unix_dgram<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| pair(p, SOCK_DGRAM))
}

fn unix_seqpacket<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| pair(p, SOCK_SEQPACKET))
}

fn tcp<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| {
        let listener = bound(p, AF_INET, SOCK_STREAM);
        p.listen(listener, 1).expect("it is bound");
        let client = p.socket(AF_INET, SOCK_STREAM | O_ANYFD, 0).expect("a socket");
        p.connect(client, &address(p, listener)).expect("it listens");
        let flags = SOCK_NONBLOCK | O_ANYFD;
        let (server, _) = p.accept4(listener, flags).expect("a connection");
        p.close(listener).expect("it is open");
        [client, server]
    })
}

fn udp<const SIZE: usize>(sharing: Sharing) -> Scene {
    through::<SIZE>(sharing, |p| {
        let [one, two] = [(); 2].map(|()| bound(p, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
        p.connect(one, &address(p, two)).expect("it is bound");
        p.connect(two, &address(p, one)).expect("it is bound");
        [one, two]
    })
}

fn eventfd(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = process.eventfd(0, O_NONBLOCK | O_ANYFD).expect("an eventfd");
        Box::new(move || {
            let mut value = [0; 8];
            assert_eq!(process.write(fd, &7_u64.to_ne_bytes()), Ok(8));
            assert_eq!(process.read(fd, &mut value), Ok(8));
            assert_eq!(u64::from_ne_bytes(value), 7);
        })
    })
}

fn timerfd(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let flags = O_NONBLOCK | O_ANYFD;
        let fd = process.timerfd_create(CLOCK_MONOTONIC, flags).expect("a timerfd");
        let passed = ItimerSpec { value: Duration::from_nanos(1), ..ItimerSpec::default() };
        Box::new(move || {
            let mut expirations = [0; 8];
            process.timerfd_settime(fd, TFD_TIMER_ABSTIME, passed).expect("a timer");
            assert_eq!(process.read(fd, &mut expirations), Ok(8));
            assert_eq!(u64::from_ne_bytes(expirations), 1);
        })
    })
}

fn signalfd(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        // Each CPU has a signal of its own, as all read those of one process.
        let signo = 34 + cpu as i32;
        let flags = O_NONBLOCK | O_ANYFD;
        let fd = process.signalfd(-1, 1 << (signo - 1), flags).expect("a signalfd");
        Box::new(move || {
            let mut info = [0; 128];
            process.kill(process.getpid(), signo).expect("a signal to itself");
            assert_eq!(process.read(fd, &mut info), Ok(128));
            assert_eq!(info[..4], signo.to_ne_bytes());
        })
    })
}

fn procfs(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        // Paths as `String`: another caller with a `&str` changes what the compiler inlines into
        // the counted operations on paths.
        let path = String::from("/proc");
        let open = || process.open(format!("{path}/filesystems"), O_ANYFD, 0);
        let fd = open().unwrap_or_else(|_| {
            // Another CPU may do the same.
            let _ = process.mkdir(path.clone(), 0o755);
            process.mount(path.clone(), path.clone(), "proc", 0).expect("a directory");
            open().expect("an entry of /proc")
        });
        Box::new(move || {
            let mut text = [0; 256];
            assert_eq!(process.lseek(fd, 0, 0), Ok(0));
            let read = process.read(fd, &mut text).expect("text");
            assert!(text[..read].ends_with(b"\n"));
        })
    })
}

/// A file in memory with 65,536 bytes in it.
fn file(process: &Process, cpu: usize) -> i32 {
    let flags = O_CREAT | O_RDWR | O_ANYFD;
    let fd = process.open(format!("/file-{cpu}"), flags, 0o644).expect("a file");
    assert_eq!(process.write(fd, &[7; 65536]), Ok(65536));
    fd
}

fn pread<const SIZE: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let (fd, mut bytes) = (file(&process, cpu), vec![0; SIZE]);
        Box::new(move || {
            bytes[SIZE - 1] = 0;
            assert_eq!(process.pread(fd, &mut bytes, 0), Ok(SIZE));
            assert_eq!(bytes[SIZE - 1], 7);
        })
    })
}

fn pwrite<const SIZE: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let (fd, bytes) = (file(&process, cpu), vec![7; SIZE]);
        Box::new(move || assert_eq!(process.pwrite(fd, &bytes, 0), Ok(SIZE)))
    })
}

fn seek_read(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let fd = file(&process, cpu);
        Box::new(move || {
            let mut bytes = [0; 64];
            assert_eq!(process.lseek(fd, 0, 0), Ok(0));
            assert_eq!(process.read(fd, &mut bytes), Ok(64));
            assert_eq!(bytes[63], 7);
        })
    })
}

fn seek_write<const SIZE: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let (fd, bytes) = (file(&process, cpu), vec![7; SIZE]);
        Box::new(move || {
            assert_eq!(process.lseek(fd, 0, 0), Ok(0));
            assert_eq!(process.write(fd, &bytes), Ok(SIZE));
        })
    })
}

fn vectors(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [reader, writer] = process.pipe2(O_NONBLOCK | O_ANYFD).expect("a pipe");
        Box::new(move || {
            let sent = [7; 16];
            assert_eq!(process.writev(writer, &[&sent[..]; 4]), Ok(64));
            let mut received = [[0; 16]; 4];
            let mut buffers = received.each_mut().map(|buffer| buffer.as_mut_slice());
            assert_eq!(process.readv(reader, &mut buffers), Ok(64));
            assert_eq!(received[3][15], 7);
        })
    })
}
