//! The bodies against the contracts: random operations, each by both.

use crate::backend::percpu::operate;
use crate::percpu::locked::{HAS_ZERO, Locked};
use crate::percpu::{OwnedSheaf, Sheaf, Words};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// xorshift64*: a seed gives the same sequence everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Words of a body: 0 and 5 hold numbers, 2 a list, 3 a sheaf, 4 ids; 1 is not used.
pub(crate) const N: usize = 6;

macro_rules! bodies {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// Every operation on [`N`] words.
        #[allow(clippy::missing_safety_doc)]
        pub(crate) trait Bodies {
            /// Sets a word, on every CPU.
            fn set(&self, index: usize, value: u64);
            /// Returns the sum of a word over all CPUs.
            fn get(&self, index: usize) -> u64;
            $(unsafe fn $name(&self, index: usize, $($argument: $type),*) $(-> $result)?;)*
        }

        impl Bodies for Words<N> {
            fn set(&self, index: usize, value: u64) {
                (0..self.cpus()).for_each(|cpu| self.word(cpu, index).store(value, Relaxed));
            }

            fn get(&self, index: usize) -> u64 {
                self.sum(index)
            }

            $(unsafe fn $name(&self, index: usize, $($argument: $type),*) $(-> $result)? {
                operate!(self.area, index, $name($($argument),*))
            })*
        }

        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        impl Bodies for crate::backend::percpu::tests::Bare {
            fn set(&self, index: usize, value: u64) {
                self.set_word(index, value);
            }

            fn get(&self, index: usize) -> u64 {
                self.word(index)
            }

            $(unsafe fn $name(&self, index: usize, $($argument: $type),*) $(-> $result)? {
                // SAFETY: the area and the words are the test's; the rest is passed on.
                unsafe {
                    let (offset, at) = (self.offset(), self.at(index));
                    crate::backend::percpu::rseq::$name(offset, at, $($argument),*)
                }
            })*
        }
    };
}

bodies! {
    fn add(value: u64);
    fn add_within(value: i64, bound: i64) -> bool;
    fn increment_unless(mask: u64) -> Option<u64>;
    fn swap(new: u64) -> u64;
    fn swap_unless(guard: &AtomicU64, new: u64) -> Option<u64>;
    fn increment_selected(selector: &AtomicU64) -> usize;
    fn list_push_selected(selector: &AtomicU64, node: NonNull<AtomicU64>);
    fn sheaf_pop() -> usize;
    fn sheaf_push(value: usize) -> bool;
    fn sheaf_pop_many(dst: *mut usize, n: usize) -> usize;
    fn sheaf_push_many(src: *const usize, n: usize) -> usize;
    fn sheaf_replace(
        guard: &AtomicU64, new: NonNull<Sheaf>, full: bool
    ) -> Option<NonNull<Sheaf>>;
}

/// Runs one random sequence of operations on a body and on the contracts. Compares every result and
/// every word, and calls `check` after each operation.
pub(crate) fn agree(seed: u64, body: &impl Bodies, check: impl Fn()) {
    let mut random = Random(seed);
    let (reference, guard): ([AtomicU64; N], AtomicU64) = Default::default();
    let capacity = 1 + random.below(70) as usize;
    let sheaf = || OwnedSheaf::new(capacity).unwrap().into_raw();
    let (ours, theirs) = (sheaf(), sheaf());
    body.set(3, ours.as_ptr() as u64);
    reference[3].store(theirs.as_ptr() as u64, Relaxed);
    let nodes: Vec<[AtomicU64; 2]> = (0..600).map(|_| Default::default()).collect();
    // The place of a node among those of its side.
    let place = |node: u64, side: usize| {
        (node != 0).then(|| (node as usize - nodes.as_ptr() as usize - 8 * side) / 16)
    };
    let mut used = 0;
    for step in 0..3000 {
        let locked = Locked(&reference);
        let v = random.next();
        let context = format_args!("seed {seed} step {step}");
        // SAFETY: the sheaves and nodes outlive the loop; the selectors name words; the buffers
        // have room.
        unsafe {
            match random.below(13) {
                0 => {
                    body.add(0, v);
                    locked.add(0, v);
                }
                1 => {
                    let (small, bound) = ((v % 64) as i64 - 32, 1 + (v >> 8) as i64 % 50);
                    let r = body.add_within(5, small, bound);
                    assert_eq!(r, locked.add_within(5, small, bound), "{context}");
                }
                2 => {
                    let mask = (1u64 << random.below(12)) - 1;
                    let r = body.increment_unless(4, mask);
                    assert_eq!(r, locked.increment_unless(4, mask), "{context}");
                }
                3 => assert_eq!(body.swap(5, v % 40), locked.swap(5, v % 40), "{context}"),
                4 => {
                    if v.is_multiple_of(3) {
                        guard.store(v % 2, Relaxed);
                    }
                    let r = body.swap_unless(5, &guard, v % 9);
                    assert_eq!(r, locked.swap_unless(5, &guard, v % 9), "{context}");
                }
                5 => {
                    let selector = AtomicU64::new(if v.is_multiple_of(2) { 0 } else { 5 });
                    let r = body.increment_selected(0, &selector);
                    assert_eq!(r, locked.increment_selected(0, &selector), "{context}");
                }
                6 | 7 if used < nodes.len() => {
                    let ([a, b], selector) = (&nodes[used], AtomicU64::new(2));
                    used += 1;
                    body.list_push_selected(0, &selector, a.into());
                    locked.list_push_selected(0, &selector, b.into());
                    assert_eq!(place(a.load(Relaxed), 0), place(b.load(Relaxed), 1), "{context}");
                }
                6..=8 => assert_eq!(body.sheaf_pop(3), locked.sheaf_pop(3), "{context}"),
                9 => {
                    let v = v as usize | 1;
                    assert_eq!(body.sheaf_push(3, v), locked.sheaf_push(3, v), "{context}");
                }
                10 => {
                    let (mut a, mut b) = ([0usize; 80], [0usize; 80]);
                    let n = random.below(80) as usize;
                    let k = body.sheaf_pop_many(3, a.as_mut_ptr(), n);
                    assert_eq!(k, locked.sheaf_pop_many(3, b.as_mut_ptr(), n), "{context}");
                    assert_eq!(a[..k], b[..k], "{context}");
                    assert_eq!(a[n..], [0; 80][n..], "{context}: beyond what was asked for");
                }
                11 => {
                    let mut src: Vec<usize> = (0..random.below(80) as usize)
                        .map(|_| random.next() as usize | 1)
                        .collect();
                    if !src.is_empty() && random.below(4) == 0 {
                        let hole = random.below(src.len() as u64) as usize;
                        src[hole] = if random.below(2) == 0 { 0 } else { 7 << 32 };
                    }
                    let k = body.sheaf_push_many(3, src.as_ptr(), src.len());
                    assert_eq!(k, locked.sheaf_push_many(3, src.as_ptr(), src.len()), "{context}");
                }
                _ => {
                    // The same sheaf in its own place: refused or not, both sides stay comparable.
                    let full = v.is_multiple_of(2);
                    let a = body.sheaf_replace(3, &guard, ours, full);
                    let b = locked.sheaf_replace(3, &guard, theirs, full);
                    assert_eq!(a, b.map(|_| ours), "{context}");
                }
            }
            let (a, b) = (ours.as_ref(), theirs.as_ref());
            assert_eq!(a.len(), b.len(), "{context}");
            (0..a.len()).for_each(|i| {
                assert_eq!(a.slot(i).load(Relaxed), b.slot(i).load(Relaxed), "{context}")
            });
        }
        for i in [0, 1, 4, 5] {
            assert_eq!(body.get(i), reference[i].load(Relaxed), "{context} word {i}");
        }
        let (a, b) = (body.get(2), reference[2].load(Relaxed));
        assert_eq!(place(a, 0), place(b, 1), "{context}: the list's head");
        check();
    }
    replaces(body, ours);
    // SAFETY: both sheaves came from `into_raw`, and no word points to them any more.
    unsafe { drop((OwnedSheaf::from_raw(ours), OwnedSheaf::from_raw(theirs))) };
}

/// A sheaf is replaced by emptiness, by fullness, and never under the guard. The stub is empty and
/// full.
fn replaces(body: &impl Bodies, sheaf: NonNull<Sheaf>) {
    let (stub, guard) = (Sheaf::stub(), AtomicU64::new(1));
    // SAFETY: the sheaf is alive.
    unsafe {
        assert_eq!(body.sheaf_replace(3, &guard, stub, false), None, "the guard is up");
        guard.store(0, Relaxed);
        while body.sheaf_pop(3) != 0 {}
        assert_eq!(body.sheaf_replace(3, &guard, stub, true), None, "an empty sheaf is not full");
        while body.sheaf_push(3, 7) {}
        assert_eq!(body.sheaf_replace(3, &guard, stub, false), None, "a full sheaf is not empty");
        assert_eq!(body.sheaf_replace(3, &guard, stub, true), Some(sheaf));
        assert_eq!((body.sheaf_pop(3), body.sheaf_push(3, 7)), (0, false));
        let mut buffer = [1usize; 4];
        assert_eq!(body.sheaf_pop_many(3, buffer.as_mut_ptr(), 4), 0);
        assert_eq!(body.sheaf_push_many(3, buffer.as_ptr(), 4), 0);
        for full in [false, true] {
            guard.store(1, Relaxed);
            assert_eq!(body.sheaf_replace(3, &guard, stub, full), None);
            guard.store(0, Relaxed);
            assert_eq!(body.sheaf_replace(3, &guard, stub, full), Some(stub));
        }
    }
}

/// [`Words`] say by none what the bodies say by a number.
#[test]
fn a_zero_is_refused() {
    let words = Words::<N>::new().unwrap();
    words.set(3, Sheaf::stub().as_ptr() as u64);
    // SAFETY: the word points to the stub, which refuses all before it looks at it.
    assert_eq!(unsafe { words.sheaf_push_many(3, [0].as_ptr(), 1) }, Some(0));
    let sheaf = OwnedSheaf::new(2).unwrap().into_raw();
    words.set(3, sheaf.as_ptr() as u64);
    // SAFETY: the words point to a live sheaf, which is then the test's again.
    unsafe {
        assert_eq!(words.sheaf_push_many(3, [1, 0].as_ptr(), 2), None);
        assert_eq!(Bodies::sheaf_push_many(&words, 3, [0].as_ptr(), 1), HAS_ZERO);
        drop(OwnedSheaf::from_raw(sheaf));
    }
}
