//! Tests of the crate in one program, a module for each concept.

mod alf_queue;
mod builds;
mod dentry_count;
mod eventpoll;
mod inode_rcu;
mod ladder;
mod path_walk;
mod shared_words;
mod slab_bulk;
mod stress;
