//! Library functions that the tracer answers in the child's stead: the clock and the random
//! numbers. So a run does not depend on when it runs.

use crate::raw::Child;
use std::io;

/// Nanoseconds that the stand-in of the clock advances by at each reading.
const TICK: u64 = 1_000;
/// Nanoseconds between changes of the coarse clocks.
const COARSE: u64 = 4_000_000;
/// The first reading of clocks that count from boot.
const BOOT: u64 = 1_000 * 1_000_000_000;
/// The first reading of clocks that count from 1970.
const EPOCH: u64 = 1_700_000_000 * 1_000_000_000;

/// Tracer-side replacements of `clock_gettime` and `getrandom`, and the addresses of the functions
/// that allocate memory.
pub(crate) struct StandIns {
    enabled: bool,
    /// Clock readings so far.
    readings: u64,
    /// Words of random numbers so far.
    words: u64,
    addresses: Addresses,
}

/// Where library functions are. (The child is a copy of this process.)
struct Addresses {
    clock_gettime: u64,
    getrandom: u64,
    malloc: u64,
    calloc: u64,
    realloc: u64,
    aligned_alloc: u64,
    posix_memalign: u64,
    mmap: u64,
}

impl Addresses {
    fn new() -> Self {
        Self {
            clock_gettime: libc::clock_gettime as *const () as u64,
            getrandom: libc::getrandom as *const () as u64,
            malloc: libc::malloc as *const () as u64,
            calloc: libc::calloc as *const () as u64,
            realloc: libc::realloc as *const () as u64,
            aligned_alloc: libc::aligned_alloc as *const () as u64,
            posix_memalign: libc::posix_memalign as *const () as u64,
            mmap: libc::mmap as *const () as u64,
        }
    }
}

impl StandIns {
    /// No replacements: the child calls the functions.
    pub(crate) fn none() -> Self {
        Self { enabled: false, readings: 0, words: 0, addresses: Addresses::new() }
    }

    /// Replaces the functions in a stopped child: their first byte becomes a breakpoint.
    pub(crate) fn install(child: &Child) -> io::Result<Self> {
        let addresses = Addresses::new();
        child.set_breakpoint(addresses.clock_gettime)?;
        child.set_breakpoint(addresses.getrandom)?;
        Ok(Self { enabled: true, readings: 0, words: 0, addresses })
    }

    /// Executes the function at `ip` for the child if it is replaced. Returns `false` if it is not.
    pub(crate) fn answer(
        &mut self,
        child: &Child,
        ip: u64,
        registers: &libc::user_regs_struct,
    ) -> io::Result<bool> {
        if !self.enabled {
            return Ok(false);
        }
        let result = if ip == self.addresses.clock_gettime {
            let now = self.now(registers.rdi as libc::clockid_t);
            child.poke(registers.rsi, now / 1_000_000_000)?;
            child.poke(registers.rsi + 8, now % 1_000_000_000)?;
            0
        } else if ip == self.addresses.getrandom {
            self.fill(child, registers.rdi, registers.rsi)?;
            registers.rsi
        } else {
            return Ok(false);
        };
        child.return_from_entry(registers, result)?;
        Ok(true)
    }

    fn now(&mut self, clock: libc::clockid_t) -> u64 {
        self.readings += 1;
        let (start, step) = match clock {
            libc::CLOCK_REALTIME => (EPOCH, 1),
            libc::CLOCK_REALTIME_COARSE => (EPOCH, COARSE),
            libc::CLOCK_MONOTONIC_COARSE => (BOOT, COARSE),
            _ => (BOOT, 1),
        };
        let now = start + self.readings * TICK;
        now - now % step
    }

    /// Writes whole words, and keeps what lies behind the last byte.
    fn fill(&mut self, child: &Child, address: u64, len: u64) -> io::Result<()> {
        for offset in (0..len).step_by(8) {
            self.words += 1;
            // The odd constant of Knuth's multiplicative hash, for 64 bits.
            let word = self.words.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let keep = 8 - (len - offset).min(8);
            let mask = if keep == 0 { u64::MAX } else { (1 << (8 * (8 - keep))) - 1 };
            let old = child.peek(address + offset)?;
            child.poke(address + offset, old & !mask | word & mask)?;
        }
        Ok(())
    }

    /// Returns the bytes that a call of the function at `ip` requests.
    pub(crate) fn requested(&self, ip: u64, r: &libc::user_regs_struct) -> u64 {
        let a = &self.addresses;
        match ip {
            _ if ip == a.malloc => r.rdi,
            _ if ip == a.calloc => r.rdi * r.rsi,
            _ if ip == a.realloc || ip == a.aligned_alloc || ip == a.mmap => r.rsi,
            _ if ip == a.posix_memalign => r.rdx,
            _ => 0,
        }
    }
}
