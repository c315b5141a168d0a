//! The restartable bodies by themselves: in a stand-in for the area that the kernel knows, each operation against its
//! contract. So they can be tried where there is no kernel that knows restartable sequences, as under an emulator.

use super::{rseq, self_test};
use crate::percpu::chunk::SHIFT;
use crate::percpu::tests::bodies::agree;
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

const CPUS: usize = 3;

/// Words as a chunk has them, a unit of 64 KiB for each CPU, and the stand-in of a thread on one of
/// the CPUs.
pub(crate) struct Bare {
    area: StandIn,
    units: Box<[AtomicU64]>,
}

impl Bare {
    fn on(cpu: usize) -> Self {
        let units = (0..(CPUS << SHIFT) / 8).map(|_| AtomicU64::new(0)).collect();
        Self { area: StandIn::on(cpu), units }
    }

    pub(crate) fn offset(&self) -> isize {
        self.area.offset()
    }

    /// The address of CPU 0's copy of a word.
    pub(crate) fn at(&self, index: usize) -> *mut u64 {
        self.units.as_ptr().wrapping_add(index).cast_mut().cast()
    }

    fn unit(&self, cpu: usize) -> &[AtomicU64] {
        &self.units[(cpu << SHIFT) / 8..][..(1 << SHIFT) / 8]
    }

    pub(crate) fn word(&self, index: usize) -> u64 {
        self.unit(self.area.cpu as usize)[index].load(Relaxed)
    }

    pub(crate) fn set_word(&self, index: usize, value: u64) {
        self.unit(self.area.cpu as usize)[index].store(value, Relaxed);
    }
}

/// Runs one random sequence of operations on a CPU of our choice.
fn agree_on(seed: u64) {
    let cpu = seed as usize % CPUS;
    let bare = Bare::on(cpu);
    agree(seed, &bare, || check_descriptor(&bare.area));
    for other in (0..CPUS).filter(|other| *other != cpu) {
        assert!(bare.unit(other).iter().all(|word| word.load(Relaxed) == 0), "left alone");
    }
}

#[test]
fn bodies_keep_their_contracts() {
    (1..=40).for_each(agree_on);
    // Both ways of copying; tests beside this one are right with either.
    #[cfg(target_arch = "x86_64")]
    {
        let wide = rseq::set_wide(false);
        (1..=40).for_each(agree_on);
        rseq::set_wide(wide);
    }
}

#[test]
fn the_number_of_the_cpu_is_read() {
    let area = StandIn::on(2);
    // SAFETY: the stand-in is the area.
    assert_eq!(unsafe { rseq::cpu(area.offset()) }, 2);
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
