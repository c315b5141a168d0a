//! The unsafe part of this crate: who owns which pointer.
//!
//! ```text
//!   descriptor table slot ── owns a reference ──> File ── owns a reference ──> Dentry (pseudo object) ── is part of
//!   FileHandle            ── owns a reference ──> File                            the same allocation as ── Inode
//! ```
//!
//! Each file has the argument why its unsafe code holds.

#![allow(unsafe_code)]

pub(crate) mod handle;
pub(crate) mod pseudo;
pub(crate) mod slots;
pub(crate) mod store;
pub(crate) mod word;
