//! Registration of threads for restartable sequences, where the C library registers none: musl,
//! glibc before 2.35, and glibc with the tunable `glibc.pthread.rseq=0`.
//!
//! A thread is registered by its first per-CPU operation, and unregistered by the destructor of a
//! key of thread-specific data: the memory of the area is gone before the thread is where the C
//! library unmaps a thread's stack itself (musl). A signal handler that uses per-CPU operations may
//! interrupt both steps.
//!
//! The area is an ordinary thread-local variable. A library loaded by `dlopen` has those at another
//! distance from the thread pointer in each thread. So the distance is computed by each
//! operation, and costs what the access to a thread-local variable costs.
//!
//! A thread's first operation may allocate in two cases. Beyond 32 keys of thread-specific data,
//! glibc allocates the block of values. In a library loaded by `dlopen`, glibc allocates the
//! thread-local variables at a thread's first access. A signal handler that interrupts the C
//! library's heap must then not contain the thread's first operation.
//!
//! A forked child has the area at the same address, and the kernel keeps it registered.

use super::rseq::{SIGNATURE, thread_pointer};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

/// The area as the kernel defines it: the part that every kernel since Linux 4.18 accepts.
///
/// The kernel writes it whenever the thread returns from the kernel. Atomics make the compiler
/// read the memory each time; only this thread and the kernel on its behalf access it.
#[repr(C, align(32))]
struct Area {
    cpu_id_start: AtomicU32,
    /// The CPU, or one of the two values below.
    cpu_id: AtomicU32,
    sequence: AtomicU64,
    /// Flags, the NUMA node, the concurrency id and padding. Written by the kernel only.
    others: [AtomicU32; 4],
}

/// The kernel's value for a thread that is not registered.
const UNREGISTERED: u32 = u32::MAX;
/// The C libraries' value for a thread that the kernel refused to register.
const REFUSED: u32 = u32::MAX - 1;

struct Thread {
    area: Area,
    /// The destructor has run: the thread is not registered again.
    exiting: AtomicBool,
}

thread_local! {
    /// Has no destructor, so that it can be accessed as long as the thread runs.
    static THREAD: Thread = const {
        Thread {
            area: Area {
                cpu_id_start: AtomicU32::new(0),
                cpu_id: AtomicU32::new(UNREGISTERED),
                sequence: AtomicU64::new(0),
                others: [const { AtomicU32::new(0) }; 4],
            },
            exiting: AtomicBool::new(false),
        }
    };
}

/// The key whose destructor unregisters a thread; `None` if the process has no key left.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// Returns the offset of the calling thread's area from its thread pointer. Registers the thread
/// if it is not registered. `None` if the kernel refuses: a filter forbids the call, another library
/// has registered an area of its own, or the thread is at its end.
#[inline]
pub(super) fn offset() -> Option<isize> {
    THREAD.with(|thread| {
        let area = &thread.area;
        match area.cpu_id.load(Relaxed) {
            REFUSED => return None,
            UNREGISTERED => register_slow(thread)?,
            _ => {}
        }
        Some((&raw const *area as usize).wrapping_sub(thread_pointer()) as isize)
    })
}

#[cold]
#[inline(never)]
fn register_slow(thread: &Thread) -> Option<()> {
    let area = &thread.area;
    // The key before the area: a thread that dies in between has nothing to unregister.
    let registered = !thread.exiting.load(Relaxed) && on_exit() && rseq(area, 0) == 0;
    // A signal handler may have been quicker. The kernel refuses the second registration, and has
    // written the CPU number by the first.
    if !registered && area.cpu_id.load(Relaxed) == UNREGISTERED {
        area.cpu_id.store(REFUSED, Relaxed);
        return None;
    }
    Some(())
}

/// Makes the end of the thread unregister it. Returns `false` if the C library refuses.
fn on_exit() -> bool {
    let Some(key) = *KEY.get_or_init(key) else { return false };
    // The value is not used; only that it is not null.
    // SAFETY: the key was made by `key`, and is never deleted.
    unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) == 0 }
}

fn key() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: the destructor is a function of this program, which stays mapped (see `pin`).
    let made = unsafe { libc::pthread_key_create(&mut key, Some(unregister)) } == 0;
    made.then_some(key)
}

/// Keeps the library that this code is part of mapped until the process ends: the kernel may know
/// the last sequence of each thread, also of one that the C library registered. The end of a thread
/// calls `unregister`. The program itself always stays.
pub(super) fn pin() {
    // SAFETY: both calls read the address of a function of this library, and the name that the
    // first one found for it; the handle is never closed.
    unsafe {
        let mut library: libc::Dl_info = core::mem::zeroed();
        let here = unregister as unsafe extern "C" fn(*mut libc::c_void) as *const libc::c_void;
        if libc::dladdr(here, &mut library) != 0 && !library.dli_fname.is_null() {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(library.dli_fname, flags);
        }
    }
}

unsafe extern "C" fn unregister(_: *mut libc::c_void) {
    THREAD.with(|thread| {
        // From here on a signal handler does not register the thread again.
        thread.exiting.store(true, Relaxed);
        if thread.area.cpu_id.load(Relaxed) < REFUSED {
            /// `RSEQ_FLAG_UNREGISTER`.
            const UNREGISTER: libc::c_int = 1;
            rseq(&thread.area, UNREGISTER);
        }
        thread.area.cpu_id.store(REFUSED, Relaxed);
    });
}

fn rseq(area: &Area, flags: libc::c_int) -> libc::c_long {
    // SAFETY: the area has the size and alignment that the kernel demands, is the calling thread's,
    // and stays valid until the thread has unregistered it or is gone.
    unsafe { libc::syscall(libc::SYS_rseq, &raw const *area, size_of::<Area>(), flags, SIGNATURE) }
}
