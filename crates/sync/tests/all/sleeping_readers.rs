//! Readers that sleep in the host's `epoll_wait`: the pattern that works, and the report of the one
//! that does not.
#![cfg(not(any(loom, miri)))]

use quietline_sync::{might_sleep, rcu::Domain};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread;

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
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let mut count = 0_u64;
        // SAFETY: one event and eight bytes of ours.
        unsafe {
            let found = libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, PATIENCE);
            assert_eq!(found, 1, "{}", std::io::Error::last_os_error());
            let taken = libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8);
            assert_eq!(taken, 8);
        }
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
