//! DPDK's mempool with a cache for each thread, on huge pages if the host has some to spare. A C file calls it,
//! because it is all inline functions.

/// Megabytes that the environment reserves (`-m512` in the C file).
const MEGABYTES: usize = 512;

/// Returns whether the host has as many free huge pages as the environment reserves.
pub(crate) fn has_huge_pages() -> bool {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    number("HugePages_Free:") * number("Hugepagesize:") >= MEGABYTES * 1024
}

#[cfg(not(quietline_dpdk))]
pub(crate) use absent::Dpdk;
#[cfg(quietline_dpdk)]
pub(crate) use present::Dpdk;

/// What is built where pkg-config knows no libdpdk.
#[cfg(not(quietline_dpdk))]
mod absent {
    use crate::harness::{Fault, Seat, Unfit};
    use crate::raw::slab::Source;
    use crate::raw::slab::heaps::glibc::Glibc;
    use crate::raw::slab::heaps::malloc::Allocator;

    pub(crate) struct Dpdk;

    impl Source for Dpdk {
        /// There is never one.
        type Heap<'a> = Allocator<Glibc>;

        fn new(_size: usize, _threads: usize) -> Result<Self, Unfit> {
            let why = "pkg-config knew no libdpdk when this was built; install libdpdk-dev, or \
                       build without the feature peer-dpdk";
            Err(Fault::new(why).into())
        }

        fn heap(&self, _seat: Seat) -> Result<Self::Heap<'_>, Fault> {
            Err(Fault::new("there is no DPDK"))
        }

        fn active(&self) -> Option<usize> {
            None
        }
    }
}

#[cfg(quietline_dpdk)]
mod present {
    use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
    use std::ptr::NonNull;
    use std::sync::OnceLock;

    use quietline_platform::atomic::{AtomicU32, Ordering};
    use quietline_platform::{thread, thread_local};

    use crate::harness::{Fault, Seat, Unfit, pin};
    use crate::raw::slab::{Entry, Heap, NoMemory, Source};

    unsafe extern "C" {
        fn quietline_dpdk_init(lcores: *const c_char, on_huge_pages: c_int) -> c_int;
        fn quietline_dpdk_enter() -> c_int;
        fn quietline_dpdk_leave();
        fn quietline_dpdk_create(name: *const c_char, objects: c_uint, size: c_uint)
        -> *mut c_void;
        fn quietline_dpdk_destroy(pool: *mut c_void);
        fn quietline_dpdk_active(pool: *mut c_void) -> c_uint;
        fn quietline_dpdk_get(pool: *mut c_void, objects: *mut Entry, n: c_uint) -> c_int;
        fn quietline_dpdk_put(pool: *mut c_void, objects: *const Entry, n: c_uint);
        fn quietline_dpdk_bulk_cycles(
            pool: *mut c_void,
            n: c_uint,
            cycles: u64,
            seen: *mut usize,
        ) -> c_int;
        fn quietline_dpdk_single_cycles(
            pool: *mut c_void,
            n: c_uint,
            cycles: u64,
            seen: *mut usize,
        ) -> c_int;
    }

    /// Objects of a pool: its size is fixed when it is made.
    const OBJECTS: u32 = (1 << 15) - 1;

    /// A pool that all threads share.
    pub(crate) struct Dpdk(NonNull<c_void>);

    // SAFETY: a mempool is shared by design; each thread has a cache of its own.
    unsafe impl Send for Dpdk {}
    // SAFETY: as above.
    unsafe impl Sync for Dpdk {}

    /// Starts the environment, once; it pins the thread that does so, which is why a thread is made for it.
    fn start() -> bool {
        static STARTED: OnceLock<bool> = OnceLock::new();
        *STARTED.get_or_init(|| {
            let cpu = pin::allowed_cpus()[0];
            let init = move || {
                let Ok(lcores) = CString::new(format!("0@{cpu}")) else { return false };
                // SAFETY: called once, before anything else of DPDK.
                unsafe { quietline_dpdk_init(lcores.as_ptr(), super::has_huge_pages().into()) == 0 }
            };
            thread::spawn(init).join().unwrap_or(false)
        })
    }

    /// A thread that has a number with DPDK, until it ends.
    struct Entered;

    impl Drop for Entered {
        fn drop(&mut self) {
            // SAFETY: this thread has entered, and holds nothing of DPDK's any more.
            unsafe { quietline_dpdk_leave() };
        }
    }

    thread_local! {
        // SAFETY: only threads with a source come here, so DPDK was started.
        static ENTERED: Option<Entered> = (unsafe { quietline_dpdk_enter() } == 0).then_some(Entered);
    }

    impl Source for Dpdk {
        type Heap<'a> = Pool;

        fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
            static POOLS: AtomicU32 = AtomicU32::new(0);
            if !start() {
                return Err(Fault::new("DPDK's environment cannot start here").into());
            }
            // Relaxed: only the number matters.
            let name = format!("quietline-{}\0", POOLS.fetch_add(1, Ordering::Relaxed));
            let name =
                CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Fault::new("a bad name"))?;
            // SAFETY: DPDK was started.
            let pool = unsafe { quietline_dpdk_create(name.as_ptr(), OBJECTS, size as c_uint) };
            Ok(Self(NonNull::new(pool).ok_or_else(|| Fault::new("DPDK has no memory for a pool"))?))
        }

        fn heap(&self, _seat: Seat) -> Result<Pool, Fault> {
            let entered = ENTERED.try_with(Option::is_some);
            let entered = matches!(entered, Ok(true));
            Fault::unless(entered, || "DPDK has no number left for a thread".to_owned())?;
            Ok(Pool(self.0))
        }

        fn active(&self) -> Option<usize> {
            // SAFETY: the pool lives as long as `self`.
            Some(unsafe { quietline_dpdk_active(self.0.as_ptr()) } as usize)
        }
    }

    impl Drop for Dpdk {
        fn drop(&mut self) {
            // SAFETY: made by `new`; nobody uses it any more.
            unsafe { quietline_dpdk_destroy(self.0.as_ptr()) };
        }
    }

    pub(crate) struct Pool(NonNull<c_void>);

    impl Pool {
        #[inline(always)]
        fn verdict(code: c_int, seen: usize) -> Result<bool, NoMemory> {
            match code {
                0 => Ok(seen != 0 && seen.is_multiple_of(Self::ALIGN)),
                1 => Err(NoMemory),
                _ => Ok(false),
            }
        }
    }

    // SAFETY of the calls: the pool lives, the thread has entered, and the array has as many places as is said, each one a
    // pointer's.
    impl Heap for Pool {
        #[inline(always)]
        fn alloc(&self) -> Entry {
            let mut object = None;
            // SAFETY: see above. After a failure nothing was written.
            unsafe { quietline_dpdk_get(self.0.as_ptr(), &raw mut object, 1) };
            object
        }

        #[inline(always)]
        unsafe fn free(&self, object: NonNull<u8>) {
            let object = Some(object);
            // SAFETY: see above.
            unsafe { quietline_dpdk_put(self.0.as_ptr(), &raw const object, 1) };
        }

        #[inline(always)]
        fn alloc_bulk(&self, objects: &mut [Entry]) -> bool {
            // SAFETY: see above.
            unsafe {
                quietline_dpdk_get(self.0.as_ptr(), objects.as_mut_ptr(), objects.len() as c_uint)
                    == 0
            }
        }

        #[inline(always)]
        unsafe fn free_bulk(&self, objects: &mut [Entry]) {
            // SAFETY: see above.
            unsafe {
                quietline_dpdk_put(self.0.as_ptr(), objects.as_ptr(), objects.len() as c_uint)
            };
        }

        #[inline(always)]
        fn bulk_cycles<const N: usize>(&self, cycles: u64) -> Result<bool, NoMemory> {
            let mut seen = 0;
            // SAFETY: see above; the array is on the C side.
            let code = unsafe {
                quietline_dpdk_bulk_cycles(self.0.as_ptr(), N as c_uint, cycles, &raw mut seen)
            };
            Self::verdict(code, seen)
        }

        #[inline(always)]
        fn single_cycles<const N: usize>(&self, cycles: u64) -> Result<bool, NoMemory> {
            let mut seen = 0;
            // SAFETY: as in `bulk_cycles`.
            let code = unsafe {
                quietline_dpdk_single_cycles(self.0.as_ptr(), N as c_uint, cycles, &raw mut seen)
            };
            Self::verdict(code, seen)
        }
    }
}
