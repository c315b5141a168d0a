//! The restartable bodies by themselves: in a stand-in for the area that the kernel knows, each operation against its
//! contract. So they can be tried where there is no kernel that knows restartable sequences, as under an emulator.

use super::chunk::SHIFT;
use super::{rseq, self_test};
use crate::percpu::locked::Locked;
use crate::percpu::{OwnedSheaf, Sheaf};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// As much of an area as is used.
#[repr(C, align(32))]
struct StandIn {
    cpu_start: u32,
    cpu: u32,
    /// Written by the bodies, behind the compiler's back.
    sequence: AtomicU64,
}

impl StandIn {
    fn on(cpu: usize) -> Self {
        Self { cpu_start: cpu as u32, cpu: cpu as u32, sequence: 0.into() }
    }

    fn offset(&self) -> isize {
        (&raw const *self as usize).wrapping_sub(rseq::thread_pointer()) as isize
    }
}

/// What the kernel reads when it finds a sequence armed.
#[repr(C)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// The kernel kills a process whose descriptor it does not like: look at it as the kernel does.
fn check_descriptor(area: &StandIn) {
    let sequence = area.sequence.load(Relaxed);
    // SAFETY: the body has just armed this descriptor, and there are 4 bytes of code before the abort address.
    let (d, found) = unsafe {
        let d = &*(sequence as *const Descriptor);
        (d, ((d.abort - 4) as *const u32).read_unaligned())
    };
    assert_eq!((d.version, d.flags), (0, 0));
    assert_eq!(sequence % 32, 0, "aligned as the kernel's header demands");
    assert!((8..800).contains(&d.length), "{}", d.length);
    assert!(!(d.start..d.start + d.length).contains(&d.abort), "the way back is outside");
    assert_eq!(found, rseq::SIGNATURE);
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const N: usize = 6; // 0: arithmetic, 1: unused, 2: list, 3: sheaf, 4: ids, 5: others
const CPUS: usize = 3;

/// Words as a chunk has them: a unit of 64 KiB for each CPU.
struct Units(Vec<u64>);

impl Units {
    fn word(&mut self, cpu: usize, index: usize) -> *mut u64 {
        &raw mut self.0[(cpu << SHIFT) / 8 + index]
    }
}

/// Runs one random sequence of operations through the bodies, on a CPU of our choice, and through the contracts.
fn agree(seed: u64) {
    let mut random = Random(seed);
    let cpu = random.below(CPUS as u64) as usize;
    let area = StandIn::on(cpu);
    let mut units = Units(vec![0; (CPUS << SHIFT) / 8]);
    let reference: [AtomicU64; N] = Default::default();
    let guard = AtomicU64::new(0);
    let capacity = 1 + random.below(70) as usize;
    let (mine, theirs) = (
        OwnedSheaf::new(capacity).unwrap().into_raw(),
        OwnedSheaf::new(capacity).unwrap().into_raw(),
    );
    // SAFETY: in bounds.
    unsafe { *units.word(cpu, 3) = mine.as_ptr() as u64 };
    reference[3].store(theirs.as_ptr() as u64, Relaxed);
    // Nodes come in pairs, one for each side, told apart by their place.
    let mut nodes: Vec<[u64; 2]> = vec![[0; 2]; 600];
    let first = nodes.as_mut_ptr().cast::<u64>();
    let place = |node: *mut u64, side: usize| {
        (!node.is_null()).then(|| (node as usize - first as usize - 8 * side) / 16)
    };
    let mut used = 0;
    for step in 0..3000 {
        let locked = Locked(&reference);
        let (o, v) = (area.offset(), random.next());
        let at: [*mut u64; N] = core::array::from_fn(|i| units.word(0, i));
        let context = format!("seed {seed} step {step}");
        // SAFETY: `o` is the stand-in's, the pointers are CPU 0's copies, nodes and sheaves are alive, buffers large
        // enough; nobody else runs here.
        unsafe {
            match random.below(15) {
                0 => {
                    rseq::add(o, at[0], v);
                    locked.add(0, v);
                }
                1 => {
                    let (small, bound) = ((v % 64) as i64 - 32, 1 + (v >> 8) as i64 % 50);
                    let r = rseq::add_within(o, at[5], small, bound);
                    assert_eq!(r, locked.add_within(5, small, bound), "{context}");
                }
                2 => {
                    let mask = (1u64 << random.below(12)) - 1;
                    let r = rseq::increment_unless(o, at[4], mask);
                    assert_eq!(r, locked.increment_unless(4, mask), "{context}");
                }
                3 => {
                    let expect = if v % 2 == 0 { reference[4].load(Relaxed) } else { v };
                    let r = rseq::compare_store(o, at[4], expect, v);
                    assert_eq!(r, locked.compare_store(4, expect, v), "{context}");
                }
                4 => assert_eq!(rseq::swap(o, at[5], v % 40), locked.swap(5, v % 40), "{context}"),
                5 => {
                    if v % 3 == 0 {
                        guard.store(v % 2, Relaxed);
                    }
                    let r = rseq::swap_unless(o, at[5], guard.as_ptr(), v % 9);
                    assert_eq!(r, locked.swap_unless(5, &guard, v % 9), "{context}");
                }
                6 => {
                    let selector = AtomicU64::new(if v % 2 == 0 { 0 } else { 5 });
                    let r = rseq::increment_selected(o, at[0], selector.as_ptr());
                    assert_eq!(r, locked.increment_selected(&selector), "{context}");
                }
                7 | 8 if used < nodes.len() => {
                    let (a, b) =
                        (first.add(2 * used), NonNull::new(first.add(2 * used + 1)).unwrap());
                    used += 1;
                    if v % 2 == 0 {
                        rseq::list_push(o, at[2], a);
                        locked.list_push(2, b.cast());
                    } else {
                        let selector = AtomicU64::new(2);
                        rseq::list_push_selected(o, at[0], selector.as_ptr(), a);
                        locked.list_push_selected(&selector, b.cast());
                    }
                }
                7..=9 => {
                    let (a, b) = (rseq::list_pop(o, at[2]), locked.list_pop(2));
                    let b = b.map_or(core::ptr::null_mut(), |b| b.as_ptr().cast());
                    assert_eq!(place(a, 0), place(b, 1), "{context}");
                }
                10 => assert_eq!(rseq::sheaf_pop(o, at[3]), locked.sheaf_pop(3), "{context}"),
                11 => {
                    let v = v as usize | 1;
                    assert_eq!(rseq::sheaf_push(o, at[3], v), locked.sheaf_push(3, v), "{context}");
                }
                12 => {
                    let (mut a, mut b) = ([0usize; 80], [0usize; 80]);
                    let n = random.below(80) as usize;
                    let k = rseq::sheaf_pop_many(o, at[3], a.as_mut_ptr(), n);
                    assert_eq!(k, locked.sheaf_pop_many(3, b.as_mut_ptr(), n), "{context}");
                    assert_eq!(a[..k], b[..k], "{context}");
                    assert_eq!(a[n..], [0; 80][n..], "{context}: beyond what was asked for");
                }
                13 => {
                    let mut src: Vec<usize> = (0..random.below(80) as usize)
                        .map(|_| random.next() as usize | 1)
                        .collect();
                    if !src.is_empty() && random.below(4) == 0 {
                        let hole = random.below(src.len() as u64) as usize;
                        src[hole] = if random.below(2) == 0 { 0 } else { 7 << 32 };
                    }
                    let k = rseq::sheaf_push_many(o, at[3], src.as_ptr(), src.len());
                    assert_eq!(k, locked.sheaf_push_many(3, src.as_ptr(), src.len()), "{context}");
                }
                _ => {
                    // The same sheaf in its own place: refused or not, both sides stay comparable.
                    let full = v % 2 == 0;
                    let a =
                        rseq::sheaf_replace(o, at[3], guard.as_ptr(), mine.as_ptr().cast(), full);
                    let b = locked.sheaf_replace(3, &guard, theirs, full);
                    assert_eq!(
                        (!a.is_null()).then_some(a),
                        b.map(|_| mine.as_ptr().cast()),
                        "{context}"
                    );
                }
            }
            let (a, b) = (mine.as_ref(), theirs.as_ref());
            assert_eq!(a.len(), b.len(), "{context}");
            (0..a.len()).for_each(|i| {
                assert_eq!(a.slot(i).load(Relaxed), b.slot(i).load(Relaxed), "{context}")
            });
            for i in [0, 4, 5] {
                assert_eq!(*units.word(cpu, i), reference[i].load(Relaxed), "{context} word {i}");
            }
        }
        check_descriptor(&area);
    }
    // The other CPUs' copies were left alone.
    let unit = (1 << SHIFT) / 8;
    for other in (0..CPUS).filter(|c| *c != cpu) {
        assert!(units.0[other * unit..(other + 1) * unit].iter().all(|w| *w == 0));
    }
    // SAFETY: both sheaves came from `into_raw`, and nobody else has them.
    unsafe { drop((OwnedSheaf::from_raw(mine), OwnedSheaf::from_raw(theirs))) };
}

#[test]
fn bodies_keep_their_contracts() {
    (1..=40).for_each(agree);
    // Both ways of copying; tests beside this one are right with either.
    #[cfg(target_arch = "x86_64")]
    {
        let wide = rseq::set_wide(false);
        (1..=40).for_each(agree);
        rseq::set_wide(wide);
    }
}

#[test]
fn the_stub_is_empty_and_full() {
    let area = StandIn::on(0);
    let mut units = Units(vec![0; N]);
    let stub = Sheaf::stub();
    // SAFETY: as in `agree`.
    unsafe {
        *units.word(0, 3) = stub.as_ptr() as u64;
        let (o, at, guard) = (area.offset(), units.word(0, 3), AtomicU64::new(0));
        assert_eq!(rseq::sheaf_pop(o, at), 0);
        assert!(!rseq::sheaf_push(o, at, 7));
        let mut buffer = [7usize; 4];
        assert_eq!(rseq::sheaf_pop_many(o, at, buffer.as_mut_ptr(), 4), 0);
        assert_eq!(rseq::sheaf_push_many(o, at, buffer.as_ptr(), 4), 0);
        assert_eq!(rseq::cpu(o), 0);
        for full in [false, true] {
            guard.store(1, Relaxed);
            assert!(
                rseq::sheaf_replace(o, at, guard.as_ptr(), stub.as_ptr().cast(), full).is_null()
            );
            guard.store(0, Relaxed);
            let old = rseq::sheaf_replace(o, at, guard.as_ptr(), stub.as_ptr().cast(), full);
            assert_eq!(old, stub.as_ptr().cast());
        }
    }
}

/// The self-test finds aborts where the kernel makes them.
#[test]
fn the_kernel_restarts_sequences() {
    let registered = super::probe::registered_offset();
    let offset = || registered.or_else(super::own::offset);
    if crate::membarrier::available() && offset().is_some() {
        assert!(self_test::restarts(offset), "this kernel does not restart sequences");
    }
}

/// The self-test finds out a kernel that does not: one that does not look at the area in use.
#[test]
fn a_kernel_that_does_not_is_found_out() {
    let run = |entered: &AtomicU32, leave: &AtomicU32| {
        let area = StandIn::on(0);
        // SAFETY: the stand-in is the area; the words are alive.
        unsafe { rseq::until_restarted(area.offset(), entered.as_ptr(), leave.as_ptr()) }
    };
    assert!(!self_test::restarts_by(|| (), run));
}
