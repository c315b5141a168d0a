//! The Linux kernel's object layer as a library.
//!
//! ```
//! use quietline::{Config, Kernel, abi::*};
//!
//! let kernel = Kernel::boot(Config::default())?;
//! let process = kernel.process()?;
//! let fd = process.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)?;
//! assert_eq!(fd, 0); // the lowest free descriptor; a new process has none
//! assert!(process.fd_name(fd)?.starts_with("socket:["));
//! process.close(fd)?;
//! # Ok::<(), quietline::Errno>(())
//! ```
//!
//! A server that sends back what it is sent. Addresses are the bytes of Linux's `sockaddr` structures, here `sockaddr_in`: the family
//! in the machine's order, port and address in the network's, and 8 bytes of nothing.
//!
//! ```
//! use quietline::{Config, EpollEvent, Errno, Events, Kernel, Process, abi::*};
//!
//! /// 127.0.0.1, and a port.
//! fn loopback(port: u16) -> [u8; 16] {
//!     let mut address = [0; 16];
//!     address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
//!     address[2..4].copy_from_slice(&port.to_be_bytes());
//!     address[4..8].copy_from_slice(&[127, 0, 0, 1]);
//!     address
//! }
//!
//! /// Serves connections, until one has come and none is left.
//! fn serve(server: &Process, listener: i32) -> Result<(), Errno> {
//!     let epoll = server.epoll_create1(EPOLL_CLOEXEC)?;
//!     let watch = |fd: i32| EpollEvent { events: Events::IN.bits(), data: fd as u64 };
//!     server.epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &watch(listener))?;
//!     let (mut events, mut bytes, mut open) = ([EpollEvent::default(); 64], [0; 4096], 0);
//!     loop {
//!         let n = server.epoll_wait(epoll, &mut events, -1)?; // sleeps until something has come
//!         for event in &events[..n] {
//!             let fd = event.data as i32;
//!             if fd == listener {
//!                 let (connection, _peer) = server.accept4(listener, SOCK_CLOEXEC)?;
//!                 server.epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &watch(connection))?;
//!                 open += 1;
//!                 continue;
//!             }
//!             match server.read(fd, &mut bytes)? {
//!                 0 => {
//!                     server.close(fd)?; // the epoll forgets it
//!                     open -= 1;
//!                 }
//!                 n => drop(server.write(fd, &bytes[..n])?), // all of it: the connection blocks
//!             }
//!         }
//!         if open == 0 {
//!             return server.close(epoll);
//!         }
//!     }
//! }
//!
//! let kernel = Kernel::boot(Config::default().privileged(true))?; // or ports below 1,024 are EACCES
//! let (server, client) = (kernel.process()?, kernel.process()?);
//! let listener = server.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)?;
//! server.bind(listener, &loopback(80))?;
//! server.listen(listener, 128)?;
//! std::thread::scope(|threads| {
//!     let serving = threads.spawn(|| serve(&server, listener));
//!     let fd = client.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)?;
//!     client.connect(fd, &loopback(80))?;
//!     client.write(fd, b"hello")?;
//!     let mut answer = [0; 5];
//!     assert_eq!(client.read(fd, &mut answer)?, 5);
//!     assert_eq!(&answer, b"hello");
//!     client.close(fd)?;
//!     serving.join().expect("it does not panic")
//! })?;
//! # Ok::<(), Errno>(())
//! ```
//!
//! `examples/http` of this crate is a whole server and its load. [`Process::set_sigpipe`] says what a write does to whom nobody reads from
//! ([`SigPipe`]); [`Interrupt::enter`] makes it possible to end a wait of the calling thread from another one: with `EINTR`, as a signal
//! would.
//!
//! # A file system of your own
//!
//! A read-only tree over a map. [`FileSystem`], [`InodeOps`] and [`FileOps`] say what each method
//! is for; a method that is not implemented fails as on Linux. `docs/file-systems.md` is a guide.
//!
//! ```
//! use quietline::{Caller, Config, Entry, FileOps, FileSystem, InodeOps, Kernel, NodeEntry};
//! use quietline::{Errno, abi::*};
//! use std::{collections::BTreeMap, io::Read, sync::Arc};
//!
//! type Each<'a> = dyn FnMut(NodeEntry) -> bool + 'a;
//! struct Tree(BTreeMap<Vec<u8>, Arc<Text>>);
//! struct Text(Vec<u8>);
//!
//! impl FileSystem for Tree {
//!     fn root(self: Arc<Self>, _: &Caller) -> Result<Entry, Errno> {
//!         Ok(Entry::new(self, S_IFDIR | 0o555))
//!     }
//! }
//! impl InodeOps for Tree {
//!     fn lookup(&self, _: &Caller, name: &[u8]) -> Result<Entry, Errno> {
//!         let text = self.0.get(name).ok_or(Errno::NOENT)?;
//!         Ok(Entry::new(text.clone(), S_IFREG | 0o444).with_size(text.0.len() as u64))
//!     }
//! }
//! impl FileOps for Tree {
//!     fn read_dir(&self, _: &Caller, from: u64, each: &mut Each) -> Result<(), Errno> {
//!         for (place, name) in (0..).zip(self.0.keys()).skip(from as usize) {
//!             if !each(NodeEntry { place, ino: 0, mode: S_IFREG, name }) {
//!                 break;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//! impl InodeOps for Text {}
//! impl FileOps for Text {
//!     fn read_at(&self, _: &Caller, to: &mut [u8], at: u64) -> Result<usize, Errno> {
//!         self.0.get(at as usize..).unwrap_or(&[]).read(to).map_err(|_| Errno::IO)
//!     }
//! }
//!
//! let kernel = Kernel::boot(Config::default().owner(0, 0))?;
//! let process = kernel.process()?;
//! let hello = Arc::new(Text(b"Hello".to_vec()));
//! process.mkdir("/data", 0o755)?;
//! process.mount_fs("/data", Arc::new(Tree([(b"hello".to_vec(), hello)].into())), 0)?;
//! let fd = process.open("/data/hello", O_RDONLY, 0)?;
//! let mut text = [0; 16];
//! assert_eq!(process.read(fd, &mut text)?, 5);
//! assert_eq!(process.stat("/data/hello")?.st_size, 5); // found in the dentry cache
//! let n = process.getdents64(process.open("/data", O_RDONLY, 0)?, &mut [0; 512])?;
//! assert_eq!(n, 24 + 24 + 32); // `.`, `..` and `hello`
//! # Ok::<(), Errno>(())
//! ```
//!
//! A character device is an inode with `S_IFCHR` in its mode. This one counts its reads, and a write
//! sets the count.
//!
//! ```
//! # use quietline::{Caller, Config, Entry, FileOps, FileSystem, InodeOps, Kernel, Process};
//! # use quietline::{Errno, abi::*};
//! # use std::sync::{Arc, atomic::{AtomicU8, Ordering::Relaxed}};
//! struct Counter(AtomicU8);
//! impl InodeOps for Counter {}
//! impl FileOps for Counter {
//!     fn read_at(&self, _: &Caller, to: &mut [u8], _: u64) -> Result<usize, Errno> {
//!         to[0] = self.0.fetch_add(1, Relaxed); // `to` is never empty
//!         Ok(1)
//!     }
//!     fn write_at(&self, _: &Caller, from: &[u8], _: u64) -> Result<usize, Errno> {
//!         self.0.store(from[0], Relaxed);
//!         Ok(from.len())
//!     }
//! }
//! # struct Dev(Arc<Counter>);
//! # impl FileSystem for Dev {
//! #     fn root(self: Arc<Self>, _: &Caller) -> Result<Entry, Errno> {
//! #         Ok(Entry::new(self, S_IFDIR | 0o555))
//! #     }
//! # }
//! # impl FileOps for Dev {}
//! # impl InodeOps for Dev {
//! // The directory that has it says:
//! fn lookup(&self, _: &Caller, name: &[u8]) -> Result<Entry, Errno> {
//!     let counter = (name == b"counter").then(|| self.0.clone()).ok_or(Errno::NOENT)?;
//!     Ok(Entry::new(counter, S_IFCHR | 0o666))
//! }
//! # }
//! # let kernel = Kernel::boot(Config::default().owner(0, 0))?;
//! # let process: Process = kernel.process()?;
//! # process.mkdir("/dev", 0o755)?;
//! # process.mount_fs("/dev", Arc::new(Dev(Arc::new(Counter(AtomicU8::new(0))))), 0)?;
//!
//! let (fd, mut n) = (process.open("/dev/counter", O_RDWR, 0)?, [0]);
//! process.write(fd, &[7])?;
//! process.read(fd, &mut n)?;
//! assert_eq!((process.read(fd, &mut n)?, n), (1, [8]));
//! # Ok::<(), Errno>(())
//! ```
//!
//! A device that has events returns a [`Readiness`], by which `poll`, `select` and `epoll` wait for
//! it, and a read of which fails with `EAGAIN`.
//!
//! # The problem
//!
//! A library OS, a sandbox or a WASI host that serves many threads needs files, pipes, sockets and descriptors that
//! behave as Linux's do. Behind one mutex they do not scale; behind the host's system calls each costs microseconds.
//!
//! # Our way
//!
//! A [`Kernel`] is a value: as many as you like live side by side. A [`Process`] has a descriptor table and one method
//! for each system call; it is shared by as many threads as you like. What two threads do on objects of their own
//! touches no common cache line.
//!
//! ```text
//!   Kernel ── files (limit, cache), sockets, pipes, anonymous descriptors, inode numbers, the tree of files
//!     │ shared by
//!   Process ── descriptor table, place in the tree, credentials          FileHandle: a file without a descriptor
//! ```
//!
//! # Which way to open
//!
//! | you want | use | cost |
//! |---|---|---|
//! | what POSIX says: the lowest free descriptor | [`Process::socket`] and so on | a lock, of the process |
//! | a descriptor, from many threads of a process | the same with [`abi::O_ANYFD`] in the flags | no lock |
//! | a file, and no descriptor | [`Process::socket_file`] and so on | no lock, no table |
//!
//! # Guarantees
//!
//! * Results and errors are those of Linux, but for what `docs/differences.md` lists. Differential
//!   tests hold the calls against the host's kernel: `tests/all/posix` (the tree),
//!   `tests/all/bytes`, `tests/all/events`, `tests/all/sockets`, `tests/all/inet`,
//!   `tests/all/differential` (descriptors), `tests/all/concurrent` (threads that wait for each
//!   other).
//! * Dropping a [`Process`] closes its descriptors and ends it, as [`Process::exit`] with 0;
//!   dropping the last owner of a [`Kernel`] frees all it had.
//! * After a `fork` of the host process, kernels and processes go on in the child: it forks processes, changes directories, makes and
//!   closes descriptors and whole kernels, whatever the parent's other threads were doing.
//!
//! # Limits
//!
//! Files of the tree are complete but for devices: character devices are embedders'. The internet
//! is the loopback: TCP and UDP reach other sockets of the same kernel.
//! Signals are numbers that wait to be read: there are no handlers, and none ends or stops
//! a process. Nothing interrupts a wait for a lock. Credentials and the working directory are a
//! process's, not a thread's. Locks of the tree, of signals, and of what is behind one descriptor
//! (data, waiters, timers), are not held across a `fork` of the host: one that another thread holds
//! at that moment stays locked in the child. Nor does the thread that rings timers come along.
//!
//! # Lock order
//!
//! A process's table lock, then locks inside the slab caches. No lock is held when a file is closed. The position of a file
//! is held while its data is read or written, and the inode's lock is taken inside that; locks of the tree are in
//! `quietline_vfs::namei`.

pub mod abi;
mod bytes;
mod config;
mod credentials;
mod descriptors;
mod events;
mod kernel;
mod mounting;
#[cfg(feature = "observe")]
pub mod observe;
mod paths;
mod proc;
mod process;
mod processes;
mod raw;
mod sockets;

/// Tests that an operation meets no other CPU: only in builds with `--cfg quietline_sim`.
#[cfg(quietline_sim)]
pub use quietline_sim::check as lines;

pub use config::Config;
pub use events::{FdSet, PollFd, SigPipe};
pub use kernel::{Dentries, Inodes, Kernel, Memory};
pub use mounting::{
    MS_BIND, MS_MOVE, MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW,
    MS_PRIVATE, MS_RDONLY, MS_REC, MS_RELATIME, MS_REMOUNT, MS_SHARED, MS_SILENT, MS_SLAVE,
    MS_STRICTATIME, MS_UNBINDABLE, MountRequest,
};
pub use paths::{MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC};
pub use process::{Process, Rlimit, SigChld};
pub use quietline_net::{Protocol, SockAddr, Socket};
pub use quietline_slab::Stats;
pub use quietline_sync::{Entered, Interrupt, Shared};
pub use quietline_vfs::FileMode;
pub use quietline_vfs::cred::Capabilities;
pub use quietline_vfs::eventpoll::{self, EpollEvent, EventPoll};
pub use quietline_vfs::file::{Dirent, dirents};
pub use quietline_vfs::operations::{
    Caller, Entry, FileOps, FileSystem, InodeOps, NewFile, Readiness,
};
pub use quietline_vfs::pipe::{GiftPage, TakenPage};
pub use quietline_vfs::signalfd::SigInfo;
pub use quietline_vfs::timerfd::{ItimerSpec, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET};
pub use quietline_vfs::{
    Attributes, Changes, Dentry, DentryFlags, EventFd, Events, FileHandle, Inode, NodeEntry,
    OpenHow, Owner, PidFd, Pipe, PollTable, PseudoDentry, PseudoInode, SignalFd, TimerFd,
};
pub use quietline_vfs::{inotify, locks};
pub use rustix::io::Errno;
pub use sockets::{RecvMsg, SendMsg};
