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
