//! Caches as text.
#![cfg(not(loom))]

use quietline_slab::{Entry, Options, RawCache, SLABINFO_HEADER, SlabinfoRow, slabinfo};
use std::fmt;

fn text() -> String {
    let mut text = String::new();
    slabinfo(&mut text).unwrap();
    text
}

/// The kernel's own header, word for word.
#[test]
fn header() {
    quietline_testing::isolated!();
    let lines: Vec<_> = SLABINFO_HEADER.lines().collect();
    assert_eq!(lines[0], "slabinfo - version: 2.1");
    assert_eq!(
        lines[1],
        "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
         <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>"
    );
    assert_eq!(text(), format!("{SLABINFO_HEADER}\n"), "no caches");
    // Where this kernel shows its own, they begin alike.
    if let Ok(kernel) = std::fs::read_to_string("/proc/slabinfo") {
        assert!(kernel.starts_with(&format!("{SLABINFO_HEADER}\n")), "{}", &kernel[..400]);
    }
}

/// Numbers of one line, in the order of the columns.
fn numbers(line: &str) -> Vec<usize> {
    line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn rows() {
    quietline_testing::isolated!();
    let cache =
        RawCache::new(Options { cpu_partial: 16, ..Options::new("connection", 500, 8) }).unwrap();
    let mut objects: [Entry; 40] = [None; 40];
    cache.alloc_bulk(&mut objects).unwrap();
    let text = text();
    let line = text.lines().nth(2).unwrap();
    assert!(line.starts_with("connection            40     "), "{line:?}");
    let stats = cache.stats();
    let expected = [
        40,
        stats.slabs * stats.objects_per_slab,
        504,
        stats.objects_per_slab,
        stats.slab_size / 4096,
        130,
        16,
        Options::barn_limit(),
        stats.slabs - stats.partial_slabs,
        stats.slabs,
        stats.cached,
    ];
    assert_eq!(numbers(line), expected, "{line}");
    assert_eq!(line.split_whitespace().count(), 16, "{line}");
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut objects) };
}

/// A name cannot break columns or lines.
#[test]
fn names() {
    quietline_testing::isolated!();
    let row = |name| {
        let cache = RawCache::new(Options::new(name, 8, 8)).unwrap();
        SlabinfoRow::from(&cache.stats()).to_string()
    };
    assert!(row("two words\nand a line").starts_with("two_words_and_a_line      0"));
    assert!(row("").starts_with("-                      0"));
    assert!(row("größe").starts_with("größe                  0"));
    assert_eq!(row("exactly17letters_").find(" : tunables"), row("x").find(" : tunables"));
}

/// A writer that has had enough gets no more.
#[test]
fn a_writer_that_fails() {
    quietline_testing::isolated!();
    struct Full(usize);
    impl fmt::Write for Full {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let _caches: Vec<_> = (0..3).map(|_| RawCache::new(Options::new("x", 8, 8)).unwrap()).collect();
    let all = text().len();
    for room in 0..all {
        assert!(slabinfo(&mut Full(room)).is_err(), "{room} of {all}");
    }
    assert!(slabinfo(&mut Full(all)).is_ok());
}
