//! Who is inside which epoll at this moment (`ep_call_nested` of `fs/eventpoll.c`, 4.13, and the patches of 2017).
//!
//! An epoll may watch an epoll. So that a wake-up or a question that goes from one to the next ends, even if they watch
//! each other in a circle, 4.13 enters every such step in a list, with who makes it and at which epoll, after a look
//! whether the same is there already; and takes it out again. There are three such lists in the kernel, one for each
//! kind of step, each under one lock: all CPUs that use nested epolls at all meet there, twice for every step, and read
//! each other's entries.
//!
//! | way | the list |
//! |---|---|
//! | [`NestedWay::Global`] | one, under one lock: 4.13 |
//! | [`NestedWay::Dlock`] | as many as CPUs, each under its lock; who makes the step says which: the patch of October 2017 |
//! | [`NestedWay::Removed`] | none: circles are refused where they would be made, by `EPOLL_CTL_ADD`; what Linux did from 4.15 on |

use core::array;

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use crate::atomic::{AtomicU32, Ordering};
use crate::queued::{QueueNodes, QueuedLock};

/// How steps from epoll to epoll are kept from going round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NestedWay {
    /// 4.13: one list for all.
    Global,
    /// The patch of 2017: a list for each CPU, chosen by a hash of who makes the step.
    Dlock,
    /// No list.
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

/// No entry.
const NONE: u32 = u32::MAX;

/// `struct nested_call_node`: on the caller's stack in the kernel, so on a line that only the caller writes, but for its
/// neighbours in the list.
struct Node {
    next: AtomicU32,
    prev: AtomicU32,
    /// Who makes the step.
    ctx: AtomicU32,
    /// The epoll.
    cookie: AtomicU32,
}

/// A list and its lock, on one line as in the kernel.
struct Head {
    lock: QueuedLock,
    first: AtomicU32,
}

/// `struct nested_calls`: who is inside. A caller has as many entries as it can be deep, and one to find out that it is too deep.
pub(crate) struct NestedCalls {
    way: NestedWay,
    heads: Box<[CachePadded<Head>]>,
    nodes: Box<[CachePadded<Node>]>,
}

/// Entries of a caller.
const DEPTH: usize = MAX_NESTS as usize + 1;

/// Why a step was not made: the caller is at this epoll already, or too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nested;

impl NestedCalls {
    /// Nobody is inside; `callers` may be.
    pub(crate) fn new(way: NestedWay, callers: usize) -> Result<Self, AllocError> {
        let heads = if way == NestedWay::Dlock { callers.next_power_of_two() } else { 1 };
        let new = || {
            let [next, prev, ctx, cookie] = array::from_fn(|_| AtomicU32::new(NONE));
            CachePadded::new(Node { next, prev, ctx, cookie })
        };
        let head =
            |_| CachePadded::new(Head { lock: QueuedLock::new(), first: AtomicU32::new(NONE) });
        let heads = heap::try_boxed_slice(heads, head)?;
        let nodes = heap::try_boxed_slice(callers * DEPTH, |_| new())?;
        for _head in &heads {
            quietline_platform::name_words!(**_head => "nested_calls" { lock, first });
        }
        for _node in &nodes {
            quietline_platform::name_words!(**_node => "nested_call_node" { next, prev, ctx, cookie });
        }
        Ok(Self { way, heads, nodes })
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
        let head = &self.heads[self.head_of(caller)];
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
            self.link(head, own, caller, cookie);
            own
        };
        let result = call();
        let _lock = head.lock.lock(queue, caller);
        self.unlink(head, own);
        Ok(result)
    }

    /// A multiplication spreads callers over the lists, as the kernel's hash of a pointer does: two may meet.
    fn head_of(&self, caller: usize) -> usize {
        let bits = self.heads.len().trailing_zeros();
        if bits == 0 {
            0
        } else {
            ((caller as u64 + 1).wrapping_mul(0x61c8_8646_80b5_83eb) >> (64 - bits)) as usize
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: [NestedWay; 2] = [NestedWay::Global, NestedWay::Dlock];

    /// Steps at 0, 1, 2, ... each inside the last: how many are made.
    fn dive(calls: &NestedCalls, queue: &QueueNodes, caller: usize, depth: u32) -> u32 {
        let deeper = || dive(calls, queue, caller, depth + 1);
        calls.call(queue, caller, depth, deeper).unwrap_or(depth)
    }

    #[test]
    fn depth_and_circles() {
        for way in LISTED {
            let calls = NestedCalls::new(way, 3).unwrap();
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

    #[test]
    fn stress_all_leave() {
        for way in LISTED {
            let calls = NestedCalls::new(way, 3).unwrap();
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
