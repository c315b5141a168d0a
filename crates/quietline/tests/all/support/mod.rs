//! Support for the tests of this program.
#![allow(unsafe_code, reason = "processor affinity and child processes")]

pub(crate) mod chance;

use quietline::Kernel;
use quietline_platform::pages;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// A sequence of numbers that looks random and is always the same (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// For tests that look at numbers of the whole program.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That nothing is open in a kernel, and none of its objects in use.
#[track_caller]
pub(crate) fn assert_nothing_open(kernel: &Kernel) {
    let counts = (kernel.nr_files(), kernel.nr_dentry(), kernel.nr_inodes());
    assert_eq!(counts, (0, 0, 0), "files, dentries, inodes");
    for cache in kernel.slabinfo() {
        // The root directory: counted above.
        if matches!(&*cache.name, "dentry" | "inode_cache") {
            continue;
        }
        assert_eq!(cache.active, 0, "objects in use: {cache:?}");
    }
}

/// Waits for all that goes back to the system only after a grace period.
pub(crate) fn settle() {
    quietline_sync::rcu::global().expect("memory").barrier();
}

/// Sets a flag when dropped: threads that wait for it are let go also when the test fails.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes in pages that are in use, when all that waits for a grace period has gone back.
pub(crate) fn pages_used() -> usize {
    settle();
    pages::usage().used
}

/// Bytes of this program's memory that are resident.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize =
        statm.split(' ').nth(1).expect("its second number").parse().expect("a number");
    // SAFETY: asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize
}

/// A thread that sleeps in a call, or has ended.
pub(crate) struct Asleep<'scope, R> {
    thread: ScopedJoinHandle<'scope, R>,
    id: i32,
    call: i64,
    /// How often it had gone to sleep when it was found asleep.
    times: Option<String>,
}

impl<R> Asleep<'_, R> {
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Whether nobody has woken it since: it sleeps, and has not gone to sleep once more. Who is woken is no longer asleep when
    /// the call that wakes it comes back, so there is nothing to wait for.
    pub(crate) fn sleeps_on(&self) -> bool {
        self.times.is_some() && self.times_asleep() == self.times
    }

    /// Comes back when it sleeps, at two looks without having run between them, or has ended. At once if it has slept on since
    /// it was last found asleep.
    #[track_caller]
    pub(crate) fn until_asleep(&mut self) {
        let began = Instant::now();
        while !self.is_finished() {
            let now = self.times_asleep();
            if now.is_some() && now == self.times {
                break;
            }
            self.times = now;
            assert!(began.elapsed() < Duration::from_secs(180), "the call does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn join(self) -> std::thread::Result<R> {
        self.thread.join()
    }

    /// How often it has gone to sleep, if it sleeps in the call. A thread that is gone has no files.
    fn times_asleep(&self) -> Option<String> {
        let of = |file: &str| {
            std::fs::read_to_string(format!("/proc/self/task/{}/{file}", self.id)).ok()
        };
        let status = of("status")?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let in_call = of("syscall")?.split(' ').next() == Some(&self.call.to_string());
        (field("State:")?.starts_with('S') && in_call)
            .then(|| field("voluntary_ctxt_switches:").map(str::to_owned))?
    }
}

/// Returns once all other threads of the process sleep, and have not run between two looks 5 ms
/// apart. The test is isolated: otherwise other tests' threads run.
#[track_caller]
pub(crate) fn until_others_sleep() {
    // SAFETY: asks for a number.
    let own = unsafe { libc::gettid() }.to_string();
    let look = || -> Option<Vec<String>> {
        let tasks = std::fs::read_dir("/proc/self/task").ok()?;
        let others =
            tasks.map(|task| task.expect("a thread").path()).filter(|path| !path.ends_with(&own));
        others
            .map(|path| {
                let status = std::fs::read_to_string(path.join("status")).ok()?;
                let field = |name: &str| {
                    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
                };
                let sleeps = field("State:")?.starts_with('S');
                sleeps.then(|| field("voluntary_ctxt_switches:").map(str::to_owned))?
            })
            .collect()
    };
    let (began, mut before) = (Instant::now(), None);
    loop {
        let now = look();
        if now.is_some() && now == before {
            return;
        }
        before = now;
        assert!(began.elapsed() < Duration::from_secs(180), "another thread does not sleep");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `f` in a thread of `scope`, and comes back when that sleeps, waiting for another thread: in a futex, at two looks
/// without having run between them. Comes back too if it ends instead.
#[track_caller]
pub(crate) fn spawn_asleep<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    f: impl FnOnce() -> R + Send + 'scope,
) -> Asleep<'scope, R> {
    spawn_asleep_in(scope, libc::SYS_futex, f)
}

/// The same with the host's call that it sleeps in.
#[track_caller]
pub(crate) fn spawn_asleep_in<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    call: i64,
    f: impl FnOnce() -> R + Send + 'scope,
) -> Asleep<'scope, R> {
    let (tell, told) = mpsc::channel();
    let thread = scope.spawn(move || {
        // SAFETY: asks for a number.
        tell.send(unsafe { libc::gettid() }).expect("somebody listens");
        f()
    });
    let id = told.recv().expect("it runs");
    let mut asleep = Asleep { thread, id, call, times: None };
    asleep.until_asleep();
    asleep
}

/// Puts the calling thread, and threads that it makes, into a network of the host's own for them, with a loopback device and
/// nothing else: nobody else has ports there, nor has left any, and settings are those that a kernel begins with. False if the
/// host does not let it; then they are where they were.
pub(crate) fn own_network() -> bool {
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        flags: libc::c_short,
        rest: [u8; 22],
    }
    // SAFETY: the first call passes no memory; the request is as long as the kernel's, and outlives the call.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET) != 0 {
            return false;
        }
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request = Request {
            name: [0; libc::IFNAMSIZ],
            flags: libc::IFF_UP as libc::c_short,
            rest: [0; 22],
        };
        request.name[..2].copy_from_slice(b"lo");
        let up = libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request);
        assert_eq!((up, libc::close(socket)), (0, 0), "{}", std::io::Error::last_os_error());
    }
    true
}

/// That the host's queues of local datagrams are as long as ours, as they are in [a network of one's own](own_network).
#[track_caller]
pub(crate) fn assert_dgram_queues() {
    let length = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").expect("a number");
    assert_eq!(
        length.trim(),
        "10",
        "net.unix.max_dgram_qlen: programs are compared where it is 10"
    );
}

/// CPUs that the calling thread may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Keeps the calling thread on one CPU.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Runs `f` in a forked child, which must come to its end within `seconds`.
#[track_caller]
pub(crate) fn in_child(seconds: u32, f: impl FnOnce()) {
    // SAFETY: the child uses what the library says a child may use, and the C library's heap, which survives forks.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: a child that hangs is ended by the signal; nothing of the process is used after _exit.
            unsafe {
                libc::signal(libc::SIGALRM, libc::SIG_DFL);
                libc::alarm(seconds);
                libc::_exit(if catch_unwind(AssertUnwindSafe(f)).is_ok() { 0 } else { 101 })
            }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child and the status are ours.
            while unsafe { libc::waitpid(pid, &mut status, 0) } == -1 {
                let error = std::io::Error::last_os_error();
                assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
            }
            assert_eq!(
                status,
                0,
                "the child ended by signal {}, status {}",
                status & 0x7f,
                status >> 8
            );
        }
    }
}

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs `work`, which counts in `done` what it has done: ends the program if that stands still for too long.
pub(crate) fn watched<R>(done: &AtomicU64, work: impl FnOnce() -> R) -> R {
    let (over, ends) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut last = u64::MAX;
            while ends.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Relaxed: a look, minutes apart.
                let now = done.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("somebody has been left asleep after {now}");
                    std::process::abort();
                }
                last = now;
            }
        });
        let result = work();
        drop(over);
        result
    })
}
