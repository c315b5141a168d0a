//! Options that all sockets have (`SOL_SOCKET`), as the system calls take and give them.
//!
//! Each protocol keeps an [`Options`] in its state. All words are independent tunables: nothing is ordered by them, so
//! every access is relaxed.
//!
//! # Limits
//!
//! Timeouts are exact, where Linux rounds them to its clock's ticks. No time stamps, no marks, no devices, no filters:
//! `ENOPROTOOPT`.

use crate::abi::*;
use crate::caller::Right;
use crate::proto::On;
use core::time::Duration;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::io::Errno;

/// `SO_PEERCRED` of a socket that has no local peer: no process, and the user and group -1.
pub(crate) const NO_PEER: [u8; 12] = [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
/// What a buffer holds by default.
pub(crate) use crate::abi::SOCKET_BUFFER as BUFFER;
/// The least room for what is sent; for what is received.
const SNDBUF_MIN: u32 = 4608;
const RCVBUF_MIN: u32 = 2304;
const NEVER: u64 = u64::MAX;

/// The options of a socket.
#[derive(Debug)]
pub(crate) struct Options {
    /// Those that are on or off: bit [`SO_REUSEADDR`] and so on.
    on: AtomicU64,
    sndbuf: AtomicU32,
    rcvbuf: AtomicU32,
    rcvlowat: AtomicU32,
    linger: AtomicU32,
    priority: AtomicU32,
    /// Less than 0, as a signed number: none.
    peek_off: AtomicU32,
    /// In microseconds.
    rcvtimeo: AtomicU64,
    sndtimeo: AtomicU64,
}

impl Options {
    /// As a new socket has them.
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicU64::new(0),
            sndbuf: AtomicU32::new(BUFFER),
            rcvbuf: AtomicU32::new(BUFFER),
            rcvlowat: AtomicU32::new(1),
            linger: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            peek_off: AtomicU32::new(u32::MAX),
            rcvtimeo: AtomicU64::new(NEVER),
            sndtimeo: AtomicU64::new(NEVER),
        }
    }

    /// The same, with other room for what is sent and received.
    pub(crate) fn with_buffers(sndbuf: u32, rcvbuf: u32) -> Self {
        let options = Self::new();
        options.set_buffers(sndbuf, rcvbuf);
        options
    }

    /// Changes the room for what is sent and received, which is as a program would see it.
    pub(crate) fn set_buffers(&self, sndbuf: u32, rcvbuf: u32) {
        self.sndbuf.store(sndbuf, Ordering::Relaxed);
        self.rcvbuf.store(rcvbuf, Ordering::Relaxed);
    }

    /// Whether an option that is on or off is on.
    #[inline(always)]
    pub(crate) fn is_on(&self, name: i32) -> bool {
        self.on.load(Ordering::Relaxed) & 1 << name != 0
    }

    /// Switches it.
    pub(crate) fn switch(&self, name: i32, on: bool) {
        if on {
            self.on.fetch_or(1 << name, Ordering::Relaxed);
        } else {
            self.on.fetch_and(!(1 << name), Ordering::Relaxed);
        }
    }

    /// Room for what is sent.
    #[inline(always)]
    pub(crate) fn sndbuf(&self) -> u32 {
        self.sndbuf.load(Ordering::Relaxed)
    }

    /// Room for what is received.
    #[inline(always)]
    pub(crate) fn rcvbuf(&self) -> u32 {
        self.rcvbuf.load(Ordering::Relaxed)
    }

    /// How many bytes a receiver of `len` waits for (`sock_rcvlowat`).
    #[inline(always)]
    pub(crate) fn target(&self, waitall: bool, len: usize) -> usize {
        let low = self.rcvlowat.load(Ordering::Relaxed) as usize;
        if waitall { len } else { low.min(len) }.max(1)
    }

    /// How many seconds `close` waits, if it does.
    pub(crate) fn linger(&self) -> Option<u32> {
        self.is_on(SO_LINGER).then(|| self.linger.load(Ordering::Relaxed))
    }

    /// Where `MSG_PEEK` looks, if it moves.
    #[inline(always)]
    pub(crate) fn peek_off(&self) -> Option<u32> {
        let offset = self.peek_off.load(Ordering::Relaxed);
        (offset <= i32::MAX as u32).then_some(offset)
    }

    /// Moves it.
    pub(crate) fn set_peek_off(&self, to: u32) {
        self.peek_off.store(to.min(i32::MAX as u32), Ordering::Relaxed);
    }

    /// How long a receiver waits; for ever if this says nothing.
    pub(crate) fn receive_timeout(&self) -> Option<Duration> {
        timeout(&self.rcvtimeo)
    }

    /// How long a sender waits.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        timeout(&self.sndtimeo)
    }

    /// The options of a socket that comes of a listener: the listener's.
    pub(crate) fn inherit(&self, from: &Self) {
        self.on.store(from.on.load(Ordering::Relaxed), Ordering::Relaxed);
        self.priority.store(from.priority.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in [
            (&self.sndbuf, &from.sndbuf),
            (&self.rcvbuf, &from.rcvbuf),
            (&self.rcvlowat, &from.rcvlowat),
            (&self.linger, &from.linger),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in [(&self.rcvtimeo, &from.rcvtimeo), (&self.sndtimeo, &from.sndtimeo)] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// `setsockopt` of what all sockets have. What only some have (`SO_PASSCRED`, `SO_PEEK_OFF`, `SO_REUSEPORT`) their
    /// protocols take before they ask here, or refuse.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for one that is unknown or read only; `EINVAL`, `EDOM`, `EPERM`, `EACCES`.
    pub(crate) fn set(&self, on: &On<'_>, name: i32, value: &[u8]) -> Result<(), Errno> {
        let (int, who, memory) = (int(value)?, on.who, on.net().memory());
        match name {
            SO_DEBUG if int != 0 && !who.may(Right::NetAdmin) => return Err(Errno::ACCESS),
            SO_DEBUG | SO_REUSEADDR | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE | SO_OOBINLINE
            | SO_NO_CHECK => {
                self.switch(name, int != 0);
            }
            SO_REUSEPORT | SO_PASSCRED => self.switch(name, int != 0),
            // Relaxed: tunables.
            SO_SNDBUF => {
                self.set_sndbuf((int as u32).min(memory.wmem_max().load(Ordering::Relaxed)));
            }
            SO_RCVBUF => {
                self.set_rcvbuf((int as u32).min(memory.rmem_max().load(Ordering::Relaxed)));
            }
            SO_SNDBUFFORCE | SO_RCVBUFFORCE if !who.may(Right::NetAdmin) => {
                return Err(Errno::PERM);
            }
            SO_SNDBUFFORCE => self.set_sndbuf(int.max(0) as u32),
            SO_RCVBUFFORCE => self.set_rcvbuf(int.max(0) as u32),
            SO_PRIORITY => {
                let free =
                    (0..=6).contains(&int) || who.may(Right::NetRaw) || who.may(Right::NetAdmin);
                if !free {
                    return Err(Errno::PERM);
                }
                self.priority.store(int as u32, Ordering::Relaxed);
            }
            SO_LINGER => {
                let seconds = int_at(value, 4).ok_or(Errno::INVAL)?;
                self.linger.store(seconds as u32, Ordering::Relaxed);
                self.switch(SO_LINGER, int != 0);
            }
            SO_RCVLOWAT => {
                let bytes = if int < 0 { i32::MAX } else { int.max(1) };
                self.rcvlowat.store(bytes as u32, Ordering::Relaxed);
            }
            SO_PEEK_OFF => self.peek_off.store(int as u32, Ordering::Relaxed),
            // It has had no effect for long.
            SO_BSDCOMPAT => {}
            SO_RCVTIMEO => self.rcvtimeo.store(micros(value)?, Ordering::Relaxed),
            SO_SNDTIMEO => self.sndtimeo.store(micros(value)?, Ordering::Relaxed),
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    fn set_sndbuf(&self, bytes: u32) {
        self.sndbuf
            .store(bytes.saturating_mul(2).clamp(SNDBUF_MIN, i32::MAX as u32), Ordering::Relaxed);
    }

    fn set_rcvbuf(&self, bytes: u32) {
        self.rcvbuf
            .store(bytes.saturating_mul(2).clamp(RCVBUF_MIN, i32::MAX as u32), Ordering::Relaxed);
    }

    /// `getsockopt` of what all sockets have: how many bytes. `SO_TYPE`, `SO_PROTOCOL`, `SO_DOMAIN` the socket knows;
    /// `SO_ERROR`, `SO_ACCEPTCONN`, `SO_PEERCRED` its protocol.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub(crate) fn get(&self, name: i32, to: &mut [u8]) -> Result<usize, Errno> {
        let int = match name {
            SO_DEBUG | SO_REUSEADDR | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE | SO_OOBINLINE
            | SO_NO_CHECK | SO_REUSEPORT | SO_PASSCRED => i32::from(self.is_on(name)),
            SO_SNDBUF => self.sndbuf() as i32,
            SO_RCVBUF => self.rcvbuf() as i32,
            SO_PRIORITY => self.priority.load(Ordering::Relaxed) as i32,
            SO_RCVLOWAT => self.rcvlowat.load(Ordering::Relaxed) as i32,
            SO_SNDLOWAT => 1,
            SO_BSDCOMPAT => 0,
            SO_PEEK_OFF => self.peek_off.load(Ordering::Relaxed) as i32,
            SO_LINGER => {
                let on = i32::from(self.is_on(SO_LINGER));
                let seconds = self.linger.load(Ordering::Relaxed) as i32;
                return Ok(give(to, &[on.to_ne_bytes(), seconds.to_ne_bytes()].concat()));
            }
            SO_RCVTIMEO => return Ok(give(to, &timeval(&self.rcvtimeo))),
            SO_SNDTIMEO => return Ok(give(to, &timeval(&self.sndtimeo))),
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(give_int(to, int))
    }
}

/// An option's value as a number.
///
/// # Errors
/// `EINVAL` for fewer than four bytes.
pub(crate) fn int(value: &[u8]) -> Result<i32, Errno> {
    int_at(value, 0).ok_or(Errno::INVAL)
}

fn int_at(value: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*value.get(at..)?.first_chunk()?))
}

/// Gives a value, cut short to what there is room for: how many bytes.
pub(crate) fn give(to: &mut [u8], value: &[u8]) -> usize {
    let n = to.len().min(value.len());
    to[..n].copy_from_slice(&value[..n]);
    n
}

/// Gives a number.
pub(crate) fn give_int(to: &mut [u8], value: i32) -> usize {
    give(to, &value.to_ne_bytes())
}

fn timeout(of: &AtomicU64) -> Option<Duration> {
    let micros = of.load(Ordering::Relaxed);
    (micros != NEVER).then(|| Duration::from_micros(micros))
}

fn long(value: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_ne_bytes(*value.get(at..)?.first_chunk()?))
}

/// A `struct timeval` as microseconds: nothing stands for never, a time before now for at once.
fn micros(value: &[u8]) -> Result<u64, Errno> {
    let (seconds, micros) =
        (long(value, 0).ok_or(Errno::INVAL)?, long(value, 8).ok_or(Errno::INVAL)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    match (seconds, micros) {
        (..0, _) => Ok(0),
        (0, 0) => Ok(NEVER),
        _ => Ok((seconds as u64).saturating_mul(1_000_000).saturating_add(micros as u64)),
    }
}

fn timeval(of: &AtomicU64) -> [u8; 16] {
    let micros = of.load(Ordering::Relaxed);
    let mut bytes = [0; 16];
    if micros != NEVER {
        bytes[..8].copy_from_slice(&(micros / 1_000_000).to_ne_bytes());
        bytes[8..].copy_from_slice(&(micros % 1_000_000).to_ne_bytes());
    }
    bytes
}
