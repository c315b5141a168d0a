//! The calls of planted faults.

use super::{Call, Outcome, calls, within};
use crate::kind::Kind::{Any, Path};
use crate::kind::NOFILE;
use crate::plant::Plant;
use crate::victim::MARKER;
use quietline::Errno;
use quietline_sync::SpinLock;
use std::hint::black_box;
use std::mem;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the call that does wrong, if a fault is one of a call.
pub(super) fn planted(plant: Plant) -> Option<&'static Call> {
    let name = match plant {
        Plant::DeafSleep => "planted_deaf_sleep",
        Plant::DeafLoop => "planted_deaf_loop",
        Plant::Deadlock => "planted_deadlock",
        Plant::SelfDeadlock => "planted_self_deadlock",
        Plant::LongHold => "planted_long_hold",
        Plant::Panic => "planted_panic",
        Plant::TooMany => "planted_too_many",
        Plant::HighDescriptor => "planted_high_descriptor",
        Plant::StrangeError => "planted_strange_error",
        Plant::HeapLeak => "planted_heap_leak",
        Plant::Memory => "planted_memory",
        Plant::FileLeak => "planted_file_leak",
        Plant::ObjectLeak => "planted_object_leak",
        Plant::ProcessLeak => "planted_process_leak",
        Plant::StolenFile => "planted_stolen_file",
        Plant::StolenBytes => "planted_stolen_bytes",
        Plant::StolenPath => "planted_stolen_path",
        Plant::Defaced => "planted_defaced",
        Plant::NeverSucceeds => "planted_never_succeeds",
        Plant::DeafEnd
        | Plant::Descriptor
        | Plant::Reserved
        | Plant::Pid
        | Plant::Port
        | Plant::EphemeralPort
        | Plant::SocketName
        | Plant::InstanceCount
        | Plant::WatchCount
        | Plant::EpollCount
        | Plant::FlightCount
        | Plant::InodeCount
        | Plant::PageCount
        | Plant::Tree => return None,
    };
    CALLS.iter().find(|call| call.name == name)
}

static LOCKS: [SpinLock<()>; 2] = [SpinLock::new(()), SpinLock::new(())];
static MEETING: std::sync::LazyLock<Barrier> = std::sync::LazyLock::new(|| Barrier::new(2));
static TURN: AtomicUsize = AtomicUsize::new(0);

fn deadlock() -> Outcome {
    // Relaxed: a number.
    let first = TURN.fetch_add(1, Ordering::Relaxed) % 2;
    let _held = LOCKS[first].lock();
    MEETING.wait();
    let _never = LOCKS[1 - first].lock();
    Ok(0)
}

/// Uses CPU time under a lock.
fn long_hold() -> Outcome {
    let _held = LOCKS[0].lock();
    let begun = Instant::now();
    let mut word = 0u64;
    // More than twice the bound, in case that other threads have the CPU in between.
    while begun.elapsed() < Duration::from_millis(100) {
        word = black_box(word.wrapping_add(1));
    }
    Ok(0)
}

#[rustfmt::skip] // a table
const CALLS: &[Call] = calls! {
    20 planted_deaf_sleep() |_, _| loop { thread::park(); };
    20 planted_deaf_loop() |c, _| loop { let _ = c.p.ppoll(&mut [], None); };
    20 planted_deadlock() |_, _| deadlock();
    20 planted_self_deadlock() |_, _| {
        let _held = LOCKS[0].lock();
        let _never = LOCKS[0].lock();
        Ok(0)
    };
    20 planted_long_hold() |_, _| long_hold();
    20 planted_panic() |_, _| panic!("a planted panic");
    20 planted_too_many() |_, _| within(11, 10);
    20 planted_high_descriptor() |c, _| c.descriptor(NOFILE as i32);
    20 planted_strange_error() |_, _| Err(Errno::from_raw_os_error(512));
    20 planted_heap_leak() |_, _| { mem::forget(black_box(vec![1u8; 32 << 10])); Ok(0) };
    20 planted_memory() |_, _| { mem::forget(black_box(vec![1u8; 16 << 20])); Ok(0) };
    20 planted_file_leak() |c, _| { mem::forget(c.p.eventfd_file(0, 0)?); Ok(0) };
    20 planted_object_leak() |c, _| { mem::forget(c.p.gift_page()?); Ok(0) };
    20 planted_process_leak() |c, _| {
        let child = c.p.fork()?;
        child.close_range(0, u32::MAX, 0)?;
        mem::forget(child);
        Ok(0)
    };
    20 planted_stolen_file() |c, _| {
        let file = c.guest.victim().secret_file()?;
        c.descriptor(c.p.install_file(file, 0)?)
    };
    20 planted_stolen_bytes() |c, _| {
        c.output(MARKER.len() as i64 + 5)[5..].copy_from_slice(MARKER);
        Ok(0)
    };
    100 planted_stolen_path(Path, Any) |_, _| Ok(0);
    20 planted_defaced() |c, _| {
        c.guest.victim().deface()?;
        Ok(0)
    };
    20 planted_never_succeeds() |_, _| Err(Errno::NOSYS);
};
