//! Checks of a cache's use, and who is told what they find.

use crate::cache::ql_cache;
use crate::callback::Callback;
use crate::names::QL_NAME_MAX;
use crate::status::{ql_status, status};
use crate::text::Text;
use core::ffi::{CStr, c_char, c_void};
use core::fmt::Write;
use core::ptr;
use quietline_slab::{CallSite, Debug, Violation, ViolationKind, set_violation_handler};

/// That an object is freed once, is one, and is of this cache (F). Every other check includes this one.
pub const QL_DEBUG_CONSISTENCY: u32 = 1;

/// That the bytes before and behind an object are as they were (Z).
pub const QL_DEBUG_RED_ZONE: u32 = 2;

/// That a free object's bytes are as they were (P); not in caches with a constructor, a destructor or typesafe memory.
pub const QL_DEBUG_POISON: u32 = 4;

/// Who allocated and who freed each object (U).
pub const QL_DEBUG_TRACK: u32 = 8;

/// All of them.
pub const QL_DEBUG_ALL: u32 = 15;

/// Return addresses that a call site has at most.
pub const QL_CALL_SITE_DEPTH: usize = 10;

const _: () = assert!(
    Debug::CONSISTENCY.bits() as u32 == QL_DEBUG_CONSISTENCY
        && Debug::RED_ZONE.bits() as u32 == QL_DEBUG_RED_ZONE
        && Debug::POISON.bits() as u32 == QL_DEBUG_POISON
        && Debug::TRACK.bits() as u32 == QL_DEBUG_TRACK
        && Debug::ALL.bits() as u32 == QL_DEBUG_ALL
);

/// What C flags ask for.
///
/// # Errors
/// [`ql_status::QL_INVALID`].
pub(crate) fn flags(flags: u32) -> Result<Debug, ql_status> {
    let known = u8::try_from(flags).ok().and_then(Debug::from_bits);
    known.ok_or(ql_status::QL_INVALID)
}

/// What is wrong.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ql_violation_kind {
    /// Something that a later library knows.
    QL_VIOLATION_OTHER = 0,
    /// An object was freed that is free, or waits for a grace period to be. It is left as it is.
    QL_DOUBLE_FREE = 1,
    /// Something was freed that is no object in use. It is left as it is.
    QL_INVALID_POINTER = 2,
    /// An object of another cache was freed. It is left as it is.
    QL_WRONG_CACHE = 3,
    /// Bytes beside an object were written. They are restored, and what was being done goes on.
    QL_OVERRUN = 4,
    /// Bytes of an object were written while it was free. It is never handed out again.
    QL_USE_AFTER_FREE = 5,
    /// An object was still out when its cache was destroyed. Its memory stays.
    QL_LEAK = 6,
    /// What the cache knows of a slab's free objects was overwritten. Nothing of this slab is handed out again.
    QL_RECORDS = 7,
}

/// Where in the program, by whom and when something was done.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_call_site {
    /// The thread, as the system numbers it.
    pub thread: u32,
    /// The CPU that it was on.
    pub cpu: u32,
    /// When, in nanoseconds of the monotonic clock.
    pub nanoseconds: u64,
    /// How many addresses there are.
    pub depth: usize,
    /// Return addresses, the innermost first.
    pub addresses: [*const c_void; QL_CALL_SITE_DEPTH],
}

/// A use of a cache that is wrong. The library fills it; later libraries append.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_violation {
    /// Bytes of this structure in the library.
    pub struct_size: usize,
    /// What is wrong.
    pub kind: ql_violation_kind,
    /// The name of the cache that found it.
    pub cache: [c_char; QL_NAME_MAX],
    /// The object, or the address that is none.
    pub object: *mut c_void,
    /// Bytes of an object of the cache.
    pub size: usize,
    /// The slab that the address is in; NULL for none.
    pub slab: *mut c_void,
    /// The number of the object in the slab.
    pub index: usize,
    /// Who allocated the object last; NULL if nobody knows. So below.
    pub allocated: *const ql_call_site,
    /// Who freed it last.
    pub freed: *const ql_call_site,
    /// Who found out.
    pub found: *const ql_call_site,
    /// A report of several lines, with the names of functions; ends in a zero, and is cut after 4,095 bytes.
    pub text: *const c_char,
}

/// Told of a violation, in the thread that found it. What it gets is valid during the call. No lock is held: it may use caches.
/// When it returns, the program goes on; it may end the process.
pub type ql_violation_handler =
    Option<unsafe extern "C" fn(violation: *const ql_violation, context: *mut c_void)>;

static HANDLER: Callback<
    unsafe extern "C" fn(violation: *const ql_violation, context: *mut c_void),
> = Callback::new();

/// Says what is checked in a cache from now on: QL_DEBUG_ flags, 0 for nothing. While anything is checked, all operations take a
/// lock and some microseconds, and slabs that are made are larger; objects of older slabs are checked for what can be. Once
/// nothing is checked, nothing of it costs. Other threads may go on meanwhile.
///
/// QL_INVALID when `cache` is NULL or a flag is unknown; QL_REFUSED when the kernel refuses
/// membarrier to the calling thread.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_set_debug(cache: *mut ql_cache, flags: u32) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let cache = unsafe { cache.as_ref() }.ok_or(ql_status::QL_INVALID)?;
        cache.raw().set_debug(self::flags(flags)?)?;
        Ok(())
    })
}

/// What is checked: the flags that were set, with what they include and without what cannot be. NULL: 0.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_get_debug(cache: *const ql_cache) -> u32 {
    // SAFETY: by contract.
    unsafe { cache.as_ref() }.map_or(0, |cache| u32::from(cache.raw().debug().bits()))
}

/// The flags of a text of the letters F, Z, P and U, or "-" for none, as the kernel's slab_debug has them, in *flags.
///
/// QL_INVALID when an argument is NULL, or the text is empty or has another letter; *flags is left alone then.
///
/// # Safety
/// `text` is NULL or a string; `flags` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_debug_parse(text: *const c_char, flags: *mut u32) -> ql_status {
    status(|| {
        if text.is_null() || flags.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| ql_status::QL_INVALID)?;
        let parsed = Debug::parse(text).map_err(|_| ql_status::QL_INVALID)?;
        // SAFETY: as above.
        unsafe { flags.write(u32::from(parsed.bits())) };
        Ok(())
    })
}

/// Looks at all objects of a cache that are checked, free ones and others. How many violations were found, and reported; 0 with
/// checks off. NULL: 0.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_validate(cache: *mut ql_cache) -> usize {
    // SAFETY: by contract.
    unsafe { cache.as_ref() }.map_or(0, |cache| cache.raw().validate())
}

/// Calls `handler` for each violation in any cache, instead of writing it to standard error and, unless it is a leak, aborting.
/// Each change keeps a few words for ever.
///
/// QL_INVALID when `handler` is NULL; QL_NO_MEMORY: nothing was changed.
///
/// # Safety
/// `handler` may be called on any thread, with `context`, also for some time after it was replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_set_violation_handler(
    handler: ql_violation_handler,
    context: *mut c_void,
) -> ql_status {
    status(|| {
        HANDLER.set(handler.ok_or(ql_status::QL_INVALID)?, context)?;
        set_violation_handler(forward);
        Ok(())
    })
}

/// Tells the handler.
fn forward(violation: &Violation) {
    let Some(handler) = HANDLER.get() else { return };
    let mut cache = [0; QL_NAME_MAX];
    let mut text = [0; 4096];
    // SAFETY: the arrays outlive the texts.
    let written = unsafe {
        write!(Text::new(cache.as_mut_ptr(), cache.len()), "{}", violation.cache)
            .and(write!(Text::new(text.as_mut_ptr(), text.len()), "{violation}"))
    };
    written.expect("a text takes everything");
    let [allocated, freed, found] =
        [violation.allocated, violation.freed, violation.found].map(|site| site.map(call_site));
    let pointer = |site: &Option<ql_call_site>| site.as_ref().map_or(ptr::null(), ptr::from_ref);
    let report = ql_violation {
        struct_size: size_of::<ql_violation>(),
        kind: kind(&violation.kind),
        cache,
        object: violation.object as *mut c_void,
        size: violation.size,
        slab: violation.slab.map_or(0, |slab| slab.0) as *mut c_void,
        index: violation.slab.map_or(0, |slab| slab.1),
        allocated: pointer(&allocated),
        freed: pointer(&freed),
        found: pointer(&found),
        text: text.as_ptr(),
    };
    // SAFETY: the caller of ql_set_violation_handler said that it may be called.
    unsafe { (handler.function)(&report, handler.context) };
}

fn kind(kind: &ViolationKind) -> ql_violation_kind {
    match kind {
        ViolationKind::DoubleFree => ql_violation_kind::QL_DOUBLE_FREE,
        ViolationKind::InvalidPointer(_) => ql_violation_kind::QL_INVALID_POINTER,
        ViolationKind::WrongCache { .. } => ql_violation_kind::QL_WRONG_CACHE,
        ViolationKind::Overrun(_) => ql_violation_kind::QL_OVERRUN,
        ViolationKind::UseAfterFree => ql_violation_kind::QL_USE_AFTER_FREE,
        ViolationKind::Leak { .. } => ql_violation_kind::QL_LEAK,
        ViolationKind::Records => ql_violation_kind::QL_RECORDS,
        _ => ql_violation_kind::QL_VIOLATION_OTHER,
    }
}

fn call_site(site: CallSite) -> ql_call_site {
    let mut addresses = [ptr::null(); QL_CALL_SITE_DEPTH];
    let mut depth = 0;
    for (to, from) in addresses.iter_mut().zip(site.addresses()) {
        *to = from as *const c_void;
        depth += 1;
    }
    let nanoseconds = u64::try_from(site.time().as_nanos()).unwrap_or(u64::MAX);
    ql_call_site { thread: site.thread(), cpu: site.cpu(), nanoseconds, depth, addresses }
}
