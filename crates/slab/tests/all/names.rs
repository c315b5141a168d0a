//! Names that are made at run time.
#![cfg(not(loom))]

use quietline_slab::{
    Cache, Debug, Name, Options, RawCache, ViolationKind, each_cache, set_violation_handler,
    slabinfo,
};
use std::sync::Mutex;

#[test]
fn a_name_is_a_copy() {
    let cache = {
        let text = format!("shard-{}", 7);
        Cache::<u64>::new(&text).unwrap()
    };
    let stats = cache.stats();
    assert_eq!(stats.name, "shard-7");
    assert_eq!(*stats.name, *"shard-7");
    assert_eq!(format!("{:?} {}", stats.name, stats.name), "\"shard-7\" shard-7");
    assert_eq!(format!("{:>9}|", stats.name), "  shard-7|");
    let mut text = String::new();
    slabinfo(&mut text).unwrap();
    assert!(text.contains("\nshard-7 "), "{text}");
    drop(cache);
    assert_eq!(stats.name, Name::from("shard-7"), "the name outlives the cache");
}

/// A long name is cut between characters. Names that differ after the cut are equal.
#[test]
fn long_names() {
    let ascii = "n".repeat(Name::MAX);
    assert_eq!(Name::new(&ascii), *ascii);
    assert_eq!(Name::new(&format!("{ascii}more")), Name::new(&ascii));
    for (before, character) in [(62, 'ß'), (61, '€'), (60, '𝄞'), (59, '𝄞')] {
        let text = format!("{}{character}", "n".repeat(before));
        let name = Name::new(&text);
        let fits = text.len() <= Name::MAX;
        assert_eq!(name == *text, fits, "{name}");
        assert!(text.starts_with(&*name) && name.len() >= before, "{name}");
    }
    assert_eq!(Name::new(""), "");
    const AT_COMPILE_TIME: Options = Options::new("static", 8, 8);
    assert_eq!(AT_COMPILE_TIME.name, "static");
}

/// Any number of different names: none is kept after its cache.
#[test]
fn names_from_a_counter() {
    quietline_testing::isolated!();
    for n in 0..2_000 {
        let cache = RawCache::new(Options::new(&format!("name {n}"), 64, 8)).unwrap();
        assert_eq!(cache.stats().name, &*format!("name {n}"));
    }
    let mut left = 0;
    each_cache(|_| left += 1);
    assert_eq!(left, 0);
}

/// A violation report and the environment's switch see the name of run time; the report outlives
/// both caches.
#[test]
fn reports_own_their_names() {
    quietline_testing::isolated!();
    static FOUND: Mutex<Vec<quietline_slab::Violation>> = Mutex::new(Vec::new());
    set_violation_handler(|violation| FOUND.lock().unwrap().push(*violation));
    {
        let [one, other] = [1, 2].map(|n| {
            let options = Options::new(&format!("run-time {n}"), 64, 8);
            RawCache::new(Options { debug: Debug::CONSISTENCY, ..options }).unwrap()
        });
        let object = one.alloc().unwrap();
        // SAFETY: not kept: the object is the other cache's, and the checks find it.
        unsafe { other.free(object) };
        // SAFETY: allocated above.
        unsafe { one.free(object) };
    }
    let found = FOUND.lock().unwrap();
    let [violation] = found[..] else { panic!("{} violations", found.len()) };
    assert_eq!(violation.cache, "run-time 2");
    assert_eq!(violation.kind, ViolationKind::WrongCache { owner: "run-time 1".into() });
    assert!(violation.to_string().contains("an object of cache 'run-time 1' freed"));
}
