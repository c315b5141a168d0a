//! The unsafe part of this crate: who owns which pointer.
//!
//! ```text
//!   descriptor table slot ── owns a reference ──> File ── owns a reference ──> Dentry (pseudo object) ── is part of
//!   FileHandle            ── owns a reference ──> File                            the same allocation as ── Inode
//! ```
//!
//! Each file has the argument why its unsafe code holds.

#![allow(unsafe_code)]

mod copy;
pub(crate) mod dcache;
pub(crate) mod eventpoll;
pub(crate) mod handle;
pub(crate) mod listing;
pub(crate) mod mount;
pub(crate) mod mount_book;
pub(crate) mod mount_table;
pub(crate) mod opened;
pub(crate) mod page_tree;
pub(crate) mod pipe_page;
pub(crate) mod pipe_ring;
pub(crate) mod pseudo;
pub(crate) mod ramfs;
pub(crate) mod select;
pub(crate) mod slots;
pub(crate) mod store;
pub(crate) mod timer;
pub(crate) mod walk_fs;
pub(crate) mod walk_path;
pub(crate) mod word;
