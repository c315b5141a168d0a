//! The dispatch of each operation to the body in use.

use super::mode::own_offset;
use super::slots::Slot;

/// One operation on the words from an index on, by name: the restartable body on the copy of the
/// CPU that it runs on, or the fallback's on a slot's copy.
macro_rules! operate {
    ($area:expr, $index:expr, $name:ident($($argument:expr),*)) => {{
        use $crate::backend::percpu::{dispatch::{SlowMeans, on_own_area_slow}, rseq};
        let (area, index) = (&$area, $index);
        let offset = area.offset;
        if offset != 0 {
            // SAFETY: a non-zero offset is that of this thread's rseq area; the pointer is to our
            // words. The rest is the caller's promise.
            unsafe { rseq::$name(offset, area.at(index), $($argument),*) }
        } else {
            // Some contracts ask nothing of the caller, and then their steps are safe.
            #[allow(unused_unsafe)]
            // By `move`: arguments that were borrowed would have to be written to the stack on the
            // way past. One closure for both bodies: each further word that it captures may be.
            on_own_area_slow(move |means| match means {
                // SAFETY: as above.
                SlowMeans::Area(offset) => unsafe {
                    rseq::$name(offset, area.at(index), $($argument),*)
                },
                // SAFETY: the slot's words are ours while its lock is held; the rest is the
                // caller's promise.
                SlowMeans::Slot(slot) => unsafe {
                    $crate::percpu::locked::Locked(area.copy(slot.number()))
                        .$name(index, $($argument),*)
                },
            })
        }
    }};
}

/// The operation by its restartable body alone, for threads that the C library has registered. A
/// value in its place for others.
macro_rules! operate_restartable {
    ($area:expr, $index:expr, $name:ident($($argument:expr),*), $missing:expr) => {{
        let area = &$area;
        let (at, offset) = (area.at($index), area.offset);
        if offset != 0 {
            // SAFETY: as in `operate`.
            unsafe { $crate::backend::percpu::rseq::$name(offset, at, $($argument),*) }
        } else {
            $missing
        }
    }};
}

pub(crate) use {operate, operate_restartable};

/// The means of one operation of a thread that the C library did not register.
pub(crate) enum SlowMeans<'a> {
    /// The offset of an rseq area that this library registered.
    Area(isize),
    /// A locked slot.
    Slot(&'a Slot),
}

/// The operation of a thread that the C library did not register. Out of line, so that callers
/// contain no locked instruction.
#[cold]
#[inline(never)]
pub(crate) fn on_own_area_slow<R>(operate: impl FnOnce(SlowMeans<'_>) -> R) -> R {
    match own_offset() {
        Some(offset) => operate(SlowMeans::Area(offset)),
        None => operate(SlowMeans::Slot(&Slot::enter())),
    }
}
