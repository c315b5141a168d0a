//! Options of streams.

use super::super::groups;
use super::super::settings::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, TCP_MAXSEG, TCP_WINDOW_CLAMP};
use super::{CONNECTING, DEAD, ESTABLISHED, End, LISTENS, READABLE};
use crate::abi::{
    SO_ACCEPTCONN, SO_ERROR, SO_PASSCRED, SO_PEEK_OFF, SO_PEERCRED, SO_RCVBUF, SO_RCVBUFFORCE,
    SO_RCVLOWAT, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDBUFFORCE, SOL_SOCKET,
};
use crate::options::{NO_PEER, give, give_int, int};
use crate::proto::On;
use quietline_platform::atomic::Ordering;
use rustix::io::Errno;

/// The state of a connection; read only.
const TCP_INFO: i32 = 11;
/// By name.
const TCP_CONGESTION: i32 = 13;
const IPV6_V6ONLY: i32 = 26;
/// Bytes of `struct tcp_info` that are given: all that Linux 6.1 has.
const INFO: usize = 232;
/// Those that there are; the first is a new socket's.
const CONGESTION: [&[u8]; 2] = [b"cubic", b"reno"];

impl End {
    /// `setsockopt`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EINVAL`, `ENOENT`, `EPERM`, `EACCES`, `EDOM`.
    pub(in super::super) fn set_option(
        &self,
        on: &On<'_>,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        match (level, name) {
            (SOL_SOCKET, SO_PASSCRED | SO_PEEK_OFF) => int(value).and(Err(Errno::OPNOTSUPP)),
            (SOL_SOCKET, _) => {
                self.options.set(on, name, value)?;
                match name {
                    SO_SNDBUF | SO_RCVBUF | SO_SNDBUFFORCE | SO_RCVBUFFORCE => self.resize(),
                    SO_REUSEADDR | SO_REUSEPORT => self.claim_again(),
                    // What is there may be enough now.
                    SO_RCVLOWAT => {
                        self.readers.wake(READABLE.bits(), 1);
                    }
                    _ => {}
                }
                Ok(())
            }
            (IPPROTO_TCP, TCP_CONGESTION) => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                let number =
                    CONGESTION.iter().position(|known| *known == name).ok_or(Errno::NOENT)?;
                // Relaxed: a tunable.
                self.congestion.store(number as u32, Ordering::Relaxed);
                Ok(())
            }
            // Their length comes before their names.
            (IPPROTO_TCP, _) if value.len() < size_of::<i32>() => Err(Errno::INVAL),
            (IPPROTO_TCP, TCP_WINDOW_CLAMP) if int(value)? == 0 && !self.is_closed() => {
                Err(Errno::INVAL)
            }
            (IPPROTO_IPV6, _) if !self.v6 => Err(Errno::NOPROTOOPT),
            (IPPROTO_IP | IPPROTO_IPV6, _)
                if let Some(errno) = groups::refuse(level, name, value, true) =>
            {
                Err(errno)
            }
            // Once it is bound it is too late.
            (IPPROTO_IPV6, IPV6_V6ONLY) if self.is_bound() => Err(Errno::INVAL),
            (IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6, _) => {
                self.settings.set(level, name, value, true)
            }
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// `getsockopt`: how many bytes.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub(in super::super) fn option(
        &self,
        level: i32,
        name: i32,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        match (level, name) {
            (SOL_SOCKET, SO_ERROR) => {
                let errno = self.take_error().map_or(0, Errno::raw_os_error);
                Ok(give_int(to, errno))
            }
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(give_int(to, self.listens().into())),
            (SOL_SOCKET, SO_PASSCRED | SO_PEEK_OFF) => Err(Errno::OPNOTSUPP),
            (SOL_SOCKET, SO_PEERCRED) => Ok(give(to, &NO_PEER)),
            (SOL_SOCKET, _) => self.options.get(name, to),
            (IPPROTO_TCP, TCP_INFO) => {
                let mut info = [0; INFO];
                info[0] = self.state();
                Ok(give(to, &info))
            }
            (IPPROTO_TCP, TCP_CONGESTION) => {
                // Relaxed: as above.
                let known = CONGESTION[self.congestion.load(Ordering::Relaxed) as usize];
                let mut name = [0; 16];
                name[..known.len()].copy_from_slice(known);
                Ok(give(to, &name))
            }
            (IPPROTO_TCP, TCP_MAXSEG) => Ok(give_int(to, self.max_segment() as i32)),
            (IPPROTO_IPV6, _) if !self.v6 => Err(Errno::OPNOTSUPP),
            (IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6, _) => self.settings.get(level, name, to),
            _ if self.v6 => Err(Errno::NOPROTOOPT),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Whether there is no connection and no listener (`TCP_CLOSE`).
    fn is_closed(&self) -> bool {
        let flags = self.flags();
        flags & LISTENS == 0 && (flags & DEAD != 0 || flags & (CONNECTING | ESTABLISHED) == 0)
    }

    /// `TCP_MAXSEG`: before a connection the program's, if it has said one.
    fn max_segment(&self) -> u32 {
        let said =
            if self.is_closed() || self.listens() { self.settings.max_segment() } else { None };
        // Relaxed: a number that nothing depends on.
        said.unwrap_or_else(|| self.segment.load(Ordering::Relaxed))
    }

    /// Whether it has a port: one that nobody asked for goes with the connection.
    fn is_bound(&self) -> bool {
        let control = self.control.lock();
        let goes = self.flags() & DEAD != 0 && control.remote.is_some() && !control.keeps_port;
        control.holding.is_some() && !goes
    }

    /// What it wants of its port has changed.
    fn claim_again(&self) {
        let control = self.control.lock();
        if let (Some(holding), Some(local)) = (control.holding, control.local) {
            self.net.get().inet.tcp.reclaim(holding, self.claim(local.ip()));
        }
    }
}
