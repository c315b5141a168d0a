use core::fmt;

/// Memory could not be had: the operating system refused pages, or the heap was exhausted.
///
/// Nothing was changed by the call that returned it; the same call may succeed after memory was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory: free objects or raise the memory limit, then retry")
    }
}

impl std::error::Error for AllocError {}

/// The kernel refused a [fence](crate::percpu::Words::fence): a seccomp filter forbids `membarrier`
/// to the thread, or the kernel had no memory for it.
///
/// Operations that were in flight before may still be. The same call may succeed later, or in
/// another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FenceError;

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the kernel refused membarrier: allow it in the thread's seccomp filter, or retry",
        )
    }
}

impl std::error::Error for FenceError {}
