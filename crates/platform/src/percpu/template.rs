//! Templates: files in memory with the initial content of words, for content other than zeros.
//!
//! Every unit of a chunk maps the file privately. A read finds the file's page, and the first write
//! makes a copy for its CPU.
//!
//! The file is complete before it is mapped, and sealed. No process can change it, and a unit that
//! the system copies at once, because the program locks its memory, has its content.

use super::body;
use super::chunk::{SHIFT, UNIT, stride};
use crate::{AllocError, fault, pages};
use core::ptr::NonNull;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Simulated machines have few CPUs, and Miri has no files in memory.
const TEMPLATES: bool = !cfg!(any(quietline_sim, miri));

/// The largest number of mappings that units of templates may be: one for each unit. By default
/// Linux gives a process 65,530 mappings (`vm.max_map_count`). The rest of the program needs some.
pub(super) const MAPPINGS: usize = 8192;

pub(super) fn is_zero(words: &[u64]) -> bool {
    words.iter().all(|word| *word == 0)
}

/// Maps a chunk whose units have these words as their content, again and again.
///
/// # Errors
/// [`AllocError`] when the system has no such files, or refuses one of its calls.
pub(super) fn map(words: &[u64]) -> Result<NonNull<u8>, AllocError> {
    let file = sealed_file(words).ok_or(AllocError)?;
    let units = body::copies();
    let base = pages::map_aligned(UNIT * units, UNIT)?;
    // SAFETY: a pointer to a unit of the mapping, or to its end.
    let unit = |cpu: usize| unsafe { base.add(cpu << SHIFT) };
    for cpu in 0..units {
        // SAFETY: the unit is part of the mapping, and nothing is in it.
        if unsafe { pages::map_file_over(unit(cpu), UNIT, file.as_fd()) }.is_err() {
            // Nothing may be mapped at this unit any more, or what another thread has mapped
            // meanwhile. So its addresses are given up.
            // SAFETY: these are the other units, and nothing uses them.
            unsafe {
                pages::unmap(base, cpu << SHIFT);
                pages::unmap(unit(cpu + 1), (units - cpu - 1) << SHIFT);
            }
            return Err(AllocError);
        }
    }
    Ok(base)
}

/// Returns a file of one unit in memory that cannot be changed.
fn sealed_file(words: &[u64]) -> Option<File> {
    const NAME: &core::ffi::CStr = c"quietline";
    const SEALS: libc::c_int =
        libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    if !TEMPLATES {
        return None;
    }
    // SAFETY: the structure is the caller's, and plain numbers.
    let limit = unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit);
        limit.rlim_cur
    };
    // Above its limit of file sizes a process is ended by a signal.
    if limit < UNIT as libc::rlim_t {
        return None;
    }
    fault::check().ok()?;
    // Some systems demand that such files are not executable. Older systems do not know the flag.
    let make = |flags| {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
        // SAFETY: reads the name.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), flags) };
        // SAFETY: a descriptor that was made here.
        (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
    };
    let file = make(libc::MFD_NOEXEC_SEAL).or_else(|| make(0))?;
    const PIECE: usize = 4096;
    for piece in (0..UNIT).step_by(PIECE) {
        let mut content = [0; PIECE];
        for (offset, bytes) in (piece..).step_by(8).zip(content.chunks_exact_mut(8)) {
            let word = words.get(offset % stride(words.len()) / 8).copied().unwrap_or(0);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        file.write_all_at(&content, piece as u64).ok()?;
    }
    // SAFETY: the descriptor is open.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } == 0;
    sealed.then_some(file)
}
