//! Where objects lie.
#![cfg(not(loom))]

use crate::support::{fill, is_filled};
use quietline_platform::cpu;
use quietline_slab::{CacheError, Hook, MAX_OBJECT, Options, RawCache};
use quietline_sync::rcu;
use std::ptr::NonNull;

unsafe fn hook(_: NonNull<u8>) {}

fn options(size: usize, align: usize) -> Options {
    Options::new("layout", size, align)
}

/// What must hold for any layout that is granted.
fn check(options: Options) {
    let layout = options.layout().unwrap();
    let context = format!("{options:?}: {layout:?}");
    assert!(layout.block.is_power_of_two() && (4096..=65536).contains(&layout.block), "{context}");
    assert!(layout.first.is_multiple_of(options.align) && layout.first >= 64, "{context}");
    assert!(layout.stride.is_multiple_of(options.align.max(4)), "{context}");
    assert!(layout.stride >= options.size.max(4), "{context}");
    assert!(layout.objects >= 1, "{context}");
    assert!(layout.first + layout.objects * layout.stride <= layout.block, "{context}");
    assert!(layout.link.is_multiple_of(4) && layout.link + 4 <= layout.stride, "{context}");
    // No block smaller than this one would have held what was wanted, and no room is left for one more.
    let by_formula = (4 * (cpu::nr_cpus().ilog2() as usize + 2)).max(32);
    let asked = if options.min_objects == 0 { by_formula } else { options.min_objects };
    let wanted = asked.min(layout.objects);
    if layout.block > 4096 << options.min_order.min(4) {
        assert!(layout.first + (wanted) * layout.stride > layout.block / 2, "{context}");
    }
    // With a domain, one object more needs another word for each set of marks where 64 share one, and the first place moves.
    let slack = if options.rcu.is_some() { layout.stride.max(options.align).max(16) } else { 0 };
    assert!(
        layout.first + (layout.objects + 1) * layout.stride + slack > layout.block,
        "{context}"
    );
    let keeps_state =
        options.ctor.is_some() || options.dtor.is_some() || options.typesafe.is_some();
    match options.link_offset {
        Some(at) => assert_eq!(layout.link, at, "{context}"),
        None if keeps_state => assert!(layout.link >= options.size, "{context}"),
        None => assert_eq!(layout.link, 0, "{context}"),
    }
}

#[test]
fn all_sizes_and_alignments() {
    let domain = rcu::global().unwrap();
    for align in (0..=14).map(|shift| 1 << shift) {
        for size in [0, 1, 3, 4, 5, 8, 63, 64, 65, 192, 1000, 4096, 5000, 16383, MAX_OBJECT] {
            for min_objects in [0, 1, 32, 1000, usize::MAX] {
                for min_order in [0, 1, 4, 5, 64, usize::MAX] {
                    let plain = Options { min_objects, min_order, ..options(size, align) };
                    check(plain);
                    check(Options { ctor: Some(Hook::new(hook)), ..plain });
                    check(Options { dtor: Some(Hook::new(hook)), ..plain });
                    check(Options { typesafe: Some(domain), ..plain });
                    check(Options { rcu: Some(domain), ..plain });
                    for at in [0, 4, 60].into_iter().filter(|at| at + 4 <= size) {
                        check(Options {
                            ctor: Some(Hook::new(hook)),
                            link_offset: Some(at),
                            ..plain
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn figures() {
    let layout = options(192, 64).layout().unwrap();
    assert_eq!((layout.stride, layout.block, layout.first), (192, 8192, 128));
    assert_eq!(layout.objects, (8192 - 128) / 192);
    let layout = options(0, 1).layout().unwrap();
    assert_eq!((layout.stride, layout.block, layout.link), (4, 4096, 0));
    let layout = Options { ctor: Some(Hook::new(hook)), ..options(64, 64) }.layout().unwrap();
    assert_eq!((layout.stride, layout.link), (128, 64));
    let layout = Options { ctor: Some(Hook::new(hook)), link_offset: Some(60), ..options(64, 64) }
        .layout()
        .unwrap();
    assert_eq!((layout.stride, layout.link), (64, 60));
    assert_eq!(options(MAX_OBJECT, MAX_OBJECT).layout().unwrap().objects, 3);
}

#[test]
fn refusals() {
    let too_large = |size, align| Err(CacheError::TooLarge { size, align });
    assert_eq!(options(MAX_OBJECT + 1, 8).layout(), too_large(MAX_OBJECT + 1, 8));
    assert_eq!(options(8, 2 * MAX_OBJECT).layout(), too_large(8, 2 * MAX_OBJECT));
    assert_eq!(options(usize::MAX, 1).layout(), too_large(usize::MAX, 1));
    for align in [0, 3, 48] {
        assert_eq!(options(8, align).layout(), Err(CacheError::BadLayout));
    }
    for at in [1, 2, 6, 8, usize::MAX - 3] {
        let asked = Options { link_offset: Some(at), ..options(8, 8) };
        assert_eq!(asked.layout(), Err(CacheError::BadLayout), "link at {at}");
    }
    assert!(matches!(RawCache::new(options(MAX_OBJECT + 1, 8)), Err(CacheError::TooLarge { .. })));
}

/// Objects are aligned, do not overlap each other, and keep what is written to them.
#[test]
fn objects_are_apart() {
    for (size, align) in
        [(1, 1), (4, 4), (24, 8), (100, 2), (64, 64), (8, 4096), (16384, 16384), (5000, 8)]
    {
        let cache = RawCache::new(options(size, align)).unwrap();
        let objects: Vec<_> = (0..200).map(|_| cache.alloc().unwrap()).collect();
        for (i, object) in objects.iter().enumerate() {
            assert!(object.addr().get().is_multiple_of(align));
            fill(*object, size, i as u8);
        }
        let mut addresses: Vec<_> = objects.iter().map(|object| object.addr().get()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= size.max(1)));
        for (i, object) in objects.into_iter().enumerate() {
            assert!(is_filled(object, size, i as u8));
            // SAFETY: allocated above, and not used again.
            unsafe { cache.free(object) };
        }
        assert_eq!(cache.stats().active, 0);
    }
}
