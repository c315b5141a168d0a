//! The bodies against each other, and the active body under preemption, migration and signals.
//!
//! Longer than most files here: the storm works on every operation at once, and its parts are of no use apart.

pub(crate) mod bodies;

use super::{OwnedSheaf, Sheaf, Words};
use bodies::{Random, agree};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Tests here take turns: the injected delay is global, and in the fallback an operation takes another slot than the
/// preferred one when a parallel test holds that.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn allowed_cpus() -> Vec<usize> {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&c| libc::CPU_ISSET(c, &set)).collect()
    }
}

fn pin(cpu: usize) {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn set_delay(turns: u32) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    crate::backend::percpu::inject::set_delay(turns);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = turns;
}

/// Sets one word of every CPU.
fn set<const N: usize>(words: &Words<N>, index: usize, value: u64) {
    (0..words.cpus()).for_each(|cpu| words.word(cpu, index).store(value, Relaxed));
}

#[test]
fn bodies_agree() {
    let _turn = turn();
    let run = || {
        pin(allowed_cpus()[0]);
        (1..=40).for_each(|seed| agree(seed, &Words::new().unwrap(), || ()));
    };
    std::thread::spawn(run).join().unwrap();
}

const TOKENS: usize = 64;

/// What the storm's threads and signal handlers work on.
struct Arena {
    /// 0: counter, 1: unused, 2: list, 3: sheaf, 4: ids, 5: counter within bounds
    words: Words<6>,
    handled: AtomicU64,
    added: AtomicU64,
}

impl Arena {
    /// Pushes a token on this CPU's list.
    ///
    /// # Safety
    /// The token is the caller's.
    unsafe fn list(&self, token: usize) {
        let node = NonNull::new(token as *mut AtomicU64).expect("no token is zero");
        // SAFETY: tokens live for ever, and the selector holds the list's index.
        unsafe { self.words.list_push_selected(&AtomicU64::new(2), node) }
    }

    /// Takes all tokens from this CPU's list.
    fn take_list(&self) -> impl Iterator<Item = usize> + use<> {
        let mut next = self.words.swap(2, 0) as usize;
        core::iter::from_fn(move || {
            let token = (next != 0).then_some(next)?;
            // SAFETY: the list's nodes are tokens, which live for ever.
            next = unsafe { (*(token as *const AtomicU64)).load(Relaxed) } as usize;
            Some(token)
        })
    }
}

static ARENA: std::sync::OnceLock<Arena> = std::sync::OnceLock::new();

/// Interrupts whatever runs, sequences included, and works on the same words.
extern "C" fn on_alarm(_: libc::c_int) {
    if let Some(arena) = ARENA.get() {
        arena.words.add(0, 1);
        arena.handled.fetch_add(1, Relaxed);
        // SAFETY: nodes and sheaves of the storm live for ever.
        unsafe {
            arena.take_list().for_each(|token| arena.list(token));
            let value = arena.words.sheaf_pop(3);
            if value != 0 && !arena.words.sheaf_push(3, value) {
                // Migrated to a CPU whose sheaf is full: the list has room.
                arena.list(value);
            }
        }
    }
}

/// Threads on all CPUs, more than there are CPUs, migrating, interrupted by signals, with a delay inside every
/// sequence: nothing is lost, nothing is doubled.
#[test]
fn storm() {
    let _turn = turn();
    let cpus = allowed_cpus();
    let words = Words::<6>::new().unwrap();
    for cpu in 0..words.cpus() {
        let sheaf = OwnedSheaf::new(TOKENS * 2).unwrap().into_raw();
        words.word(cpu, 3).store(sheaf.as_ptr() as u64, Relaxed);
    }
    set(&words, 4, 1);
    let tokens: &'static [AtomicU64] = Vec::leak((0..TOKENS).map(|_| AtomicU64::new(0)).collect());
    ARENA.set(Arena { words, handled: 0.into(), added: 0.into() }).ok().unwrap();
    let arena = ARENA.get().unwrap();
    for (i, token) in tokens.iter().enumerate() {
        // SAFETY: the tokens live for ever and are distinct.
        unsafe {
            if i % 2 == 0 {
                arena.list(token as *const _ as usize);
            } else {
                assert!(arena.words.sheaf_push(3, token as *const _ as usize));
            }
        }
    }
    // SAFETY: the handler only calls operations that are safe in handlers.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_alarm as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, core::ptr::null_mut()), 0);
    }
    set_delay(2_000);
    let aborts = aborts();
    let stop = AtomicBool::new(false);
    let threads = Mutex::new(Vec::new());
    let ids: Vec<Vec<u64>> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..2 * cpus.len() + 2)
            .map(|w| {
                let (stop, cpus, threads) = (&stop, &cpus, &threads);
                s.spawn(move || {
                    // SAFETY: asks for the thread's own name, an integer or a pointer.
                    let name = unsafe { libc::pthread_self() } as usize;
                    threads.lock().unwrap().push(name);
                    let mut random = Random(w as u64 + 1);
                    let (mut ids, mut turns) = (Vec::new(), 0u64);
                    while !stop.load(Relaxed) {
                        turns += 1;
                        if turns % 64 == 0 {
                            pin(cpus[random.below(cpus.len() as u64) as usize]);
                        }
                        arena.words.add(0, 3);
                        arena.added.fetch_add(3, Relaxed);
                        ids.extend(arena.words.increment_unless(4, u64::MAX));
                        arena.words.add_within(5, random.below(21) as i64 - 10, 100);
                        // SAFETY: tokens and sheaves live for ever; the buffer has room.
                        unsafe {
                            for token in arena.take_list() {
                                if !arena.words.sheaf_push(3, token) {
                                    arena.list(token);
                                }
                            }
                            let mut buffer = [0usize; 8];
                            let k = arena.words.sheaf_pop_many(
                                3,
                                buffer.as_mut_ptr(),
                                1 + turns as usize % 8,
                            );
                            let pushed = arena
                                .words
                                .sheaf_push_many(3, buffer.as_ptr(), k)
                                .expect("no token is zero");
                            for &value in &buffer[pushed..k] {
                                arena.list(value);
                            }
                            let value = arena.words.sheaf_pop(3);
                            if value != 0 {
                                arena.list(value);
                            }
                        }
                    }
                    ids
                })
            })
            .collect();
        let start = Instant::now();
        let mut random = Random(99);
        while start.elapsed() < Duration::from_millis(1500) {
            let thread = {
                let threads = threads.lock().unwrap();
                threads.get(random.below(threads.len().max(1) as u64) as usize).copied()
            };
            if let Some(thread) = thread {
                // SAFETY: the thread is alive: it stops only after this loop.
                unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGALRM) };
            }
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    set_delay(0);
    assert!(arena.handled.load(Relaxed) > 0, "signals were handled");
    if super::active() == crate::percpu::Body::Rseq {
        assert!(self::aborts() > aborts, "sequences were interrupted inside");
    }
    assert_eq!(
        arena.words.sum(0),
        arena.added.load(Relaxed) + arena.handled.load(Relaxed),
        "no addition is lost"
    );
    let within = (0..arena.words.cpus()).map(|c| arena.words.load(c, 5) as i64);
    within.for_each(|x| assert!(-100 < x && x < 100));
    // Ids of one CPU are distinct: count them against what the words say was handed out.
    let handed: u64 = (0..arena.words.cpus()).map(|c| arena.words.load(c, 4) - 1).sum();
    assert_eq!(
        ids.iter().map(Vec::len).sum::<usize>() as u64,
        handed,
        "each number is handed out once per CPU"
    );
    let mut found: Vec<usize> = Vec::new();
    for cpu in 0..arena.words.cpus() {
        let mut node = arena.words.load(cpu, 2) as usize;
        while node != 0 {
            found.push(node);
            assert!(found.len() <= TOKENS, "a cycle or a duplicate");
            // SAFETY: list nodes are tokens, which live for ever.
            node = unsafe { (*(node as *const AtomicU64)).load(Relaxed) } as usize;
        }
        // SAFETY: every CPU has a sheaf, which lives for ever.
        let sheaf = unsafe { &*(arena.words.load(cpu, 3) as *const Sheaf) };
        found.extend((0..sheaf.len()).map(|i| sheaf.slot(i).load(Relaxed)));
    }
    found.sort_unstable();
    let all: Vec<usize> = tokens.iter().map(|t| t as *const _ as usize).collect();
    assert_eq!(found, all, "each token is in exactly one place");
}

fn aborts() -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return crate::backend::percpu::inject::aborts();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// A drainer takes other CPUs' sheaves away under the guard and [`Words::fence`], while their owners push, pop and
/// replace: each value is in exactly one place.
#[test]
fn drain_under_guard() {
    let _turn = turn();
    set_delay(200);
    let words = &Words::with_initial([Sheaf::stub().as_ptr() as u64]).unwrap();
    let guard = &AtomicU64::new(0);
    let (stop, next, drained) =
        (AtomicBool::new(false), AtomicUsize::new(1), Mutex::new(Vec::new()));
    let (stop, next, drained) = (&stop, &next, &drained);
    let popped: Vec<Vec<usize>> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                s.spawn(move || {
                    let mut popped = Vec::new();
                    while !stop.load(Relaxed) {
                        let value = next.fetch_add(1, Relaxed);
                        // SAFETY: sheaves are freed only when taken out and owned.
                        unsafe {
                            while !words.sheaf_push(0, value) {
                                let fresh = OwnedSheaf::new(8).unwrap().into_raw();
                                match words.sheaf_replace(0, guard, fresh, true) {
                                    None => drop(OwnedSheaf::from_raw(fresh)),
                                    Some(old) if old.as_ref().is_stub() => {}
                                    Some(old) => {
                                        let mut old = OwnedSheaf::from_raw(old);
                                        popped.extend(core::iter::from_fn(|| old.pop()));
                                    }
                                }
                            }
                            if value % 3 == 0 {
                                popped.push(words.sheaf_pop(0));
                            }
                        }
                    }
                    popped
                })
            })
            .collect();
        for round in 0..150 {
            let cpu = round % words.cpus();
            guard.store(1, Relaxed);
            words.fence().unwrap();
            let taken = words.word(cpu, 0).swap(Sheaf::stub().as_ptr() as u64, Relaxed);
            words.fence().unwrap();
            guard.store(0, Relaxed);
            let taken = NonNull::new(taken as *mut Sheaf).unwrap();
            // SAFETY: nobody else can reach the sheaf: the word was swapped, and the fence ended what was in flight.
            unsafe {
                if !taken.as_ref().is_stub() {
                    let mut taken = OwnedSheaf::from_raw(taken);
                    drained.lock().unwrap().extend(core::iter::from_fn(|| taken.pop()));
                }
            }
        }
        stop.store(true, Relaxed);
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    set_delay(0);
    let mut all: Vec<usize> = popped.into_iter().flatten().filter(|v| *v != 0).collect();
    all.append(&mut drained.lock().unwrap());
    for cpu in 0..words.cpus() {
        let sheaf = NonNull::new(words.load(cpu, 0) as *mut Sheaf).unwrap();
        // SAFETY: the workers are gone.
        unsafe {
            if !sheaf.as_ref().is_stub() {
                let mut sheaf = OwnedSheaf::from_raw(sheaf);
                all.extend(core::iter::from_fn(|| sheaf.pop()));
            }
        }
    }
    all.sort_unstable();
    assert_eq!(
        all,
        (1..next.load(Relaxed)).collect::<Vec<_>>(),
        "each value is in exactly one place"
    );
}

/// Threads that the library has never seen come, work, and vanish without a word.
#[test]
fn threads_come_and_go() {
    let _turn = turn();
    let words = Words::<1>::new().unwrap();
    for _ in 0..50 {
        std::thread::scope(|s| {
            (0..8).for_each(|_| {
                s.spawn(|| (0..100).for_each(|_| words.add(0, 1)));
            });
        });
    }
    assert_eq!(words.sum(0), 50 * 8 * 100);
}

#[test]
fn words_are_zeroed_distinct_and_reused() {
    let _turn = turn();
    let a = Words::<3>::new().unwrap();
    let b = Words::<200>::new().unwrap();
    (0..100).for_each(|_| b.add(199, 1));
    assert_eq!((a.sum(0), a.sum(2), b.sum(0), b.sum(199)), (0, 0, 0, 100));
    drop(b);
    assert_eq!(Words::<200>::new().unwrap().sum(199), 0, "reused words are zeroed again");
}

#[test]
fn allocation_failure_is_an_error() {
    let _turn = turn();
    crate::fault::fail_nth(1);
    assert!(Words::<1>::new().is_err());
    crate::fault::fail_nth(1);
    assert!(OwnedSheaf::new(4).is_err());
    assert!(!crate::fault::armed());
    assert!(Words::<1>::new().is_ok());
}
