//! The numbers of Linux's system call interface that quietline takes, and [`O_ANYFD`].

pub use quietline_net::abi::*;
pub use quietline_vfs::abi::*;
