//! The lists of nested epoll calls (`ep_call_nested` of `fs/eventpoll.c`), before and after the
//! patches of 2017.
//!
//! An epoll may watch an epoll. A wake-up or a poll that goes from one epoll to the next must end,
//! even if they watch each other in a circle. Until 4.14 each step is entered in a list, with its
//! context (the CPU or the task) and its epoll, after a look whether the same entry is there
//! already. It is taken out again after the step. The kernel has three such lists, one for each
//! kind of step, each under one lock. All CPUs that use nested epolls write that lock's line twice
//! for every step, and read each other's entries.
//!
//! | way | the list |
//! |---|---|
//! | [`NestedWay::Global`] | one, under one lock: before the patch, as in 4.13 and 4.14 |
//! | [`NestedWay::Dlock`] | one for each core, each under its lock: Bueso's patch of October 2017 |
//! | [`NestedWay::Removed`] | none for wake-ups and polls, as in 4.15 (Baron's two patches):
//! `EPOLL_CTL_ADD` refuses circles, and keeps a list of its own for that |
//!
//! The patch chooses a list by the context (`dlock_list_hash`). Wake-ups have the CPU's number as
//! their context, which is the list's number. Polls have the task. Its address is hashed, so two
//! tasks may have one list.

use core::array;

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use crate::atomic::{AtomicU32, Ordering};
use crate::queued::{QueueNodes, QueuedLock};

/// How steps from epoll to epoll are kept from going round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NestedWay {
    /// One list for all.
    Global,
    /// A list for each core of the machine, chosen by the step's context.
    Dlock,
    /// No list for wake-ups and polls.
    Removed,
}

impl NestedWay {
    /// All, oldest first.
    pub const ALL: [Self; 3] = [Self::Global, Self::Dlock, Self::Removed];

    /// The name in tables; a bench column is `history-` and this.
    pub fn name(self) -> &'static str {
        match self {
            Self::Global => "nested-global",
            Self::Dlock => "nested-dlock",
            Self::Removed => "nested-removed",
        }
    }
}

/// `EP_MAX_NESTS`.
pub(crate) const MAX_NESTS: u32 = 4;

/// The context of a kind of step, which chooses the list of [`NestedWay::Dlock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// The CPU: of wake-ups (`poll_safewake_ncalls`).
    Cpu,
    /// The task: of polls (`poll_readywalk_ncalls`).
    Task,
}

/// Cycles of a hash of an address on cores of 2017: 14 for seven rounds of two dependent
/// instructions each, 26 for the division by the number of lists, 5 for the call.
#[cfg(quietline_sim)]
const HASH_CYCLES: u64 = 45;

/// No entry.
const NONE: u32 = u32::MAX;

/// `struct nested_call_node`: on the caller's stack in the kernel. Its line is written by its
/// caller and by its neighbours in the list.
struct Node {
    next: AtomicU32,
    prev: AtomicU32,
    /// The list that it is in, as the patch keeps it.
    head: AtomicU32,
    /// The caller.
    ctx: AtomicU32,
    /// The epoll.
    cookie: AtomicU32,
}

/// A list and its lock, on one line as in the kernel.
struct Head {
    lock: QueuedLock,
    first: AtomicU32,
}

/// `struct nested_calls`: the steps under way. A caller has as many entries as steps may be nested,
/// and one for the step that is refused.
pub(crate) struct NestedCalls {
    way: NestedWay,
    context: Context,
    heads: Box<[CachePadded<Head>]>,
    nodes: Box<[CachePadded<Node>]>,
}

/// Entries of a caller.
const DEPTH: usize = MAX_NESTS as usize + 1;

/// Why a step was not made: the caller is at this epoll already, or too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nested;

impl NestedCalls {
    /// Returns empty lists for so many callers on a machine of so many cores.
    pub(crate) fn new(
        way: NestedWay,
        context: Context,
        callers: usize,
        cores: usize,
    ) -> Result<Self, AllocError> {
        assert!(callers <= cores, "each caller has a CPU");
        let heads = if way == NestedWay::Dlock { cores } else { 1 };
        let new = || {
            let [next, prev, head, ctx, cookie] = array::from_fn(|_| AtomicU32::new(NONE));
            CachePadded::new(Node { next, prev, head, ctx, cookie })
        };
        let head =
            |_| CachePadded::new(Head { lock: QueuedLock::new(), first: AtomicU32::new(NONE) });
        let heads = heap::try_boxed_slice(heads, head)?;
        let nodes = heap::try_boxed_slice(callers * DEPTH, |_| new())?;
        for _head in &heads {
            quietline_platform::name_words!(**_head => "nested_calls" { lock, first });
        }
        for _node in &nodes {
            quietline_platform::name_words!(
                **_node => "nested_call_node" { next, prev, head, ctx, cookie }
            );
        }
        Ok(Self { way, context, heads, nodes })
    }

    /// Makes a step: `call` runs while the caller is entered as being at `cookie` (`ep_call_nested`).
    ///
    /// Writes, but for [`NestedWay::Removed`]: the list's line twice and its lock's, and the line of whoever came before.
    pub(crate) fn call<R>(
        &self,
        queue: &QueueNodes,
        caller: usize,
        cookie: u32,
        call: impl FnOnce() -> R,
    ) -> Result<R, Nested> {
        if self.way == NestedWay::Removed {
            return Ok(call());
        }
        let number = self.list_of(caller);
        let head = &self.heads[number];
        let own = {
            let _lock = head.lock.lock(queue, caller);
            let mut nests = 0;
            // Relaxed, here and below: under the list's lock.
            let mut at = head.first.load(Ordering::Relaxed);
            while at != NONE {
                let node = &self.nodes[at as usize];
                if node.ctx.load(Ordering::Relaxed) == caller as u32 {
                    nests += 1;
                    if node.cookie.load(Ordering::Relaxed) == cookie || nests > MAX_NESTS as usize {
                        return Err(Nested);
                    }
                }
                at = node.next.load(Ordering::Relaxed);
            }
            let own = caller * DEPTH + nests;
            if self.way == NestedWay::Dlock {
                // Relaxed, here and in `unlink_by_head`: the caller's own entry.
                self.nodes[own].head.store(number as u32, Ordering::Relaxed);
            }
            self.link(head, own, caller, cookie);
            own
        };
        let result = call();
        if self.way == NestedWay::Dlock {
            self.unlink_by_head(queue, caller, own);
        } else {
            let _lock = head.lock.lock(queue, caller);
            self.unlink(head, own);
        }
        Ok(result)
    }

    /// `dlock_list_hash`: the number of the list of a caller.
    fn list_of(&self, caller: usize) -> usize {
        match (self.way, self.context) {
            (NestedWay::Global | NestedWay::Removed, _) => 0,
            (NestedWay::Dlock, Context::Cpu) => caller,
            (NestedWay::Dlock, Context::Task) => {
                #[cfg(quietline_sim)]
                quietline_platform::sim::compute(HASH_CYCLES);
                hash_of(task_of(caller)) as usize % self.heads.len()
            }
        }
    }

    /// `dlock_lists_del`: looks up the list in the entry, once more under its lock.
    fn unlink_by_head(&self, queue: &QueueNodes, caller: usize, own: usize) {
        let node = &self.nodes[own];
        let number = node.head.load(Ordering::Relaxed);
        let head = &self.heads[number as usize];
        let _lock = head.lock.lock(queue, caller);
        assert_eq!(node.head.load(Ordering::Relaxed), number, "only the caller moves its entry");
        self.unlink(head, own);
        node.head.store(NONE, Ordering::Relaxed);
    }

    fn link(&self, head: &Head, own: usize, caller: usize, cookie: u32) {
        let node = &self.nodes[own];
        // Relaxed: under the list's lock.
        let first = head.first.load(Ordering::Relaxed);
        node.ctx.store(caller as u32, Ordering::Relaxed);
        node.cookie.store(cookie, Ordering::Relaxed);
        node.next.store(first, Ordering::Relaxed);
        node.prev.store(NONE, Ordering::Relaxed);
        if first != NONE {
            self.nodes[first as usize].prev.store(own as u32, Ordering::Relaxed);
        }
        head.first.store(own as u32, Ordering::Relaxed);
    }

    fn unlink(&self, head: &Head, own: usize) {
        let node = &self.nodes[own];
        // Relaxed: under the list's lock.
        let (next, prev) = (node.next.load(Ordering::Relaxed), node.prev.load(Ordering::Relaxed));
        match prev {
            NONE => head.first.store(next, Ordering::Relaxed),
            prev => self.nodes[prev as usize].next.store(next, Ordering::Relaxed),
        }
        if next != NONE {
            self.nodes[next as usize].prev.store(prev, Ordering::Relaxed);
        }
    }
}

/// The address of a caller's task. Tasks come from a slab cache: these lie one behind the other,
/// 9 KiB each.
fn task_of(caller: usize) -> u64 {
    0xffff_8800_0000_0000 + (caller as u64 + 1) * 0x2400
}

/// Hashes a word of 64 bits as `jhash2` does: the last step of Jenkins' lookup3.
fn hash_of(word: u64) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(2 << 2);
    let (mut a, mut b, mut c) =
        (start.wrapping_add(word as u32), start.wrapping_add((word >> 32) as u32), start);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LISTED: [(NestedWay, Context); 3] = [
        (NestedWay::Global, Context::Task),
        (NestedWay::Dlock, Context::Task),
        (NestedWay::Dlock, Context::Cpu),
    ];

    /// Steps at 0, 1, 2, ... each inside the last: how many are made.
    fn dive(calls: &NestedCalls, queue: &QueueNodes, caller: usize, depth: u32) -> u32 {
        let deeper = || dive(calls, queue, caller, depth + 1);
        calls.call(queue, caller, depth, deeper).unwrap_or(depth)
    }

    #[test]
    fn depth_and_circles() {
        for (way, context) in LISTED {
            let calls = NestedCalls::new(way, context, 3, 3).unwrap();
            let queue = QueueNodes::new(3, true).unwrap();
            for caller in 0..3 {
                assert_eq!(dive(&calls, &queue, caller, 0), MAX_NESTS + 1, "{way:?}");
                let call = |caller| calls.call(&queue, caller, 7, || ());
                let again = calls.call(&queue, caller, 7, || call(caller));
                assert_eq!(again, Ok(Err(Nested)), "{way:?}");
                let other = calls.call(&queue, caller, 7, || call((caller + 1) % 3));
                assert_eq!(other, Ok(Ok(())), "{way:?}: another's steps do not count");
            }
            assert!(
                calls.heads.iter().all(|head| head.first.load(Ordering::Relaxed) == NONE),
                "{way:?}"
            );
        }
    }

    /// Wake-ups have a list for each CPU. Some of 12 tasks have a list in common on 18 cores.
    #[test]
    fn tasks_may_collide_and_cpus_do_not() {
        let lists = |context| {
            let calls = NestedCalls::new(NestedWay::Dlock, context, 12, 18).unwrap();
            (0..12).map(|caller| calls.list_of(caller)).collect::<HashSet<_>>().len()
        };
        assert_eq!(lists(Context::Cpu), 12);
        assert_eq!(lists(Context::Task), 10);
    }

    #[test]
    fn stress_all_leave() {
        for (way, context) in LISTED {
            let calls = NestedCalls::new(way, context, 3, 3).unwrap();
            let queue = QueueNodes::new(3, true).unwrap();
            std::thread::scope(|s| {
                for caller in 0..3 {
                    let (calls, queue) = (&calls, &queue);
                    s.spawn(move || {
                        for _ in 0..1_000 {
                            assert_eq!(dive(calls, queue, caller, 0), MAX_NESTS + 1);
                        }
                    });
                }
            });
            assert!(
                calls.heads.iter().all(|head| head.first.load(Ordering::Relaxed) == NONE),
                "{way:?}"
            );
        }
    }
}
