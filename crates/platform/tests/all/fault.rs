//! Allocation faults on demand, and heap memory whose exhaustion is an error.
#![cfg(not(loom))]

use quietline_platform::percpu::{OwnedSheaf, Words};
use quietline_platform::{AllocError, fault, heap, pages};
use std::rc::Rc;

/// Three allocations of three kinds; all of them, or the error and nothing left behind.
fn three() -> Result<(Words<1>, OwnedSheaf, Box<u64>), AllocError> {
    Ok((Words::new()?, OwnedSheaf::new(3)?, heap::try_box(7)?))
}

#[test]
fn each_allocation_fails_once() {
    quietline_testing::isolated!();
    // The first words need a mapping, which may fail too.
    let _mapped = three().unwrap();
    let mut failures = 0;
    for nth in 1.. {
        fault::fail_nth(nth);
        match three() {
            Err(AllocError) => failures += 1,
            Ok(_) => break,
        }
        assert!(!fault::armed(), "a fault fires once");
    }
    assert_eq!(failures, 3);
    assert!(fault::armed(), "the last one had nothing left to hit");
    fault::fail_nth(0);
    assert!(!fault::armed());
    assert!(three().is_ok());
}

#[test]
fn a_fault_is_its_threads_own() {
    fault::fail_nth(1);
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(!fault::armed());
            assert!(three().is_ok());
        });
    });
    assert!(fault::armed());
    assert!(pages::alloc(pages::PAGE_SIZE).is_err());
}

#[test]
fn a_box_holds_its_value() {
    let boxed = heap::try_box(String::from("held")).unwrap();
    assert_eq!(*boxed, "held");
    assert_eq!(*heap::try_box(()).unwrap(), ());
    #[repr(align(256))]
    struct Aligned(u8);
    let aligned = heap::try_box(Aligned(9)).unwrap();
    assert_eq!((&raw const *aligned as usize % 256, aligned.0), (0, 9));
}

#[test]
fn a_value_that_finds_no_box_is_dropped() {
    let value = Rc::new(());
    fault::fail_nth(1);
    assert!(heap::try_box(Rc::clone(&value)).is_err());
    assert_eq!(Rc::strong_count(&value), 1, "dropped, not leaked");
    let boxed = heap::try_box(Rc::clone(&value)).unwrap();
    assert_eq!(Rc::strong_count(&value), 2);
    drop(boxed);
    assert_eq!(Rc::strong_count(&value), 1);
}

/// A size that no heap has: the allocator itself refuses, without a fault.
#[test]
fn an_exhausted_heap_is_an_error() {
    assert!(heap::try_boxed_slice(usize::MAX / 2, |_| 0u8).is_err());
    assert!(heap::try_boxed_slice(1 << 60, |_| 0u64).is_err());
}

#[test]
fn a_boxed_slice_is_made_in_order() {
    assert_eq!(*heap::try_boxed_slice(5, |i| i * i).unwrap(), [0, 1, 4, 9, 16]);
    assert!(heap::try_boxed_slice(0, |i| i).unwrap().is_empty());
    fault::fail_nth(1);
    let mut made = 0;
    assert!(heap::try_boxed_slice(5, |_| made += 1).is_err());
    assert_eq!(made, 0);
}
