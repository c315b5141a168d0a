//! The contended ways of 2008 to 2017, in miniature, to be run beside quietline and read beside the kernel. *The seed* of each is a mail
//! thread: `docs/seeds.md`.
//!
//! # The problem
//!
//! In November 2008 a loop of `close(socket(AF_INET, SOCK_STREAM, 0))` took 1.561 s for a million rounds on
//! one CPU, and 27.5 s on each of eight that ran it at once, every one with its own process and its own
//! sockets. Nothing in the program was shared. Everything below it was.
//!
//! # The contended way
//!
//! [`sockets`] is that path as Linux 2.6.27 had it. To open a socket the kernel
//!
//! * allocates an inode: locks `inode_lock`, counts `nr_inodes`, links it into `inode_in_use` and the
//!   superblock's `s_inodes`, and takes the next `last_ino`;
//! * allocates a dentry: counts one more child of the file system's root, locks `dcache_lock`, links the
//!   child, counts `nr_dentry`;
//! * ties the two together: locks `dcache_lock` again;
//! * counts the mount once more;
//!
//! and to close it, undoes it all, with a neighbour on either side of each list written, and with a file that
//! waits for a grace period and goes cold.
//!
//! # Our way
//!
//! Eric Dumazet's series of that year took the shared lines away, one patch at a time. The patch of
//! the file cache is Christoph Lameter's, signed off by Paul McKenney and Eric Dumazet too. That a
//! dentry is its own parent was Christoph Hellwig's proposal. Each patch (of the series' third
//! version) is a [`Rung`] here, on top of those before it; a [`World`] stands on one rung, chosen
//! when it is made. [`Build`] names patches one by one, the slab allocator and its boot parameters,
//! for the other versions of the series.
//!
//! The miniature follows the sources of 2.6.27. The seconds below are not that kernel's: versions 1
//! and 2 are against net-next-2.6 of November 2008, and version 3 is against linux-2.6.
//!
//! ```text
//!                    files (own table)          sockets.rs, fdtable.rs
//!                      |
//!                    file ---- mount            file.rs, mount.rs
//!                      |         |
//!                    dentry -- root             dcache.rs
//!                      |         |
//!                    inode --- superblock       inode.rs, superblock.rs
//!                      |
//!      socket.rs  pipe.rs  anon_inodes.rs       who makes them
//!      slab.rs  rcupdate.rs  percpu_counter.rs  ticket.rs  list.rs   what they are made of
//! ```
//!
//! | rung | what its patch does | 8 CPUs, s |
//! |---|---|---|
//! | [`Base`](Rung::Base) | nothing: after 2.6.27's sources | 27.5 |
//! | [`NrDentry`](Rung::NrDentry) | `nr_dentry` is a per-CPU counter | 25 |
//! | [`NrInodes`](Rung::NrInodes) | `nr_inodes` is a per-CPU counter | 25 |
//! | [`LastIno`](Rung::LastIno) | a CPU takes 1,024 inode numbers at a time | 25 |
//! | [`SingleDentry`](Rung::SingleDentry) | the dentry is its own parent and on no list: no `dcache_lock` | 19.9 |
//! | [`SingleInode`](Rung::SingleInode) | the inode is on no list: no `inode_lock` | 3.01 |
//! | [`TypesafeFiles`](Rung::TypesafeFiles) | a file is freed at once, into a type-safe cache (Lameter) | 2.20 |
//! | [`Norefcount`](Rung::Norefcount) | the kernel's own mounts are not counted | 1.64 |
//!
//! On one CPU the series brought 1.561 s to 1.245 s. The gains do not add up. The first patch gains
//! 2.5 s. The second and the third show no difference: `dcache_lock` is waited for instead.
//!
//! # What each rung writes
//!
//! The shared words that an open and a close of a socket write, besides the process's own `file_lock` and
//! `next_fd`; `tests/all/shared_words.rs` counts them.
//!
//! | word | open | close | last written on |
//! |---|---|---|---|
//! | `nr_dentry` | yes | yes | base |
//! | `nr_inodes` | yes | yes | nr_dentry |
//! | `last_ino` | yes | | nr_inodes; then once in 1,024 |
//! | `dcache_lock` | twice | once | last_ino |
//! | the root's `d_count`; its `d_subdirs` | yes; yes | yes; | last_ino |
//! | `d_child` of the neighbours | one | two | last_ino |
//! | `inode_lock` | once | once | single-dentry |
//! | `inode_in_use`, `s_inodes` | yes | | single-dentry |
//! | `i_list`, `i_sb_list` of the neighbours | one each | two each | single-dentry |
//! | RCU's control block, the file cache's partial list | | in batches | single-inode |
//! | `mnt_count` | yes | yes | typesafe-files |
//!
//! Anonymous descriptors (eventfd) share one inode; they skip what belongs to an inode's making, and write
//! that one's `i_count` on every rung: the series leaves it.
//!
//! More: [`path_walk`], of 2010, how a path was looked up with a reference to each directory; [`inode_rcu`],
//! of the same year, how a file was made and removed under one lock, its inode freed at once or after a grace period;
//! [`dentry_count`], of 2013, how 3.10 counted references to dentries, and the patch that took the lock away; [`slab_bulk`], of 2015, how 4.2 freed many objects
//! at once; [`alf_queue`], of the same year, the pool in front of the slab that was not taken;
//! [`eventpoll`], of 2017, how 4.13 and 4.14 went from epoll to epoll; Bueso's patch, which splits
//! the list; and Baron's two, which remove it from wake-ups and polls.
//!
//! # Guarantees
//!
//! * The work of each rung is done, not imitated: the locks exclude, the lists can be walked, the counters
//!   are exact when no thread is in a call, a file that RCU readers may look at is not reused, and all memory
//!   goes with the world.
//! * Every word that CPUs share is an atomic of the platform's, in a field named as in the kernel, on a
//!   line of its own where the kernel's were. [`World::words`] says which address is which.
//! * In debug builds `tally::writes` lists every word that a call writes.
//!
//! # Limits
//!
//! * What a protocol does (`inet_create`, `tcp_close`, timers) is left out, on every rung alike; in the
//!   profile of the finished series it comes first.
//! * There is no system call instruction, no security hook, no audit, no `f_owner`. The inode is 192 bytes
//!   instead of several hundred. `i_mutex` is a spinlock; all inodes come from one cache.
//! * Threads say which CPU they are on. Two at a time on one CPU are a mistake that is found by chance (in
//!   debug builds by the first collision) and ends in a panic.
//! * A ticket lock's waiter yields after a long spin, since a holder in user space can be off its CPU.
//! * The thread's machine ran a 32-bit kernel. Here structures have the layout of a 64-bit one: a
//!   dentry's count and its lists share the first line there, and lie in two lines here.
//! * A timer tick comes with every 640th RCU callback of a CPU instead of every millisecond, and an RCU
//!   reader pays for a fence; readers are not on the path that is measured.
//! * Inode numbers wrap at 2^32, and then 0 is given out, as in the kernel of the time.
//! * A world and its processes refuse what they have no memory for by `ENOMEM`; the few KiB of the globals
//!   themselves come from the global allocator's infallible side.
//!
//! # Lock order
//!
//! `file_lock` is taken alone. `dcache_lock`, then a dentry's `d_lock`; both are given up before
//! `inode_lock`. A slab's lock, then its cache's `list_lock`; the other way round it is only tried. RCU's, a
//! counter's and a zone's lock are leaves.
//!
//! # Who holds which reference
//!
//! ```text
//!   descriptor -> file -> dentry -> inode
//!                  |        +-----> parent dentry (the root), below single-dentry
//!                  +------> mount, below norefcount
//!   lock-free lookup -> file, for the length of a call
//! ```

pub mod alf_queue;
mod anon_inodes;
mod atomic;
mod build;
mod dcache;
pub mod dentry_count;
mod errno;
pub mod eventpoll;
mod fdtable;
mod file;
mod globals;
mod inode;
pub mod inode_rcu;
mod ledger;
mod list;
mod mount;
mod nested_calls;
pub mod path_walk;
mod percpu;
mod percpu_counter;
mod pipe;
mod queued;
mod raw;
mod rcupdate;
mod rung;
mod slab;
pub mod slab_bulk;
mod socket;
pub mod sockets;
mod superblock;
#[cfg(debug_assertions)]
pub mod tally;
mod ticket;
mod words;

pub use build::{Allocator, Build, Patches, Tick};
pub use errno::Errno;
pub use ledger::Ledger;
pub use nested_calls::NestedWay;
pub use rung::Rung;
pub use slab::SlabInfo;
pub use sockets::{Fd, Lists, Process, World};
pub use words::Word;
