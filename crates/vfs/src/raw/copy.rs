//! Copies of bytes that others may be changing.
//!
//! A reader of a file copies out of a page while a writer copies into it. What comes out is some
//! mixture, as everywhere; but `memcpy` on memory that changes is undefined, and a slice over it is
//! so before it is touched. On x86_64 the copies here are made by assembly, about which the compiler
//! assumes nothing. Elsewhere they are made of aligned words read and written as atomics: always
//! whole words, since accesses of different sizes to the same place may not race either. So they are
//! on the simulated machine, which wants to see the accesses, and under Miri, which runs no assembly.
//!
//! All functions take addresses and lengths and trust them: [`page_tree`](super::page_tree) checks.

#[cfg(all(target_arch = "x86_64", not(any(quietline_sim, miri))))]
pub(super) use moves::{copy_in, copy_out, copy_over, zero};
#[cfg(not(all(target_arch = "x86_64", not(any(quietline_sim, miri)))))]
pub(super) use words::{copy_in, copy_out, copy_over, zero};

/// By assembly: overlapping moves for up to 128 bytes, then a loop of wide registers.
#[cfg(all(target_arch = "x86_64", not(any(quietline_sim, miri))))]
mod moves {
    use core::arch::asm;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Copies `n` bytes out of shared memory.
    ///
    /// # Safety
    /// `from` is valid for reading `n` bytes, which others may write by functions of this file; `to` for writing them, the
    /// caller's alone.
    #[inline(always)]
    pub(in crate::raw) unsafe fn copy_out(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe { copy(from, to, n) };
    }

    /// Copies `n` bytes into shared memory.
    ///
    /// # Safety
    /// `to` is valid for writing `n` bytes, which others may read or write by functions of this file; `from` for reading them,
    /// and nobody changes them.
    #[inline(always)]
    pub(in crate::raw) unsafe fn copy_in(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe { copy(from, to, n) };
    }

    /// Copies `n` bytes from shared memory to shared memory.
    ///
    /// # Safety
    /// As [`copy_out`] for `from`, as [`copy_in`] for `to`; the two do not overlap.
    #[inline(always)]
    pub(in crate::raw) unsafe fn copy_over(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe { copy(from, to, n) };
    }

    /// Two moves of one size, the first from the front, the second up to the end; loads before stores.
    macro_rules! two_moves {
        ($mov:literal, $a:literal, $b:literal, $size:literal, $from:ident, $to:ident, $n:ident) => {
            asm!(
                concat!($mov, " {a", $a, "}, [{f}]\n"),
                concat!($mov, " {b", $b, "}, [{f} + {n} - ", $size, "]\n"),
                concat!("mov [{t}], {a", $a, "}\n"),
                concat!("mov [{t} + {n} - ", $size, "], {b", $b, "}\n"),
                a = out(reg) _, b = out(reg) _, f = in(reg) $from, t = in(reg) $to, n = in(reg) $n,
                options(nostack, preserves_flags)
            )
        };
    }

    /// # Safety
    /// Both are valid for `n` bytes and do not overlap.
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: moves `n` bytes, says the contract; the pieces of a row lie inside, because `n` is at least a piece's size.
        unsafe {
            match n {
                0 => {}
                1 => {
                    asm!("mov {a}, byte ptr [{f}]\n mov byte ptr [{t}], {a}", a = out(reg_byte) _, f = in(reg) from,
                          t = in(reg) to, options(nostack, preserves_flags))
                }
                2..4 => {
                    // The middle one of three bytes is moved twice.
                    asm!("movzx {a:e}, word ptr [{f}]\n movzx {b:e}, word ptr [{f} + {n} - 2]\n",
                         "mov word ptr [{t}], {a:x}\n mov word ptr [{t} + {n} - 2], {b:x}",
                         a = out(reg) _, b = out(reg) _, f = in(reg) from, t = in(reg) to, n = in(reg) n,
                         options(nostack, preserves_flags))
                }
                4..8 => two_moves!("mov", ":e", ":e", "4", from, to, n),
                8..=16 => two_moves!("mov", "", "", "8", from, to, n),
                _ => copy_many(from, to, n),
            }
        }
    }

    /// # Safety
    /// As [`copy`], and `n` is more than 16.
    #[inline(never)]
    unsafe fn copy_many(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: as in `copy`.
        unsafe {
            match n {
                ..33 => asm!(
                    "movups {a}, [{f}]\n movups {b}, [{f} + {n} - 16]\n movups [{t}], {a}\n movups [{t} + {n} - 16], {b}",
                    a = out(xmm_reg) _, b = out(xmm_reg) _, f = in(reg) from, t = in(reg) to, n = in(reg) n,
                    options(nostack, preserves_flags)
                ),
                33..65 => asm!(
                    "movups {a}, [{f}]\n movups {b}, [{f} + 16]\n movups {c}, [{f} + {n} - 32]\n movups {d}, [{f} + {n} - 16]",
                    "movups [{t}], {a}\n movups [{t} + 16], {b}\n movups [{t} + {n} - 32], {c}\n movups [{t} + {n} - 16], {d}",
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    f = in(reg) from, t = in(reg) to, n = in(reg) n, options(nostack, preserves_flags)
                ),
                _ if n >= 128 && wide() => copy_wide(from, to, n),
                _ => copy_narrow(from, to, n),
            }
        }
    }

    /// Sixty-four bytes a turn; the last ones are those up to the end, some of them for the second time.
    ///
    /// # Safety
    /// As [`copy`], and `n` is at least 64.
    unsafe fn copy_narrow(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: as in `copy`: a turn is made while 64 bytes are left, and one more for the last 64.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{f}]\n movups {b}, [{f} + 16]\n movups {c}, [{f} + 32]\n movups {d}, [{f} + 48]",
                "movups [{t}], {a}\n movups [{t} + 16], {b}\n movups [{t} + 32], {c}\n movups [{t} + 48], {d}",
                "add {f}, 64\n add {t}, 64\n sub {n}, 64\n cmp {n}, 64\n jae 2b",
                "test {n}, {n}\n jz 3f",
                // `n` is what is left: step back so that 64 are.
                "sub {n}, 64\n add {f}, {n}\n add {t}, {n}\n mov {n:e}, 64\n jmp 2b",
                "3:",
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                f = inout(reg) from => _, t = inout(reg) to => _, n = inout(reg) n => _, options(nostack)
            );
        }
    }

    /// As [`copy_narrow`], 128 bytes a turn in registers of 32. What is long is stored to aligned places, but for its first
    /// bytes: stores that cross lines cost up to four times as much.
    ///
    /// # Safety
    /// As [`copy`], `n` is at least 128, and the processor has AVX2.
    unsafe fn copy_wide(mut from: *const u8, mut to: *mut u8, mut n: usize) {
        const REGISTER: usize = 32;
        if n >= 256 {
            // SAFETY: the first 32 bytes; what is left is still more than a turn.
            unsafe {
                asm!("movups {a}, [{f}]\n movups {b}, [{f} + 16]\n movups [{t}], {a}\n movups [{t} + 16], {b}",
                     a = out(xmm_reg) _, b = out(xmm_reg) _, f = in(reg) from, t = in(reg) to,
                     options(nostack, preserves_flags));
                let skip = REGISTER - to.addr() % REGISTER;
                (from, to, n) = (from.add(skip), to.add(skip), n - skip);
            }
        }
        // SAFETY: as in `copy_narrow`. `vzeroupper` clears the upper halves of all vector registers, which are said to be lost.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, [{f}]\n vmovdqu ymm1, [{f} + 32]\n vmovdqu ymm2, [{f} + 64]\n vmovdqu ymm3, [{f} + 96]",
                "vmovdqu [{t}], ymm0\n vmovdqu [{t} + 32], ymm1\n vmovdqu [{t} + 64], ymm2\n vmovdqu [{t} + 96], ymm3",
                "sub {f}, -128\n sub {t}, -128\n add {n}, -128\n cmp {n}, 128\n jae 2b",
                "test {n}, {n}\n jz 3f",
                "add {n}, -128\n add {f}, {n}\n add {t}, {n}\n mov {n:e}, 128\n jmp 2b",
                "3:\n vzeroupper",
                f = inout(reg) from => _, t = inout(reg) to => _, n = inout(reg) n => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack)
            );
        }
    }

    /// Zeroes `n` bytes of shared memory.
    ///
    /// # Safety
    /// As [`copy_in`] for `to`.
    pub(in crate::raw) unsafe fn zero(to: *mut u8, n: usize) {
        // SAFETY: stores `n` bytes; the direction flag is clear, as everywhere.
        unsafe {
            asm!("rep stosb", inout("rdi") to => _, inout("rcx") n => _, in("al") 0u8, options(nostack, preserves_flags));
        }
    }

    const UNKNOWN: u8 = 0;
    const NARROW: u8 = 1;
    const WIDE: u8 = 2;

    // Not the back end's: every thread finds out the same.
    static REGISTERS: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Whether registers of 32 bytes may be used.
    #[inline(always)]
    fn wide() -> bool {
        // Relaxed: both ways of copying are right.
        match REGISTERS.load(Ordering::Relaxed) {
            UNKNOWN => find_out(),
            registers => registers == WIDE,
        }
    }

    #[cold]
    fn find_out() -> bool {
        let wide = std::arch::is_x86_feature_detected!("avx2");
        REGISTERS.store(if wide { WIDE } else { NARROW }, Ordering::Relaxed);
        wide
    }

    #[cfg(test)]
    pub(super) mod tests {
        /// Every loop by itself, for the tests below.
        pub(in crate::raw::copy) unsafe fn narrow(from: *const u8, to: *mut u8, n: usize) {
            // SAFETY: passed on.
            unsafe {
                if n >= 64 { super::copy_narrow(from, to, n) } else { super::copy(from, to, n) }
            }
        }
    }
}

/// By aligned words.
#[cfg(any(test, not(all(target_arch = "x86_64", not(any(quietline_sim, miri))))))]
mod words {
    use quietline_platform::atomic::{AtomicU64, Ordering};

    const WORD: usize = size_of::<u64>();

    /// Calls `each` with the words that `n` bytes from `start` on lie in: the word, which bytes of it, and how many bytes came
    /// before them.
    ///
    /// # Safety
    /// `start` is valid for atomic access to `n` bytes, and so are the words around them.
    unsafe fn each_word(
        start: *mut u8,
        n: usize,
        mut each: impl FnMut(&AtomicU64, core::ops::Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < n {
            let at = start.wrapping_add(done);
            let skip = at.addr() % WORD;
            let end = (skip + n - done).min(WORD);
            // SAFETY: aligned, and inside memory that the contract names; accessed as atomics only while it is shared.
            each(unsafe { AtomicU64::from_ptr(at.wrapping_sub(skip).cast()) }, skip..end, done);
            done += end - skip;
        }
    }

    /// As `moves::copy_out`.
    ///
    /// # Safety
    /// The same, and the words around the bytes can be read.
    pub(in crate::raw) unsafe fn copy_out(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: by contract; what is shared is read by words, what is the caller's written by bytes.
        unsafe {
            each_word(from.cast_mut(), n, |word, bytes, done| {
                // Relaxed: a copy promises no order; whoever published the page or the size did.
                let value = word.load(Ordering::Relaxed).to_ne_bytes();
                let piece = &value[bytes];
                core::ptr::copy_nonoverlapping(piece.as_ptr(), to.add(done), piece.len());
            });
        }
    }

    /// As `moves::copy_in`.
    ///
    /// # Safety
    /// The same; the words around the bytes can be read and written, and nobody else writes them.
    pub(in crate::raw) unsafe fn copy_in(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: by contract, as in `copy_out`.
        unsafe {
            each_word(to, n, |word, bytes, done| {
                // Relaxed: as in `copy_out`; this is the only writer.
                let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
                let piece = &mut value[bytes];
                core::ptr::copy_nonoverlapping(from.add(done), piece.as_mut_ptr(), piece.len());
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
            });
        }
    }

    /// As `moves::copy_over`.
    ///
    /// # Safety
    /// As [`copy_out`] and [`copy_in`].
    pub(in crate::raw) unsafe fn copy_over(from: *const u8, to: *mut u8, n: usize) {
        let mut between = [0; 512];
        let mut done = 0;
        while done < n {
            let piece = (n - done).min(between.len());
            // SAFETY: by contract; the bytes between are ours.
            unsafe {
                copy_out(from.add(done), between.as_mut_ptr(), piece);
                copy_in(between.as_ptr(), to.add(done), piece);
            }
            done += piece;
        }
    }

    /// As `moves::zero`.
    ///
    /// # Safety
    /// As [`copy_in`].
    pub(in crate::raw) unsafe fn zero(to: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe {
            each_word(to, n, |word, bytes, _| {
                // Relaxed: as in `copy_in`.
                let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
                value[bytes].fill(0);
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
            });
        }
    }
}

#[cfg(test)]
mod tests;
