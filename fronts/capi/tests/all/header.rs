//! The committed header is what the sources say. The feature `header` builds it, and
//! `QUIETLINE_BLESS=1 cargo test -p quietline-capi --features header --test all header` writes it
//! anew.

use std::path::Path;

#[test]
fn header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("include/quietline.h");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings =
        cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut fresh = Vec::new();
    bindings.write(&mut fresh);
    let fresh = String::from_utf8(fresh).unwrap();
    assert!(fresh.contains("ql_cache_create"), "cbindgen found no function");
    if std::env::var_os("QUIETLINE_BLESS").is_some() {
        std::fs::write(&committed, fresh).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&committed).unwrap_or_default();
    let (old, new): (Vec<_>, Vec<_>) = (committed.lines().collect(), fresh.lines().collect());
    for (i, line) in new.iter().enumerate() {
        assert_eq!(
            old.get(i),
            Some(line),
            "include/quietline.h, line {}, is not what the sources say; write it anew by QUIETLINE_BLESS=1 cargo test \
             -p quietline-capi --features header --test all header",
            i + 1
        );
    }
    assert_eq!(old.len(), new.len(), "include/quietline.h has lines that the sources do not say");
}
