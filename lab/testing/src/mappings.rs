//! A process that may have few further mappings.

use std::ops::Range;

/// Many small mappings, which are unmapped when this is dropped.
#[derive(Debug)]
pub struct ManyMappings(Range<usize>);

impl Drop for ManyMappings {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.0.start as *mut libc::c_void, self.0.len()) };
    }
}

/// Maps until the process may have no more than `left` further mappings.
///
/// # Panics
/// When the system knows no bound.
pub fn use_up_mappings(left: usize) -> ManyMappings {
    let max = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let size = max.trim().parse::<usize>().unwrap() * 2 * 4096;
    // SAFETY: a fresh mapping of the test's own, in which protections alternate.
    unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        assert_ne!(base, libc::MAP_FAILED);
        let mut at = 4096;
        while at < size && libc::mprotect(base.byte_add(at), 4096, libc::PROT_READ) == 0 {
            at += 8192;
        }
        assert!(at < size, "the system has a bound");
        // Each page that is like its neighbours again gives two mappings back.
        for n in 1..=left.div_ceil(2) {
            libc::mprotect(base.byte_add(at - 8192 * n), 4096, libc::PROT_NONE);
        }
        ManyMappings(base as usize..base as usize + size)
    }
}
