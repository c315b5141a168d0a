//! The restartable bodies for aarch64.
//!
//! Longer than most files here: one body for each operation, in the order of the contracts.
//!
//! Anatomy of a sequence:
//!
//! ```text
//!       mrs   a, tpidr_el0             a := the thread's rseq area
//!       add   a, a, o
//!   2:  adrp  t, descriptor            restart
//!       add   t, t, :lo12:descriptor
//!       str   t, [a, #8]               arm: area.rseq_cs := descriptor
//!   3:  ldr   t, [a, #4]               from here on, an interruption leads to 6; t := CPU
//!       lsl   t, t, #16                t := offset of that CPU's copy
//!       ...                            loads, and stores that do not matter if abandoned
//!       str   x, [b, t]                the commit: the last instruction
//!   4:                                 past the end: an interruption here changes nothing
//!   6:  b     2b                       (elsewhere, after the signature 0xd428bc00) the way back to the start
//! ```
//!
//! Inside, no call, no system call and no write to the rseq area. A branch to 4 leaves without a commit; it is a
//! conditional one and near. The way back from 6 is an unconditional one, which reaches 128 MiB. Nothing disarms:
//! the kernel ignores a descriptor whose range the thread is not in.
//!
//! Order: a thread sees what another did before on the same CPU, because the kernel switched between them. What other
//! CPUs read is ordered where the contract says so: `stlr` commits what they may follow, `ldar` reads what they
//! stored.
//!
//! Linux 6.19 lost aborts on this architecture: a sequence that was interrupted went on. So one is
//! [tried out](is_restarted) first.

use super::field;
use crate::percpu::Sheaf;
use crate::percpu::chunk::SHIFT;
use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// The number that the kernel demands before an abort address, and at registration.
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;

/// Returns whether the kernel restarts the sequences that it interrupts. `offset` returns the offset
/// of the calling thread's area.
pub(crate) fn is_restarted(offset: impl Fn() -> Option<isize> + Sync) -> bool {
    super::super::self_test::restarts(offset)
}

/// Chooses the bodies that this CPU can execute.
pub(crate) fn prepare() {}

/// The thread pointer, from which offsets of areas are counted.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags))
    };
    pointer
}

/// Waits as long as a test demands.
macro_rules! delay {
    () => {
        in_tests!(concat!(
            "adrp {delay}, {turns}\n ldr {delay:w}, [{delay}, :lo12:{turns}]\n",
            "77: subs {delay:w}, {delay:w}, #1\n b.pl 77b\n"
        ))
    };
}

/// Counts the restart, for tests.
macro_rules! restarted {
    () => {
        in_tests!(concat!(
            "adrp {delay}, {aborts}\n add {delay}, {delay}, :lo12:{aborts}\n",
            "78: ldxr {t}, [{delay}]\n add {t}, {t}, #1\n",
            "stxr {failed:w}, {t}, [{delay}]\n cbnz {failed:w}, 78b\n"
        ))
    };
}

/// The descriptor of the sequence from 3 to 4, and the way to 6, with the signature that the kernel wants before it:
/// a permanently undefined instruction.
macro_rules! descriptor {
    ($($abort:expr),*) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", %progbits\n .balign 32\n",
            "5:\n .word 0, 0\n .quad 3b, (4b - 3b), 6f\n .popsection\n",
            ".pushsection __rseq_failure, \"ax\", %progbits\n .inst 0xd428bc00\n",
            "6:\n", $($abort,)* "\n .popsection\n"
        )
    };
}

/// Finds the area and arms the sequence that follows.
macro_rules! arm {
    () => {
        concat!(
            "mrs {a}, tpidr_el0\n add {a}, {a}, {o}\n",
            "2:\n adrp {t}, 5f\n add {t}, {t}, :lo12:5f\n str {t}, [{a}, #8]\n3:\n"
        )
    };
}

/// A restartable sequence whose body finds the CPU's offset in `{t}`. Its last instruction is the commit.
macro_rules! sequence {
    ([$($body:expr),* $(,)?], $o:expr, $word:expr, $($operands:tt)*) => {
        sequence_asm!(
            [failed = out(reg) _,] concat!(
                arm!(), "ldr {t:w}, [{a}, #4]\n lsl {t}, {t}, #{shift}\n", delay!(),
                $($body, "\n",)*
                "4:\n", descriptor!(restarted!(), "b 2b")
            ),
            a = out(reg) _, t = out(reg) _, o = in(reg) $o, b = in(reg) $word, shift = const SHIFT, $($operands)*
        )
    };
}

/// The CPU that this thread runs on.
///
/// # Safety
/// `o` is the offset of this thread's registered area; so in every function of this file.
#[inline(always)]
pub(crate) unsafe fn cpu(o: isize) -> usize {
    let cpu: u32;
    // SAFETY: reads the area's cpu_id.
    unsafe {
        asm!("mrs {a}, tpidr_el0", "add {a}, {a}, {o}", "ldr {c:w}, [{a}, #4]",
            a = out(reg) _, c = lateout(reg) cpu, o = in(reg) o, options(nostack, readonly, preserves_flags))
    };
    cpu as usize
}

/// A sequence that turns in a circle, `*entered` set, until it is restarted (true) or `*leave` is not zero (false):
/// see [`self_test`](crate::backend::percpu::self_test).
///
/// # Safety
/// Both words are valid, the first for writing, as long as the call lasts.
pub(crate) unsafe fn until_restarted(o: isize, entered: *mut u32, leave: *const u32) -> bool {
    let restarted: u32;
    // SAFETY: touches the two words and the thread's own area.
    unsafe {
        asm!(
            concat!(
                "mov {r:w}, #0\n", arm!(),
                "mov {t:w}, #1\n str {t:w}, [{e}]\n",
                "14:\n ldr {t:w}, [{l}]\n cbz {t:w}, 14b\n",
                "4:\n", descriptor!("mov {r:w}, #1\n b 4b")
            ),
            a = out(reg) _, t = out(reg) _, o = in(reg) o, e = in(reg) entered, l = in(reg) leave,
            r = out(reg) restarted, options(nostack)
        )
    };
    restarted != 0
}

/// # Safety
/// `word` is CPU 0's copy of a per-CPU word; so in every function of this file.
#[inline(always)]
pub(crate) unsafe fn add(o: isize, word: *mut u64, value: u64) {
    sequence!(
        // A release store, as the contract says: RCU's unlock is one of these.
        ["add {t}, {t}, {b}", "ldr {x}, [{t}]", "add {x}, {x}, {v}", delay!(), "stlr {x}, [{t}]"],
        o, word, v = in(reg) value, x = out(reg) _
    );
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn add_within(o: isize, word: *mut u64, value: i64, bound: i64) -> bool {
    let within: u64;
    // -bound < x < bound  <=>  x + (bound - 1) <= 2 * (bound - 1), unsigned.
    let edge = bound.wrapping_sub(1);
    sequence!(
        [
            "ldr {x}, [{b}, {t}]",
            "add {x}, {x}, {v}",
            "add {r}, {x}, {e}",
            "cmp {r}, {e2}",
            "cset {r}, ls",
            "b.hi 4f",
            delay!(),
            "str {x}, [{b}, {t}]",
        ],
        o, word, v = in(reg) value, e = in(reg) edge, e2 = in(reg) edge.wrapping_mul(2),
        x = out(reg) _, r = out(reg) within
    );
    within != 0
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn increment_unless(o: isize, word: *mut u64, mask: u64) -> Option<u64> {
    let (v, taken): (u64, u64);
    sequence!(
        [
            "ldr {v}, [{b}, {t}]",
            "tst {v}, {m}",
            "cset {r}, ne",
            "b.eq 4f",
            "add {x}, {v}, #1",
            delay!(),
            "str {x}, [{b}, {t}]",
        ],
        o, word, m = in(reg) mask, x = out(reg) _, v = out(reg) v, r = out(reg) taken
    );
    (taken != 0).then_some(v)
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn swap(o: isize, word: *mut u64, new: u64) -> u64 {
    let old: u64;
    sequence!(
        ["ldr {r}, [{b}, {t}]", delay!(), "str {n}, [{b}, {t}]"],
        o, word, n = in(reg) new, r = out(reg) old
    );
    old
}

/// # Safety
/// As [`add`]; `guard` is a word that all CPUs read.
#[inline(always)]
pub(crate) unsafe fn swap_unless(
    o: isize,
    word: *mut u64,
    guard: &AtomicU64,
    new: u64,
) -> Option<u64> {
    let (old, done): (u64, u64);
    sequence!(
        [
            // Acquire: who finds the guard lowered finds the word as it was left.
            "ldar {r}, [{g}]",
            "cmp {r}, #0",
            "cset {d}, eq",
            "b.ne 4f",
            "ldr {r}, [{b}, {t}]",
            delay!(),
            "str {n}, [{b}, {t}]",
        ],
        o, word, g = in(reg) guard.as_ptr(), n = in(reg) new, r = out(reg) old, d = out(reg) done
    );
    (done != 0).then_some(old)
}

/// # Safety
/// As [`add`]; `selector` points to the index of a word that follows `words`.
#[inline(always)]
pub(crate) unsafe fn increment_selected(o: isize, words: *mut u64, selector: &AtomicU64) -> usize {
    let index: usize;
    sequence!(
        [
            "ldar {i}, [{s}]",
            "add {t}, {t}, {i}, lsl #3",
            "add {t}, {t}, {b}",
            "ldr {x}, [{t}]",
            "add {x}, {x}, #1",
            delay!(),
            "stlr {x}, [{t}]",
        ],
        o, words, s = in(reg) selector.as_ptr(), i = out(reg) index, x = out(reg) _
    );
    index
}

/// # Safety
/// As [`increment_selected`]; `node` is the caller's.
#[inline(always)]
pub(crate) unsafe fn list_push_selected(
    o: isize,
    words: *mut u64,
    selector: &AtomicU64,
    node: NonNull<AtomicU64>,
) {
    sequence!(
        [
            "ldar {i}, [{s}]",
            "add {t}, {t}, {i}, lsl #3",
            "ldr {i}, [{b}, {t}]",
            "str {i}, [{p}]",
            delay!(),
            "str {p}, [{b}, {t}]",
        ],
        o, words, s = in(reg) selector.as_ptr(), p = in(reg) node.as_ptr(), i = out(reg) _
    );
}

/// # Safety
/// As [`add`]; the word points to a live sheaf; so in every function below.
#[inline(always)]
pub(crate) unsafe fn sheaf_pop(o: isize, word: *mut u64) -> usize {
    let value: usize;
    sequence!(
        [
            "ldr {t}, [{b}, {t}]",
            "ldr {i}, [{t}]",
            "mov {r}, #0",
            "cbz {i}, 4f",
            "sub {i}, {i}, #1",
            "add {r}, {t}, {i}, lsl #3",
            "ldr {r}, [{r}, #{slots}]",
            delay!(),
            "str {i}, [{t}]",
        ],
        o, word, i = out(reg) _, r = out(reg) value, slots = const field::SLOTS
    );
    value
}

/// # Safety
/// As [`sheaf_pop`].
#[inline(always)]
pub(crate) unsafe fn sheaf_push(o: isize, word: *mut u64, value: usize) -> bool {
    let room: u64;
    sequence!(
        [
            "ldr {t}, [{b}, {t}]",
            "ldr {i}, [{t}]",
            "ldr {r}, [{t}, #{capacity}]",
            "add {s}, {t}, {i}, lsl #3",
            "cmp {i}, {r}",
            "cset {r}, lo",
            "b.hs 4f",
            "str {v}, [{s}, #{slots}]",
            "add {i}, {i}, #1",
            delay!(),
            "str {i}, [{t}]",
        ],
        o, word, v = in(reg) value, i = out(reg) _, s = out(reg) _, r = out(reg) room,
        slots = const field::SLOTS, capacity = const field::CAPACITY
    );
    room != 0
}

/// Copies `{c}` words from `[{s}]` to `[{d}]`, four at a time, then one by one. `{c}` is at least 1.
macro_rules! copy {
    () => {
        copy!(pair: "", word: "")
    };
    // Jumps to 15 at the first word with a lower half of zero.
    (zeros) => {
        copy!(
            pair: concat!(
                "ldp {x}, {u}, [{s}, #-32]\n cbz {x:w}, 15f\n cbz {u:w}, 15f\n",
                "ldp {x}, {u}, [{s}, #-16]\n cbz {x:w}, 15f\n cbz {u:w}, 15f\n"
            ),
            word: "cbz {x:w}, 15f\n"
        )
    };
    (pair: $pair:expr, word: $word:expr) => {
        concat!(
            "subs {c}, {c}, #4\n b.lo 9f\n",
            "8:\n ldp {y:q}, {z:q}, [{s}], #32\n stp {y:q}, {z:q}, [{d}], #32\n",
            $pair, "subs {c}, {c}, #4\n b.hs 8b\n",
            "9:\n adds {c}, {c}, #4\n b.eq 12f\n",
            "13:\n ldr {x}, [{s}], #8\n str {x}, [{d}], #8\n",
            $word, "subs {c}, {c}, #1\n b.ne 13b\n",
            "12:\n"
        )
    };
}

/// # Safety
/// As [`sheaf_pop`]; `dst` has room for `n` values.
#[inline(always)]
pub(crate) unsafe fn sheaf_pop_many(o: isize, word: *mut u64, dst: *mut usize, n: usize) -> usize {
    let k: usize;
    sequence!(
        [
            "ldr {t}, [{b}, {t}]",
            "ldr {i}, [{t}]",
            "cmp {i}, {n}",
            "csel {k}, {i}, {n}, lo",
            "cbz {k}, 4f",
            "sub {i}, {i}, {k}",
            "add {s}, {t}, {i}, lsl #3",
            "add {s}, {s}, #{slots}",
            "mov {d}, {dst}",
            "mov {c}, {k}",
            copy!(),
            delay!(),
            "str {i}, [{t}]",
        ],
        o, word, n = in(reg) n, dst = in(reg) dst, i = out(reg) _, k = out(reg) k, s = out(reg) _,
        d = out(reg) _, c = out(reg) _, x = out(reg) _, y = out(vreg) _, z = out(vreg) _,
        slots = const field::SLOTS
    );
    k
}

/// # Safety
/// As [`sheaf_pop`]; `src` holds `n` values.
#[inline(always)]
pub(crate) unsafe fn sheaf_push_many(
    o: isize,
    word: *mut u64,
    src: *const usize,
    n: usize,
) -> usize {
    let k: usize;
    sequence!(
        [
            "ldr {t}, [{b}, {t}]",
            "ldr {i}, [{t}]",
            "ldr {k}, [{t}, #{capacity}]",
            "sub {k}, {k}, {i}",
            "cmp {n}, {k}",
            "csel {k}, {n}, {k}, lo",
            "cbz {k}, 4f",
            "add {d}, {t}, {i}, lsl #3",
            "add {d}, {d}, #{slots}",
            "add {i}, {i}, {k}",
            "mov {s}, {src}",
            "mov {c}, {k}",
            copy!(zeros),
            "b 16f",
            "15:\n mov {k}, #-1\n b 4f",
            "16:",
            delay!(),
            "str {i}, [{t}]",
        ],
        o, word, n = in(reg) n, src = in(reg) src, i = out(reg) _, k = out(reg) k, s = out(reg) _,
        d = out(reg) _, c = out(reg) _, x = out(reg) _, u = out(reg) _, y = out(vreg) _, z = out(vreg) _,
        slots = const field::SLOTS, capacity = const field::CAPACITY
    );
    k
}

/// # Safety
/// As [`sheaf_pop`]; `guard` is a word that all CPUs read.
#[inline(always)]
pub(crate) unsafe fn sheaf_replace(
    o: isize,
    word: *mut u64,
    guard: &AtomicU64,
    new: NonNull<Sheaf>,
    full: bool,
) -> Option<NonNull<Sheaf>> {
    let old: *mut Sheaf;
    sequence!(
        [
            "mov {r}, #0",
            // Acquire: who finds the guard lowered finds the word as it was left.
            "ldar {i}, [{g}]",
            "cbnz {i}, 4f",
            "add {t}, {t}, {b}",
            "ldr {s}, [{t}]",
            // i := full ? capacity : 0
            "ldr {i}, [{s}, #{capacity}]",
            "and {i}, {i}, {f}",
            "ldr {x}, [{s}]",
            "cmp {x}, {i}",
            "b.ne 4f",
            "mov {r}, {s}",
            delay!(),
            // A release store: other CPUs follow the pointer to look at the sheaf's length.
            "stlr {n}, [{t}]",
        ],
        o, word, g = in(reg) guard.as_ptr(), n = in(reg) new.as_ptr(), f = in(reg) -i64::from(full), i = out(reg) _,
        s = out(reg) _, x = out(reg) _, r = out(reg) old, capacity = const field::CAPACITY
    );
    NonNull::new(old)
}
