//! No restartable sequences on this architecture: the fallback is all there is.

/// Returns the number of the CPU.
///
/// # Safety
/// Never called: no thread has an area here.
pub(crate) unsafe fn cpu(_: isize) -> usize {
    // SAFETY: by contract.
    unsafe { core::hint::unreachable_unchecked() }
}

/// One operation, as a step of the fallback.
pub(crate) fn step<const N: usize, R>(
    area: &crate::percpu::area::Area<N>,
    f: impl FnOnce(crate::percpu::locked::Locked<'_>) -> R,
) -> R {
    let slot = super::slots::Slot::enter();
    f(crate::percpu::locked::Locked(area.copy(slot.number())))
}
