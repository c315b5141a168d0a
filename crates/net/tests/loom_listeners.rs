//! Who is told of packets that end, beside changes of who listens, in every interleaving: each end is told to one listener at most, one
//! that was set, and he sees what was written before he was.
//!
//! The listeners are the library's own source, but for the one static that the program has.
//!
//! # Faults that were planted
//!
//! The store in `listen` or the load in `tell` relaxed (`one_that_is_set_again`).
//!
//! # Limits
//!
//! The places of listeners (`OnceLock`) are not modelled: each is taken in one step.
#![cfg(loom)]

/// As in the crate.
#[path = "../src/packet"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod packet {
    pub mod listeners;
    pub mod reason;

    use listeners::{Event, Listener, Listeners};
    use quietline_platform::cell::UnsafeCell;
    use quietline_platform::thread;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Counts what it is told, and reads what was written before it was set.
    struct Counter {
        told: AtomicUsize,
        written: UnsafeCell<u32>,
    }

    // SAFETY: the cell is accessed as the protocol says, and the model finds out where that is not enough.
    #[allow(unsafe_code)]
    unsafe impl Sync for Counter {}

    impl Listener for Counter {
        fn ended(&self, _packet: usize, _event: Event) {
            self.written.with(|_| ());
            self.told.fetch_add(1, Relaxed);
        }
    }

    impl Counter {
        fn new() -> &'static Self {
            Box::leak(Box::new(Self { told: AtomicUsize::new(0), written: UnsafeCell::new(0) }))
        }

        fn told(&self) -> usize {
            self.told.load(Relaxed)
        }
    }

    /// So many packets end, one after the other, on a thread of their own.
    fn ends(listeners: &Arc<Listeners>, packets: usize) -> thread::JoinHandle<()> {
        let listeners = listeners.clone();
        thread::spawn(move || {
            (0..packets).for_each(|packet| listeners.tell(packet, Event::Consumed))
        })
    }

    fn explore(f: impl Fn() + Sync + Send + 'static) {
        let tried = Arc::new(AtomicUsize::new(0));
        let count = tried.clone();
        quietline_platform::model(move || {
            count.fetch_add(1, Relaxed);
            f();
        });
        println!("{} orders", tried.load(Relaxed));
        assert!(tried.load(Relaxed) > 2, "the threads have not met");
    }

    /// A listener writes something and is set, also if not for the first time.
    #[test]
    fn one_that_is_set_again() {
        explore(|| {
            let (listeners, counter) = (Arc::new(Listeners::new()), Counter::new());
            assert!(listeners.listen(Some(counter)).is_ok() && listeners.listen(None).is_ok());
            let packets = ends(&listeners, 2);
            counter.written.with_mut(|_| ());
            assert!(listeners.listen(Some(counter)).is_ok());
            packets.join().unwrap();
            assert!(counter.told() <= 2);
        });
    }

    /// One takes the place of another: each packet is told to one of them.
    #[test]
    fn one_or_the_other() {
        explore(|| {
            let (listeners, counters) =
                (Arc::new(Listeners::new()), [Counter::new(), Counter::new()]);
            assert!(listeners.listen(Some(counters[0])).is_ok());
            let packets = ends(&listeners, 3);
            assert!(listeners.listen(Some(counters[1])).is_ok());
            listeners.tell(3, Event::Consumed);
            packets.join().unwrap();
            assert_eq!(counters.map(Counter::told).iter().sum::<usize>(), 4);
            assert!(counters[1].told() > 0, "who was set last is told what ends after that");
        });
    }

    /// After nobody listens any more, and what was just ending has ended, nothing is told.
    #[test]
    fn nobody_any_more() {
        explore(|| {
            let (listeners, counter) = (Arc::new(Listeners::new()), Counter::new());
            assert!(listeners.listen(Some(counter)).is_ok());
            let packets = ends(&listeners, 2);
            assert!(listeners.listen(None).is_ok());
            packets.join().unwrap();
            let told = counter.told();
            listeners.tell(2, Event::Consumed);
            assert_eq!(counter.told(), told);
            assert!(told <= 2);
        });
    }

    /// Two are set at once: each has a place of its own, and one of them listens.
    #[test]
    fn two_at_once() {
        explore(|| {
            let (listeners, counters) =
                (Arc::new(Listeners::new()), [Counter::new(), Counter::new()]);
            let other = {
                let listeners = listeners.clone();
                thread::spawn(move || {
                    assert!(listeners.listen(Some(counters[1])).is_ok());
                    listeners.tell(1, Event::Consumed);
                })
            };
            assert!(listeners.listen(Some(counters[0])).is_ok());
            other.join().unwrap();
            listeners.tell(2, Event::Consumed);
            assert_eq!(counters.map(Counter::told).iter().sum::<usize>(), 2);
            for counter in counters {
                let told = counter.told();
                assert!(listeners.listen(Some(counter)).is_ok());
                listeners.tell(3, Event::Consumed);
                assert_eq!(counter.told(), told + 1);
            }
        });
    }
}
