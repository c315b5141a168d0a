//! Threads that make one call after another, and what they are at meanwhile.
//!
//! Both systems' callers are threads of this program, and sleep in the kernel: ours in a futex. So one look serves for both. A
//! call is at rest when its thread sleeps: state S, seen twice with as many voluntary switches, and the other threads' likewise. One
//! that was woken and has not run yet is in state R; one that waits a moment for a lock does so only while another thread
//! runs that has it.

use super::call::Outcome;
use quietline::{Interrupt, Shared};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() -> Outcome + Send>;

pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
    state: Arc<State>,
    tid: i32,
    status: File,
    /// How many jobs it was given.
    given: u64,
    interrupt: Shared<Interrupt>,
}

#[derive(Default)]
struct State {
    /// How many jobs were begun, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
    outcome: Mutex<Option<Outcome>>,
}

/// What a thread is at.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Ended,
    /// It has gone to sleep so often.
    Sleeps(u64),
    Runs,
}

/// A signal that does nothing but interrupt.
const SIGNAL: i32 = libc::SIGUSR1;

extern "C" fn nothing(_: i32) {}

/// Lets the signal interrupt calls: without SA_RESTART.
pub(crate) fn handle_signal() {
    // SAFETY: all zeros are no flags and an empty mask; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(SIGNAL, &action, core::ptr::null_mut()), 0);
    }
}

impl Worker {
    pub(crate) fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (tell, tid) = mpsc::channel();
        let state = Arc::<State>::default();
        let interrupt = Shared::new(Interrupt::new()).unwrap();
        let (here, mine) = (state.clone(), interrupt.clone());
        // Its stack and its heap last as long as the program: it ends when there are no more jobs.
        thread::spawn(move || {
            let _entered = Interrupt::enter(&mine);
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            for job in todo {
                here.begun.fetch_add(1, Ordering::SeqCst);
                let outcome = job();
                *here.outcome.lock().unwrap() = Some(outcome);
                here.ended.fetch_add(1, Ordering::SeqCst);
            }
        });
        let tid = tid.recv().unwrap();
        let status = File::open(format!("/proc/self/task/{tid}/status")).unwrap();
        Self { jobs, state, tid, status, given: 0, interrupt }
    }

    pub(crate) fn start(&mut self, job: Job) {
        self.given += 1;
        self.jobs.send(job).unwrap();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.ended.load(Ordering::SeqCst) == self.given
    }

    /// What came of the call that has ended.
    pub(crate) fn outcome(&mut self) -> Outcome {
        self.interrupt.clear();
        self.state.outcome.lock().unwrap().take().expect("an outcome of each call")
    }

    /// Interrupts a call on quietline.
    pub(crate) fn interrupt(&self) {
        self.interrupt.raise();
    }

    /// Interrupts a call on the host.
    pub(crate) fn signal(&self) {
        // SAFETY: a signal that is handled, to a thread of our own.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, SIGNAL) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
    }

    fn look(&self) -> At {
        if self.has_ended() {
            return At::Ended;
        }
        if self.state.begun.load(Ordering::SeqCst) != self.given {
            return At::Runs;
        }
        let mut text = [0; 4096];
        let n = self.status.read_at(&mut text, 0).unwrap();
        let field = |name: &[u8]| {
            let from = text[..n].windows(name.len()).position(|here| here == name)? + name.len();
            text[from..n].split(|byte| *byte == b'\n').next()
        };
        match field(b"\nState:\t") {
            Some([b'S', ..]) => {
                let times =
                    field(b"\nvoluntary_ctxt_switches:\t").expect("a field of every status");
                At::Sleeps(std::str::from_utf8(times).unwrap().parse().unwrap())
            }
            Some(_) => At::Runs,
            None => panic!("a status without a state"),
        }
    }
}

/// Waits until each has ended its call or sleeps in it, for as long as that takes within reason; whether they came to that.
pub(crate) fn rest(workers: &[&Worker]) -> bool {
    const LONG: Duration = Duration::from_secs(180);
    let (since, mut before) = (Instant::now(), None);
    for round in 0.. {
        let mut now = [At::Ended; 2 * super::call::THREADS];
        now.iter_mut().zip(workers).for_each(|(now, worker)| *now = worker.look());
        if now == [At::Ended; _] || before == Some(now) && !now.contains(&At::Runs) {
            return true;
        }
        before = Some(now);
        if round % 64 == 63 && since.elapsed() > LONG {
            return false;
        }
        thread::yield_now();
    }
    unreachable!()
}
