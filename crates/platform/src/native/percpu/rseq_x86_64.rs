//! The restartable bodies for x86_64.
//!
//! Longer than most files here: one body for each operation, in the order of the contracts.
//!
//! Anatomy of a sequence:
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

use super::field;
use crate::percpu::Sheaf;
use crate::percpu::chunk::SHIFT;
use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Whether copies may use registers of 32 bytes (AVX2); written by `prepare`.
static WIDE: AtomicU8 = AtomicU8::new(0);

/// Chooses how copies are made, for tests; what it was.
#[cfg(test)]
pub(crate) fn set_wide(wide: bool) -> bool {
    // Relaxed: as in `prepare`.
    WIDE.swap(u8::from(wide && std::arch::is_x86_feature_detected!("avx2")), Ordering::Relaxed) != 0
}

/// The number that the kernel demands before an abort address, and at registration.
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

/// Returns whether the kernel restarts the sequences that it interrupts. No kernel is known that
/// fails.
pub(crate) fn is_restarted(_offset: impl Fn() -> Option<isize> + Sync) -> bool {
    true
}

/// Chooses the bodies that this CPU can execute.
pub(crate) fn prepare() {
    // Relaxed: both ways of copying are right.
    WIDE.store(u8::from(std::arch::is_x86_feature_detected!("avx2")), Ordering::Relaxed);
}

/// The thread pointer, from which offsets of areas are counted.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the word in which C libraries keep the register's value.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags))
    };
    pointer
}

/// Waits as long as a test demands.
macro_rules! delay {
    () => {
        in_tests!("mov {delay:e}, dword ptr [rip + {turns}]\n 77: sub {delay:e}, 1\n jns 77b\n")
    };
}

/// A restartable sequence whose body finds the CPU's offset in `{t}`. Its last instruction is the
/// commit. It may also be left by a jump to an operand of the kind `label`, before the commit.
macro_rules! sequence {
    ([$($body:expr),* $(,)?], $o:expr, $word:expr, $($operands:tt)*) => {
        sequence_asm!(
            [] concat!(
                "2:\n lea {t}, [rip + 5f]\n mov fs:[{o} + 8], {t}\n",
                "3:\n mov {t:e}, fs:[{o} + 4]\n shl {t}, {shift}\n", delay!(),
                $($body, "\n",)*
                "4:\n",
                ".pushsection __rseq_cs, \"aw\", @progbits\n .balign 32\n",
                "5:\n .long 0, 0\n .quad 3b, (4b - 3b), 6f\n .popsection\n",
                ".pushsection __rseq_failure, \"ax\", @progbits\n",
                // The signature that the kernel wants before the abort address, as an undefined instruction.
                ".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n",
                "6:\n", in_tests!("lock inc qword ptr [rip + {aborts}]\n"), "jmp 2b\n .popsection\n",
            ),
            t = out(reg) _, o = in(reg) $o, b = in(reg) $word, shift = const SHIFT, $($operands)*
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
/// see [`self_test`](crate::backend::percpu::self_test).
///
/// # Safety
/// Both words are valid, the first for writing, as long as the call lasts.
#[cfg(test)]
pub(crate) unsafe fn until_restarted(o: isize, entered: *mut u32, leave: *const u32) -> bool {
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
    sequence!(["add qword ptr [{b} + {t}], {v}"], o, word, v = in(reg) value)
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn add_within(o: isize, word: *mut u64, value: i64, bound: i64) -> bool {
    // -bound < x < bound  <=>  x + (bound - 1) <= 2 * (bound - 1), unsigned.
    let edge = bound.wrapping_sub(1);
    sequence!(
        [
            "mov {x}, [{b} + {t}]",
            "add {x}, {v}",
            "lea {r}, [{x} + {e}]",
            "cmp {r}, {e2}",
            "ja {beyond}",
            delay!(),
            "mov [{b} + {t}], {x}",
        ],
        o, word, v = in(reg) value, e = in(reg) edge, e2 = in(reg) edge.wrapping_mul(2),
        x = out(reg) _, r = out(reg) _, beyond = label { return false }
    );
    true
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn increment_unless(o: isize, word: *mut u64, mask: u64) -> Option<u64> {
    let v: u64;
    sequence!(
        [
            "mov {v}, [{b} + {t}]",
            "test {v}, {m}",
            "jz 4f",
            "lea {x}, [{v} + 1]",
            delay!(),
            "mov [{b} + {t}], {x}",
        ],
        o, word, m = in(reg) mask, x = out(reg) _, v = out(reg) v
    );
    (v & mask != 0).then_some(v)
}

/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn swap(o: isize, word: *mut u64, new: u64) -> u64 {
    let old: u64;
    sequence!(
        ["mov {r}, [{b} + {t}]", delay!(), "mov [{b} + {t}], {n}"],
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
    let (old, done): (u64, u32);
    sequence!(
        [
            "xor {d:e}, {d:e}",
            // The guard before the word: who finds it lowered finds what was stored while it was up.
            "cmp qword ptr [{g}], 0",
            "jne 4f",
            "mov {r}, [{b} + {t}]",
            "mov {d:e}, 1",
            delay!(),
            "mov [{b} + {t}], {n}",
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
            "mov {i}, [{s}]",
            "lea {t}, [{t} + 8*{i}]",
            delay!(),
            "add qword ptr [{b} + {t}], 1",
        ],
        o, words, s = in(reg) selector.as_ptr(), i = out(reg) index
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
            "mov {i}, [{s}]",
            "lea {t}, [{t} + 8*{i}]",
            "mov {i}, [{b} + {t}]",
            "mov [{p}], {i}",
            delay!(),
            "mov [{b} + {t}], {p}",
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
            "mov {t}, [{b} + {t}]",
            "mov {i}, [{t}]",
            "xor {r:e}, {r:e}",
            "sub {i}, 1",
            "jb 4f",
            "mov {r}, [{t} + 8*{i} + {slots}]",
            delay!(),
            "mov [{t}], {i}",
        ],
        o, word, i = out(reg) _, r = out(reg) value, slots = const field::SLOTS
    );
    value
}

/// # Safety
/// As [`sheaf_pop`].
#[inline(always)]
pub(crate) unsafe fn sheaf_push(o: isize, word: *mut u64, value: usize) -> bool {
    sequence!(
        [
            "mov {t}, [{b} + {t}]",
            "mov {i}, [{t}]",
            "cmp {i}, [{t} + {capacity}]",
            "jae {full}",
            "mov [{t} + 8*{i} + {slots}], {v}",
            "add {i}, 1",
            delay!(),
            "mov [{t}], {i}",
        ],
        o, word, v = in(reg) value, i = out(reg) _, slots = const field::SLOTS,
        capacity = const field::CAPACITY, full = label { return false }
    );
    true
}

/// What is lost in a sequence with [`copy!`]: all vector registers, since `vzeroupper`, without which code for narrow registers
/// would be slow after it, clears the upper halves of all of them; the caller may be inlined into code for wide ones.
macro_rules! copying_sequence {
    ([$($body:expr),* $(,)?], $o:expr, $word:expr, $($operands:tt)*) => {
        sequence!(
            [$($body),*], $o, $word, wide = sym WIDE,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
            out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _,
            out("xmm14") _, out("xmm15") _, $($operands)*
        )
    };
}

/// Copies `{c}` words, one or more, from `{s}` to `{d}`, eight at a time, or sixteen with [`WIDE`]. `$narrow` and
/// `$wide` do something with what four registers hold, `$two`, `$one` and `$word` with what one holds, and `$join` brings
/// into the lower halves what was gathered in the upper ones.
macro_rules! copy {
    (narrow: $narrow:expr, init: $init:expr, wide: $wide:expr, wide_two: $wide_two:expr,
     wide_one: $wide_one:expr, join: $join:expr, two: $two:expr, one: $one:expr, word: $word:expr) => {
        concat!(
            "cmp {c}, 8\n jb 22f\n test byte ptr [rip + {wide}], 1\n jz 21f\n",
            $init, "sub {c}, 16\n jb 29f\n",
            "28:\n vmovdqu ymm0, [{s}]\n vmovdqu ymm1, [{s} + 32]\n vmovdqu ymm2, [{s} + 64]\n",
            "vmovdqu ymm3, [{s} + 96]\n vmovdqu [{d}], ymm0\n vmovdqu [{d} + 32], ymm1\n",
            "vmovdqu [{d} + 64], ymm2\n vmovdqu [{d} + 96], ymm3\n", $wide,
            "add {s}, 128\n add {d}, 128\n sub {c}, 16\n jae 28b\n",
            // Sixteen too few: the low four bits are still those of the rest.
            "29:\n test {c:l}, 8\n jz 27f\n",
            "vmovdqu ymm0, [{s}]\n vmovdqu ymm1, [{s} + 32]\n vmovdqu [{d}], ymm0\n vmovdqu [{d} + 32], ymm1\n",
            $wide_two, "add {s}, 64\n add {d}, 64\n",
            "27:\n test {c:l}, 4\n jz 26f\n vmovdqu ymm0, [{s}]\n vmovdqu [{d}], ymm0\n",
            $wide_one, "add {s}, 32\n add {d}, 32\n",
            "26:\n", $join, "vzeroupper\n jmp 13f\n",
            "21:\n sub {c}, 8\n",
            "8:\n movups xmm0, [{s}]\n movups xmm1, [{s} + 16]\n movups xmm2, [{s} + 32]\n movups xmm3, [{s} + 48]\n",
            "movups [{d}], xmm0\n movups [{d} + 16], xmm1\n movups [{d} + 32], xmm2\n movups [{d} + 48], xmm3\n",
            $narrow,
            "add {s}, 64\n add {d}, 64\n sub {c}, 8\n jae 8b\n",
            // Eight too few: the low three bits are still those of the rest.
            "22:\n test {c:l}, 4\n jz 13f\n",
            "movups xmm0, [{s}]\n movups xmm1, [{s} + 16]\n movups [{d}], xmm0\n movups [{d} + 16], xmm1\n",
            $two, "add {s}, 32\n add {d}, 32\n",
            "13:\n test {c:l}, 2\n jz 14f\n",
            "movups xmm0, [{s}]\n movups [{d}], xmm0\n", $one, "add {s}, 16\n add {d}, 16\n",
            "14:\n test {c:l}, 1\n jz 12f\n mov {s}, [{s}]\n mov [{d}], {s}\n", $word,
            "12:\n"
        )
    };
    () => {
        copy!(narrow: "", init: "", wide: "", wide_two: "", wide_one: "", join: "", two: "", one: "", word: "")
    };
    // Gathers in xmm4 which words have a lower half of zero, xmm5 being zero; a single last word jumps to 15.
    (zeros) => {
        copy!(
            narrow: concat!(
                "pcmpeqd xmm0, xmm5\n pcmpeqd xmm1, xmm5\n pcmpeqd xmm2, xmm5\n pcmpeqd xmm3, xmm5\n",
                "por xmm0, xmm1\n por xmm2, xmm3\n por xmm4, xmm0\n por xmm4, xmm2\n"
            ),
            // Of the whole registers.
            init: "vpxor xmm4, xmm4, xmm4\n vpxor xmm5, xmm5, xmm5\n",
            wide: concat!(
                "vpcmpeqd ymm0, ymm0, ymm5\n vpcmpeqd ymm1, ymm1, ymm5\n vpcmpeqd ymm2, ymm2, ymm5\n",
                "vpcmpeqd ymm3, ymm3, ymm5\n vpor ymm0, ymm0, ymm1\n vpor ymm2, ymm2, ymm3\n",
                "vpor ymm4, ymm4, ymm0\n vpor ymm4, ymm4, ymm2\n"
            ),
            wide_two: concat!(
                "vpcmpeqd ymm0, ymm0, ymm5\n vpcmpeqd ymm1, ymm1, ymm5\n",
                "vpor ymm4, ymm4, ymm0\n vpor ymm4, ymm4, ymm1\n"
            ),
            wide_one: "vpcmpeqd ymm0, ymm0, ymm5\n vpor ymm4, ymm4, ymm0\n",
            join: "vextracti128 xmm0, ymm4, 1\n vpor xmm4, xmm4, xmm0\n",
            two: "pcmpeqd xmm0, xmm5\n pcmpeqd xmm1, xmm5\n por xmm4, xmm0\n por xmm4, xmm1\n",
            one: "pcmpeqd xmm0, xmm5\n por xmm4, xmm0\n",
            word: "test {s:e}, {s:e}\n jz 15f\n"
        )
    };
}

/// # Safety
/// As [`sheaf_pop`]; `dst` has room for `n` values.
#[inline(always)]
pub(crate) unsafe fn sheaf_pop_many(o: isize, word: *mut u64, dst: *mut usize, n: usize) -> usize {
    let k: usize;
    copying_sequence!(
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
        o, word, n = in(reg) n, dst = in(reg) dst, i = out(reg) _, k = out(reg) k, s = out(reg) _,
        d = out(reg) _, c = out(reg) _, slots = const field::SLOTS
    );
    k
}

/// # Safety
/// As [`sheaf_pop`]; `src` holds `n` values.
///
/// [`HAS_ZERO`](crate::percpu::locked::HAS_ZERO) is minus one.
#[inline(always)]
pub(crate) unsafe fn sheaf_push_many(
    o: isize,
    word: *mut u64,
    src: *const usize,
    n: usize,
) -> usize {
    let k: usize;
    copying_sequence!(
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
            "pxor xmm4, xmm4\n pxor xmm5, xmm5",
            copy!(zeros),
            // The lower halves of two words are the first and third of four numbers.
            "movmskps {s:e}, xmm4\n test {s:l}, 5\n jz 16f",
            "15:\n mov {k}, -1\n jmp 4f",
            "16:",
            delay!(),
            "mov [{t}], {i}",
        ],
        o, word, n = in(reg) n, src = in(reg) src, i = out(reg) _, k = out(reg) k, s = out(reg) _,
        d = out(reg) _, c = out(reg) _, slots = const field::SLOTS, capacity = const field::CAPACITY
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
            "xor {r:e}, {r:e}",
            "cmp qword ptr [{g}], 0",
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
        o, word, g = in(reg) guard.as_ptr(), n = in(reg) new.as_ptr(), f = in(reg) -i64::from(full), i = out(reg) _,
        s = out(reg) _, r = out(reg) old, capacity = const field::CAPACITY
    );
    NonNull::new(old)
}
