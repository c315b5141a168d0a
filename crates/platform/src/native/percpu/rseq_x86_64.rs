//! The restartable bodies for x86_64.
//!
//! Longer than most files here: one body for each operation, in the order of the contracts.
//!
//! Each body follows its contract in [`Words`](crate::percpu::Words). Anatomy of a sequence:
//!
//! ```text
//!   2:  lea   t, [descriptor]          restart
//!       mov   fs:[o + 8], t            arm: area.rseq_cs := descriptor
//!   3:  mov   t, fs:[o + 4]            from here on, an interruption leads to 6; t := CPU
//!       shl   t, 16                    t := offset of that CPU's copy
//!       ...                            loads, and stores that do not matter if abandoned
//!       mov   [b + t], x               the commit: the last instruction
//!   4:                                 past the end: an interruption here changes nothing
//!   6:  jmp   2b                       (elsewhere, after the signature 0x53053053) the way back to the start
//! ```
//!
//! Inside, no call, no system call and no write to the rseq area. A branch to 4 leaves without a commit. Nothing
//! disarms: the kernel ignores a descriptor whose range the thread is not in.
//!
//! x86 orders loads with loads and stores with stores, so a commit is a release store and a load is an acquire.

use super::chunk::SHIFT;
use core::arch::asm;

/// Offset of the registered area, if there is one.
pub(crate) fn probe() -> Option<isize> {
    super::probe::registered_offset()
}

/// Delays inside the sequences, so that tests can make an interruption there likely.
#[cfg(test)]
pub(crate) mod inject {
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Turns of an empty loop at each of the two injection points of a sequence: after the CPU number was read,
    /// and before the commit.
    pub(super) static DELAY: AtomicU32 = AtomicU32::new(0);

    /// Sequences that were restarted.
    pub(super) static ABORTS: AtomicU64 = AtomicU64::new(0);

    /// Sets the delay for all threads.
    pub(crate) fn set_delay(turns: u32) {
        // Relaxed, so below: numbers that order nothing.
        DELAY.store(turns, Ordering::Relaxed);
    }

    /// Sequences restarted so far, in all threads.
    pub(crate) fn aborts() -> u64 {
        ABORTS.load(Ordering::Relaxed)
    }
}

#[cfg(not(test))]
macro_rules! delay {
    () => {
        ""
    };
}
#[cfg(test)]
macro_rules! delay {
    () => {
        "mov {delay:e}, dword ptr [rip + {turns}]\n 77: sub {delay:e}, 1\n jns 77b\n"
    };
}

#[cfg(not(test))]
macro_rules! restarted {
    () => {
        ""
    };
}
#[cfg(test)]
macro_rules! restarted {
    () => {
        "lock inc qword ptr [rip + {aborts}]\n"
    };
}

#[cfg(not(test))]
macro_rules! sequence_asm {
    ($text:expr, $($operands:tt)*) => { asm!($text, $($operands)*, options(nostack)) };
}
#[cfg(test)]
macro_rules! sequence_asm {
    ($text:expr, $($operands:tt)*) => {
        asm!($text, $($operands)*, delay = out(reg) _, turns = sym inject::DELAY, aborts = sym inject::ABORTS, options(nostack))
    };
}

/// A restartable sequence whose body finds the CPU's offset in `{t}`. Its last instruction is the commit.
macro_rules! sequence {
    ([$($body:expr),* $(,)?], $o:expr, $($operands:tt)*) => {
        sequence_asm!(
            concat!(
                "2:\n lea {t}, [rip + 5f]\n mov fs:[{o} + 8], {t}\n",
                "3:\n mov {t:e}, fs:[{o} + 4]\n shl {t}, {shift}\n", delay!(),
                $($body, "\n",)*
                "4:\n",
                ".pushsection __rseq_cs, \"aw\", @progbits\n .balign 32\n",
                "5:\n .long 0, 0\n .quad 3b, (4b - 3b), 6f\n .popsection\n",
                ".pushsection __rseq_failure, \"ax\", @progbits\n",
                // The signature that the kernel wants before the abort address, as an undefined instruction.
                ".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n",
                "6:\n", restarted!(), "jmp 2b\n .popsection\n",
            ),
            t = out(reg) _, o = in(reg) $o, shift = const SHIFT, $($operands)*
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
        asm!("mov {c:e}, fs:[{o} + 4]", c = out(reg) cpu, o = in(reg) o, options(nostack, readonly, preserves_flags))
    };
    cpu as usize
}

/// A sequence that turns in a circle, `*entered` set, until it is restarted (true) or `*leave` is not zero (false):
/// see [`self_test`](super::self_test).
///
/// # Safety
/// Both words are valid, the first for writing, as long as the call lasts.
#[cfg(test)]
pub(super) unsafe fn until_restarted(o: isize, entered: *mut u32, leave: *const u32) -> bool {
    let restarted: u32;
    // SAFETY: touches the two words and the thread's own area.
    unsafe {
        asm!(
            "xor {r:e}, {r:e}\n lea {t}, [rip + 5f]\n mov fs:[{o} + 8], {t}",
            "3:\n mov dword ptr [{e}], 1",
            "14:\n cmp dword ptr [{l}], 0\n je 14b",
            "4:\n .pushsection __rseq_cs, \"aw\", @progbits\n .balign 32",
            "5:\n .long 0, 0\n .quad 3b, (4b - 3b), 6f\n .popsection",
            ".pushsection __rseq_failure, \"ax\", @progbits\n .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053",
            "6:\n mov {r:e}, 1\n jmp 4b\n .popsection",
            t = out(reg) _, o = in(reg) o, e = in(reg) entered, l = in(reg) leave, r = out(reg) restarted,
            options(nostack)
        )
    };
    restarted != 0
}

/// # Safety
/// `word` is CPU 0's copy of a per-CPU word; so in every function of this file.
#[inline(always)]
pub(crate) unsafe fn add(o: isize, word: *mut u64, value: u64) {
    // SAFETY: the sequence touches the word of one CPU; so in every function of this file.
    unsafe { sequence!(["add qword ptr [{b} + {t}], {v}"], o, b = in(reg) word, v = in(reg) value) }
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn add_within(o: isize, word: *mut u64, value: i64, bound: i64) -> bool {
    let within: u64;
    // -bound < x < bound  <=>  x + (bound - 1) <= 2 * (bound - 1), unsigned.
    let edge = bound.wrapping_sub(1);
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {x}, [{b} + {t}]",
                "add {x}, {v}",
                "lea {r}, [{x} + {e}]",
                "cmp {r}, {e2}",
                "mov {r:e}, 0",
                "ja 4f",
                "mov {r:e}, 1",
                delay!(),
                "mov [{b} + {t}], {x}",
            ],
            o, b = in(reg) word, v = in(reg) value, e = in(reg) edge, e2 = in(reg) edge.wrapping_mul(2),
            x = out(reg) _, r = out(reg) within
        )
    };
    within != 0
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn increment_unless(o: isize, word: *mut u64, mask: u64) -> Option<u64> {
    let (v, taken): (u64, u32);
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {v}, [{b} + {t}]",
                "test {v}, {m}",
                "mov {r:e}, 0",
                "jz 4f",
                "lea {x}, [{v} + 1]",
                "mov {r:e}, 1",
                delay!(),
                "mov [{b} + {t}], {x}",
            ],
            o, b = in(reg) word, m = in(reg) mask, x = out(reg) _, v = out(reg) v, r = out(reg) taken
        )
    };
    (taken != 0).then_some(v)
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn compare_store(o: isize, word: *mut u64, expect: u64, new: u64) -> bool {
    let equal: u32;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "xor {r:e}, {r:e}",
                "cmp [{b} + {t}], {e}",
                "jne 4f",
                "mov {r:e}, 1",
                delay!(),
                "mov [{b} + {t}], {n}",
            ],
            o, b = in(reg) word, e = in(reg) expect, n = in(reg) new, r = out(reg) equal
        )
    };
    equal != 0
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn swap(o: isize, word: *mut u64, new: u64) -> u64 {
    let old: u64;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            ["mov {r}, [{b} + {t}]", delay!(), "mov [{b} + {t}], {n}"],
            o, b = in(reg) word, n = in(reg) new, r = out(reg) old
        )
    };
    old
}

/// # Safety
/// As [`add`]; `guard` too is CPU 0's copy of a per-CPU word.
#[inline(always)]
pub(crate) unsafe fn swap_unless(o: isize, word: *mut u64, guard: *mut u64, new: u64) -> Option<u64> {
    let (old, done): (u64, u32);
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "xor {d:e}, {d:e}",
                // The guard before the word: who finds it lowered finds what was stored while it was up.
                "cmp qword ptr [{g} + {t}], 0",
                "jne 4f",
                "mov {r}, [{b} + {t}]",
                "mov {d:e}, 1",
                delay!(),
                "mov [{b} + {t}], {n}",
            ],
            o, b = in(reg) word, g = in(reg) guard, n = in(reg) new, r = out(reg) old, d = out(reg) done
        )
    };
    (done != 0).then_some(old)
}

/// # Safety
/// As [`add`]; `selector` points to the index of a word that follows `words`.
#[inline(always)]
pub(crate) unsafe fn increment_selected(o: isize, words: *mut u64, selector: *const u64) -> usize {
    let index: usize;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {i}, [{s}]",
                "lea {t}, [{t} + 8*{i}]",
                delay!(),
                "add qword ptr [{b} + {t}], 1",
            ],
            o, b = in(reg) words, s = in(reg) selector, i = out(reg) index
        )
    };
    index
}

/// # Safety
/// As [`add`]; `node` is the caller's.
#[inline(always)]
pub(crate) unsafe fn list_push(o: isize, word: *mut u64, node: *mut u64) {
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            ["mov {i}, [{b} + {t}]", "mov [{p}], {i}", delay!(), "mov [{b} + {t}], {p}"],
            o, b = in(reg) word, p = in(reg) node, i = out(reg) _
        )
    }
}

/// # Safety
/// As [`increment_selected`]; `node` is the caller's.
#[inline(always)]
pub(crate) unsafe fn list_push_selected(o: isize, words: *mut u64, selector: *const u64, node: *mut u64) {
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {i}, [{s}]",
                "lea {t}, [{t} + 8*{i}]",
                "mov {i}, [{b} + {t}]",
                "mov [{p}], {i}",
                delay!(),
                "mov [{b} + {t}], {p}",
            ],
            o, b = in(reg) words, s = in(reg) selector, p = in(reg) node, i = out(reg) _
        )
    }
}

/// # Safety
/// As [`add`]; the list's nodes are readable.
#[inline(always)]
pub(crate) unsafe fn list_pop(o: isize, word: *mut u64) -> *mut u64 {
    let node: *mut u64;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {r}, [{b} + {t}]",
                "test {r}, {r}",
                "jz 4f",
                "mov {i}, [{r}]",
                delay!(),
                "mov [{b} + {t}], {i}",
            ],
            o, b = in(reg) word, r = out(reg) node, i = out(reg) _
        )
    };
    node
}

/// The field offsets of a sheaf, for the assembly.
mod field {
    pub(super) const CAPACITY: usize = crate::percpu::sheaf::CAPACITY;
    pub(super) const SLOTS: usize = crate::percpu::sheaf::SLOTS;
    const _: () = assert!(crate::percpu::sheaf::LEN == 0);
}

/// # Safety
/// As [`add`]; the word points to a live sheaf; so in every function below.
#[inline(always)]
pub(crate) unsafe fn sheaf_pop(o: isize, word: *mut u64) -> usize {
    let value: usize;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {t}, [{b} + {t}]",
                "mov {i}, [{t}]",
                "xor {r:e}, {r:e}",
                "sub {i}, 1",
                "jb 4f",
                "mov {r}, [{t} + 8*{i} + {slots}]",
                delay!(),
                "mov [{t}], {i}",
            ],
            o, b = in(reg) word, i = out(reg) _, r = out(reg) value, slots = const field::SLOTS
        )
    };
    value
}

/// # Safety
/// As [`sheaf_pop`].
#[inline(always)]
pub(crate) unsafe fn sheaf_push(o: isize, word: *mut u64, value: usize) -> bool {
    let room: u64;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {t}, [{b} + {t}]",
                "mov {i}, [{t}]",
                "cmp {i}, [{t} + {capacity}]",
                "sbb {r}, {r}",
                "jae 4f",
                "mov [{t} + 8*{i} + {slots}], {v}",
                "add {i}, 1",
                delay!(),
                "mov [{t}], {i}",
            ],
            o, b = in(reg) word, v = in(reg) value, i = out(reg) _, r = out(reg) room,
            slots = const field::SLOTS, capacity = const field::CAPACITY
        )
    };
    room != 0
}

/// Copies `{c}` words from `[{s}]` to `[{d}]`: eight at a time, then four, two and one as the count's bits say.
macro_rules! copy {
    () => {
        concat!(
            "sub {c}, 8\n jb 9f\n",
            "8:\n movups {y}, [{s}]\n movups {z}, [{s} + 16]\n movups {v}, [{s} + 32]\n movups {w}, [{s} + 48]\n",
            "movups [{d}], {y}\n movups [{d} + 16], {z}\n movups [{d} + 32], {v}\n movups [{d} + 48], {w}\n",
            "add {s}, 64\n add {d}, 64\n sub {c}, 8\n jae 8b\n",
            // Eight too few: the low three bits are still those of the rest.
            "9:\n test {c:l}, 7\n jz 12f\n test {c:l}, 4\n jz 13f\n",
            "movups {y}, [{s}]\n movups {z}, [{s} + 16]\n movups [{d}], {y}\n movups [{d} + 16], {z}\n",
            "add {s}, 32\n add {d}, 32\n",
            "13:\n test {c:l}, 2\n jz 14f\n",
            "movups {y}, [{s}]\n movups [{d}], {y}\n add {s}, 16\n add {d}, 16\n",
            "14:\n test {c:l}, 1\n jz 12f\n mov {s}, [{s}]\n mov [{d}], {s}\n",
            "12:\n"
        )
    };
}

/// # Safety
/// As [`sheaf_pop`]; `dst` has room for `n` values.
#[inline(always)]
pub(crate) unsafe fn sheaf_pop_many(o: isize, word: *mut u64, dst: *mut usize, n: usize) -> usize {
    let k: usize;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {t}, [{b} + {t}]",
                "mov {i}, [{t}]",
                "mov {k}, {n}",
                "cmp {i}, {k}",
                "cmovb {k}, {i}",
                "test {k}, {k}",
                "jz 4f",
                "sub {i}, {k}",
                "lea {s}, [{t} + 8*{i} + {slots}]",
                "mov {d}, {dst}",
                "mov {c}, {k}",
                copy!(),
                delay!(),
                "mov [{t}], {i}",
            ],
            o, b = in(reg) word, n = in(reg) n, dst = in(reg) dst, i = out(reg) _, k = out(reg) k, s = out(reg) _,
            d = out(reg) _, c = out(reg) _, y = out(xmm_reg) _, z = out(xmm_reg) _, v = out(xmm_reg) _, w = out(xmm_reg) _,
            slots = const field::SLOTS
        )
    };
    k
}

/// # Safety
/// As [`sheaf_pop`]; `src` holds `n` values.
#[inline(always)]
pub(crate) unsafe fn sheaf_push_many(o: isize, word: *mut u64, src: *const usize, n: usize) -> usize {
    let k: usize;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "mov {t}, [{b} + {t}]",
                "mov {i}, [{t}]",
                "mov {k}, [{t} + {capacity}]",
                "sub {k}, {i}",
                "cmp {n}, {k}",
                "cmovb {k}, {n}",
                "test {k}, {k}",
                "jz 4f",
                "lea {d}, [{t} + 8*{i} + {slots}]",
                "add {i}, {k}",
                "mov {s}, {src}",
                "mov {c}, {k}",
                copy!(),
                delay!(),
                "mov [{t}], {i}",
            ],
            o, b = in(reg) word, n = in(reg) n, src = in(reg) src, i = out(reg) _, k = out(reg) k, s = out(reg) _,
            d = out(reg) _, c = out(reg) _, y = out(xmm_reg) _, z = out(xmm_reg) _, v = out(xmm_reg) _, w = out(xmm_reg) _,
            slots = const field::SLOTS, capacity = const field::CAPACITY
        )
    };
    k
}

/// # Safety
/// As [`sheaf_pop`]; `guard` is CPU 0's copy of a per-CPU word.
#[inline(always)]
pub(crate) unsafe fn sheaf_replace(
    o: isize,
    word: *mut u64,
    guard: *mut u64,
    new: *mut u64,
    full: bool,
) -> *mut u64 {
    let old: *mut u64;
    // SAFETY: see `add`.
    unsafe {
        sequence!(
            [
                "xor {r:e}, {r:e}",
                "cmp qword ptr [{g} + {t}], 0",
                "jne 4f",
                "mov {s}, [{b} + {t}]",
                // i := full ? capacity : 0
                "mov {i}, [{s} + {capacity}]",
                "and {i}, {f}",
                "cmp [{s}], {i}",
                "jne 4f",
                "mov {r}, {s}",
                delay!(),
                "mov [{b} + {t}], {n}",
            ],
            o, b = in(reg) word, g = in(reg) guard, n = in(reg) new, f = in(reg) -i64::from(full), i = out(reg) _,
            s = out(reg) _, r = out(reg) old, capacity = const field::CAPACITY
        )
    };
    old
}
