//! The initial content of words that no CPU has written.
//!
//! Zeros come with the memory. Other values come from a template: a file in memory that every unit
//! of the chunk maps privately. A read finds the template's page, and the first write makes a copy
//! for its CPU. Where the system has no such files, the allocating thread writes every copy.
//!
//! A page of the template is written before words in it are given out, and never changed after
//! that. So a forked child may share it with its parent: both write the same.

use super::chunk::{SHIFT, UNIT, stride};
use super::mode;
use crate::{AllocError, pages};
use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Simulated machines have few CPUs, and Miri has no files in memory.
const TEMPLATES: bool = !cfg!(any(quietline_sim, miri));

pub(super) struct Initial {
    words: Vec<u64>,
    template: Option<Template>,
}

pub(super) fn is_zero(words: &[u64]) -> bool {
    words.iter().all(|word| *word == 0)
}

impl Initial {
    /// Gives a chunk the initial content of its words: zeros, or these words again and again.
    ///
    /// # Safety
    /// `base` is a chunk's fresh mapping.
    pub(super) unsafe fn map(base: NonNull<u8>, initial: &[u64]) -> Result<Self, AllocError> {
        let mut words = Vec::new();
        if is_zero(initial) {
            return Ok(Self { words, template: None });
        }
        words.try_reserve_exact(initial.len()).map_err(|_| AllocError)?;
        words.extend_from_slice(initial);
        let template = if TEMPLATES { memory_file() } else { None };
        let template = match template {
            // SAFETY: passed on.
            Some(file) => unsafe { Template::map(base, &file) }?,
            None => None,
        };
        Ok(Self { words, template })
    }

    /// Returns whether the chunk is one for words with this initial content.
    pub(super) fn is_of(&self, initial: &[u64]) -> bool {
        if self.words.is_empty() { is_zero(initial) } else { self.words == initial }
    }

    /// Returns whether the chunks of both are for the same words.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.words == other.words
    }

    /// Fills the template up to an offset. Returns `false` if the words up to there have to be
    /// written in every copy.
    pub(super) fn fill(&mut self, end: usize) -> bool {
        let Self { words, template } = self;
        match template {
            Some(template) => template.fill(end, words),
            None => words.is_empty(),
        }
    }
}

/// A file that the units of a chunk map, and a mapping to write it. The file itself is closed: the
/// mappings keep it.
struct Template {
    words: NonNull<u64>,
    /// Bytes that are written.
    filled: usize,
}

impl Template {
    /// Maps a file as every unit of a chunk. `None` if the file cannot be mapped; the chunk is then
    /// as it was.
    ///
    /// # Safety
    /// `base` is a chunk's fresh mapping.
    unsafe fn map(base: NonNull<u8>, file: &OwnedFd) -> Result<Option<Self>, AllocError> {
        let Ok(shared) = pages::map_file(file.as_fd(), UNIT) else { return Ok(None) };
        for cpu in 0..mode::slots() {
            // SAFETY: the unit is part of the chunk, and nothing is in it.
            let unit = unsafe { pages::remap(base.add(cpu << SHIFT), UNIT, Some(file.as_fd())) };
            if unit.is_err() {
                // SAFETY: the whole chunk; and the mapping made above.
                unsafe {
                    pages::unmap(shared, UNIT);
                    pages::remap(base, UNIT * mode::slots(), None)?;
                }
                return Ok(None);
            }
        }
        Ok(Some(Self { words: shared.cast(), filled: 0 }))
    }

    fn fill(&mut self, end: usize, words: &[u64]) -> bool {
        let end = end.next_multiple_of(pages::page_size()).min(UNIT);
        for offset in (self.filled..end).step_by(8) {
            let word = words.get(offset % stride(words.len()) / 8).copied().unwrap_or(0);
            // SAFETY: below the size of the mapping. No word in this page has been given out.
            unsafe { self.words.byte_add(offset).write(word) };
        }
        self.filled = self.filled.max(end);
        true
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and used by nothing else.
        unsafe { pages::unmap(self.words.cast(), UNIT) };
    }
}

/// Returns an empty file of one unit in memory, if the system has such files.
fn memory_file() -> Option<OwnedFd> {
    const NAME: &core::ffi::CStr = c"quietline";
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
    // Some systems demand that such files are not executable; older ones do not know the flag.
    let make = |flags| {
        // SAFETY: reads the name.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | flags) };
        // SAFETY: a descriptor that was made here.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let file = make(libc::MFD_NOEXEC_SEAL).or_else(|| make(0))?;
    // SAFETY: the descriptor is open.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), UNIT as libc::off_t) } == 0;
    sized.then_some(file)
}
