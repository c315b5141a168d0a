//! The locks of a file beside the host kernel's, command by command.
//!
//! Host: processes made by `fork`, each with two open files on one file of /dev/shm, told by pipes
//! what to do. Ours: one [`FileLocks`], asked in the same order.
#![allow(unsafe_code)]

use quietline_sync::{Interrupt, Shared};
use quietline_vfs::FileMode;
use quietline_vfs::locks::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_SETLK, F_SETLKW, F_UNLCK, F_WRLCK, FileLocks,
    Flock, LOCK_NB, LockUser, LockWaits,
};
use std::ffi::CString;
use std::sync::mpsc;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn fork() -> i32;
    fn pipe(fds: *mut i32) -> i32;
    fn open(path: *const core::ffi::c_char, flags: i32, ...) -> i32;
    safe fn close(fd: i32) -> i32;
    fn read(fd: i32, buffer: *mut u8, size: usize) -> isize;
    fn write(fd: i32, buffer: *const u8, size: usize) -> isize;
    fn fcntl(fd: i32, cmd: i32, ...) -> i32;
    fn flock(fd: i32, operation: i32) -> i32;
    fn lseek(fd: i32, offset: i64, whence: i32) -> i64;
    fn unlink(path: *const core::ffi::c_char) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn poll(fds: *mut [i32; 2], n: u64, timeout: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn __errno_location() -> *mut i32;
}

const PROCESSES: usize = 3;
const FILES: usize = 2;
/// The file's size, and the position of its first and of its second open file.
const SIZE: i64 = 10;
const POSITIONS: [i64; FILES] = [3, 0];
/// The second open file is for reading only.
const MODES: [(i32, FileMode); FILES] =
    [(2, FileMode::READ.union(FileMode::WRITE)), (0, FileMode::READ)];

/// What to do, by which open file. Plain data that goes through a pipe as it is.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    file: i32,
    /// An `fcntl` command, or one of these.
    cmd: i32,
    /// For [`FLOCK`].
    operation: i32,
    flock: Flock,
}

const FLOCK: i32 = 1000;
const REOPEN: i32 = 1001;

/// 0 or the error, and what `fcntl` left.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    error: i32,
    flock: Flock,
}

struct Host {
    path: CString,
    children: Vec<Child>,
}

struct Child {
    pid: i32,
    to: i32,
    from: i32,
}

fn send<T: Copy>(fd: i32, value: &T) {
    // SAFETY: plain data of this size; short enough for a pipe to take it whole.
    let sent = unsafe { write(fd, core::ptr::from_ref(value).cast(), size_of::<T>()) };
    assert_eq!(sent, size_of::<T>() as isize);
}

fn receive<T: Copy + Default>(fd: i32) -> Option<T> {
    let mut value = T::default();
    // SAFETY: plain data of this size, for which every pattern that comes was sent by `send`.
    let got = unsafe { read(fd, core::ptr::from_mut(&mut value).cast(), size_of::<T>()) };
    (got == size_of::<T>() as isize).then_some(value)
}

impl Host {
    fn new(name: &str) -> Self {
        let path = CString::new(format!("/dev/shm/quietline-locks-{name}-{}", std::process::id()))
            .unwrap();
        std::fs::write(path.to_str().unwrap(), [0; SIZE as usize]).unwrap();
        let children = (0..PROCESSES).map(|_| Child::new(&path)).collect();
        Self { path, children }
    }

    fn start(&self, process: usize, step: &Step) {
        send(self.children[process].to, step);
    }

    fn outcome(&self, process: usize) -> Outcome {
        receive(self.children[process].from).expect("the child lives")
    }

    /// Whether there is an outcome.
    fn is_done(&self, process: usize) -> bool {
        const POLLIN: i32 = 1;
        let mut fds = [self.children[process].from, POLLIN];
        // SAFETY: laid out as one pollfd: the descriptor, then the events in the lower half of the
        // second word.
        unsafe { poll(&mut fds, 1, 0) == 1 }
    }

    /// If it sleeps in `fcntl` or `flock`: how often it has gone to sleep since it began.
    ///
    /// One that has been woken and has not run yet is still found in its call, so the call alone
    /// does not tell: its state does.
    fn sleeps(&self, process: usize) -> Option<u64> {
        let of = |file: &str| {
            std::fs::read_to_string(format!("/proc/{}/{file}", self.children[process].pid)).unwrap()
        };
        let status = of("status");
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        if !field("State:").starts_with('S') {
            return None;
        }
        let sleeps = field("voluntary_ctxt_switches:").parse().unwrap();
        let call = of("syscall");
        let number = call.split(' ').next().unwrap();
        let calls = if cfg!(target_arch = "x86_64") { ["72", "73"] } else { ["25", "32"] };
        calls.contains(&number).then_some(sleeps)
    }

    /// Waits until everybody who was told to do something has done it or sleeps; says what came
    /// out. Looks twice: one who was asleep at the first look may have been woken since, by one who
    /// was looked at later and sleeps again.
    fn rest(&self, busy: [bool; PROCESSES]) -> [Option<Outcome>; PROCESSES] {
        let mut outcomes = [None; PROCESSES];
        let mut before = None;
        loop {
            let (mut rested, mut slept) = (true, [0; PROCESSES]);
            for process in (0..PROCESSES).filter(|&process| busy[process]) {
                if outcomes[process].is_some() {
                    continue;
                }
                match self.sleeps(process) {
                    Some(times) => slept[process] = times,
                    None => {
                        rested = false;
                        if self.is_done(process) {
                            outcomes[process] = Some(self.outcome(process));
                        }
                    }
                }
            }
            if rested && before == Some(slept) {
                return outcomes;
            }
            before = rested.then_some(slept);
            std::thread::yield_now();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in &self.children {
            const SIGKILL: i32 = 9;
            // SAFETY: our own descriptors and children. A child may be asleep for ever, so it is
            // killed.
            unsafe {
                kill(child.pid, SIGKILL);
                close(child.to);
                close(child.from);
                waitpid(child.pid, core::ptr::null_mut(), 0);
            }
        }
        // SAFETY: a string that lives.
        unsafe { unlink(self.path.as_ptr()) };
    }
}

impl Child {
    fn new(path: &CString) -> Self {
        let (mut to, mut from) = ([0; 2], [0; 2]);
        // SAFETY: room for two descriptors each; the child calls nothing but system calls.
        unsafe {
            assert_eq!((pipe(to.as_mut_ptr()), pipe(from.as_mut_ptr())), (0, 0));
            let pid = fork();
            assert!(pid >= 0);
            if pid == 0 {
                // Other tests' and children's ends too: a pipe ends when its last writer is gone.
                for fd in (3..256).filter(|fd| ![to[0], from[1]].contains(fd)) {
                    close(fd);
                }
                serve(path, to[0], from[1]);
            }
            close(to[0]);
            close(from[1]);
            Self { pid, to: to[1], from: from[0] }
        }
    }
}

/// The life of a child.
fn serve(path: &CString, commands: i32, outcomes: i32) -> ! {
    let reopen = |file: usize| {
        // SAFETY: a string that lives.
        unsafe {
            let fd = open(path.as_ptr(), MODES[file].0);
            lseek(fd, POSITIONS[file], 0);
            fd
        }
    };
    let mut fds = [reopen(0), reopen(1)];
    while let Some(mut step) = receive::<Step>(commands) {
        let file = step.file as usize;
        // SAFETY: our own descriptors; the structure is laid out as the kernel's.
        let result = unsafe {
            match step.cmd {
                FLOCK => flock(fds[file], step.operation),
                REOPEN => {
                    close(fds[file]);
                    fds[file] = reopen(file);
                    0
                }
                cmd => fcntl(fds[file], cmd, core::ptr::from_mut(&mut step.flock)),
            }
        };
        // SAFETY: the thread's own word.
        let error = if result < 0 { unsafe { *__errno_location() } } else { 0 };
        send(outcomes, &Outcome { error, flock: step.flock });
    }
    // SAFETY: ends the child without running the parent's destructors.
    unsafe { _exit(0) }
}

/// Our side: the same steps.
#[derive(Default)]
struct Ours {
    locks: FileLocks,
    waits: LockWaits,
}

impl Ours {
    fn step(&self, pid: i32, process: usize, step: &Step) -> Outcome {
        let file = step.file as usize;
        let id = (process * FILES + file) as u64;
        let user = LockUser {
            process: pid,
            file: id,
            mode: MODES[file].1,
            position: POSITIONS[file],
            size: SIZE,
        };
        let mut flock = step.flock;
        let result = match step.cmd {
            FLOCK => self.locks.flock(&self.waits, id, step.operation),
            REOPEN => {
                self.locks.process_closes(&self.waits, pid);
                self.locks.file_ends(&self.waits, id);
                Ok(())
            }
            cmd => self.locks.fcntl(&self.waits, cmd, &mut flock, &user),
        };
        Outcome { error: result.err().map_or(0, |error| error.raw_os_error()), flock }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn step(&mut self) -> Step {
        let file = self.below(FILES as u64) as i32;
        let cmd = match self.below(100) {
            0..35 => F_SETLK,
            35..55 => F_OFD_SETLK,
            55..70 => F_GETLK,
            70..85 => F_OFD_GETLK,
            85..97 => FLOCK,
            _ => REOPEN,
        };
        let odd = self.below(20) == 0;
        let flock = Flock {
            l_type: if odd {
                self.of(&[3, -1, 4, 8])
            } else {
                self.of(&[F_RDLCK, F_WRLCK, F_UNLCK])
            },
            l_whence: self.of(&[0, 0, 0, 0, 0, 0, 1, 2, if odd { 3 } else { 0 }]),
            l_start: match self.below(12) {
                0 => self.of(&[-1, -3, -20, i64::MIN, i64::MAX, i64::MAX - 5, i64::MAX - 10]),
                _ => self.below(24) as i64,
            },
            l_len: match self.below(12) {
                0 => self.of(&[0, -4, -10, -30, i64::MIN, i64::MAX, i64::MAX - 3, 5]),
                1 => 0,
                _ => 1 + self.below(9) as i64,
            },
            l_pid: if odd { 5 } else { 0 },
        };
        let operation = self.of(&[1, 2, 8, 1, 2, 8, 0, 3, 9, 32 | 1, 16, 64]) | LOCK_NB;
        Step { file, cmd, operation, flock }
    }
}

impl Random {
    /// Mostly locks of a process on one or two of three bytes, so that there is something to wait
    /// for. None of open files': the host does not see a deadlock when one of those waits in
    /// between, and we do.
    fn waiting_step(&mut self, all_kinds: bool) -> Step {
        let flock = Flock {
            l_type: self.of(&[
                F_WRLCK,
                F_WRLCK,
                if all_kinds { F_RDLCK } else { F_WRLCK },
                F_UNLCK,
            ]),
            l_start: self.below(3) as i64,
            l_len: 1 + if all_kinds { self.below(2) as i64 } else { 0 },
            ..Flock::default()
        };
        let (cmd, operation) = match self.below(24) {
            0 => (REOPEN, 0),
            1 | 2 => (FLOCK, self.of(&[1, 2, 8])),
            _ => (F_SETLKW, 0),
        };
        Step { file: 0, cmd, operation, flock }
    }
}

/// Random commands that do not wait: results, errors and answers are the host's.
#[test]
fn commands_that_do_not_wait() {
    quietline_testing::isolated!();
    let steps = quietline_testing::budget("QUIETLINE_LOCK_STEPS", 30_000) as u32;
    let (host, ours) = (Host::new("nowait"), Ours::default());
    let mut random = Random(7);
    let (mut errors, mut conflicts) = ([0u32; 256], 0u32);
    for n in 0..steps {
        let process = random.below(PROCESSES as u64) as usize;
        let step = random.step();
        host.start(process, &step);
        let theirs = host.outcome(process);
        let answer = ours.step(host.children[process].pid, process, &step);
        assert_eq!(answer, theirs, "step {n}: process {process} (ours left, host right): {step:?}");
        errors[theirs.error as usize] += 1;
        let asks = [F_GETLK, F_OFD_GETLK].contains(&step.cmd);
        conflicts += u32::from(asks && theirs.error == 0 && theirs.flock.l_type != F_UNLCK);
    }
    // The steps went everywhere: success, conflict, bad arguments, overflow, wrong mode.
    const EBADF: usize = 9;
    const EAGAIN: usize = 11;
    const EINVAL: usize = 22;
    const EOVERFLOW: usize = 75;
    for error in [0, EBADF, EAGAIN, EINVAL, EOVERFLOW] {
        assert!(errors[error] > steps / 1000, "error {error}: {} of {steps}", errors[error]);
    }
    assert!(conflicts > steps / 100);
}

/// Random commands that wait: after each one the same processes sleep, and those that come back
/// have the same results, `EDEADLK` among them.
#[test]
fn commands_that_wait() {
    quietline_testing::isolated!();
    let steps = quietline_testing::scaled(3_000) as u32;
    let mut random = Random(3);
    let mut seen = Seen::default();
    while seen.steps < steps {
        episode(&mut random, &mut seen, 2);
        episode(&mut random, &mut seen, 3);
    }
    assert!(seen.deadlocks.min(seen.slept) >= steps / 20, "{seen:?}");
    assert!(seen.stuck >= (steps / 4_000).max(1), "{seen:?}");
}

/// What has happened in the episodes.
#[derive(Debug, Default)]
struct Seen {
    steps: u32,
    slept: u32,
    deadlocks: u32,
    stuck: u32,
}

/// Commands until everybody sleeps: then flocks are in the cycle, which nobody looks for.
///
/// With two processes there is one that can be in the way. With three the locks are exclusive and
/// of one byte, so that again at most one is in the way: of several, the host follows the one that
/// came first, which after a common wake-up is chance.
fn episode(random: &mut Random, seen: &mut Seen, processes: usize) {
    const EDEADLK: i32 = 35;
    const EINTR: i32 = 4;
    let (host, ours) = (Host::new("wait"), Ours::default());
    let interrupts = [(); PROCESSES].map(|()| Shared::new(Interrupt::new()).unwrap());
    std::thread::scope(|scope| {
        // Whatever happens, nobody is left asleep.
        let _end = Raise(&interrupts);
        let (outcomes, outcome) = mpsc::channel();
        let workers: Vec<mpsc::Sender<Step>> = (0..PROCESSES)
            .map(|process| {
                let (send, steps) = mpsc::channel::<Step>();
                let (ours, outcomes, pid) = (&ours, outcomes.clone(), host.children[process].pid);
                let interrupt = &interrupts[process];
                scope.spawn(move || {
                    let _entered = Interrupt::enter(interrupt);
                    for step in steps {
                        let _ = outcomes.send((process, ours.step(pid, process, &step)));
                    }
                });
                send
            })
            .collect();
        let mut asleep = [false; PROCESSES];
        let mut history = Vec::new();
        for round in 0..100 {
            let awake: Vec<usize> = (0..processes).filter(|&process| !asleep[process]).collect();
            if awake.is_empty() {
                seen.stuck += 1;
                break;
            }
            let process = random.of(&awake);
            let step = random.waiting_step(processes == 2);
            seen.steps += 1;
            host.start(process, &step);
            workers[process].send(step).unwrap();
            asleep[process] = true;
            let mut theirs = host.rest(asleep);
            history.push(format!(
                "{process}: {step:?}: {:?}",
                theirs.map(|outcome| outcome.map(|outcome| outcome.error))
            ));
            // Ours: each has an outcome or waits.
            let mut answers = [None; PROCESSES];
            let busy = asleep.iter().filter(|asleep| **asleep).count();
            let since = Instant::now();
            while answers.iter().flatten().count() + ours.locks.waiting() != busy {
                assert!(
                    since.elapsed() < Duration::from_secs(120),
                    "somebody is lost: {history:#?}"
                );
                for (p, answer) in outcome.try_iter() {
                    answers[p] = Some(answer);
                }
                std::thread::yield_now();
            }
            // One that the host has woken may sleep for a moment on its way out, on a lock of its
            // kernel's.
            let since = Instant::now();
            while answers != theirs && since.elapsed() < Duration::from_secs(20) {
                let late = host.rest(core::array::from_fn(|p| asleep[p] && theirs[p].is_none()));
                theirs = core::array::from_fn(|p| theirs[p].or(late[p]));
            }
            assert_eq!(answers, theirs, "round {round} (ours left, host right): {history:#?}");
            for p in 0..PROCESSES {
                asleep[p] &= theirs[p].is_none();
                seen.deadlocks +=
                    u32::from(theirs[p].is_some_and(|outcome| outcome.error == EDEADLK));
            }
            seen.slept += u32::from(asleep[process]);
        }
        assert_eq!(ours.locks.waiting(), asleep.iter().filter(|asleep| **asleep).count());
        // One who is interrupted may set free another, who then has the lock.
        interrupts.iter().for_each(|interrupt| interrupt.raise());
        for _ in asleep.iter().filter(|asleep| **asleep) {
            let (_, answer) = outcome.recv_timeout(Duration::from_secs(120)).expect("interrupted");
            assert_eq!(answer.error, EINTR, "nobody gave up a lock");
        }
        drop(workers);
    });
    assert_eq!(ours.locks.waiting(), 0);
}

struct Raise<'a>(&'a [Shared<Interrupt>]);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|interrupt| interrupt.raise());
    }
}
