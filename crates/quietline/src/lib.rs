//! The Linux kernel's object layer as a library.
