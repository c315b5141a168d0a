//! A forked child may use everything at once, whatever the parent's other threads were doing.
#![cfg(not(any(loom, quietline_sim)))]

use crate::support::in_child;
use quietline_platform::fork::{AtFork, Node, Rank, Registered};
use quietline_platform::percpu::{OwnedSheaf, Words};
use quietline_platform::{fault, fork, futex, heap, pages};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// A bit of everything that has a lock or a per-CPU word.
fn use_everything(shared: &Words<2>, rounds: usize) {
    for round in 0..rounds {
        shared.add(0, 1);
        let own = Words::<3>::new().unwrap();
        own.add(2, 5);
        assert_eq!(own.sum(2), 5);
        let size = pages::PAGE_SIZE << (round % 7);
        let block = pages::alloc(size).unwrap();
        // SAFETY: the block is ours, of that size, until it is given back.
        unsafe {
            block.write_bytes(0x5a, size);
            pages::free(block, size);
        }
        let mut sheaf = OwnedSheaf::new(8).unwrap();
        assert!(sheaf.push(1));
        drop(heap::try_box([round; 20]).unwrap());
    }
}

static SIGNALLED: OnceLock<Words<2>> = OnceLock::new();

extern "C" fn on_signal(_: libc::c_int) {
    if let Some(words) = SIGNALLED.get() {
        words.add(1, 1);
    }
}

/// Every 2 ms of CPU time that the process uses, one of its threads is interrupted.
fn interrupt(every: Duration) {
    // SAFETY: the handler only calls an operation that is safe in handlers; the structures are our own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()), 0);
        let period = libc::timeval { tv_sec: 0, tv_usec: every.as_micros() as _ };
        let timer = libc::itimerval { it_interval: period, it_value: period };
        assert_eq!(libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_child_of_a_busy_parent_works() {
    quietline_testing::isolated!();
    let words = SIGNALLED.get_or_init(|| Words::new().unwrap());
    let stop = AtomicBool::new(false);
    interrupt(Duration::from_millis(2));
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    use_everything(words, 20);
                }
            });
        }
        let result = std::panic::catch_unwind(|| {
            for _ in 0..100 {
                in_child(20, || {
                    let before = words.sum(0);
                    use_everything(words, 20);
                    assert_eq!(words.sum(0), before + 20, "the child's words are its own");
                    words.fence().unwrap();
                    futex::wait(&AtomicU32::new(1), 1, Duration::from_millis(1).into());
                    // The child may have threads, and forks of its own.
                    std::thread::scope(|s| {
                        s.spawn(|| use_everything(words, 5));
                    });
                    fault::fail_nth(1);
                    assert!(pages::alloc(pages::PAGE_SIZE).is_err());
                });
            }
            in_child(40, || in_child(20, || use_everything(words, 20)));
        });
        stop.store(true, Relaxed);
        result.unwrap();
    });
    interrupt(Duration::ZERO);
}

/// What owners were told, in order: 2 * rank for `before`, 2 * rank + 1 for `after`, and 16 more in a child.
static TOLD: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct Owner {
    rank: Rank,
    held: AtomicBool,
}

// SAFETY: no other thread uses the owner.
unsafe impl AtFork for Owner {
    fn before(&self) {
        assert!(!self.held.swap(true, Relaxed), "before comes once");
        TOLD.lock().unwrap().push(2 * self.rank as usize);
    }

    fn after(&self, child: bool) {
        assert!(self.held.swap(false, Relaxed), "after follows before");
        TOLD.lock().unwrap().push(2 * self.rank as usize + 1 + if child { 16 } else { 0 });
    }
}

#[test]
fn owners_are_told_by_rank_on_both_sides() {
    quietline_testing::isolated!();
    let ranks = [Rank::Machine, Rank::Object, Rank::Domain, Rank::Cache, Rank::Object, Rank::List];
    let owners = ranks.map(|rank| Owner { rank, held: false.into() });
    let nodes = ranks.map(Node::new);
    for (owner, node) in owners.iter().zip(&nodes) {
        // SAFETY: the owners stay where they are, and leave the registry before they die.
        unsafe { node.register(owner) };
    }
    let told = || std::mem::take(&mut *TOLD.lock().unwrap());
    // The order in which locks nest, and everybody after everybody before.
    let before = [0, 2, 2, 4, 6, 8];
    let after = |child: usize| [1, 3, 3, 5, 7, 9].map(|told| told + child);
    in_child(20, || assert_eq!(told(), [before, after(16)].concat()));
    assert_eq!(told(), [before, after(0)].concat());
    // Two leave; one comes back.
    nodes[1].unregister();
    nodes[2].unregister();
    nodes[2].unregister();
    in_child(20, || assert_eq!(told(), [0, 2, 4, 8, 17, 19, 21, 25]));
    assert_eq!(told(), [0, 2, 4, 8, 1, 3, 5, 9]);
    // SAFETY: as above.
    unsafe { nodes[2].register(&owners[2]) };
    in_child(20, || assert_eq!(told(), [0, 2, 4, 6, 8, 17, 19, 21, 23, 25]));
    assert_eq!(told().len(), 10);
    nodes.iter().for_each(fork::Node::unregister);
    in_child(20, || assert_eq!(told(), []));
    assert_eq!(told(), []);
}

/// Forks from several threads at once take turns.
#[test]
fn threads_fork_at_once() {
    quietline_testing::isolated!();
    let words = Words::<2>::new().unwrap();
    let forks = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..10 {
                    in_child(20, || use_everything(&words, 3));
                    forks.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(forks.into_inner(), 40);
}

/// A ticket lock that forks take. Waiters sleep, and get it in the order in which they came: a
/// thread that releases it and takes it again at once starves no other.
#[derive(Default)]
struct Lock {
    next: AtomicU32,
    serving: AtomicU32,
}

impl Lock {
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        loop {
            let serving = self.serving.load(Acquire);
            if serving == ticket {
                return;
            }
            futex::wait(&self.serving, serving, None);
        }
    }

    fn unlock(&self) {
        self.serving.fetch_add(1, Release);
        futex::wake(&self.serving, u32::MAX);
    }
}

// SAFETY: the lock is held from `before` to `after`.
unsafe impl AtFork for Lock {
    fn before(&self) {
        self.lock();
    }

    fn after(&self, child: bool) {
        if child {
            // The parent's waiters do not exist here.
            self.next.store(self.serving.load(Relaxed) + 1, Relaxed);
        }
        self.unlock();
    }
}

/// A thread that holds a lock of an early rank makes and drops what has locks of later ranks, while another forks.
#[test]
fn owners_come_and_go_under_a_lock_of_an_earlier_rank() {
    quietline_testing::isolated!();
    let outer = Registered::new(Rank::Object, Lock::default()).unwrap();
    let stop = AtomicBool::new(false);
    let made = AtomicU64::new(0);
    let (done, over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // Only a deadlock lasts as long, also beside other work.
        if over.recv_timeout(Duration::from_secs(600))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            eprintln!("fork waits for a thread that waits for it");
            std::process::abort();
        }
    });
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                outer.lock();
                for rank in [Rank::Cache, Rank::Domain, Rank::Machine] {
                    // More than the places that there are at first.
                    let _inner: [_; 9] =
                        std::array::from_fn(|_| Registered::new(rank, Lock::default()).unwrap());
                }
                outer.unlock();
                made.fetch_add(1, Relaxed);
            }
        });
        for _ in 0..200 {
            in_child(20, || {
                outer.lock();
                drop(Registered::new(Rank::Cache, Lock::default()).unwrap());
                outer.unlock();
            });
        }
        // As often as the other thread needs to be seen at work.
        while made.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    drop(done);
    watch.join().unwrap();
}
