//! `membarrier(2)`: a memory barrier on every CPU that runs a thread of this process, paid by the caller.
//!
//! The readers' half of such a pair is a compiler fence, which costs nothing; the rare side pays microseconds.
//! The barrier moreover restarts every restartable sequence in flight, so that after it no other thread can still
//! commit a sequence that it began before.

use crate::FenceError;
use core::sync::atomic::{AtomicU8, Ordering};

const CMD_QUERY: libc::c_int = 0;
const CMD_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 128;
const CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 256;

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

fn call(cmd: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, cmd, 0, 0) }
}

/// Whether the kernel offers the barrier to this process; registers for it on the first call.
pub fn available() -> bool {
    // Relaxed: registering twice is harmless, and the kernel keeps the registration, not this word.
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let ok = register();
            STATE.store(if ok { PRESENT } else { ABSENT }, Ordering::Relaxed);
            ok
        }
        state => state == PRESENT,
    }
}

/// Registers this process. A forked child keeps its parent's registration, and may register again.
pub(crate) fn register() -> bool {
    let offered = call(CMD_QUERY);
    offered >= 0
        && offered & libc::c_long::from(CMD_PRIVATE_EXPEDITED_RSEQ) != 0
        && call(CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0
}

/// A full memory barrier on every CPU that runs a thread of this process, the caller's included; and every
/// restartable sequence of another thread that was in flight has been restarted. Pairs with a compiler fence on the
/// other side. Costs microseconds when other CPUs run this process.
///
/// # Errors
/// [`FenceError`] when the kernel refuses: always when [`available`] is false, and also later, when
/// a seccomp filter forbids the call to this thread, or the kernel has no memory for it. Nothing
/// has been ordered or restarted then.
pub fn rseq() -> Result<(), FenceError> {
    if call(CMD_PRIVATE_EXPEDITED_RSEQ) == 0 { Ok(()) } else { Err(FenceError) }
}
