//! Objects as they lie on their slabs' lists.

use crate::cache::ql_cache;
use crate::status::{ql_status, status};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use quietline_slab::Batch;

/// Objects that were taken by ql_cache_alloc_batch() and not handed out yet. Belongs to one thread at a time; must not be copied.
#[repr(C)]
#[derive(Debug)]
pub struct ql_batch {
    /// The library's.
    pub words: [usize; 8],
}

/// What is inside.
type Content = MaybeUninit<Option<Batch<'static>>>;

const _: () = assert!(
    size_of::<Content>() <= size_of::<ql_batch>()
        && align_of::<Content>() <= align_of::<ql_batch>()
);

/// Takes the free objects of one slab, and of a second one if the first has fewer than `want` and memory is there, and stores them
/// in *batch: at least one object, perhaps fewer than `want`, perhaps more, as ql_batch_left() says. For callers that will use
/// dozens of objects and can take what there is: one locked instruction for a slab's worth; no sheaf is asked.
///
/// QL_INVALID when an argument is NULL; QL_NO_MEMORY: the batch is empty then, and need not be ended.
///
/// # Safety
/// `cache` is NULL or a cache, which outlives the batch; `batch` is NULL or may be written. A batch with objects in it is ended
/// before its memory is used for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_alloc_batch(
    cache: *mut ql_cache,
    want: usize,
    batch: *mut ql_batch,
) -> ql_status {
    status(|| {
        if batch.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; the content fits.
        let content = unsafe { &mut *batch.cast::<Content>() };
        content.write(None);
        // SAFETY: by contract; the cache is said to outlive the batch, so a static lifetime is long enough.
        let cache: &'static ql_cache = unsafe { cache.as_ref() }.ok_or(ql_status::QL_INVALID)?;
        content.write(Some(cache.raw().alloc_batch(want)?));
        Ok(())
    })
}

/// The next object of a batch, the caller's from now on; the one after it is prefetched. NULL when there is none left, or `batch`
/// is NULL.
///
/// # Safety
/// `batch` is NULL or was filled by ql_cache_alloc_batch() or ended by ql_batch_end(), and is used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_batch_next(batch: *mut ql_batch) -> *mut c_void {
    // SAFETY: by contract.
    let batch = unsafe { batch.cast::<Option<Batch<'static>>>().as_mut() }.and_then(Option::as_mut);
    let next = batch.and_then(Iterator::next);
    next.map_or(ptr::null_mut(), |object| object.as_ptr().cast())
}

/// Objects left in a batch. NULL: 0.
///
/// # Safety
/// As ql_batch_next().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_batch_left(batch: *const ql_batch) -> usize {
    // SAFETY: by contract.
    let batch = unsafe { batch.cast::<Option<Batch<'static>>>().as_ref() }.and_then(Option::as_ref);
    batch.map_or(0, Batch::len)
}

/// Frees the objects that are left in a batch, which is empty then. NULL does nothing.
///
/// # Safety
/// As ql_batch_next().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_batch_end(batch: *mut ql_batch) {
    if !batch.is_null() {
        // SAFETY: by contract; dropped once, because it is replaced.
        drop(unsafe { batch.cast::<Content>().replace(Content::new(None)).assume_init() });
    }
}
