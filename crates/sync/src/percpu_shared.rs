//! A counted value with a count for each CPU.

use crate::{LazyBox, Once, Shared};
use core::fmt;
use core::ops::Deref;
use quietline_platform::{AllocError, cpu, heap};

/// A value that has one first owner, and others that are counted on lines of their CPUs.
///
/// Threads on different CPUs may make and end objects that each own one common value. If they own
/// it by a [`Shared`], they all write the line of its count. Here [`share`](Self::share) makes an
/// owner that is counted on a line of the CPU that the caller runs on. The count of a CPU is made
/// when it is first used, and is itself one owner of the value.
///
/// Memory: 16 bytes beside the value; after the first `share` 8 bytes for each possible CPU, and
/// 128 for each that has called it. It stays until the first owner is dropped; the 128 bytes of a
/// CPU stay until its owners are dropped, too.
///
/// ```
/// use quietline_sync::PerCpuShared;
///
/// let first = PerCpuShared::new(String::from("common"))?;
/// let other = first.share()?;
/// drop(first);
/// assert_eq!(*other, "common");
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
///
/// # Source
///
/// The purpose of `struct percpu_ref` (`include/linux/percpu-refcount.h`), without its switch to
/// one counter when the first owner goes: a count for each CPU ends by itself.
pub struct PerCpuShared<T> {
    value: Shared<T>,
    counts: LazyBox<Counts<T>>,
}

/// For each CPU its count.
type Counts<T> = Box<[Once<Shared<CpuOwners<T>>>]>;

/// What the owners of a CPU share. The alignment gives the count before it a line of its own.
#[repr(align(64))]
struct CpuOwners<T>(Shared<T>);

/// An owner that [`PerCpuShared::share`] has made.
pub struct PerCpuOwner<T> {
    line: Shared<CpuOwners<T>>,
}

impl<T> PerCpuShared<T> {
    /// Returns the first owner of a value.
    ///
    /// # Errors
    /// [`AllocError`]; the value is dropped.
    pub fn new(value: T) -> Result<Self, AllocError> {
        Ok(Self { value: Shared::new(value)?, counts: LazyBox::new() })
    }

    /// Returns one more owner: a locked instruction on a line that other CPUs do not use.
    ///
    /// # Errors
    /// [`AllocError`], when this is the CPU's first owner and there is no memory for its count.
    #[inline]
    pub fn share(&self) -> Result<PerCpuOwner<T>, AllocError> {
        let cpu = cpu::current();
        let line = self.counts.get().and_then(|counts| counts[cpu].share());
        Ok(PerCpuOwner { line: line.map_or_else(|| self.first_share(cpu), Ok)? })
    }

    /// Returns the first owner as a [`Shared`]. Its clones are counted on one line for all CPUs.
    pub fn as_shared(&self) -> &Shared<T> {
        &self.value
    }

    #[cold]
    fn first_share(&self, cpu: usize) -> Result<Shared<CpuOwners<T>>, AllocError> {
        let counts =
            self.counts.get_or_make(|| heap::try_boxed_slice(cpu::nr_cpus(), |_| Once::empty()))?;
        counts[cpu].get_or_try_set(|| Shared::new(CpuOwners(self.value.clone())))?;
        Ok(counts[cpu].share().expect("set above"))
    }
}

impl<T> Deref for PerCpuShared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for PerCpuOwner<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.line.0
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpuShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpuOwner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
