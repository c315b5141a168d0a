use super::{PAGE, page_size};
use crate::pages;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use quietline_testing::anonymous_memory;

const MIB: usize = 1 << 20;

/// The address of the next mapping; 0 leaves the choice to the system.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Returns an address that is a multiple of an injected page size.
pub(super) fn hint_for(size: usize) -> *mut libc::c_void {
    match NEXT.load(Relaxed) {
        0 => ptr::null_mut(),
        _ => NEXT.fetch_add(size.next_multiple_of(4 * MIB), Relaxed) as *mut libc::c_void,
    }
}

/// Pretends that the machine has pages of this size. The addresses of mappings are multiples of
/// it, as such a machine's are.
fn inject(page: usize) {
    PAGE.store(page, Relaxed);
    NEXT.store(0x3000_0000_0000, Relaxed);
}

/// Whether another thread takes the addresses of the next refused mapping of a file. Then these.
static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Called when a file could not be mapped in place of other memory. The system may have removed
/// that memory, and another thread may have mapped something there.
pub(super) fn on_refusal(at: NonNull<u8>, size: usize) {
    if TAKEN[0].swap(0, Relaxed) == 0 {
        return;
    }
    // SAFETY: the caller has given the range away; the new mapping is that of another thread.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let taken = libc::mmap(at.as_ptr().cast(), size, protection, flags, -1, 0);
        assert_eq!(taken, at.as_ptr().cast());
        at.write_bytes(7, size);
    }
    TAKEN[1].store(at.as_ptr() as usize, Relaxed);
}

/// What another thread maps at an address that a refused call has vacated stays.
#[test]
fn vacated_addresses_are_left_alone() {
    quietline_testing::isolated!();
    use crate::percpu::Words;
    let copies = Words::<1>::new().expect("memory").cpus();
    for kind in 1..=copies as u64 {
        let initial = [kind, 0, 3];
        TAKEN[0].store(1, Relaxed);
        // The check of the allocation, the file and the addresses precede the units.
        crate::fault::fail_nth(3 + kind);
        let words = Words::with_initial(initial).expect("copies are written");
        assert!(!crate::fault::armed());
        let taken = TAKEN[1].swap(0, Relaxed) as *const u8;
        assert!(!taken.is_null(), "unit {kind} was refused");
        // SAFETY: mapped above, of the size of a unit.
        let content = unsafe { core::slice::from_raw_parts(taken, 64 << 10) };
        assert!(content.iter().all(|byte| *byte == 7), "unit {kind}");
        for cpu in 0..copies {
            assert_eq!([0, 1, 2].map(|index| words.load(cpu, index)), initial);
        }
    }
}

/// The last region of a size keeps its addresses and gives its memory back.
fn freed_blocks_give_their_memory_back() {
    for size in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let before = anonymous_memory();
        let blocks: Vec<_> =
            (1..2 * MIB / size).map(|_| pages::alloc(size).expect("memory")).collect();
        for block in &blocks {
            // SAFETY: the block is the test's, of that size.
            unsafe { block.write_bytes(1, size) };
        }
        let full = anonymous_memory();
        assert!(full >= before + MIB, "{size}: {before} to {full}");
        for block in blocks {
            // SAFETY: as above, and used no more.
            unsafe { pages::free(block, size) };
        }
        let after = anonymous_memory();
        assert!(after <= before + MIB / 2, "pages of {}, blocks of {size}: {after}", page_size());
        // The bookkeeping beside the first blocks is still there.
        let again = pages::alloc(size).expect("memory");
        assert_eq!(again.as_ptr() as usize % (2 * MIB), size);
        // SAFETY: as above.
        unsafe { pages::free(again, size) };
    }
}

/// Whatever is mapped is unmapped in whole pages, and its neighbours stay.
fn mappings_are_whole_pages() {
    for (size, align) in [(1, 1), (16 << 10, 16 << 10), (64 << 10, 64 << 10), (3 * MIB, 2 * MIB)] {
        let at = super::map_aligned(size, align).expect("memory");
        assert!((at.as_ptr() as usize).is_multiple_of(align.max(page_size())));
        // SAFETY: mapped here, in whole pages.
        unsafe {
            let last = size.next_multiple_of(page_size()) - 1;
            at.as_ptr().add(last).write(7);
            super::unmap(at, size);
            let mut resident = 0;
            assert_eq!(libc::mincore(at.as_ptr().cast(), 1, &mut resident), -1, "unmapped");
            let last = at.as_ptr().add(last / 4096 * 4096);
            assert_eq!(libc::mincore(last.cast(), 1, &mut resident), -1, "unmapped");
        }
    }
}

#[test]
fn pages_of_4_kib() {
    quietline_testing::isolated!();
    inject(4 << 10);
    freed_blocks_give_their_memory_back();
    mappings_are_whole_pages();
}

#[test]
fn pages_of_16_kib() {
    quietline_testing::isolated!();
    inject(16 << 10);
    freed_blocks_give_their_memory_back();
    mappings_are_whole_pages();
}

#[test]
fn pages_of_64_kib() {
    quietline_testing::isolated!();
    inject(64 << 10);
    freed_blocks_give_their_memory_back();
    mappings_are_whole_pages();
}

#[test]
fn misaligned_addresses_are_noticed() {
    quietline_testing::isolated!();
    inject(64 << 10);
    let at = super::map_aligned(128 << 10, 4096).expect("memory");
    // SAFETY: a whole page of the machine's, inside the mapping.
    let within = NonNull::new(unsafe { at.as_ptr().add(4096) }).expect("not null");
    // SAFETY: as above; the calls panic before the system sees them.
    let unmapped = std::panic::catch_unwind(|| unsafe { super::unmap(within, 4096) });
    assert!(unmapped.is_err());
    // SAFETY: as above.
    let advised = std::panic::catch_unwind(|| unsafe { super::advise_huge(within, 4096, true) });
    assert!(advised.is_err());
}

/// To unmap the middle of a mapping takes one more mapping. Where there is none, the memory goes
/// back and the addresses stay.
#[test]
fn memory_is_given_back_with_few_mappings_left() {
    quietline_testing::isolated!();
    const SIZE: usize = 64 << 10;
    let at = super::map_aligned(3 * SIZE, SIZE).expect("memory");
    // SAFETY: all of the mapping is the test's; its middle is then not used.
    let middle = unsafe {
        at.write_bytes(7, 3 * SIZE);
        at.add(SIZE)
    };
    let all = quietline_testing::use_up_mappings(0);
    // SAFETY: as above.
    unsafe { super::unmap(middle, SIZE) };
    drop(all);
    // SAFETY: the system refused to unmap the middle, which the next line finds out.
    let content = unsafe {
        let mut state = 0;
        assert_eq!(libc::mincore(middle.as_ptr().cast(), 1, &mut state), 0, "still mapped");
        core::slice::from_raw_parts(at.as_ptr(), 3 * SIZE)
    };
    // Zeros come with new memory.
    for (piece, value) in content.chunks(SIZE).zip([7, 0, 7]) {
        assert!(piece.iter().all(|byte| *byte == value));
    }
}
