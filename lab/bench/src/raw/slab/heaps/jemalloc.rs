//! jemalloc, as the crate tikv-jemalloc-sys builds it: `malloc` and `sdallocx`; and its experimental bulk allocation.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use tikv_jemalloc_sys::{mallctlbymib, mallctlnametomib, malloc, sdallocx};

use super::malloc::{Allocator, Functions};
use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};

pub(crate) struct Jemalloc;

impl Functions for Jemalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut c_void {
        // SAFETY: may be called with any size above zero.
        unsafe { malloc(size) }
    }

    #[inline(always)]
    unsafe fn release(memory: *mut c_void, size: usize) {
        // SAFETY: passed on.
        unsafe { sdallocx(memory, size, 0) };
    }
}

/// jemalloc with `experimental.batch_alloc`, which fills an array; there is no such thing for freeing.
pub(crate) struct JemallocBatch {
    size: usize,
    mib: [usize; 2],
}

impl Source for JemallocBatch {
    type Heap<'a> = Batch;

    fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
        let (mut mib, mut length) = ([0; 2], 2);
        // SAFETY: the name ends with a zero, and the array has as many places as `length` says.
        let error = unsafe {
            mallctlnametomib(
                c"experimental.batch_alloc".as_ptr(),
                mib.as_mut_ptr(),
                &raw mut length,
            )
        };
        match error {
            0 => Ok(Self { size, mib }),
            _ => Err(Fault::new("this jemalloc has no experimental.batch_alloc").into()),
        }
    }

    fn heap(&self, _seat: Seat) -> Result<Batch, Fault> {
        Ok(Batch { singles: Allocator::new(self.size), size: self.size, mib: self.mib })
    }

    fn active(&self) -> Option<usize> {
        None
    }
}

pub(crate) struct Batch {
    singles: Allocator<Jemalloc>,
    size: usize,
    mib: [usize; 2],
}

/// `batch_alloc_packet_t` of jemalloc's `ctl.c`.
#[repr(C)]
struct Packet {
    pointers: *mut Entry,
    number: usize,
    size: usize,
    flags: i32,
}

impl Heap for Batch {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        self.singles.alloc()
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: passed on; both ways give the same kind of object.
        unsafe { self.singles.free(object) };
    }

    #[inline(always)]
    fn alloc_bulk(&self, objects: &mut [Entry]) -> bool {
        let number = objects.len();
        let mut packet =
            Packet { pointers: objects.as_mut_ptr(), number, size: self.size, flags: 0 };
        let (mut filled, mut length) = (0usize, size_of::<usize>());
        // SAFETY: the name's number is jemalloc's own; it writes `number` pointers, whose places are those of entries, and a
        // count.
        let error = unsafe {
            mallctlbymib(
                self.mib.as_ptr(),
                self.mib.len(),
                (&raw mut filled).cast(),
                &raw mut length,
                ptr::from_mut(&mut packet).cast(),
                size_of::<Packet>(),
            )
        };
        if error == 0 && filled == number {
            return true;
        }
        // SAFETY: those were allocated just now.
        unsafe { self.free_bulk(&mut objects[..filled]) };
        false
    }
}
