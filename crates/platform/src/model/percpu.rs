//! The model bodies: each operation is one step under the mutex of its CPU.

use crate::atomic::AtomicU64;
use crate::percpu::Body;
use crate::percpu::locked::Locked;
use crate::{AllocError, FenceError};
use loom::sync::Mutex;

pub(crate) use crate::percpu::step::{operate, operate_restartable};

/// The body in use.
pub fn active() -> Body {
    Body::Fallback
}

/// Returns `false`: every operation has one body here, whatever its name ends in.
pub fn is_fallback() -> bool {
    false
}

#[derive(Debug)]
struct Copy {
    words: Vec<AtomicU64>,
    step: Mutex<()>,
}

/// `N` words for each CPU.
#[derive(Debug)]
pub(crate) struct Area<const N: usize> {
    cpus: Vec<Copy>,
}

impl<const N: usize> Area<N> {
    pub(crate) fn new(initial: [u64; N]) -> Result<Self, AllocError> {
        crate::fault::check()?;
        let copy = |_| Copy {
            words: initial.into_iter().map(AtomicU64::new).collect(),
            step: Mutex::new(()),
        };
        Ok(Self { cpus: (0..crate::cpu::nr_cpus()).map(copy).collect() })
    }

    pub(crate) fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        &self.cpus[cpu].words[index]
    }

    /// Waits for each CPU's step in flight: steps after this one see what the caller wrote before.
    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        for copy in &self.cpus {
            drop(copy.step.lock().expect("a step does not panic"));
        }
        Ok(())
    }
}

/// One operation.
pub(crate) fn step<const N: usize, R>(area: &Area<N>, f: impl FnOnce(Locked<'_>) -> R) -> R {
    let copy = &area.cpus[crate::cpu::current()];
    let _step = copy.step.lock().expect("a step does not panic");
    f(Locked(&copy.words))
}
