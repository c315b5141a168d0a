//! The model that the accesses are told to.

use core::cell::Cell;
use core::panic::Location;
use std::time::Duration;

/// What is done to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A plain store: goes to the store buffer.
    Store,
    /// A locked instruction, whether it changes the word or not.
    Locked,
    /// A hint to fetch.
    Prefetch,
    /// A hint to fetch, and to take from all others.
    PrefetchWrite,
}

/// Which bytes are accessed, and by which line of source.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The first byte's address.
    pub address: usize,
    /// Bytes, at least 1.
    pub bytes: usize,
    /// Who does it.
    pub by: &'static Location<'static>,
}

impl Place {
    /// These bytes, accessed by the caller.
    #[inline]
    #[track_caller]
    pub fn of(address: usize, bytes: usize) -> Self {
        Self { address, bytes, by: Location::caller() }
    }
}

/// A machine of virtual CPUs. Each method is called by the CPU that does something, before the thing is done; the
/// machine may let other CPUs run before it returns.
pub trait Machine {
    /// A word is about to be accessed.
    fn access(&self, place: Place, access: Access);

    /// A full fence.
    fn fence(&self);

    /// A barrier on every CPU, paid by the caller (`membarrier`).
    fn fence_all(&self);

    /// A turn of a spin loop.
    fn pause(&self);

    /// Work that touches no memory that the machine sees.
    fn compute(&self, cycles: u64);

    /// Sleeps until [`wake`](Self::wake)d, or until `timeout` has passed. The caller has seen that it should.
    fn wait(&self, address: usize, timeout: Option<Duration>);

    /// Wakes up to `n` sleepers on this address.
    fn wake(&self, address: usize, n: u32);

    /// From here to [`step_end`](Self::step_end) no other CPU runs: a restartable sequence. Not nested.
    fn step_begin(&self);

    /// The sequence has committed.
    fn step_end(&self);

    /// The number of the CPU that calls.
    fn cpu(&self) -> usize;

    /// The time on that CPU, since the simulation began.
    fn now(&self) -> Duration;
}

thread_local! {
    static MACHINE: Cell<Option<*const dyn Machine>> = const { Cell::new(None) };
}

/// The machine is installed on this thread until this is dropped.
#[derive(Debug)]
#[must_use = "the machine is taken away again when this is dropped"]
pub struct Installed<'m> {
    machine: core::marker::PhantomData<(&'m (), *const ())>,
}

/// Tells `machine` of every access that this thread makes, until the returned value is dropped.
///
/// # Panics
/// When this thread has one already.
pub fn install<'m>(machine: &'m (dyn Machine + 'm)) -> Installed<'m> {
    // SAFETY: only the lifetime changes; `Installed` borrows the machine and takes the pointer away when it ends.
    let machine = unsafe {
        core::mem::transmute::<*const (dyn Machine + 'm), *const (dyn Machine + 'static)>(machine)
    };
    MACHINE.with(|m| assert!(m.replace(Some(machine)).is_none(), "one machine for each thread"));
    Installed { machine: core::marker::PhantomData }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        let _ = MACHINE.try_with(|m| m.set(None));
    }
}

/// Whether the calling thread is a simulation.
pub fn running() -> bool {
    MACHINE.try_with(|m| m.get().is_some()).unwrap_or(false)
}

/// Calls `f` with the machine, if there is one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&dyn Machine) -> R) -> Option<R> {
    let machine = MACHINE.try_with(Cell::get).ok().flatten()?;
    // SAFETY: installed, so `Installed` is alive and borrows it.
    Some(f(unsafe { &*machine }))
}
