//! Nested epolls before and after the patches of 2017 (`fs/eventpoll.c`), in a dispatcher.
//!
//! A process for each CPU, a pipe from each to each, and two levels of epoll in each process: inner ones that watch
//! the pipes that come in, in groups, and an outer one that watches the inner ones. Payload goes through shared memory;
//! a byte in a pipe says that there is some. So every message is a write, a wake-up through two levels, an
//! `epoll_wait` on the outer one, which asks the inner ones whether they have something, one on an inner one, and a read.
//!
//! The thread of 2017 describes it so: shared-memory IPC, pipes for wake-ups, a process for each
//! core, a full mesh of pipes, a two-level dispatcher around `epoll_wait`. The rest is a guess: two
//! groups of pipes, messages of one byte, the order of the receivers.
//!
//! Processes share only a pipe between its two ends, and the reader's epolls, which the writer
//! wakes. The customer's workload spent 83.49 % of its time in the slow path of spinlocks. The
//! thread names the locks of the lists of nested calls ([`NestedWay`] has what became of them).
//!
//! [`Mesh::turn`] is what a process does in a turn: it sends a byte to somebody, and then takes what has come in, if
//! anything has. (The report's processes sleep in `epoll_wait`; these come back with nothing, so that a turn ends
//! whatever others do. What is counted is messages.)
//!
//! # Left out
//! `ep_poll_safewake` and the readiness walk have a list each (`poll_safewake_ncalls`,
//! `poll_readywalk_ncalls`). `EPOLL_CTL_ADD` has a third, `poll_loop_ncalls`, and happens before
//! the run here. Bueso names that list and the second one as the customer's. Baron doubts the
//! third: "I wouldn't think loop_ncalls would be highly contented (since it should only be called
//! from the add path)". User memory, the red-black tree, wakeup sources, and the locks of wait
//! queues are not here; `ep->mtx` is a spinlock.
//!
//! # Lock order
//! A pipe's lock is a leaf for readers. Wake-ups: the pipe's (released), an inner epoll's, the outer one's, one at a time. Scans: outer
//! `mtx`, inner `mtx`, each with its epoll's lock inside.

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::nested_calls::{Context, NestedCalls, NestedWay};
use crate::queued::{QueueNodes, QueuedLock};

/// No item.
const NONE: u32 = u32::MAX;
/// Not on the list (an item that is the last has [`NONE`] as its next).
const OFF: u32 = u32::MAX - 1;

/// `struct epitem`: its places in the two lists of its epoll.
struct Item {
    /// Next in `rdllist`, or in what a scan has taken from it.
    rdllink: AtomicU32,
    /// Next in `ovflist`.
    next: AtomicU32,
}

/// A list of items: ends of a chain.
struct List {
    head: AtomicU32,
    tail: AtomicU32,
}

impl List {
    fn new() -> Self {
        Self { head: AtomicU32::new(NONE), tail: AtomicU32::new(NONE) }
    }
}

/// `struct eventpoll`: what changes.
#[repr(C)]
struct Eventpoll {
    /// `lock`: the lists.
    lock: QueuedLock,
    /// A scan is going on: what becomes ready goes to `ovflist`.
    scanning: AtomicU32,
    rdllist: List,
    ovflist: List,
    /// `mtx`: one scan at a time.
    mtx: QueuedLock,
    /// Its items: those of the mesh from here on.
    first_item: u32,
    items: u32,
}

/// A pipe, as far as bytes that say "look" need one.
struct Pipe {
    lock: QueuedLock,
    bytes: AtomicU64,
}

/// The dispatcher: processes, pipes, epolls.
pub struct Mesh {
    way: NestedWay,
    processes: usize,
    groups: usize,
    /// From each to each: `reader * processes + writer`.
    pipes: Box<[CachePadded<Pipe>]>,
    /// Outer ones first, one for each process; then the inner ones, `groups` for each.
    epolls: Box<[CachePadded<Eventpoll>]>,
    /// Of outer ones: one for each inner. Of inner ones: one for each pipe.
    items: Box<[CachePadded<Item>]>,
    safewake: NestedCalls,
    readywalk: NestedCalls,
    /// Where waiters for locks queue. The report's kernel ran in a virtual machine.
    queue: QueueNodes,
}

impl core::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mesh")
            .field("way", &self.way)
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Messages sent.
    pub sent: u64,
    /// Messages taken.
    pub taken: u64,
}

impl Mesh {
    /// Returns a mesh of so many processes, each with `groups` inner epolls (at most one for each
    /// process), without messages, on a machine of so many cores.
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Panics
    /// If there are no processes or no groups, or more processes than cores.
    pub fn new(
        way: NestedWay,
        processes: usize,
        groups: usize,
        cores: usize,
    ) -> Result<Self, AllocError> {
        assert!(processes > 0 && groups > 0, "a mesh has processes, and they have groups");
        let groups = groups.min(processes);
        let pipe = |_| CachePadded::new(Pipe { lock: QueuedLock::new(), bytes: AtomicU64::new(0) });
        let pipes = heap::try_boxed_slice(processes * processes, pipe)?;
        let inner_items = (processes * groups) as u32;
        let epoll = |n: usize| {
            let (first_item, items) = if n < processes {
                ((n * groups) as u32, groups as u32)
            } else {
                let (process, group) = ((n - processes) / groups, (n - processes) % groups);
                let first = inner_items + (process * processes) as u32;
                // The pipes from `start` on, up to where the next group starts.
                let [start, end] =
                    [group, group + 1].map(|g| (g * processes).div_ceil(groups) as u32);
                (first + start, end - start)
            };
            CachePadded::new(Eventpoll {
                lock: QueuedLock::new(),
                scanning: AtomicU32::new(0),
                rdllist: List::new(),
                ovflist: List::new(),
                mtx: QueuedLock::new(),
                first_item,
                items,
            })
        };
        let epolls = heap::try_boxed_slice(processes * (1 + groups), epoll)?;
        let item =
            |_| CachePadded::new(Item { rdllink: AtomicU32::new(OFF), next: AtomicU32::new(OFF) });
        let items = heap::try_boxed_slice(inner_items as usize + pipes.len(), item)?;
        for _epoll in &epolls {
            quietline_platform::name_words!(**_epoll => "eventpoll" { lock, scanning, rdllist, ovflist, mtx });
        }
        for _item in &items {
            quietline_platform::name_words!(**_item => "epitem" { rdllink, next });
        }
        for _pipe in &pipes {
            quietline_platform::name_words!(**_pipe => "pipe_inode_info" { lock, bytes });
        }
        let calls = |context| NestedCalls::new(way, context, processes, cores);
        let (safewake, readywalk) = (calls(Context::Cpu)?, calls(Context::Task)?);
        let queue = QueueNodes::new(processes, true)?;
        Ok(Self { way, processes, groups, pipes, epolls, items, safewake, readywalk, queue })
    }

    /// Messages that are in pipes.
    pub fn in_flight(&self) -> u64 {
        // Relaxed: a statistic.
        self.pipes.iter().map(|pipe| pipe.bytes.load(Ordering::Relaxed)).sum()
    }

    /// One turn of a process: a message to `peer`, then whatever has come in. Each process is one thread's at a time.
    ///
    /// # Panics
    /// If there is no such process or peer.
    pub fn turn(&self, process: usize, peer: usize) -> Turn {
        assert!(process < self.processes && peer < self.processes, "no such process");
        self.send(process, peer);
        Turn { sent: 1, taken: self.take(process) }
    }

    /// Takes all that has come in for a process.
    pub fn drain(&self, process: usize) -> u64 {
        let mut taken = 0;
        loop {
            match self.take(process) {
                0 => return taken,
                n => taken += n,
            }
        }
    }

    /// `write` of a byte, with the wake-up that follows.
    fn send(&self, process: usize, peer: usize) {
        let pipe = peer * self.processes + process;
        {
            let p = &self.pipes[pipe];
            let _lock = p.lock.lock(&self.queue, process);
            // Relaxed: under the pipe's lock.
            p.bytes.store(p.bytes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        let (inner, item) = self.watcher_of(pipe);
        self.poll_callback(process, inner, item);
    }

    /// The inner epoll that watches a pipe, and its item.
    fn watcher_of(&self, pipe: usize) -> (usize, u32) {
        let (process, from) = (pipe / self.processes, pipe % self.processes);
        let group = from * self.groups / self.processes;
        let inner = self.processes + process * self.groups + group;
        (inner, (self.processes * self.groups + pipe) as u32)
    }

    /// The outer epoll that watches an inner one, and its item; none for an outer one.
    fn parent_of(&self, epoll: usize) -> Option<(usize, u32)> {
        let inner = epoll.checked_sub(self.processes)?;
        Some((inner / self.groups, inner as u32))
    }

    /// `ep_poll_callback`: an item may be ready. While a scan goes on no waiter is woken: the scan
    /// wakes at its end.
    fn poll_callback(&self, caller: usize, epoll: usize, item: u32) {
        let ep = &self.epolls[epoll];
        {
            let _lock = ep.lock.lock(&self.queue, caller);
            // Relaxed: under the epoll's lock.
            if ep.scanning.load(Ordering::Relaxed) != 0 {
                if self.item(item).next.load(Ordering::Relaxed) == OFF {
                    self.push(&ep.ovflist, item, |item| &item.next);
                }
                return;
            }
            if self.item(item).rdllink.load(Ordering::Relaxed) == OFF {
                self.push(&ep.rdllist, item, |item| &item.rdllink);
            }
        }
        self.poll_safewake(caller, epoll);
    }

    /// `ep_poll_safewake`: tells whoever watches this epoll.
    fn poll_safewake(&self, caller: usize, epoll: usize) {
        if let Some((outer, item)) = self.parent_of(epoll) {
            // A circle would be an error of this file.
            self.safewake
                .call(&self.queue, caller, epoll as u32, || self.poll_callback(caller, outer, item))
                .expect("epolls are two levels deep");
        }
    }

    /// `epoll_wait` on the outer epoll without waiting, then on the inner ones that are ready, and the reads.
    fn take(&self, process: usize) -> u64 {
        let mut taken = 0;
        self.send_events(process, process, |item| {
            let inner = self.processes + item as usize;
            self.send_events(process, inner, |item| {
                taken += self.read(process, item as usize - self.processes * self.groups);
            });
        });
        taken
    }

    /// `read` of a pipe that a byte says something of: takes one. Nothing if another epoll's event was faster.
    fn read(&self, process: usize, pipe: usize) -> u64 {
        let p = &self.pipes[pipe];
        let _lock = p.lock.lock(&self.queue, process);
        // Relaxed: under the pipe's lock.
        let bytes = p.bytes.load(Ordering::Relaxed);
        p.bytes.store(bytes.saturating_sub(1), Ordering::Relaxed);
        bytes.min(1)
    }

    /// `epoll_wait` with time 0: scans, then calls `event` with each item that is ready, after the scan.
    fn send_events(&self, caller: usize, epoll: usize, mut event: impl FnMut(u32)) {
        let ep = &self.epolls[epoll];
        // Relaxed: `ep_events_available` looks without the lock.
        if ep.rdllist.head.load(Ordering::Relaxed) == NONE
            && ep.ovflist.head.load(Ordering::Relaxed) == NONE
        {
            return;
        }
        let mut events = [NONE; MAX_EVENTS];
        let mut n = 0;
        self.scan(caller, epoll, |mesh, ep, chain| {
            while n < MAX_EVENTS && *chain != NONE {
                let item = *chain;
                // Relaxed: the chain is the scan's own; what the list gets, it gets under `mtx`, and nobody else looks at it
                // while a scan goes on.
                *chain = mesh.item(item).rdllink.load(Ordering::Relaxed);
                mesh.item(item).rdllink.store(OFF, Ordering::Relaxed);
                if mesh.item_poll(caller, item) {
                    events[n] = item;
                    n += 1;
                    // Level-triggered: it stays until somebody finds it not ready.
                    mesh.push(&ep.rdllist, item, |item| &item.rdllink);
                }
            }
        });
        events[..n].iter().for_each(|item| event(*item));
    }

    /// `ep_item_poll`: whether what an item stands for is ready.
    fn item_poll(&self, caller: usize, item: u32) -> bool {
        let inner_items = self.processes * self.groups;
        if (item as usize) < inner_items {
            return self.eventpoll_poll(caller, self.processes + item as usize);
        }
        // Relaxed: a look; a write that comes later makes its own wake-up.
        self.pipes[item as usize - inner_items].bytes.load(Ordering::Relaxed) != 0
    }

    /// `ep_eventpoll_poll`: whether an epoll has something, by asking what it watches.
    fn eventpoll_poll(&self, caller: usize, epoll: usize) -> bool {
        let walk = || {
            let mut ready = false;
            self.scan(caller, epoll, |mesh, _, chain| {
                while !ready && *chain != NONE {
                    let item = *chain;
                    if mesh.item_poll(caller, item) {
                        ready = true;
                    } else {
                        // Relaxed: the chain is the scan's own.
                        *chain = mesh.item(item).rdllink.load(Ordering::Relaxed);
                        mesh.item(item).rdllink.store(OFF, Ordering::Relaxed);
                    }
                }
            });
            ready
        };
        self.readywalk
            .call(&self.queue, caller, epoll as u32, walk)
            .expect("epolls are two levels deep")
    }

    /// `ep_scan_ready_list`: takes the ready list, lets `each` work on its chain, and puts back what is left and what came
    /// meanwhile.
    fn scan(&self, caller: usize, epoll: usize, each: impl FnOnce(&Self, &Eventpoll, &mut u32)) {
        let ep = &self.epolls[epoll];
        let is_ready;
        {
            let _mtx = ep.mtx.lock(&self.queue, caller);
            // Relaxed, all below: under the epoll's lock, or (the chain) taken under it.
            let mut chain = {
                let _lock = ep.lock.lock(&self.queue, caller);
                ep.scanning.store(1, Ordering::Relaxed);
                self.steal(&ep.rdllist)
            };
            each(self, ep, &mut chain);
            let _lock = ep.lock.lock(&self.queue, caller);
            let mut late = self.steal(&ep.ovflist);
            while late != NONE {
                let item = self.item(late);
                let next = item.next.load(Ordering::Relaxed);
                item.next.store(OFF, Ordering::Relaxed);
                if item.rdllink.load(Ordering::Relaxed) == OFF {
                    self.push(&ep.rdllist, late, |item| &item.rdllink);
                }
                late = next;
            }
            ep.scanning.store(0, Ordering::Relaxed);
            self.splice(&ep.rdllist, chain);
            is_ready = ep.rdllist.head.load(Ordering::Relaxed) != NONE;
        }
        if is_ready {
            self.poll_safewake(caller, epoll);
        }
    }

    fn item(&self, item: u32) -> &Item {
        &self.items[item as usize]
    }

    /// At the end of a list. Relaxed, here and below: under the list's lock.
    fn push(&self, list: &List, item: u32, link: impl Fn(&Item) -> &AtomicU32) {
        link(self.item(item)).store(NONE, Ordering::Relaxed);
        match list.tail.load(Ordering::Relaxed) {
            NONE => list.head.store(item, Ordering::Relaxed),
            tail => link(self.item(tail)).store(item, Ordering::Relaxed),
        }
        list.tail.store(item, Ordering::Relaxed);
    }

    /// The whole chain; the list is empty after.
    fn steal(&self, list: &List) -> u32 {
        let head = list.head.load(Ordering::Relaxed);
        if head != NONE {
            list.head.store(NONE, Ordering::Relaxed);
            list.tail.store(NONE, Ordering::Relaxed);
        }
        head
    }

    /// A chain before everything else.
    fn splice(&self, list: &List, chain: u32) {
        if chain == NONE {
            return;
        }
        let mut last = chain;
        loop {
            match self.item(last).rdllink.load(Ordering::Relaxed) {
                NONE => break,
                next => last = next,
            }
        }
        let head = list.head.load(Ordering::Relaxed);
        self.item(last).rdllink.store(head, Ordering::Relaxed);
        list.head.store(chain, Ordering::Relaxed);
        if head == NONE {
            list.tail.store(last, Ordering::Relaxed);
        }
    }

    /// Pipes that an epoll watches, or inner epolls.
    pub fn watched(&self, epoll: usize) -> usize {
        self.epolls[epoll].items as usize
    }

    /// Whether each pipe's item is among those that its epoll counts: what the walk of its epoll relies on.
    pub fn is_consistent(&self) -> bool {
        (0..self.pipes.len()).all(|pipe| {
            let (inner, item) = self.watcher_of(pipe);
            let ep = &self.epolls[inner];
            (ep.first_item..ep.first_item + ep.items).contains(&item)
        })
    }
}

/// `maxevents` of each wait.
const MAX_EVENTS: usize = 16;
