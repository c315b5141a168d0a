//! Packets, what is done with them, and what has become of them.

use crate::caches;
use crate::packet::{PacketError, Packets, Skb};
use quietline_platform::{cpu, thread};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    /// Heads and data of packets that say when they end.
    static WATCHED: RefCell<Vec<[usize; 2]>> = const { RefCell::new(Vec::new()) };
    /// How many have ended.
    static ENDED: Cell<u32> = const { Cell::new(0) };
}

/// All packets. At its end none may be left.
#[derive(Clone, Copy)]
pub struct World(&'static Packets);

impl Deref for World {
    type Target = &'static Packets;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl World {
    pub fn new(puts_off: bool) -> Self {
        WATCHED.take();
        ENDED.set(0);
        let mut packets = Packets::new().unwrap();
        packets.puts_off = puts_off;
        Self(Box::leak(Box::new(packets)))
    }

    /// A packet of this CPU, of one byte.
    pub fn packet(&self, byte: u8) -> Skb<'static> {
        let mut skb = self.0.alloc_skb(1500).unwrap();
        skb.put_data(&[byte]).unwrap();
        caches::write(skb.data().as_ptr().addr());
        watch(&mut skb);
        skb
    }

    /// Packets that have ended. Of clones and copies, those that were asked to say so.
    pub fn ended(&self) -> u32 {
        ENDED.get()
    }

    /// Objects that are in use, of heads and of data.
    pub fn active(&self) -> [usize; 2] {
        [self.head_stats().active, self.data_stats().iter().map(|stats| stats.active).sum()]
    }

    /// Nobody has packets any more.
    pub fn end(self) {
        // SAFETY: leaked in `new`; the models' threads have ended.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.0).cast_mut()) });
    }
}

/// Counts the packet when it ends: then nobody else has its head, and its data is there.
pub fn watch(skb: &mut Skb<'_>) {
    let number = WATCHED.with_borrow_mut(|watched| {
        watched.push([skb.id(), skb.data().as_ptr().addr()]);
        watched.len() - 1
    });
    skb.set_destructor(Some((ended, number as u64))).unwrap();
    caches::write(skb.id());
}

extern "C" fn ended(number: u64) {
    let [head, data] = WATCHED.with_borrow(|watched| watched[number as usize]);
    let right = catch_unwind(|| {
        caches::write(head);
        caches::read(data);
    });
    // (No panic may leave this: an end that is not right is not counted.)
    if right.is_ok() {
        ENDED.set(ENDED.get() + 1);
    }
}

/// Its byte.
pub fn look(skb: &Skb<'_>) -> u8 {
    caches::read(skb.id());
    caches::read(skb.data().as_ptr().addr());
    skb.data()[0]
}

/// Sets its byte, if nobody else has it.
pub fn change(skb: &mut Skb<'_>, byte: u8) -> bool {
    match skb.data_mut() {
        Ok(data) => {
            data[0] = byte;
            caches::write(data.as_ptr().addr());
            true
        }
        Err(error) => {
            assert_eq!(error, PacketError::Shared);
            false
        }
    }
}

/// Sets its mark, if nobody else has the head.
pub fn mark(skb: &mut Skb<'_>, mark: u32) -> bool {
    let done = skb.set_mark(mark);
    if done.is_ok() {
        caches::write(skb.id());
    }
    done.is_ok()
}

/// A thread of a CPU.
pub fn on_cpu<R: 'static>(number: usize, f: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    thread::spawn(move || {
        cpu::migrate(number);
        f()
    })
}

/// All orders, or those with so many forced switches.
///
/// # Panics
/// When there are fewer than `orders`: then the model tries nothing.
pub fn explore(switches: Option<usize>, orders: usize, f: impl Fn(World) + Sync + Send + 'static) {
    explore_with(false, switches, orders, f);
}

/// The same of packets of which some are put off: whoever ends one, on any thread, looks for those.
///
/// # Panics
/// As there.
pub fn explore_put_off(
    switches: Option<usize>,
    orders: usize,
    f: impl Fn(World) + Sync + Send + 'static,
) {
    explore_with(true, switches, orders, f);
}

fn explore_with(
    puts_off: bool,
    switches: Option<usize>,
    orders: usize,
    f: impl Fn(World) + Sync + Send + 'static,
) {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(switches);
    model.max_branches = 50_000;
    model.check(move || {
        count.fetch_add(1, Relaxed);
        let world = World::new(puts_off);
        f(world);
        world.end();
    });
    let tried = tried.load(Relaxed);
    println!("{tried} orders");
    assert!(tried >= orders, "only {tried} orders were tried");
}
