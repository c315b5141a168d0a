//! How deep pollers may watch pollers, and how many paths may lead to a file.
//!
//! Asked when something is added, and only if a poller is put into another or something into one that is watched itself;
//! such additions come one at a time. Nobody walks anything when an event comes, or when somebody waits.
//!
//! ```text
//!   poller ─> poller ─> poller ─> poller ─> poller        five at most; a sixth, or a circle, is ELOOP
//!     4         3         2         1         0           pollers below the one that ends a path
//!     10        50       100       500     any number     paths of that length that may end at a file: else EINVAL
//! ```
//!
//! Walks go down by the pollers' locks, outer before inner, as looks do; and up by the files' locks, inner before outer.
//! Nobody takes a poller's lock while he holds a file's.
//!
//! A walk up comes to a poller by one of its items, and from there to the poller's own file. That
//! file may have been closed, but it is not freed before `Poller::shut` has returned
//! ([`ENDS_BEFORE_FILE`](crate::raw::pseudo::Payload::ENDS_BEFORE_FILE)). That removes the item
//! first, for which it waits for a lock that the walk holds.

use super::Watchable;
use super::members::Nesting;
use super::poller::{Locked, Poller};
use core::ptr;
use quietline_platform::atomic::Ordering;
use rustix::io::Errno;

/// Pollers below a poller.
const MAX_NESTS: usize = 4;
/// Paths that may lead to a file by so many pollers but the last.
const PATHS: [usize; MAX_NESTS + 1] = [usize::MAX, 500, 100, 50, 10];

/// In so many bits what [`above`] has found lies beside the number of its walk.
const ABOVE_BITS: u32 = 3;
/// Set in the number of a walk that counts paths.
const COUNTED: u64 = 1 << 63;

/// Whether something that is added to this poller may make paths too many: it is watched itself, or it is being put into
/// another at this moment. For the holder of its lock, who has found it open.
pub(super) fn is_nested<F: Watchable>(poller: &Poller<F>, kernel: &Nesting) -> bool {
    // Relaxed: our lock orders what a walk has written that came by before; one that comes later finds what we add.
    poller.still.walk.load(Ordering::Relaxed) == kernel.walk.load(Ordering::Relaxed)
        && kernel.walk.load(Ordering::Relaxed) != 0
        || own_file(poller).is_some_and(F::has_items)
}

fn own_file<F: Watchable>(poller: &Poller<F>) -> Option<&F> {
    // SAFETY: set when the poller's file was opened, which is not freed before `shut` has returned.
    // The callers hold the lock of a poller that was not being shut, or have found it by one of its
    // items, under the lock of the item's file. `shut` takes both locks.
    //
    // ORDERING: acquire pairs with the release in `set_own`.
    unsafe { poller.still.own.load(Ordering::Acquire).as_ref() }
}

/// Whether `inner` may be put into `outer`: `ELOOP` if that made a circle, or a chain of more than five.
///
/// For those who hold the kernel's lock of nesting, and no poller's.
pub(super) fn check_depth<F: Watchable>(
    outer: &Poller<F>,
    above: usize,
    inner: &Poller<F>,
    walk: u64,
) -> Result<(), Errno> {
    let below = below(inner, outer, walk, 0).ok_or(Errno::LOOP)?;
    if below + 1 + above > MAX_NESTS { Err(Errno::LOOP) } else { Ok(()) }
}

/// Pollers below `poller`, on the longest way; none if `outer` is among them or there are too many.
fn below<F: Watchable>(
    poller: &Poller<F>,
    outer: &Poller<F>,
    walk: u64,
    depth: usize,
) -> Option<usize> {
    if ptr::eq(poller, outer) || depth > MAX_NESTS {
        return None;
    }
    let inside = poller.lock();
    // Relaxed, both words: under the lock.
    if poller.still.walk.load(Ordering::Relaxed) == walk {
        return Some(poller.still.depth.load(Ordering::Relaxed) as usize);
    }
    let mut deepest = 0;
    for &(file, _) in inside.table.keys() {
        // SAFETY: a file in the table lives while the lock is held.
        if let Some(inner) = unsafe { file.as_ref() }.poller() {
            deepest = deepest.max(1 + below(inner, outer, walk, depth + 1)?);
        }
    }
    poller.still.walk.store(walk, Ordering::Relaxed);
    poller.still.depth.store(deepest as u32, Ordering::Relaxed);
    Some(deepest)
}

/// Pollers above one that is open and locked, on the longest way. For the holder of the kernel's lock of nesting, in a walk of his;
/// comes by each of them once.
pub(super) fn above_poller<F: Watchable>(
    poller: &Poller<F>,
    _locked: &Locked<'_, F>,
    walk: u64,
) -> usize {
    above(poller, walk, 0)
}

/// Pollers above a poller, on the longest way.
fn above<F: Watchable>(poller: &Poller<F>, walk: u64, depth: usize) -> usize {
    if depth > MAX_NESTS {
        return 0;
    }
    // Relaxed, both: under the kernel's lock of nesting.
    let known = poller.height().load(Ordering::Relaxed);
    if known >> ABOVE_BITS == walk {
        return (known & ((1 << ABOVE_BITS) - 1)) as usize;
    }
    let found = own_file(poller).map_or(0, |file| {
        each_watcher(file, 0, |most, outer| Ok(most.max(1 + above(outer, walk, depth + 1))))
            .unwrap_or(0)
    });
    poller.height().store(walk << ABOVE_BITS | found as u64, Ordering::Relaxed);
    found
}

/// Calls `f` for each poller that watches the file, with what it gave before.
fn each_watcher<F: Watchable, R>(
    file: &F,
    start: R,
    mut f: impl FnMut(R, &Poller<F>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    file.with_items(|first| {
        let mut at = *first;
        let mut value = start;
        // SAFETY: an item in the file's list lives while the file's lock is held, and its poller with it.
        while let Some(item) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            unsafe {
                value = f(value, item.home.as_ref())?;
                at = item.beside(|beside| beside.next);
            }
        }
        Ok(value)
    })
}

/// Whether not too many paths lead to the file, or, if it is a poller, to what is below it: else `EINVAL`.
///
/// For the holder of the kernel's lock of nesting and of the lock of a poller that watches the file.
pub(super) fn check_paths<F: Watchable>(file: &F, walk: u64) -> Result<(), Errno> {
    let Some(poller) = file.poller() else {
        return count_paths(file, 0, &mut [0; MAX_NESTS + 1]);
    };
    let inside = poller.lock();
    // The walk's second time here: what is below has been counted.
    //
    // Relaxed: under the lock.
    if poller.still.walk.swap(walk | COUNTED, Ordering::Relaxed) != walk | COUNTED {
        for &(file, _) in inside.table.keys() {
            // SAFETY: a file in the table lives while the lock is held.
            check_paths(unsafe { file.as_ref() }, walk)?;
        }
    }
    Ok(())
}

fn count_paths<F: Watchable>(
    file: &F,
    depth: usize,
    counts: &mut [usize; MAX_NESTS + 1],
) -> Result<(), Errno> {
    if depth > MAX_NESTS {
        return Err(Errno::INVAL);
    }
    each_watcher(file, (), |(), outer| {
        let above = own_file(outer).filter(|file| file.has_items());
        if let Some(file) = above {
            return count_paths(file, depth + 1, counts);
        }
        counts[depth] += 1;
        if counts[depth] > PATHS[depth] { Err(Errno::INVAL) } else { Ok(()) }
    })
}
