//! The native bodies of the per-CPU operations, and the choice between them.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod dispatch;
mod mode;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod own;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod probe;
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "rseq_none.rs")]
pub(crate) mod rseq;
// Asked at start only where kernels are known that fail it.
#[cfg(any(target_arch = "aarch64", all(test, target_arch = "x86_64")))]
mod self_test;
pub(crate) mod slots;

use crate::FenceError;
use crate::percpu::Body;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use dispatch::{operate, operate_restartable};
pub use mode::{active, is_fallback};
pub(crate) use mode::{copies, current, decide, offset};
#[cfg(test)]
pub(crate) use rseq::inject;
pub(crate) use slots::abandon;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use {
    crate::percpu::step::{operate, operate_restartable},
    rseq::step,
};

/// After it returns, every per-CPU operation that another thread had begun before has ended or will start anew,
/// and what that thread wrote before is visible. Costs microseconds: slow paths only.
///
/// # Errors
/// [`FenceError`] when the kernel refuses the barrier; the fallback needs none.
pub(crate) fn fence() -> Result<(), FenceError> {
    let body = active();
    if body != Body::Fallback {
        crate::membarrier::rseq()?;
    }
    if body != Body::Rseq {
        slots::fence();
    }
    Ok(())
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod tests;
