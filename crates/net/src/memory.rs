//! The memory of socket buffers: how much all sockets of a kernel together may take, and what a
//! program may ask for one socket.
//!
//! Queues of bytes charge the pieces of memory that they are made of, when they are made: a
//! conversation that goes over the same pieces charges nothing. Charges use per-CPU stocks far from
//! the limit (see [`Counter`]).
//!
//! # Limits
//!
//! Charged are the queues of TCP. Datagrams and local sockets have a bound each, their socket's
//! buffer. (Linux has none for all local sockets either.)

use crate::raw::NetRef;
use core::fmt;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, memory};
use quietline_sync::{Counter, LazyBox};
use rustix::io::Errno;

/// Bytes of a page, in which `tcp_mem` counts.
const PAGE: u64 = 4096;
/// Bytes that a CPU counts by itself.
const BATCH: u32 = 1 << 20;
/// A number of `tcp_mem` for which the default was not computed yet.
const UNKNOWN: u32 = u32::MAX;
/// What an unprivileged program may make of a buffer at first, before it is doubled.
const BUFFER_MAX: u32 = 4_194_304;
/// Bytes of control messages with one message at first.
const OPTMEM_MAX: u32 = 131_072;

/// Bytes of control messages that need no memory (`____sys_sendmsg`).
const CONTROL_ON_STACK: usize = 36;

/// The limits of a kernel's socket buffers, and the memory that they take.
pub struct SocketMemory {
    /// Bytes that are charged. Made by the first charge.
    used: LazyBox<Counter>,
    /// `tcp_mem`, in pages.
    tcp_mem: [AtomicU32; 3],
    wmem_max: AtomicU32,
    rmem_max: AtomicU32,
    optmem_max: AtomicU32,
}

/// The error of a piece of memory that is not made. In one word, so that a result of a number and
/// this is returned in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused(usize);

impl Refused {
    /// There is no memory.
    const NO_MEMORY: Self = Self(usize::MAX);

    /// Sockets have as much as they may have. So many bytes were stored in memory that was there.
    pub(crate) fn at_limit(stored: usize) -> Self {
        Self(stored)
    }

    /// Returns the number of bytes that were stored, if the limit was the reason.
    pub(crate) fn stored(self) -> Option<usize> {
        Some(self.0).filter(|stored| *stored != Self::NO_MEMORY.0)
    }
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Self::NO_MEMORY
    }
}

/// A charge of so many bytes, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    net: NetRef,
    bytes: u32,
}

impl SocketMemory {
    pub(crate) fn new() -> Self {
        Self {
            used: LazyBox::new(),
            tcp_mem: [UNKNOWN; 3].map(AtomicU32::new),
            wmem_max: AtomicU32::new(BUFFER_MAX),
            rmem_max: AtomicU32::new(BUFFER_MAX),
            optmem_max: AtomicU32::new(OPTMEM_MAX),
        }
    }

    /// Returns the limits on the queues of TCP, in pages (`/proc/sys/net/ipv4/tcp_mem`). Beyond the
    /// third, a queue that holds bytes takes no more memory. The first two are for show. By
    /// default the third is about a tenth of the machine's memory.
    pub fn tcp_mem(&self) -> [u64; 3] {
        // Relaxed, here and below: tunables.
        let load = || self.tcp_mem.each_ref().map(|pages| pages.load(Ordering::Relaxed));
        let pages = load();
        if pages.contains(&UNKNOWN) {
            self.set_defaults();
            return load().map(u64::from);
        }
        pages.map(u64::from)
    }

    /// Sets the numbers of `tcp_mem` that were never set. Asks the system, so it is done once.
    #[cold]
    fn set_defaults(&self) {
        for (word, pages) in self.tcp_mem.iter().zip(default_tcp_mem()) {
            // Relaxed, both: a number that was set meanwhile stays.
            let pages = bounded(pages);
            let _ = word.compare_exchange(UNKNOWN, pages, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Changes the limits on the queues of TCP, in pages, to 16 TiB at most. Bytes in the queues stay.
    pub fn set_tcp_mem(&self, pages: [u64; 3]) {
        for (word, pages) in self.tcp_mem.iter().zip(pages) {
            // A reader meanwhile may see some of the old numbers.
            word.store(bounded(pages), Ordering::Relaxed);
        }
    }

    /// Returns the bytes that the queues of TCP take; exact when no thread sends or receives
    /// meanwhile.
    pub fn tcp_bytes(&self) -> u64 {
        self.used.get().map_or(0, |used| used.sum().max(0) as u64)
    }

    /// What a program without privileges may set `SO_SNDBUF` to (`/proc/sys/net/core/wmem_max`).
    pub fn wmem_max(&self) -> &AtomicU32 {
        &self.wmem_max
    }

    /// What a program without privileges may set `SO_RCVBUF` to (`/proc/sys/net/core/rmem_max`).
    pub fn rmem_max(&self) -> &AtomicU32 {
        &self.rmem_max
    }

    /// The bytes of control messages that one message may have, and one more
    /// (`/proc/sys/net/core/optmem_max`).
    pub fn optmem_max(&self) -> &AtomicU32 {
        &self.optmem_max
    }

    /// Returns an error for more bytes of control messages than one message may have.
    ///
    /// # Errors
    /// `ENOBUFS`.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_control(&self, control: &[u8]) -> Result<(), Errno> {
        // A little lies on the stack.
        if control.len() <= CONTROL_ON_STACK {
            return Ok(());
        }
        let max = self.optmem_max.load(Ordering::Relaxed) as usize;
        if control.len() < max { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    /// Charges `bytes`; if `needed`, also beyond the limit.
    fn charge(&self, bytes: u32, needed: bool) -> Result<(), Refused> {
        if cfg!(loom) {
            // The models are of queues. The counter has models of its own.
            return Ok(());
        }
        let used = self.used.get_or_make(|| Counter::with_batch(BATCH))?;
        let limit = self.tcp_mem()[2].saturating_mul(PAGE);
        if used.limited_add(limit.min(i64::MAX as u64) as i64, bytes.into()) {
            return Ok(());
        }
        if !needed {
            return Err(Refused::at_limit(0));
        }
        used.add(bytes.into());
        Ok(())
    }
}

/// A number of pages as `tcp_mem` has it.
fn bounded(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX).min(UNKNOWN - 1)
}

/// Linux's (`tcp_init_mem`), as if all of the machine's memory was free.
#[cold]
fn default_tcp_mem() -> [u64; 3] {
    let limit = (memory::physical() / PAGE / 16).max(128);
    let low = limit / 4 * 3;
    [low, limit, 2 * low]
}

impl Charge {
    /// Charges a kernel's socket memory with so many bytes; if `needed`, also beyond the limit.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(net: NetRef, bytes: u32, needed: bool) -> Result<Self, Refused> {
        net.get().memory.charge(bytes, needed)?;
        Ok(Self { net, bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(used) = self.net.get().memory.used.get() {
            used.sub(self.bytes.into());
        }
    }
}

impl fmt::Debug for SocketMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketMemory")
            .field("tcp_bytes", &self.tcp_bytes())
            .field("tcp_mem", &self.tcp_mem())
            .finish_non_exhaustive()
    }
}
