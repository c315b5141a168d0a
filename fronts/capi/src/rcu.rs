//! Read sections, and waiting for them.

use crate::callback::Callback;
use crate::status::{ql_status, status};
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::time::Duration;
use quietline_sync::rcu::{self, Domain, GpSeq, Guard, Head};

/// Readers that are waited for together. Most programs need one: ql_rcu_global(). It lives as long as the process.
pub struct ql_rcu {
    _domain: Domain,
}

/// The guard of a read section. ql_rcu_read_lock() writes it, ql_rcu_read_unlock() closes it, on
/// any thread. It stays where it is in between: a copy is not a guard. Needs no value before
/// ql_rcu_read_lock().
#[repr(C)]
#[derive(Debug)]
pub struct ql_rcu_guard {
    /// The library's.
    pub words: [usize; 2],
}

/// What a callback needs: a field of the structure that it is for. Needs no value before ql_rcu_call().
#[repr(C)]
#[derive(Debug)]
pub struct ql_rcu_head {
    /// The library's.
    pub words: [usize; 3],
}

/// A callback: gets the head that it was queued with. Must return. If it waits for callbacks
/// (ql_rcu_barrier(), ql_cache_flush_rcu()), the process ends with a message.
pub type ql_rcu_callback = Option<unsafe extern "C" fn(head: *mut ql_rcu_head)>;

/// How [`ql_rcu_head`] is used.
#[repr(C)]
struct Queued {
    head: Head,
    run: unsafe extern "C" fn(head: *mut ql_rcu_head),
}

const _: () = assert!(size_of::<Queued>() == size_of::<ql_rcu_head>());
const _: () = assert!(align_of::<Queued>() <= align_of::<ql_rcu_head>());
const _: () = assert!(offset_of!(Queued, head) == 0);

/// The domain behind a C pointer.
///
/// # Safety
/// It is null or a domain, all of which live for ever.
pub(crate) unsafe fn domain(domain: *mut ql_rcu) -> Option<&'static Domain> {
    // SAFETY: by contract.
    unsafe { domain.cast::<Domain>().as_ref() }
}

/// Stores the domain of everything that brings none of its own in *domain.
///
/// QL_INVALID when `domain` is NULL; QL_NO_MEMORY, on the first call, when its counters cannot be allocated; *domain is NULL then.
///
/// # Safety
/// `domain` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_global(domain: *mut *mut ql_rcu) -> ql_status {
    // SAFETY: by contract.
    unsafe { give(domain, rcu::global) }
}

/// Makes a domain and stores it in *domain. It lives as long as the process, so make few.
///
/// QL_INVALID when `domain` is NULL; QL_NO_MEMORY; *domain is NULL then.
///
/// # Safety
/// `domain` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_create(domain: *mut *mut ql_rcu) -> ql_status {
    // SAFETY: by contract.
    unsafe { give(domain, Domain::leaked) }
}

unsafe fn give(
    to: *mut *mut ql_rcu,
    make: impl FnOnce() -> Result<&'static Domain, quietline_platform::AllocError>,
) -> ql_status {
    status(|| {
        if to.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract of the callers; so below.
        unsafe { to.write(ptr::null_mut()) };
        let domain = make()?;
        // SAFETY: as above.
        unsafe { to.write(ptr::from_ref(domain).cast_mut().cast()) };
        Ok(())
    })
}

/// Bits of a guard's second word that hold the number of the section. The guard's own address is
/// above them.
const NUMBER_BITS: u32 = 6;
const _: () = assert!(Guard::RAW_LIMIT <= 1 << NUMBER_BITS);

/// The words of a closed guard.
const CLOSED: [usize; 2] = [0, 1];

/// Opens a read section and writes its guard to *guard: about a nanosecond, no locked instruction,
/// no shared line. Any thread may, without registration, also in a signal handler; sections nest,
/// each with a guard of its own. What a section finds of a domain's objects stays until
/// ql_rcu_read_unlock().
///
/// A `domain` that is NULL opens nothing and protects nothing. A `guard` that is NULL ends the
/// process with a message, unless the domain is NULL too: the reader would be unprotected.
///
/// # Safety
/// `domain` is NULL or a domain; `guard` is NULL or may be written, and is not the guard of an
/// open section, which would then stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_read_lock(domain: *mut ql_rcu, guard: *mut ql_rcu_guard) {
    if guard.is_null() {
        return no_guard(domain);
    }
    // SAFETY: by contract.
    let words = match unsafe { self::domain(domain) } {
        Some(domain) => {
            let (domain, number) = domain.read().into_raw();
            [ptr::from_ref(domain).expose_provenance(), seal(guard, number)]
        }
        None => [0; 2],
    };
    // SAFETY: by contract.
    unsafe { (*guard).words = words };
}

/// The second word of a guard at this address. The highest bits of an address are the same in all
/// of a process.
#[inline(always)]
fn seal(guard: *const ql_rcu_guard, number: usize) -> usize {
    guard.addr() << NUMBER_BITS | number
}

/// Closes a read section. Does nothing if `guard` is NULL or has no domain.
///
/// A guard that is closed twice, a copy of one, and memory that was never a guard end the process
/// with a message, because each would let objects be freed while a section is open that looks at
/// them. (Memory that was a guard at the same address, and a guard that two threads close at once,
/// are not found out.)
///
/// # Safety
/// `guard` is NULL or was written by ql_rcu_read_lock() in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_read_unlock(guard: *mut ql_rcu_guard) {
    if guard.is_null() {
        return;
    }
    // SAFETY: by contract.
    let [domain, sealed] = unsafe { (*guard).words };
    let number = sealed ^ seal(guard, 0);
    if domain == 0 || number >= Guard::RAW_LIMIT {
        return no_section(domain, sealed);
    }
    // SAFETY: by contract.
    unsafe { (*guard).words = CLOSED };
    // SAFETY: the words are those that `ql_rcu_read_lock` wrote to this address, and are taken
    // once.
    unsafe {
        let domain = &*ptr::with_exposed_provenance::<Domain>(domain);
        drop(Guard::from_raw(domain, number));
    }
}

#[cold]
#[inline(never)]
fn no_guard(domain: *const ql_rcu) {
    if !domain.is_null() {
        misuse("ql_rcu_read_lock", "the guard is NULL");
    }
}

#[cold]
#[inline(never)]
fn no_section(domain: usize, sealed: usize) {
    match [domain, sealed] {
        // Of no domain.
        [0, 0] => {}
        CLOSED => misuse("ql_rcu_read_unlock", "the section is closed already"),
        _ => misuse("ql_rcu_read_unlock", "the guard is a copy, or no guard"),
    }
}

/// Ends the process. Takes no lock: the caller may be a signal handler.
fn misuse(call: &str, what: &str) -> ! {
    for part in ["quietline: ", call, ": ", what, "\n"] {
        // An error has no taker: the process ends.
        let _ = rustix::io::write(rustix::stdio::stderr(), part.as_bytes());
    }
    std::process::abort()
}

/// Waits for a grace period: every section of the domain that is open now has ended when it returns. Microseconds, when readers
/// are short; callbacks that are due run here too. Inside a read section of the domain it never returns. NULL does nothing.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_synchronize(domain: *mut ql_rcu) {
    // SAFETY: by contract.
    if let Some(domain) = unsafe { self::domain(domain) } {
        domain.synchronize();
    }
}

/// Calls `run` with `head` after every read section of the domain that is open now has ended
/// (call_rcu). This only queues, and takes a few nanoseconds. Callbacks run in ql_rcu_poll(),
/// ql_rcu_synchronize() and ql_rcu_barrier(), on the calling thread: a program calls the first of
/// them now and then.
///
/// QL_INVALID when an argument is NULL.
///
/// # Safety
/// `head` is the library's until `run` is called with it. `run` does what may be done on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_call(
    domain: *mut ql_rcu,
    head: *mut ql_rcu_head,
    run: ql_rcu_callback,
) -> ql_status {
    unsafe fn call(head: NonNull<Head>) {
        // SAFETY: the head is the first field of what was queued below; `run` may free it.
        unsafe { ((*head.cast::<Queued>().as_ptr()).run)(head.as_ptr().cast()) };
    }
    // SAFETY: by contract.
    let domain = unsafe { self::domain(domain) };
    let (Some(domain), Some(head), Some(run)) = (domain, NonNull::new(head.cast::<Queued>()), run)
    else {
        return ql_status::QL_INVALID;
    };
    // SAFETY: by contract the head is the caller's to give.
    unsafe {
        head.write(Queued { head: Head::new(), run });
        domain.call(head.cast(), call);
    }
    ql_status::QL_OK
}

/// Waits until every callback queued before has run (rcu_barrier), and every object given to ql_cache_free_rcu() whose sheaf was
/// full is free. Not from a callback, nor inside a read section of the domain. NULL does nothing.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_barrier(domain: *mut ql_rcu) {
    // SAFETY: by contract.
    if let Some(domain) = unsafe { self::domain(domain) } {
        domain.barrier();
    }
}

/// Moves a grace period on if a callback or a request wants one, and runs callbacks that are due;
/// never waits. Whether callbacks are still queued or running. For event loops. NULL: false.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_poll(domain: *mut ql_rcu) -> bool {
    // SAFETY: by contract.
    unsafe { self::domain(domain) }.is_some_and(Domain::poll)
}

/// Requests a grace period, and returns its sequence number, never 0
/// (start_poll_synchronize_rcu). NULL: 0.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_start_poll_synchronize(domain: *mut ql_rcu) -> u64 {
    // SAFETY: by contract.
    unsafe { self::domain(domain) }.map_or(0, |domain| domain.start_poll_synchronize().into_raw())
}

/// Returns whether the grace period with a number is over (poll_state_synchronize_rcu). NULL: true.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_poll_state_synchronize(domain: *mut ql_rcu, seq: u64) -> bool {
    // SAFETY: by contract.
    unsafe { self::domain(domain) }
        .is_none_or(|domain| domain.poll_state_synchronize(GpSeq::from_raw(seq)))
}

/// Callbacks queued and not yet run; exact when nobody queues or runs any meanwhile. NULL: 0.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_backlog(domain: *mut ql_rcu) -> u64 {
    // SAFETY: by contract.
    unsafe { self::domain(domain) }.map_or(0, Domain::backlog)
}

/// Read sections that are open now; exact when nobody enters or leaves meanwhile. NULL: 0.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_open_sections(domain: *mut ql_rcu) -> u64 {
    // SAFETY: by contract.
    unsafe { self::domain(domain) }.map_or(0, Domain::open_sections)
}

/// How long a grace period may last before it is reported, and between reports, in nanoseconds, at least a million; ten seconds at
/// first. NULL does nothing.
///
/// # Safety
/// `domain` is NULL or a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_set_stall_patience(domain: *mut ql_rcu, nanoseconds: u64) {
    // SAFETY: by contract.
    if let Some(domain) = unsafe { self::domain(domain) } {
        domain.set_stall_patience(Duration::from_nanos(nanoseconds));
    }
}

/// Told how long a grace period has lasted, in nanoseconds, and how many read sections are open.
pub type ql_rcu_stall_handler =
    Option<unsafe extern "C" fn(waited_nanoseconds: u64, open_sections: u64, context: *mut c_void)>;

static STALL: Callback<
    unsafe extern "C" fn(waited_nanoseconds: u64, open_sections: u64, context: *mut c_void),
> = Callback::new();

/// Calls `handler`, from a thread that waits, when a grace period of any domain does not end, instead of writing a line to
/// standard error. Each change keeps a few words for ever.
///
/// QL_INVALID when `handler` is NULL; QL_NO_MEMORY: nothing was changed.
///
/// # Safety
/// `handler` may be called on any thread, with `context`, also for some time after it was replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_rcu_set_stall_handler(
    handler: ql_rcu_stall_handler,
    context: *mut c_void,
) -> ql_status {
    fn forward(stall: &rcu::Stall) {
        let Some(pair) = STALL.get() else { return };
        let waited = u64::try_from(stall.waited.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the caller of ql_rcu_set_stall_handler said that it may be called.
        unsafe { (pair.function)(waited, stall.open_sections, pair.context) };
    }
    status(|| {
        STALL.set(handler.ok_or(ql_status::QL_INVALID)?, context)?;
        rcu::set_stall_handler(forward);
        Ok(())
    })
}
