//! Readers that sleep in the host's `epoll_wait`: the pattern that works, and the report of the one
//! that does not.
#![cfg(not(any(loom, miri)))]

use quietline_platform::cpu;
use quietline_sync::might_sleep;
use quietline_sync::rcu::{
    BATCH, Domain, Pointer, RcuBox, Reclaimer, RetireError, Stall, set_stall_handler,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// An epoll that watches one eventfd.
struct Events {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Events {
    fn new() -> Self {
        // SAFETY: plain calls; the descriptors are fresh, and closed by their owners.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let event = OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC));
            let mut readable = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            let added =
                libc::epoll_ctl(epoll.as_raw_fd(), add, event.as_raw_fd(), &raw mut readable);
            assert_eq!(added, 0);
            Self { epoll, event }
        }
    }

    fn send(&self) {
        // SAFETY: eight bytes of ours.
        let sent = unsafe { libc::write(self.event.as_raw_fd(), (&raw const SENT).cast(), 8) };
        assert_eq!(sent, 8);
    }

    /// Sleeps until an event comes, as an event loop does.
    fn sleep(&self) {
        might_sleep();
        assert!(self.wait(PATIENCE), "no event");
    }

    /// Sleeps until an event comes, for at most so many milliseconds. Returns whether it came.
    fn wait(&self, timeout: libc::c_int) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let mut count = 0_u64;
        // SAFETY: one event and eight bytes of ours.
        unsafe {
            let found = libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, timeout);
            assert!(found >= 0, "{}", std::io::Error::last_os_error());
            if found == 1 {
                let taken = libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8);
                assert_eq!(taken, 8);
            }
            found == 1
        }
    }
}

/// A loop is the reclaimer of its domain: a full batch is an event.
impl Reclaimer for Events {
    fn notify(&self) {
        self.send();
    }
}

static SENT: u64 = 1;

/// Milliseconds after which a sleep counts as a hang.
const PATIENCE: libc::c_int = 60_000;

static FREED: AtomicUsize = AtomicUsize::new(0);

struct Config {
    generation: u64,
    limit: u64,
}

impl Config {
    fn boxed(generation: u64) -> *mut Self {
        Box::into_raw(Box::new(Self { generation, limit: 10 * generation }))
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        FREED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reader leaves its section before it sleeps. So the updater's grace periods end, and old
/// versions are freed, while the reader sleeps: the reader is woken only after that. Then it finds
/// by the generation that its copy is old.
#[test]
fn a_reader_that_leaves_its_section_before_it_sleeps() {
    const ROUNDS: u64 = 50;
    const VERSIONS: u64 = 3;
    let domain = Domain::new().unwrap();
    let (requests, replies) = (Events::new(), Events::new());
    let current = AtomicPtr::new(Config::boxed(1));
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut generation, mut limit) = (0, 0);
            let mut derived = 0;
            for _ in 0..ROUNDS {
                requests.sleep();
                let section = domain.read();
                // SAFETY: found inside the section, so it is not freed before the section ends.
                let config = unsafe { &*current.load(Ordering::Acquire) };
                if config.generation != generation {
                    (generation, limit) = (config.generation, config.limit);
                    derived += 1;
                }
                assert_eq!(limit, 10 * config.generation);
                drop(section);
                seen.store(generation, Ordering::Relaxed);
                replies.send();
            }
            assert_eq!(derived, 1 + ROUNDS / 2, "every other round has new versions");
        });
        let mut newest = 1;
        for round in 0..ROUNDS {
            if round % 2 == 1 {
                // The reader sleeps, or is about to. It would sleep for ever if it held a section.
                for _ in 0..VERSIONS {
                    newest += 1;
                    let old = current.swap(Config::boxed(newest), Ordering::AcqRel);
                    domain.synchronize();
                    // SAFETY: unlinked, and a grace period has elapsed.
                    drop(unsafe { Box::from_raw(old) });
                }
                assert_eq!(FREED.load(Ordering::Relaxed) as u64, newest - 1);
            }
            requests.send();
            replies.sleep();
            assert_eq!(seen.load(Ordering::Relaxed), newest);
        }
    });
    // SAFETY: both threads are done with it.
    drop(unsafe { Box::from_raw(current.into_inner()) });
}

/// Debug builds report a thread that is about to sleep in the host's `epoll_wait` inside a section,
/// and name the line. Nothing is reported once the section is left.
#[test]
#[cfg(all(debug_assertions, not(quietline_sim)))]
fn a_reader_that_sleeps_in_its_section_is_reported() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    // A guard that moves between threads switches the assertion off for the process.
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    let events = Events::new();
    events.send();
    let section = domain.read();
    let report = catch_unwind(AssertUnwindSafe(|| events.sleep())).unwrap_err();
    let report = report.downcast::<String>().unwrap();
    assert!(report.contains("sleeps inside 1 read-side critical section"), "{report}");
    drop(section);
    // The event is still there: the report came before the sleep.
    events.sleep();
    domain.synchronize();
}

/// A value that finds readers after its drop.
struct Live(AtomicBool, &'static AtomicUsize);

impl Live {
    fn new(live: &'static AtomicUsize) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(AtomicBool::new(true), live)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        assert!(self.0.swap(false, Ordering::Relaxed), "dropped twice");
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Three event loops: one reads, one reclaims, one updates. The reader leaves its section before it
/// sleeps, the reclaimer is woken by an eventfd, and the updater asks for the bound before it makes
/// garbage. So the garbage stays within the bound, although the reader sleeps most of the time, and
/// none is left when the updater stops.
#[test]
fn event_loops_keep_garbage_bounded() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    const LIMIT: u64 = 3 * BATCH as u64;
    let updates = quietline_testing::scaled(20_000);
    let domain = Domain::new().unwrap();
    domain.set_backlog_limit(LIMIT);
    let reclaimer = Arc::new(Events::new());
    domain.set_reclaimer(Some(Box::new(reclaimer.clone()))).unwrap();
    let (requests, room) = (Events::new(), Events::new());
    let new = || RcuBox::new(&domain, Live::new(&LIVE)).unwrap();
    let current = Pointer::new(new());
    let (stop, mut highest) = (AtomicBool::new(false), 0);
    thread::scope(|scope| {
        // The reader.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                requests.sleep();
                let section = domain.read();
                let value = current.load(&section).unwrap();
                for _ in 0..100 {
                    assert!(value.0.load(Ordering::Relaxed), "dropped inside the section");
                }
            }
        });
        // The reclaimer.
        scope.spawn(|| {
            let mut callbacks_wait = false;
            loop {
                let last = stop.load(Ordering::Relaxed);
                might_sleep();
                let event = reclaimer.wait(if callbacks_wait || last { 1 } else { PATIENCE });
                assert!(event || callbacks_wait || last, "no event");
                callbacks_wait = domain.poll();
                if !domain.is_over_backlog_limit() {
                    room.send();
                }
                if last && !callbacks_wait {
                    break;
                }
            }
        });
        // The updater.
        for i in 0..updates {
            while domain.is_over_backlog_limit() {
                room.sleep();
            }
            drop(current.replace(new()));
            highest = highest.max(LIVE.load(Ordering::Relaxed));
            if i % 64 == 0 {
                requests.send();
            }
        }
        stop.store(true, Ordering::Relaxed);
        requests.send();
        reclaimer.send();
    });
    assert_eq!((LIVE.load(Ordering::Relaxed), domain.backlog()), (1, 0));
    // The limit, the CPUs' unfinished batches, the value that went over it and the current one.
    let bound = LIMIT as usize + BATCH as usize * cpu::nr_cpus() + 2;
    assert!(highest <= bound, "{highest} values waited; the bound is {bound}");
}

/// A reader that sleeps in the host's `epoll_wait` inside its section, in a release build or
/// without `might_sleep`: the stall report tells of it. No call but a wait for a grace period
/// hangs: at the bound the value comes back. Once the reader leaves, all is freed.
#[test]
fn a_sleeping_reader_appears_in_the_stall_report() {
    static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    const WAITED: Duration = Duration::from_millis(20);
    // The handler is the process's.
    quietline_testing::isolated!();
    set_stall_handler(|stall| STALLS.lock().unwrap().push(*stall));
    let domain = Domain::new().unwrap();
    domain.set_stall_patience(WAITED);
    domain.set_backlog_limit(2 * BATCH as u64);
    let (asleep, wake_up) = (Events::new(), Events::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let _section = domain.read();
            asleep.send();
            assert!(wake_up.wait(PATIENCE));
        });
        asleep.sleep();
        let mut retired = 0;
        let refused = loop {
            match domain.retire(Live::new(&LIVE)) {
                Ok(()) => retired += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, RetireError::Backlog(_)));
        let end = Instant::now() + Duration::from_secs(60);
        while STALLS.lock().unwrap().is_empty() {
            assert!(Instant::now() < end, "no report");
            assert!(domain.poll());
            thread::yield_now();
        }
        let first = STALLS.lock().unwrap()[0];
        assert!(first.waited >= WAITED);
        assert_eq!((first.open_sections, first.fence_refused), (1, false));
        let again = domain.retire(refused.into_inner()).unwrap_err();
        assert_eq!(LIVE.load(Ordering::Relaxed), retired + 1);
        wake_up.send();
        domain.barrier();
        domain.retire(again.into_inner()).unwrap();
    });
    domain.barrier();
    assert_eq!(LIVE.load(Ordering::Relaxed), 0);
}
