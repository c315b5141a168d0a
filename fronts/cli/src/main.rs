//! The command `ql`.

fn main() {}
