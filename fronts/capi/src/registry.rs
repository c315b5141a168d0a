//! All caches of the process.

use crate::stats::ql_stats;
use crate::status::{ql_status, status};
use crate::text::Text;
use core::ffi::{c_char, c_void};

/// Whether caches with neither QL_CACHE_MERGE nor QL_CACHE_NO_MERGE that are made from now on may share their slabs with others of
/// equal layout. Off at first.
#[unsafe(no_mangle)]
pub extern "C" fn ql_set_merging(on: bool) {
    quietline_slab::set_merging(on);
}

/// Shown a cache; the numbers are valid during the call.
pub type ql_cache_visitor =
    Option<unsafe extern "C" fn(stats: *const ql_stats, context: *mut c_void)>;

/// Calls `visit` with the numbers of every cache of the process, oldest first. The visitor may use any cache, and may end one, but
/// must return.
///
/// QL_INVALID when `visit` is NULL.
///
/// # Safety
/// `visit` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_each_cache(visit: ql_cache_visitor, context: *mut c_void) -> ql_status {
    status(|| {
        let visit = visit.ok_or(ql_status::QL_INVALID)?;
        quietline_slab::each_cache(|stats| {
            let stats = ql_stats::from(stats);
            // SAFETY: by contract.
            unsafe { visit(&stats, context) };
        });
        Ok(())
    })
}

/// Writes all caches of the process as /proc/slabinfo has them, oldest first, to a buffer: what fits, always ended by a zero. Stores
/// the bytes that the whole text needs, with its zero, in *needed, unless that is NULL; they can change from call to call.
///
/// QL_INVALID when `buffer` is NULL while size is not 0.
///
/// # Safety
/// `buffer` points to `size` bytes; `needed` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_slabinfo(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ql_status {
    status(|| {
        if buffer.is_null() && size != 0 {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        let mut text = unsafe { Text::new(buffer, size) };
        quietline_slab::slabinfo(&mut text).expect("a text takes everything");
        if !needed.is_null() {
            // SAFETY: as above.
            unsafe { needed.write(text.len() + 1) };
        }
        Ok(())
    })
}
