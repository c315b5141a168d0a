//! What loopback TCP and UDP cost, beside the host's: ns of this thread's processor time for each round, medians of
//! interleaved runs.
//!
//! `cargo run --release --example inet`
#![allow(unsafe_code, reason = "the host's calls")]

use quietline::abi::{AF_INET, SOCK_DGRAM, SOCK_STREAM};
use quietline::{Config, Kernel, Process};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

fn loopback() -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[4..8].copy_from_slice(&[127, 0, 0, 1]);
    raw
}

/// What this thread has used of a processor, in ns: other programs of a busy machine do not count.
fn used() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the time.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// ns for each of `n` calls.
fn time(n: u32, mut call: impl FnMut()) -> f64 {
    let start = used();
    for _ in 0..n {
        call();
    }
    (used() - start) / f64::from(n)
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Runs both, one after the other, several times.
fn row(name: &str, n: u32, mut ours: impl FnMut(), mut host: impl FnMut()) {
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        own.push(time(n * 20, &mut ours));
        theirs.push(time(n, &mut host));
    }
    let (own, theirs) = (median(own), median(theirs));
    println!("{name:34} quietline {own:9.1}  host {theirs:9.1}  {:6.1} times", theirs / own);
}

struct Pair(i32, i32);

fn pair(process: &Process) -> Pair {
    let listener = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.bind(listener, &loopback()).unwrap();
    process.listen(listener, 1).unwrap();
    let client = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.connect(client, process.getsockname(listener).unwrap().bytes()).unwrap();
    Pair(client, process.accept(listener).unwrap().0)
}

fn main() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = &kernel.process().unwrap();
    let Pair(client, server) = pair(process);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    for len in [1, 4096, 65536] {
        let (bytes, mut room, mut their_room) = (vec![1; len], vec![0; len], vec![0; len]);
        row(
            &format!("TCP write+read, {len} bytes"),
            if len > 5000 { 500 } else { 5000 },
            || {
                assert_eq!(process.write(client, &bytes), Ok(len));
                assert_eq!(process.read(server, &mut room), Ok(len));
                black_box(&room);
            },
            || {
                near.write_all(&bytes).unwrap();
                far.read_exact(&mut their_room).unwrap();
            },
        );
        let (mut room, mut their_room) = (vec![0; len], vec![0; len]);
        row(
            &format!("TCP send+recv, {len} bytes"),
            if len > 5000 { 500 } else { 5000 },
            || {
                assert_eq!(process.send(client, &bytes, 0), Ok(len));
                assert_eq!(process.recv(server, &mut room, 0), Ok(len));
                black_box(&room);
            },
            || {
                near.write_all(&bytes).unwrap();
                far.read_exact(&mut their_room).unwrap();
            },
        );
    }
    let udp = |bound: &[u8]| {
        let fd = process.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
        process.bind(fd, bound).unwrap();
        fd
    };
    let (sender, receiver) = (udp(&loopback()), udp(&loopback()));
    process.connect(sender, process.getsockname(receiver).unwrap().bytes()).unwrap();
    let (near, far) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    for len in [1, 1400] {
        let (bytes, mut room, mut their_room) = (vec![1; len], vec![0; len], vec![0; len]);
        row(
            &format!("UDP send+recv, {len} bytes"),
            5000,
            || {
                assert_eq!(process.send(sender, &bytes, 0), Ok(len));
                assert_eq!(process.recv(receiver, &mut room, 0), Ok(len));
                black_box(&room);
            },
            || {
                assert_eq!(near.send(&bytes).unwrap(), len);
                assert_eq!(far.recv(&mut their_room).unwrap(), len);
            },
        );
    }
    let server = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.bind(server, &loopback()).unwrap();
    process.listen(server, 8).unwrap();
    let address = process.getsockname(server).unwrap();
    row(
        "TCP socket+connect+accept+2 close",
        300,
        || {
            let client = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
            process.connect(client, address.bytes()).unwrap();
            let (end, _) = process.accept(server).unwrap();
            process.close(end).unwrap();
            process.close(client).unwrap();
        },
        || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            drop(far);
            drop(near);
        },
    );
}
