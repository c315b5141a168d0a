//! Options of datagram sockets.

use super::super::groups;
use super::super::settings::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP};
use super::End;
use crate::abi::{
    SO_ACCEPTCONN, SO_ERROR, SO_PASSCRED, SO_PEEK_OFF, SO_PEERCRED, SO_REUSEADDR, SO_REUSEPORT,
    SOL_SOCKET,
};
use crate::options::{NO_PEER, give, give_int, int};
use crate::proto::On;
use rustix::io::Errno;

const IPV6_V6ONLY: i32 = 26;
/// `UDP_CORK`.
const UDP_CORK: i32 = 1;

impl End {
    /// `setsockopt`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EINVAL`, `ENODEV`, `EADDRNOTAVAIL`, `EPERM`, `EACCES`, `EDOM`.
    pub(in super::super) fn set_option(
        &self,
        on: &On<'_>,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        match (level, name) {
            (SOL_SOCKET, SO_PASSCRED) => int(value).and(Err(Errno::OPNOTSUPP)),
            (SOL_SOCKET, SO_PEEK_OFF) => int(value).and(Err(Errno::NOPROTOOPT)),
            (SOL_SOCKET, _) => {
                self.options.set(on, name, value)?;
                if matches!(name, SO_REUSEADDR | SO_REUSEPORT) {
                    self.claim_again();
                }
                Ok(())
            }
            // Their length comes before their names.
            (IPPROTO_UDP, _) if value.len() < size_of::<i32>() => Err(Errno::INVAL),
            // No corking: only to be switched off.
            (IPPROTO_UDP, UDP_CORK) if int(value)? == 0 => Ok(()),
            (IPPROTO_IPV6, _) if !self.v6 => Err(Errno::NOPROTOOPT),
            (IPPROTO_IP | IPPROTO_IPV6, _)
                if let Some(errno) = groups::refuse(level, name, value, false) =>
            {
                Err(errno)
            }
            // Once it is bound it is too late.
            (IPPROTO_IPV6, IPV6_V6ONLY) if self.is_bound() => Err(Errno::INVAL),
            (IPPROTO_IP | IPPROTO_IPV6, _) => self.settings.set(level, name, value, false),
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
                Ok(give_int(to, self.take_error().map_or(0, Errno::raw_os_error)))
            }
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(give_int(to, 0)),
            (SOL_SOCKET, SO_PASSCRED) => Err(Errno::OPNOTSUPP),
            (SOL_SOCKET, SO_PEEK_OFF) => Err(Errno::NOPROTOOPT),
            (SOL_SOCKET, SO_PEERCRED) => Ok(give(to, &NO_PEER)),
            (SOL_SOCKET, _) => self.options.get(name, to),
            (IPPROTO_UDP, UDP_CORK) => Ok(give_int(to, 0)),
            (IPPROTO_IPV6, _) if !self.v6 => Err(Errno::OPNOTSUPP),
            (IPPROTO_IP | IPPROTO_IPV6, _) => self.settings.get(level, name, to),
            (IPPROTO_UDP, _) => Err(Errno::NOPROTOOPT),
            _ if self.v6 => Err(Errno::NOPROTOOPT),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}
