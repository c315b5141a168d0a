//! What was found, and who is told.

use super::CallSite;
use crate::name::Name;
use crate::options::Options;
use crate::slabs::Slabs;
use core::fmt;
use core::ptr;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use std::io::Write;

/// Leaks of one cache that are written out where nobody handles them.
const LEAKS_SHOWN: usize = 10;
/// Bytes of memory that are shown.
const DUMPED: usize = 64;

/// A use of a cache that is wrong. As text, a report of several lines: what, which object, the memory around it, and who
/// allocated and freed it, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// What is wrong.
    pub kind: ViolationKind,
    /// The name of the cache that found it.
    pub cache: Name,
    /// The object's address, or the address that is none.
    pub object: usize,
    /// Bytes of an object of the cache.
    pub size: usize,
    /// The slab that the address is in, if it is in one, and the number of the object in it.
    pub slab: Option<(usize, usize)>,
    /// The memory that is not as it was.
    pub memory: Option<Dump>,
    /// Who allocated the object last ([`Debug::TRACK`](crate::Debug::TRACK)).
    pub allocated: Option<CallSite>,
    /// Who freed it since.
    pub freed: Option<CallSite>,
    /// Who found out: in most cases who did it, too.
    pub found: Option<CallSite>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// An object was freed that is free, or waits for a grace period to be. It is left as it is.
    DoubleFree,
    /// Something was freed that is no object in use. It is left as it is.
    InvalidPointer(Invalid),
    /// An object of another cache was freed. It is left as it is.
    WrongCache {
        /// The name of the object's cache.
        owner: Name,
    },
    /// Bytes beside an object were written. They are restored, and what was being done goes on.
    Overrun(Side),
    /// Bytes of an object were written while it was free. It is never handed out again.
    UseAfterFree,
    /// An object was still out when its cache was dropped. Its memory stays.
    Leak {
        /// Which of them this is, from 1.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// What the cache knows of a slab's free objects was overwritten. Nothing of this slab is handed out again.
    Records,
}

/// Why an address is no object in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// It is in no slab of a cache that lives. (Perhaps it was: an empty slab is given back.)
    NoSlab,
    /// It is in a slab, but in no object.
    NoObject,
    /// It is so many bytes after the start of an object, or of the room between it and the next.
    Inside {
        /// Bytes.
        offset: usize,
    },
    /// It is the start of an object that was never handed out.
    NeverAllocated,
}

/// Where beside an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Before it.
    Left,
    /// Behind it.
    Right,
}

/// Some memory around the first byte that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dump {
    /// Address of that byte.
    pub at: usize,
    /// What it should be.
    pub expected: u8,
    /// What it is.
    pub found: u8,
    start: usize,
    bytes: [u8; DUMPED],
}

impl Dump {
    /// # Safety
    /// `at` is in `block`, a block of at least a page that can be read.
    pub(super) unsafe fn of(block: core::ops::Range<usize>, at: usize, expected: u8) -> Self {
        let start = (at & !15).saturating_sub(16).clamp(block.start, block.end - DUMPED);
        // SAFETY: inside the block.
        let bytes = unsafe { (start as *const [u8; DUMPED]).read_unaligned() };
        Self { at, expected, found: bytes[at - start], start, bytes }
    }
}

type Handler = fn(&Violation);

static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Calls `handler`, from the thread that finds it, for each [`Violation`] in any cache, instead of writing it to standard
/// error and, unless it is a leak, aborting. No lock is held meanwhile: the handler may use caches. When it returns the
/// program goes on, and nothing that was found does harm: see [`ViolationKind`].
pub fn set_violation_handler(handler: Handler) {
    // Relaxed: the pointer is to code, which is there already.
    HANDLER.store(handler as *mut (), Ordering::Relaxed);
}

/// Tells whoever is to be told. Callers hold no lock.
#[cold]
pub(super) fn report(mut violation: Violation) {
    if violation.found.is_none() {
        violation.found = Some(CallSite::here());
    }
    // Relaxed: see `set_violation_handler`.
    let handler = HANDLER.load(Ordering::Relaxed);
    if handler.is_null() {
        by_default(&violation);
    } else {
        // SAFETY: only `set_violation_handler` writes the pointer, always from a Handler.
        unsafe { core::mem::transmute::<*mut (), Handler>(handler)(&violation) }
    }
}

fn by_default(violation: &Violation) {
    let mut to = std::io::stderr();
    // Nobody can be told that standard error is gone.
    let _ = match violation.kind {
        ViolationKind::Leak { number, of } if number == LEAKS_SHOWN + 1 => {
            let Violation { cache, .. } = violation;
            writeln!(to, "quietline: cache '{cache}': {} more objects are leaked", of - LEAKS_SHOWN)
        }
        ViolationKind::Leak { number, .. } if number > LEAKS_SHOWN => Ok(()),
        ViolationKind::Leak { .. } => writeln!(to, "quietline: {violation}"),
        _ => {
            let _ = writeln!(to, "quietline: {violation}");
            std::process::abort()
        }
    };
}

impl Violation {
    pub(super) fn new(kind: ViolationKind, cache: &Slabs, object: usize) -> Self {
        let Options { name, size, .. } = cache.options;
        let (slab, memory) = (None, None);
        Self {
            kind,
            cache: name,
            object,
            size,
            slab,
            memory,
            allocated: None,
            freed: None,
            found: None,
        }
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleFree => f.write_str("double free"),
            Self::InvalidPointer(why) => write!(f, "invalid pointer freed: {why}"),
            Self::WrongCache { owner } => {
                write!(f, "wrong cache: an object of cache '{owner}' freed")
            }
            Self::Overrun(Side::Right) => f.write_str("overrun: written behind the object"),
            Self::Overrun(Side::Left) => f.write_str("overrun: written before the object"),
            Self::UseAfterFree => f.write_str("use after free: written while the object was free"),
            Self::Leak { number, of } => {
                write!(f, "leak: object {number} of {of} not freed before its cache")
            }
            Self::Records => f.write_str("the records of a slab's free objects are overwritten"),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlab => f.write_str("not in a slab"),
            Self::NoObject => f.write_str("in a slab, but not in an object"),
            Self::Inside { offset } => write!(f, "{offset} bytes after the start of an object"),
            Self::NeverAllocated => f.write_str("an object that was never allocated"),
        }
    }
}

impl fmt::Display for Dump {
    /// Lines of 16 bytes, the one in question in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, expected, found, start, bytes } = self;
        write!(f, "at {at:#x}: {found:02x} where {expected:02x} was")?;
        for (row, line) in bytes.chunks(16).enumerate() {
            let address = start + 16 * row;
            write!(f, "\n      {address:#x}:")?;
            for (i, byte) in line.iter().enumerate() {
                let (before, after) = if address + i == *at { ('[', ']') } else { (' ', ' ') };
                write!(f, "{before}{byte:02x}{after}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, cache, object, size, .. } = self;
        write!(f, "slab cache '{cache}': {kind}\n  object {object:#x} of {size} bytes")?;
        if let Some((slab, index)) = self.slab {
            write!(f, ", number {index} of slab {slab:#x}")?;
        }
        if let Some(memory) = &self.memory {
            write!(f, "\n  memory {memory}")?;
        }
        for (what, site) in [
            ("allocated by", &self.allocated),
            ("freed by", &self.freed),
            ("found by", &self.found),
        ] {
            if let Some(site) = site {
                write!(f, "\n  {what} {site}")?;
            }
        }
        Ok(())
    }
}
