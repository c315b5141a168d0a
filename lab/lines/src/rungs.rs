//! Kernels of the thread of 2008: sockets, pipes and eventfds of Linux 2.6.27, with any patches of
//! the series.
//!
//! The CPUs of a simulated kernel have a timer tick each millisecond. As in Linux from 2007 to 2010
//! (`tick_setup_sched_timer`), a CPU's tick comes after that of the CPU before it. The ticks of all
//! CPUs are spread over half a tick. RCU frees files at the tick.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_history::{Build, Errno, Process, Rung, Tick, Word, World};
use quietline_platform::clock;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Time between two timer ticks: `CONFIG_HZ_1000`. The thread does not say what the machine had.
const TICK: Duration = Duration::from_millis(1);

/// What is opened and closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Socket,
    Pipe,
    Eventfd,
}

pub(crate) fn operations() -> Vec<Operation> {
    let of = |object| Rung::ALL.into_iter().map(move |rung| operation(object, rung));
    [Object::Socket, Object::Pipe, Object::Eventfd].into_iter().flat_map(of).collect()
}

/// Opening and closing such an object on a rung: `history-RUNG` for sockets, as the bench's columns are called.
pub(crate) fn operation(object: Object, rung: Rung) -> Operation {
    let kind = match object {
        Object::Socket => "",
        Object::Pipe => "pipes-",
        Object::Eventfd => "eventfds-",
    };
    let name = format!("history-{kind}{}", rung.name());
    of_build(name.into(), rung.says().into(), object, rung.into())
}

/// Returns opening and closing an object in a kernel that is built with these options.
pub(crate) fn of_build(
    name: Cow<'static, str>,
    says: Cow<'static, str>,
    object: Object,
    build: Build,
) -> Operation {
    Operation {
        name,
        says,
        scene: Box::new(move |cpus| scene(object, build, cpus)),
        allowance: Allowance::Any,
        period: if build.patches.typesafe_files { Period::Batch } else { Period::Ticks },
    }
}

/// A process of a kernel, and the CPU that it runs on.
struct OnCpu {
    world: Arc<World>,
    process: Process,
    cpu: usize,
    /// How much later than that of CPU 0 each tick of the CPU is.
    offset: Duration,
    next_tick: Duration,
}

impl OnCpu {
    fn open_and_close(&mut self, object: Object) -> Result<(), Errno> {
        let Self { process, cpu, .. } = self;
        let close = |fd| process.close(*cpu, fd);
        match object {
            Object::Socket => process.socket(*cpu).and_then(close),
            Object::Pipe => process.pipe(*cpu)?.into_iter().try_for_each(close),
            Object::Eventfd => process.eventfd(*cpu).and_then(close),
        }?;
        let now = clock::monotonic();
        if now >= self.next_tick {
            self.next_tick = tick_after(now, self.offset);
            self.world.tick(self.cpu)?;
        }
        Ok(())
    }
}

/// Returns the time of the first tick after a time. The CPU's ticks are later than those of CPU 0
/// by the offset.
fn tick_after(now: Duration, offset: Duration) -> Duration {
    let ticks = now.saturating_sub(offset).as_nanos() / TICK.as_nanos() + 1;
    TICK * u32::try_from(ticks).expect("a simulation lasts seconds at most") + offset
}

fn scene(object: Object, build: Build, cpus: usize) -> Scene {
    let build = Build { tick: Tick::Caller, ..build };
    let world = Arc::new(World::build(build, cpus).expect("memory for a kernel"));
    name(world.words());
    Box::new(move |cpu| {
        let (world, process) = (Arc::clone(&world), world.process());
        name(process.words());
        let number = |n: usize| u32::try_from(n).expect("a machine has fewer CPUs");
        let offset = TICK / 2 * number(cpu) / number(cpus);
        let next_tick = tick_after(clock::monotonic(), offset);
        let mut on = OnCpu { world, process, cpu, offset, next_tick };
        Box::new(move || on.open_and_close(object).expect("it is opened, and closed"))
    })
}

fn name(mut words: Vec<Word>) {
    // A structure before its fields.
    words.sort_by_key(|word| core::cmp::Reverse(word.bytes));
    for word in words {
        quietline_platform::sim::name(word.address, word.bytes, word.name);
    }
}
