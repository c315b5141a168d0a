//! A thread sleeps in `accept` while others take descriptors, call by call, on both systems.

use crate::accept::{FAMILIES, address};
use crate::support::in_child;
use quietline::abi::{SOCK_STREAM, SOL_SOCKET};
use quietline::{Config, Errno, Kernel, Process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

type Said = Result<i32, i32>;

trait System: Sync {
    fn socket(&self, family: i32) -> Said;
    fn listen(&self, fd: i32, address: &[u8]);
    fn connect(&self, fd: i32, to: i32) -> Said;
    fn accept(&self, fd: i32) -> Said;
    fn dup(&self, fd: i32) -> Said;
    fn dup2(&self, fd: i32, to: i32) -> Said;
    fn close(&self, fd: i32) -> Said;
    fn limit(&self, descriptors: i32);
    /// Whether a byte that is sent by one arrives at the other.
    fn joined(&self, one: i32, other: i32) -> bool;
    /// The host's call in which a thread is that waits.
    fn sleeps_in(&self) -> i64;
}

struct Host;

fn done(result: i32) -> Said {
    if result < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().expect("an errno"))
    } else {
        Ok(result)
    }
}

// SAFETY, of all calls below: they are given buffers of the lengths that they are told.
#[allow(clippy::undocumented_unsafe_blocks)]
impl System for Host {
    fn socket(&self, family: i32) -> Said {
        done(unsafe { libc::socket(family, SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
    }

    fn listen(&self, fd: i32, address: &[u8]) {
        done(unsafe { libc::bind(fd, address.as_ptr().cast(), address.len() as u32) })
            .expect("bound");
        done(unsafe { libc::listen(fd, 5) }).expect("it listens");
    }

    fn connect(&self, fd: i32, to: i32) -> Said {
        let (mut name, mut len) = ([0u8; 128], 128);
        done(unsafe { libc::getsockname(to, name.as_mut_ptr().cast(), &mut len) })?;
        done(unsafe { libc::connect(fd, name.as_ptr().cast(), len) })
    }

    fn accept(&self, fd: i32) -> Said {
        done(unsafe { libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) })
    }

    fn dup(&self, fd: i32) -> Said {
        done(unsafe { libc::dup(fd) })
    }

    fn dup2(&self, fd: i32, to: i32) -> Said {
        done(unsafe { libc::dup2(fd, to) })
    }

    fn close(&self, fd: i32) -> Said {
        done(unsafe { libc::close(fd) })
    }

    fn limit(&self, descriptors: i32) {
        let limit = libc::rlimit { rlim_cur: descriptors as u64, rlim_max: descriptors as u64 };
        done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }).expect("a lower limit");
    }

    fn joined(&self, one: i32, other: i32) -> bool {
        let (byte, mut room) = ([7u8; 1], [0u8; 4]);
        let sent = unsafe { libc::send(one, byte.as_ptr().cast(), 1, 0) };
        let got = unsafe { libc::recv(other, room.as_mut_ptr().cast(), 4, 0) };
        (sent, got, room[0]) == (1, 1, 7)
    }

    fn sleeps_in(&self) -> i64 {
        libc::SYS_accept
    }
}

fn said<T>(result: Result<T, Errno>, number: impl FnOnce(T) -> i32) -> Said {
    result.map(number).map_err(Errno::raw_os_error)
}

impl System for Process {
    fn socket(&self, family: i32) -> Said {
        said(Process::socket(self, family, SOCK_STREAM, 0), |fd| fd)
    }

    fn listen(&self, fd: i32, address: &[u8]) {
        self.bind(fd, address).unwrap();
        Process::listen(self, fd, 5).unwrap();
    }

    fn connect(&self, fd: i32, to: i32) -> Said {
        let name = self.getsockname(to).unwrap();
        said(Process::connect(self, fd, name.bytes()), |()| 0)
    }

    fn accept(&self, fd: i32) -> Said {
        said(Process::accept(self, fd), |(fd, _)| fd)
    }

    fn dup(&self, fd: i32) -> Said {
        said(Process::dup(self, fd), |fd| fd)
    }

    fn dup2(&self, fd: i32, to: i32) -> Said {
        said(Process::dup2(self, fd, to), |fd| fd)
    }

    fn close(&self, fd: i32) -> Said {
        said(Process::close(self, fd), |()| 0)
    }

    fn limit(&self, descriptors: i32) {
        self.set_nofile(descriptors as usize).unwrap();
    }

    fn joined(&self, one: i32, other: i32) -> bool {
        // So that a test that fails comes to an end.
        let time = [5i64.to_ne_bytes(), [0; 8]].concat();
        self.setsockopt(other, SOL_SOCKET, libc::SO_RCVTIMEO, &time).unwrap();
        let mut room = [0; 4];
        (self.send(one, &[7], 0), self.recv(other, &mut room, 0), room[0]) == (Ok(1), Ok(1), 7)
    }

    fn sleeps_in(&self) -> i64 {
        libc::SYS_futex
    }
}

/// What the host says of a thread. Opened before the story, which counts descriptors, begins.
struct Watch {
    status: File,
    syscall: File,
}

impl Watch {
    fn new(thread: i32) -> Self {
        let open =
            |file: &str| File::open(format!("/proc/self/task/{thread}/{file}")).expect("it lives");
        Self { status: open("status"), syscall: open("syscall") }
    }

    /// Until the thread sleeps in a call of the host's: at two looks, and between them it did not run.
    fn asleep_in(&self, call: i64) {
        let read = |file: &File| {
            let mut text = [0; 4096];
            let n = file.read_at(&mut text, 0).expect("it lives");
            String::from_utf8_lossy(&text[..n]).into_owned()
        };
        let look = || {
            let (status, in_call) = (read(&self.status), read(&self.syscall));
            let slept = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches:"))?
                .to_owned();
            (in_call.split(' ').next() == Some(&call.to_string())).then_some(slept)
        };
        let (begun, mut before) = (Instant::now(), None);
        loop {
            let now = look();
            if now.is_some() && now == before {
                return;
            }
            before = now;
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not sleep");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// What is said, numbers of descriptors from the first that was free.
fn story(on: &dyn System, family: i32, address: &[u8]) -> Vec<String> {
    thread::scope(|scope| {
        let ((tell, id), (give, given)) = (mpsc::channel(), mpsc::channel());
        let acceptor = scope.spawn(move || {
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::gettid() }).expect("somebody listens");
            given.recv().map_or(Err(libc::EBADF), |listener| on.accept(listener))
        });
        let watch = Watch::new(id.recv().expect("it runs"));
        let accept = |listener| {
            give.send(listener).expect("it runs");
            watch.asleep_in(on.sleeps_in());
        };
        with_acceptor(on, family, address, accept, || acceptor.join().expect("it ends"))
    })
}

/// `accept` has a thread sleep in that, `accepted` says what has come of it.
fn with_acceptor(
    on: &dyn System,
    family: i32,
    address: &[u8],
    accept: impl FnOnce(i32),
    accepted: impl FnOnce() -> Said,
) -> Vec<String> {
    let mut told = Vec::new();
    let listener = on.socket(family).expect("a socket");
    let first = listener;
    let mut say =
        |what: &str, said: Said| told.push(format!("{what}: {:?}", said.map(|fd| fd - first)));
    on.listen(listener, address);
    let [one, two] = [(); 2].map(|()| on.socket(family).expect("a socket"));
    on.limit(first + 5);
    accept(listener);
    say("beside who sleeps", on.dup(listener));
    say("there are no more", on.dup(listener));
    say("his number is taken", on.dup2(listener, first + 3));
    say("and has no file", on.close(first + 3));
    say("what he waits for", on.connect(one, listener).map(|_| first));
    let accepted = accepted();
    say("he wakes", accepted);
    say("another connection", on.connect(two, listener).map(|_| first));
    for _ in 0..2 {
        say("no number for it", on.accept(listener));
    }
    say("there is one", on.close(first + 4).map(|_| first));
    let second = on.accept(listener);
    say("it has stayed", second);
    say("nothing to accept, and no number", on.accept(listener));
    for (client, server) in [(one, accepted), (two, second)] {
        let joined = on.joined(client, server.expect("accepted"));
        say("these are joined", Ok(first + i32::from(joined)));
    }
    told
}

#[test]
fn the_descriptor_comes_first() {
    quietline_testing::isolated!();
    for family in FAMILIES {
        let name = format!("quietline-accept-{}", std::process::id());
        let ours = Kernel::boot(Config::default()).unwrap().process().unwrap();
        let own = story(&ours, family, &address(family, &name));
        in_child(180, || {
            // What the test's process has open is not to be in the way.
            // SAFETY: a number of the child's own.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
            let theirs = story(&Host, family, &address(family, &name));
            assert!(theirs == own, "family {family}:\n host      {theirs:#?}\n quietline {own:#?}");
        });
        let has = |line: &str| assert!(own.iter().any(|said| said == line), "{line}: {own:#?}");
        has("no number for it: Err(24)");
        has("it has stayed: Ok(4)");
    }
}
