//! All tests of the cost ledger that use it from outside.

mod operations;
#[cfg(target_arch = "x86_64")]
mod program;
