//! One test: who is served is the whole process's state.

use super::{FIRST, Heap, REGION, begin, end};
use core::alloc::{GlobalAlloc, Layout};

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a layout")
}

/// Layouts of all classes, the sizes at their edges.
fn layouts() -> Vec<Layout> {
    let sizes = [1, 8, 24, 25, 64, 1015, 1016, 1017, 4096, 100_000, 3 << 20];
    sizes.iter().flat_map(|size| [1, 16, 64, 4096].map(|align| layout(*size, align))).collect()
}

/// Allocates them all, writes to each byte, and sees that nobody wrote to another's.
fn fill(layouts: &[Layout]) -> Vec<*mut u8> {
    let mut blocks = Vec::with_capacity(layouts.len());
    begin();
    for (i, layout) in layouts.iter().enumerate() {
        // SAFETY: the layout has a size, and the block is as large.
        let block = unsafe { Heap.alloc(*layout) };
        assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
        // SAFETY: as above.
        unsafe { block.write_bytes(i as u8, layout.size()) };
        blocks.push(block);
    }
    end();
    for (i, (block, layout)) in blocks.iter().zip(layouts).enumerate() {
        // SAFETY: allocated above with this size, and written.
        let bytes = unsafe { core::slice::from_raw_parts(*block, layout.size()) };
        assert!(bytes.iter().all(|byte| *byte == i as u8), "{layout:?}");
    }
    blocks
}

fn free(blocks: &[*mut u8], layouts: &[Layout]) {
    for (block, layout) in blocks.iter().zip(layouts) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { Heap.dealloc(*block, *layout) };
    }
}

#[test]
fn a_scene_lies_where_the_last_one_lay_unless_something_is_left() {
    let layouts = layouts();
    let first = fill(&layouts);
    assert!(first.iter().all(|block| (FIRST..FIRST + REGION).contains(&block.addr())));
    free(&first, &layouts);
    let second = fill(&layouts);
    assert_eq!(first, second);
    // What is left keeps its region; the next scene lies in another, and in the same way.
    free(&second[1..], &layouts[1..]);
    let third = fill(&layouts);
    assert!(third.iter().zip(&second).all(|(a, b)| a.addr() == b.addr() + REGION));
    free(&third, &layouts);
    free(&second[..1], &layouts[..1]);
    let fourth = fill(&layouts);
    assert_eq!(fourth, first);
    free(&fourth, &layouts);

    // A block that is given back is the next of its class; small objects share lines as they do natively.
    begin();
    let small = layout(40, 8);
    // SAFETY: the layout has a size; each block is freed once.
    unsafe {
        let (a, b) = (Heap.alloc(small), Heap.alloc(small));
        assert_eq!(b.addr() - a.addr(), 48);
        Heap.dealloc(a, small);
        assert_eq!(Heap.alloc(layout(33, 1)), a);
        Heap.dealloc(a, small);
        Heap.dealloc(b, small);
    }
    // Other threads, and this one outside a scene, have the system's.
    let elsewhere = std::thread::spawn(move || {
        // SAFETY: as above.
        unsafe {
            let block = Heap.alloc(small);
            let address = block.addr();
            Heap.dealloc(block, small);
            address
        }
    });
    assert!(!(FIRST..FIRST + 256 * REGION).contains(&elsewhere.join().expect("no panic")));
    end();
}
