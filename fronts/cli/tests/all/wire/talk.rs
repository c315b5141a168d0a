//! TCP and UDP from one host to another.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::{Host, PATIENCE, until};

/// So many bytes by TCP, which are the same there.
pub(crate) fn tcp(len: usize, from: &Host, to: &Host, address: &str) {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
    let listener = to.on(|| TcpListener::bind(address).unwrap());
    let mut stream =
        from.on(|| TcpStream::connect_timeout(&address.parse().unwrap(), PATIENCE).unwrap());
    let (mut other, _) = listener.accept().unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    thread::scope(|scope| {
        let sent = &bytes;
        scope.spawn(move || stream.write_all(sent).unwrap());
        let mut came = Vec::new();
        other.read_to_end(&mut came).unwrap();
        assert!(came == bytes, "{} of {len} bytes", came.len());
    });
}

/// A datagram, sent until it comes: the first may be what tells the host how wide the way is.
pub(crate) fn udp(from: &Host, to: &Host, [near, far]: [&str; 2], sent: &[u8]) {
    let bind = |host: &Host, address: &str| host.on(|| UdpSocket::bind(address).unwrap());
    let (near, other) = (bind(from, near), bind(to, far));
    other.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut came = vec![0; 4096];
    until("a datagram", || {
        // An error of before, such as EMSGSIZE, is told at the next one.
        let _ = near.send_to(sent, far);
        other.recv(&mut came).is_ok_and(|len| came[..len] == *sent)
    });
}
