//! Tests of the crate in one program, a module for each concept. With `--cfg loom` it has the
//! models only.

mod counter;
mod file_ref;
mod first_use;
mod id_allocator;
mod lockref;
mod percpu;
mod percpu_shared;
mod rcu;
mod rcu_callbacks;
mod rcu_fence;
mod rcu_fork;
mod rcu_retire;
mod rcu_stall;
mod seqcount;
mod sleeping_readers;
mod spinlock;
mod wait_queue;

mod loom_counter;
mod loom_file_ref;
mod loom_lockref;
mod loom_once;
mod loom_rcu;
mod loom_retire;
mod loom_seqcount;
mod loom_spinlock;
mod loom_wait_queue;
