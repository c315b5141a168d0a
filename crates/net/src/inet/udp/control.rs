//! Control messages of datagrams: what a sender says of one (`ip_cmsg_send`, `ip6_datagram_send_ctl`), and what a receiver is told.

use super::super::address::{Class, class, mapped};
use super::super::control::{self, byte_or_int, int_of};
use super::super::settings::{
    IP_PKTINFO, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, IPV6_PKTINFO,
};
use super::End;
use super::queue::Marks;
use crate::abi::{MSG_CTRUNC, SOL_SOCKET};
use crate::message::{Cmsg, Incoming, cmsgs};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use rustix::io::Errno;

const IP_PROTOCOL: i32 = 52;
const IPV6_2292PKTINFO: i32 = 2;
const IPV6_2292HOPLIMIT: i32 = 8;
const IPV6_HOPLIMIT: i32 = 52;
const IPV6_DONTFRAG: i32 = 62;
const IPV6_TCLASS: i32 = 67;
/// The number of the loopback device.
const LOOPBACK: i32 = 1;

/// What the control messages of a datagram say (`struct ipcm_cookie`).
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Said {
    /// From where it is to come; the wildcard is from wherever the way begins.
    pub(super) source: Option<IpAddr>,
    pub(super) ttl: Option<u8>,
    pub(super) tos: Option<u8>,
}

impl Said {
    /// What these say, of a datagram of version 4 or 6 that a socket of version 6 sends, or one of version 4.
    ///
    /// # Errors
    /// `EINVAL` for what is not well-formed or not known (also `UDP_SEGMENT`), and for an address that is nobody's;
    /// `ENETUNREACH` for somebody else's; `ENODEV`.
    #[cold]
    pub(super) fn of(control: &[u8], v4: bool, v6_socket: bool) -> Result<Self, Errno> {
        let mut said = Self::default();
        for cmsg in cmsgs(control) {
            let cmsg = cmsg.ok_or(Errno::INVAL)?;
            match cmsg.level {
                SOL_SOCKET => control::of_any_socket(&cmsg)?,
                IPPROTO_UDP => return Err(Errno::INVAL),
                IPPROTO_IPV6 if v4 && v6_socket && cmsg.ty == IPV6_PKTINFO => said.mapped(&cmsg)?,
                IPPROTO_IP if v4 => said.four(&cmsg)?,
                IPPROTO_IPV6 if !v4 => said.six(&cmsg)?,
                _ => {}
            }
        }
        Ok(said)
    }

    fn four(&mut self, cmsg: &Cmsg<'_>) -> Result<(), Errno> {
        match cmsg.ty {
            IP_PKTINFO => {
                let info: &[u8; 12] = cmsg.data.try_into().map_err(|_| Errno::INVAL)?;
                check_device(&info[..4])?;
                let [_, _, _, _, a, b, c, d, ..] = *info;
                self.set_source4(Ipv4Addr::new(a, b, c, d))
            }
            IP_TTL => int_of(cmsg.data, 1..=255).map(|ttl| self.ttl = Some(ttl as u8)),
            IP_TOS => byte_or_int(cmsg.data).map(|tos| self.tos = Some(tos)),
            IP_PROTOCOL => int_of(cmsg.data, 1..=255).map(drop),
            _ => Err(Errno::INVAL),
        }
    }

    /// `IPV6_PKTINFO` with a mapped address.
    fn mapped(&mut self, cmsg: &Cmsg<'_>) -> Result<(), Errno> {
        let info = cmsg.data.first_chunk::<20>().ok_or(Errno::INVAL)?;
        let ip = address(info).to_ipv4_mapped().ok_or(Errno::INVAL)?;
        check_device(&info[16..])?;
        self.set_source4(ip)
    }

    fn six(&mut self, cmsg: &Cmsg<'_>) -> Result<(), Errno> {
        match cmsg.ty {
            IPV6_PKTINFO | IPV6_2292PKTINFO => {
                let info = cmsg.data.first_chunk::<20>().ok_or(Errno::INVAL)?;
                check_device(&info[16..])?;
                match address(info) {
                    Ipv6Addr::UNSPECIFIED => Ok(()),
                    // A mapped one is nobody's here.
                    ip if ip.to_ipv4_mapped().is_some() => Err(Errno::INVAL),
                    ip if class(ip.into()) != Class::Own => Err(Errno::INVAL),
                    ip => {
                        self.source = Some(ip.into());
                        Ok(())
                    }
                }
            }
            IPV6_HOPLIMIT | IPV6_2292HOPLIMIT | IPV6_TCLASS => {
                int_of(cmsg.data, -1..=255).map(drop)
            }
            IPV6_DONTFRAG => int_of(cmsg.data, 0..=1).map(drop),
            _ => Err(Errno::INVAL),
        }
    }

    /// From there, if a packet may come from there at all, and if there is a way from there.
    fn set_source4(&mut self, ip: Ipv4Addr) -> Result<(), Errno> {
        match class(ip.into()) {
            Class::Any | Class::Own => self.source = Some(ip.into()),
            _ if ip.is_multicast() || ip.is_broadcast() => return Err(Errno::INVAL),
            _ => return Err(Errno::NETUNREACH),
        }
        Ok(())
    }
}

fn address(info: &[u8; 20]) -> Ipv6Addr {
    Ipv6Addr::from(*info.first_chunk::<16>().expect("it is longer"))
}

/// The device to send by: any, or the only one.
fn check_device(number: &[u8]) -> Result<(), Errno> {
    match number.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0 | LOOPBACK) => Ok(()),
        _ => Err(Errno::NODEV),
    }
}

impl End {
    /// Tells a receiver what he wants to know of a datagram: to which address it was sent, and with what marks
    /// (`ip_cmsg_recv`, `ip6_datagram_recv_ctl`).
    pub(super) fn tell(&self, to: IpAddr, marks: Marks, message: &mut Incoming<'_, '_, '_>) {
        if !message.control.is_wanted() || !self.settings.tells(self.v6) {
            return;
        }
        let mut fits = true;
        if self.v6 && self.settings.tells_address6() {
            let mut info = [0; 20];
            let IpAddr::V6(ip) = mapped(to) else { return };
            info[..16].copy_from_slice(&ip.octets());
            info[16..].copy_from_slice(&LOOPBACK.to_ne_bytes());
            fits &= message.control.put(IPPROTO_IPV6, IPV6_PKTINFO, &info);
        }
        if let IpAddr::V4(ip) = to {
            if self.settings.tells_address4() {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&LOOPBACK.to_ne_bytes());
                info[4..8].copy_from_slice(&ip.octets());
                info[8..].copy_from_slice(&ip.octets());
                fits &= message.control.put(IPPROTO_IP, IP_PKTINFO, &info);
            }
            if self.settings.tells_ttl() {
                fits &=
                    message.control.put(IPPROTO_IP, IP_TTL, &i32::from(marks.ttl).to_ne_bytes());
            }
            if self.settings.tells_tos() {
                fits &= message.control.put(IPPROTO_IP, IP_TOS, &[marks.tos]);
            }
        }
        if !fits {
            message.found |= MSG_CTRUNC;
        }
    }
}
