//! Memory that runs out: each allocation of each call fails once, and once all from it on. The call says `ENOMEM` or
//! makes do; nothing is lost; the next call works.

use crate::support::{alone, assert_nothing_open, pages_used};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process, Rlimit};
use quietline_platform::fault;

/// Runs `f` with the first allocation failing, then the second, and so on until none is left to fail; `prepare` makes
/// what `f` works on, `check` looks at it afterwards. How many failures the call survived or reported.
fn each_fault<T, R>(
    prepare: impl Fn() -> T,
    f: impl Fn(&T) -> Result<R, Errno>,
    check: impl Fn(&T, Option<R>),
) -> (u64, u64) {
    let (mut reported, mut made_do) = (0, 0);
    for arm in [fault::fail_nth, fault::fail_from] {
        for n in 1.. {
            let on = prepare();
            arm(n);
            let result = f(&on);
            // One that fails from the nth on stays armed: it is over when the call works without having met it.
            let met = !fault::armed() || result.is_err();
            fault::fail_nth(0);
            match result {
                Ok(result) => {
                    check(&on, Some(result));
                    made_do += u64::from(met);
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM, "allocation {n} fails");
                    check(&on, None);
                    reported += 1;
                }
            }
            if !met {
                break;
            }
            assert!(n < 10_000, "a call has no end of allocations");
        }
    }
    (reported, made_do)
}

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

#[test]
fn boot() {
    quietline_testing::isolated!();
    let _alone = alone();
    drop(process());
    let before = pages_used();
    let (reported, _) = each_fault(
        || (),
        |()| Kernel::boot(Config::default()),
        |(), kernel| {
            if let Some(kernel) = kernel {
                let process = kernel.process().unwrap();
                process.eventfd(1, 0).unwrap();
            }
            assert_eq!(pages_used(), before, "pages after a boot that failed");
        },
    );
    assert!(reported >= 10, "a kernel allocates its caches and counters: {reported}");
}

#[test]
fn limits_namespaces_pidfds_and_exec() {
    quietline_testing::isolated!();
    let _alone = alone();
    let root = || {
        let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
        let p = kernel.process().unwrap();
        p.mkdir("/m", 0o755).unwrap();
        p.mount("", "/m", "tmpfs", 0).unwrap();
        p.chdir("/m").unwrap();
        p
    };
    type Call = fn(&Process) -> Result<(), Errno>;
    const LIMIT: Rlimit = Rlimit { soft: 5, hard: 5 };
    let calls: [Call; 5] = [
        |p| p.setrlimit(RLIMIT_NOFILE, LIMIT),
        |p| p.setrlimit(RLIMIT_NOFILE, LIMIT).and_then(|()| p.fork().map(drop)),
        |p| p.unshare(CLONE_NEWNS),
        |p| p.pidfd_open(1, 0).map(drop),
        Process::exec,
    ];
    for call in calls {
        let (reported, _) = each_fault(root, call, |p, done| {
            assert_eq!(p.getcwd().unwrap(), b"/m");
            assert_eq!(p.open("x", O_CREAT | O_RDWR, 0o600).and_then(|fd| p.close(fd)), Ok(()));
            if done.is_none() {
                assert_eq!(call(p), Ok(()));
            }
            p.chdir("/").unwrap();
            assert_eq!(p.umount2("/m", 0), Ok(()));
        });
        assert!(reported >= 1);
    }
}

#[test]
fn processes_and_forks() {
    quietline_testing::isolated!();
    let _alone = alone();
    drop(process());
    let before = pages_used();
    let boot = || Kernel::boot(Config::default()).unwrap();
    let (reported, _) = each_fault(boot, Kernel::process, |kernel, _| {
        assert_eq!(kernel.process().unwrap().eventfd(1, 0), Ok(0));
        assert_nothing_open(kernel);
    });
    assert!(reported >= 2);
    assert_eq!(pages_used(), before);

    let full = || {
        let process = process();
        for n in 0..3000 {
            process.eventfd(n, if n % 2 == 0 { 0 } else { O_ANYFD }).unwrap();
        }
        process
    };
    let (reported, _) = each_fault(full, Process::fork, |parent, child| {
        assert_eq!(parent.kernel().nr_files(), 3000);
        if let Some(child) = child {
            assert_eq!(child.open_fds().unwrap(), parent.open_fds().unwrap());
        }
        assert_eq!(parent.fork().unwrap().open_fds().unwrap(), parent.open_fds().unwrap());
        parent.close_range(0, u32::MAX, 0).unwrap();
        assert_nothing_open(parent.kernel());
    });
    assert!(reported >= 8, "a table in buckets: {reported}");
    assert_eq!(pages_used(), before);
}

/// A call that makes descriptors: which.
type Create = fn(&Process, i32) -> Result<Vec<i32>, Errno>;

const CREATING: [(&str, Create); 5] = [
    ("socket", |p, any| p.socket(AF_INET, SOCK_STREAM | any, 0).map(|fd| vec![fd])),
    ("pipe2", |p, any| p.pipe2(any).map(Vec::from)),
    ("eventfd", |p, any| p.eventfd(3, any).map(|fd| vec![fd])),
    ("timerfd", |p, any| p.timerfd_create(CLOCK_REALTIME, any).map(|fd| vec![fd])),
    ("signalfd", |p, any| p.signalfd(-1, 1, any).map(|fd| vec![fd])),
];

#[test]
fn creating_calls() {
    quietline_testing::isolated!();
    let _alone = alone();
    drop(process());
    let before = pages_used();
    for (name, create) in CREATING {
        for any in [0, O_ANYFD] {
            let (reported, made_do) = each_fault(
                process,
                |p| create(p, any),
                |p, fds| {
                    if let Some(fds) = fds {
                        assert_eq!(p.kernel().nr_files(), fds.len() as i64);
                        fds.iter().for_each(|&fd| p.close(fd).unwrap());
                    }
                    assert!(p.open_fds().unwrap().is_empty());
                    assert_nothing_open(p.kernel());
                    for fd in create(p, any).unwrap() {
                        p.close(fd).unwrap();
                    }
                    assert_eq!(create(p, 0).unwrap()[0], 0, "no number is lost");
                },
            );
            println!(
                "{name}, flags {any:#x}: {reported} failures reported, {made_do} made do with"
            );
            assert!(reported >= 3, "{name}: file, object, table: {reported}");
            assert_eq!(pages_used(), before, "{name}");
        }
    }
}

#[test]
fn calls_on_descriptors() {
    quietline_testing::isolated!();
    let _alone = alone();
    drop(process());
    let before = pages_used();
    let open = || {
        let p = process();
        assert_eq!(p.eventfd(5, 0), Ok(0));
        p
    };
    type Call = fn(&Process) -> Result<i32, Errno>;
    let calls: [Call; 4] = [
        |p| p.dup2(0, 5000),
        |p| p.dup3(0, 1_000_000, O_CLOEXEC),
        |p| p.fcntl(0, F_DUPFD, 300),
        |p| p.install_file(p.file(0)?, O_ANYFD),
    ];
    for call in calls {
        let (reported, _) = each_fault(open, call, |p, fd| {
            let fds: Vec<i32> = fd.into_iter().collect();
            assert_eq!(p.open_fds().unwrap(), [&[0], &*fds].concat());
            assert_eq!(p.kernel().nr_files(), 1);
            let fd = call(p).unwrap();
            assert!(p.file(fd).unwrap().same_file(&p.file(0).unwrap()));
            p.close_range(0, u32::MAX, 0).unwrap();
            assert_nothing_open(p.kernel());
        });
        assert!(reported >= 1);
        assert_eq!(pages_used(), before);
    }
}

#[test]
fn descriptors_that_are_there_need_no_memory() {
    quietline_testing::isolated!();
    let _alone = alone();
    let p = process();
    for n in 0..100 {
        p.eventfd(n, if n % 2 == 0 { 0 } else { O_ANYFD }).unwrap();
    }
    let fds = p.open_fds().unwrap();
    fault::fail_from(1);
    for &fd in &fds {
        p.fcntl(fd, F_GETFL, 0).unwrap();
        p.fcntl(fd, F_SETFL, O_NONBLOCK as u64).unwrap();
        p.fcntl(fd, F_SETFD, 1).unwrap();
        p.file(fd).unwrap();
        p.dup2(fds[0], fd).unwrap();
    }
    p.close_range(0, 20, 0).unwrap();
    fds.iter().filter(|&&fd| fd > 20).for_each(|&fd| p.close(fd).unwrap());
    fault::fail_nth(0);
    assert_nothing_open(p.kernel());
}

#[test]
fn forks_copy_limits_and_namespaces() {
    quietline_testing::isolated!();
    let _alone = alone();
    let mounts_below = |p: &Process| {
        p.mount("", "n", "tmpfs", 0).unwrap();
        p.umount2("/n", 0).unwrap();
    };
    let parent = || {
        let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
        let p = kernel.process().unwrap();
        p.mkdir("/n", 0o755).unwrap();
        mounts_below(&p);
        p.unshare(CLONE_NEWNS).unwrap();
        p.setrlimit(RLIMIT_SIGPENDING, Rlimit { soft: 7, hard: 7 }).unwrap();
        p
    };
    drop(parent());
    let (reported, _) = each_fault(parent, Process::fork, |p, child| {
        mounts_below(p);
        if let Some(child) = child {
            assert_eq!(child.getrlimit(RLIMIT_SIGPENDING), p.getrlimit(RLIMIT_SIGPENDING));
            mounts_below(&child);
        }
    });
    assert!(reported >= 5, "{reported}");
}
