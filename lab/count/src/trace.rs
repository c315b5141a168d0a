//! A run of a closure, one instruction at a time.

use crate::counts::Counts;
use crate::raw::{self, Child};
use crate::stand_in::StandIns;
use crate::stepper::Stepper;
use std::io::{self, PipeReader, Read};

/// Why a closure was not counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let a process trace its own child: a sandbox, or a tracer that is there already.
    #[error("this system refuses to trace a child process: {0}")]
    Refused(io::Error),
    /// The closure panicked.
    #[error("the closure panicked: {0}")]
    Panicked(String),
    /// The child ended, or was stopped, before the closure came back.
    #[error("the child did not come to the end of the closure: {0}")]
    Lost(String),
}

/// Counts what `f` executes. It runs in a forked child, on the CPU that the caller is on, so that what the caller
/// did to warm up (caches filled, memory touched) has been done for it; what it changes, the caller does not see.
///
/// The child has one thread: a closure must not wait for others. A child that has not come back after two minutes is
/// ended.
///
/// # Errors
/// See [`Error`].
pub fn count(mut f: impl FnMut()) -> Result<Counts, Error> {
    let mut life = || {
        raw::marker();
        f();
    };
    let (said, says) = io::pipe().map_err(Error::Refused)?;
    let child = Child::fork(&mut life, says).map_err(Error::Refused)?;
    let mut stepper = Stepper::new(&child, StandIns::none())?;
    check(stepper.resume()?, &said)?;
    let mut counts = Counts::default();
    let reached = stepper.count(&mut counts)?;
    child.finish();
    check(reached, &said)?;
    Ok(counts.with_frames())
}

/// Counts of several consecutive operations, each by itself.
///
/// In a forked child, `prepare` makes the operation; it runs `warm_up` times, and then step by step
/// until `enough`, which gets the counts so far, returns `true`. Functions of shared libraries run
/// at full speed: of them, calls and system calls are counted, and no instructions. The child has
/// clocks that advance by a microsecond at each reading, and random numbers that are the same in
/// each run, from the beginning of `prepare` on. (A thread that has used a `HashMap` before hands
/// the keys of its hashers on to the child.)
///
/// # Errors
/// See [`Error`].
pub fn count_operations<F: FnMut()>(
    prepare: impl FnOnce() -> F,
    warm_up: usize,
    mut enough: impl FnMut(&[Counts]) -> bool,
) -> Result<Vec<Counts>, Error> {
    let mut prepare = Some(prepare);
    let mut life = || {
        let Some(prepare) = prepare.take() else { return };
        let mut operation = prepare();
        (0..warm_up).for_each(|_| operation());
        loop {
            marked(&mut operation);
        }
    };
    let (said, says) = io::pipe().map_err(Error::Refused)?;
    let child = Child::fork(&mut life, says).map_err(Error::Refused)?;
    let stand_ins = StandIns::install(&child).map_err(Error::Refused)?;
    let mut stepper = Stepper::new(&child, stand_ins)?.skip_libraries();
    check(stepper.resume()?, &said)?;
    let mut all = Vec::new();
    while !enough(&all) {
        let mut counts = Counts::default();
        check(stepper.count(&mut counts)?, &said)?;
        all.push(counts);
    }
    Ok(all)
}

/// Executes a marker and then the operation. It is not inlined, so that the compiler does not peel
/// a round of the loop around it, and each operation comes with the same instructions of the loop.
#[inline(never)]
fn marked(operation: &mut dyn FnMut()) {
    raw::marker();
    operation();
}

/// Runs `f` in a forked child with the clocks and random numbers of [`count_operations`], and
/// counts nothing. The caller does not see changes of memory. `f` flushes its own output.
///
/// # Errors
/// See [`Error`].
pub fn run_reproducibly(f: impl FnOnce()) -> Result<(), Error> {
    let mut f = Some(f);
    let mut life = || f.take().map_or((), |f| f());
    let (said, says) = io::pipe().map_err(Error::Refused)?;
    let child = Child::fork(&mut life, says).map_err(Error::Refused)?;
    let stand_ins = StandIns::install(&child).map_err(Error::Refused)?;
    let reached = Stepper::new(&child, stand_ins)?.resume()?;
    child.finish();
    check(reached, &said)
}

/// An error if the marker is the panic hook's.
fn check(marker: u64, said: &PipeReader) -> Result<(), Error> {
    if marker != raw::PANICKED {
        return Ok(());
    }
    // The hook writes less than a pipe holds, in one call.
    let mut message = [0; 4096];
    let n = (&*said).read(&mut message).unwrap_or(0);
    Err(Error::Panicked(String::from_utf8_lossy(&message[..n]).into_owned()))
}
