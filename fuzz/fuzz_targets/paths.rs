//! libFuzzer's way in.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    quietline_storm::paths::run(bytes);
});
