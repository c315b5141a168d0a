//! The unsafe part of the dentry cache: whose pointer is valid when.
//!
//! ```text
//!   DentryRef ── counts 1 ──> Dentry ── counts 1, or nothing while it is in it ──> parent Dentry ... root
//!   a directory's table ── counts 1 for each pinned child; none for those on the LRU ──> Dentry
//!   Dentry ── counts 1 ──> Inode          Seen ── nothing, but lives inside a Section ──> Dentry
//!   SuperBlock ── counts 1 ──> root Dentry
//! ```
//!
//! Dentries, inodes, tables and long names are freed by RCU: what a section finds, it may read until its end. Superblocks
//! are freed by RCU, too, and not before all their dentries and inodes are.

pub(crate) mod change;
pub(crate) mod children;
pub(crate) mod entry;
pub(crate) mod genocide;
pub(crate) mod inode;
pub(crate) mod life;
pub(crate) mod locked;
pub(crate) mod long_name;
pub(crate) mod lru;
pub(crate) mod refs;
pub(crate) mod root;
pub(crate) mod seen;
pub(crate) mod super_block;
pub(crate) mod table;
