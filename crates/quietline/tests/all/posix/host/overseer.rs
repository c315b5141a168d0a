//! The thread that has the namespace, starts the processes, tells them what to do, and cleans up after them.

use super::Request;
use super::actor::{self, Thread};
use super::syscall::{c, null, sys};
use crate::posix::call::{Call, Step};
use crate::posix::composed;
use crate::posix::outcome::Outcome;
use crate::posix::sys::{Actor, PROCESSES, Setting};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Serves programs until nobody asks any more. Says first whether it can, and what the filesystem is like.
pub(super) fn run(
    ready: &Sender<Result<Probed, String>>,
    work: &Receiver<Request>,
    reply: &Sender<Vec<Outcome>>,
) {
    let entered = enter();
    let able = entered.is_ok();
    if ready.send(entered.map(|()| Probed::find())).is_err() || !able {
        return;
    }
    let (mut mounted, mut watched) = (None, false);
    let mut processes: Processes = Processes::default();
    while let Ok(request) = work.recv() {
        let outcomes = match request {
            Request::Begin(setting) => {
                if mounted != Some(setting) {
                    remount(setting);
                    mounted = Some(setting);
                }
                processes = std::array::from_fn(|n| (n > 0).then(fork));
                Vec::new()
            }
            Request::Go(steps) => {
                watched |= steps.iter().any(|step| matches!(step.call, Call::Watch { .. }));
                go(&mut processes, &steps)
            }
            Request::End => {
                processes.iter_mut().filter_map(Option::take).for_each(Running::end);
                clean();
                if std::mem::take(&mut watched) {
                    actor::end_watches();
                }
                Vec::new()
            }
        };
        if reply.send(outcomes).is_err() {
            break;
        }
    }
    processes.iter_mut().filter_map(Option::take).for_each(Running::end);
}

fn context<T>(what: &str, result: Result<T, i32>) -> Result<T, String> {
    result.map_err(|errno| format!("{what}: {}", std::io::Error::from_raw_os_error(errno)))
}

/// Makes the calling thread's world: a mount namespace with one tmpfs, no descriptors.
fn enter() -> Result<(), String> {
    let private = libc::CLONE_NEWNS | libc::CLONE_FS | libc::CLONE_FILES;
    context("unshare", sys!(libc::SYS_unshare, private))?;
    let (root, tmpfs) = (c(b"/"), c(b"tmpfs"));
    let recursive = libc::MS_REC | libc::MS_PRIVATE;
    context(
        "mount / private",
        sys!(libc::SYS_mount, null(), root.as_ptr(), null(), recursive, null()),
    )?;
    let place = c(std::env::temp_dir().as_os_str().as_encoded_bytes());
    let options = c(b"mode=0755");
    context(
        "mount tmpfs",
        sys!(
            libc::SYS_mount,
            tmpfs.as_ptr(),
            place.as_ptr(),
            tmpfs.as_ptr(),
            0u64,
            options.as_ptr()
        ),
    )?;
    let here = c(b".");
    context("chdir", sys!(libc::SYS_chdir, place.as_ptr()))?;
    // Without this a program could get out of its root by `chroot` and `..`.
    context("pivot_root", sys!(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()))?;
    context("umount", sys!(libc::SYS_umount2, here.as_ptr(), libc::MNT_DETACH))?;
    context("chdir", sys!(libc::SYS_chdir, root.as_ptr()))?;
    context("close_range", sys!(libc::SYS_close_range, 0u32, u32::MAX, 0u32))?;
    context("memfd_create", actor::make_scratch())?;
    context("inotify_init1", actor::make_watcher())?;
    sys!(libc::SYS_umask, 0o022).expect("umask cannot fail");
    // The root must be the new filesystem, empty: else programs would run over files of the machine.
    let fd = context(
        "open /",
        sys!(libc::SYS_openat, -1, root.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY),
    )?;
    let names = context("getdents", Thread.dents(fd as i32, 4096))?;
    context("close", sys!(libc::SYS_close, fd))?;
    let alone = names.iter().all(|name| name.name == b"." || name.name == b"..");
    if alone { Ok(()) } else { Err("the new root is not empty".to_owned()) }
}

/// What tmpfs is like, which differs between kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probed {
    pub(super) fine_times: bool,
    pub(super) newest_first: bool,
}

impl Probed {
    fn find() -> Self {
        Self { fine_times: times_are_fine(), newest_first: lists_newest_first() }
    }
}

/// Whether directories list the newest name first, also after a rename: since Linux 6.14.
fn lists_newest_first() -> bool {
    let names = [c"/older", c"/newer", c"/newest"];
    for name in &names[..2] {
        sys!(libc::SYS_mkdirat, -1, name.as_ptr(), 0o700).expect("mkdir");
    }
    sys!(libc::SYS_renameat2, -1, names[0].as_ptr(), -1, names[2].as_ptr(), 0).expect("rename");
    let fd = sys!(libc::SYS_openat, -1, c"/".as_ptr(), libc::O_RDONLY).expect("open");
    let listed = Thread.dents(fd as i32, 4096).expect("getdents");
    sys!(libc::SYS_close, fd).expect("close");
    for name in &names[1..] {
        sys!(libc::SYS_unlinkat, -1, name.as_ptr(), libc::AT_REMOVEDIR).expect("rmdir");
    }
    let listed: Vec<_> = listed.iter().map(|dent| dent.name.as_slice()).collect();
    listed == [&b"."[..], b"..", b"newest", b"newer"]
}

/// Whether an inode gets another time at each change after a look: since Linux 6.13.
fn times_are_fine() -> bool {
    let path = c(b"/probe");
    let fd = sys!(libc::SYS_openat, -1, path.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600)
        .expect("create");
    let mut seen = Vec::new();
    for mode in 0..32u32 {
        sys!(libc::SYS_fchmod, fd, mode).expect("fchmod");
        seen.push(actor::ctime(fd as i32));
    }
    sys!(libc::SYS_close, fd).expect("close");
    sys!(libc::SYS_unlinkat, -1, path.as_ptr(), 0).expect("unlink");
    let all = seen.len();
    seen.dedup();
    seen.len() == all
}

fn remount(setting: Setting) {
    // Every inode of tmpfs counts, the root's too.
    let options =
        c(format!("size={},nr_inodes={}", setting.pages * 4096, setting.inodes).as_bytes());
    let (root, tmpfs) = (c(b"/"), c(b"tmpfs"));
    sys!(
        libc::SYS_mount,
        tmpfs.as_ptr(),
        root.as_ptr(),
        tmpfs.as_ptr(),
        libc::MS_REMOUNT,
        options.as_ptr()
    )
    .expect("the filesystem is empty, so any limit will do");
}

/// What a process is told.
enum Job {
    /// The steps of the program from here to there.
    Run(Arc<[Step]>, usize, usize),
    Fork,
}

enum Report {
    Ran(Vec<Outcome>),
    Forked(Running),
}

/// A process: a thread.
struct Running {
    jobs: Sender<Job>,
    reports: Receiver<Report>,
    thread: JoinHandle<()>,
    tid: i64,
}

/// A child of the calling thread, with copies of all it has.
fn fork() -> Running {
    let (jobs, work) = channel();
    let (reply, reports) = channel();
    let (ready, begun) = channel();
    let watches_before = actor::watches_before();
    let body = move || {
        actor::set_watches_before(watches_before);
        sys!(libc::SYS_unshare, libc::CLONE_FILES | libc::CLONE_FS)
            .expect("unshare is for everybody");
        // A thread shares the credentials of its maker; a child has a copy. This call makes one.
        sys!(libc::SYS_prctl, libc::PR_SET_KEEPCAPS, 0, 0, 0, 0)
            .expect("KEEPCAPS is for everybody");
        ready.send(sys!(libc::SYS_gettid).expect("gettid")).expect("the parent waits");
        live(&work, &reply);
        // When the thread is gone its files are closed: not later.
        sys!(libc::SYS_close_range, 0u32, u32::MAX, 0u32).expect("close_range");
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(body).expect("spawn");
    let tid = begun.recv().expect("the child lives");
    Running { jobs, reports, thread, tid }
}

fn live(work: &Receiver<Job>, reply: &Sender<Report>) {
    while let Ok(job) = work.recv() {
        let report = match job {
            Job::Fork => Report::Forked(fork()),
            Job::Run(program, from, to) => Report::Ran(
                program[from..to]
                    .iter()
                    .map(|step| composed::call(&mut Thread, &step.call))
                    .collect(),
            ),
        };
        if reply.send(report).is_err() {
            return;
        }
    }
}

impl Running {
    fn ask(&self, job: Job) -> Report {
        self.jobs.send(job).ok().and_then(|()| self.reports.recv().ok()).expect("a process died")
    }

    /// Ends it, and waits until the system has taken apart all it had.
    fn end(self) {
        drop(self.jobs);
        self.thread.join().expect("a process died");
        let group = std::process::id();
        while sys!(libc::SYS_tgkill, group, self.tid, 0) != Err(libc::ESRCH) {
            std::thread::yield_now();
        }
    }
}

/// Processes by number. The overseer itself is none of them.
type Processes = [Option<Running>; PROCESSES];

fn go(processes: &mut Processes, program: &Arc<[Step]>) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(program.len());
    while outcomes.len() < program.len() {
        let from = outcomes.len();
        let who = program[from].who;
        if let Call::Fork { child } = program[from].call {
            outcomes.push(fork_into(processes, who, child as usize));
            continue;
        }
        let same = |step: &&Step| step.who == who && !matches!(step.call, Call::Fork { .. });
        let to = from + program[from..].iter().take_while(same).count();
        match &processes[who] {
            None => outcomes.extend(
                program[from..to].iter().map(|step| composed::call(&mut Thread, &step.call)),
            ),
            Some(process) => match process.ask(Job::Run(program.clone(), from, to)) {
                Report::Ran(more) => outcomes.extend(more),
                Report::Forked(_) => unreachable!("it was not asked to"),
            },
        }
    }
    outcomes
}

fn fork_into(processes: &mut Processes, who: usize, child: usize) -> Outcome {
    if who == child || child == 0 || child >= PROCESSES {
        return Outcome::Failed(libc::EINVAL);
    }
    if let Some(before) = processes[child].take() {
        before.end();
    }
    let new = match &processes[who] {
        None => fork(),
        Some(parent) => match parent.ask(Job::Fork) {
            Report::Forked(new) => new,
            Report::Ran(_) => unreachable!("it was asked to fork"),
        },
    };
    processes[child] = Some(new);
    Outcome::Done(0)
}

/// Removes everything, and makes the root directory what it was at first.
fn clean() {
    let root = c(b"/");
    let fd = sys!(libc::SYS_openat, -1, root.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY)
        .expect("open /");
    empty(fd as i32);
    sys!(libc::SYS_fchown, fd, 0, 0).expect("fchown");
    sys!(libc::SYS_fchmod, fd, 0o755).expect("fchmod");
    let now: *const libc::timespec = std::ptr::null();
    sys!(libc::SYS_utimensat, fd, null(), now, 0).expect("utimensat");
    let mut names = vec![0u8; 65536];
    let length =
        sys!(libc::SYS_flistxattr, fd, names.as_mut_ptr(), names.len()).expect("flistxattr");
    for name in names[..length as usize].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        sys!(libc::SYS_fremovexattr, fd, c(name).as_ptr()).expect("fremovexattr");
    }
    sys!(libc::SYS_close, fd).expect("close");
}

/// Removes what is in a directory.
fn empty(fd: i32) {
    loop {
        let names = Thread.dents(fd, 32768).expect("getdents");
        let names: Vec<_> =
            names.into_iter().filter(|n| n.name != b"." && n.name != b"..").collect();
        if names.is_empty() {
            return;
        }
        for dent in names {
            let name = c(&dent.name);
            if dent.kind != libc::DT_DIR {
                sys!(libc::SYS_unlinkat, fd, name.as_ptr(), 0).expect("unlink");
                continue;
            }
            let how = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let below = sys!(libc::SYS_openat, fd, name.as_ptr(), how).expect("open");
            empty(below as i32);
            sys!(libc::SYS_close, below).expect("close");
            sys!(libc::SYS_unlinkat, fd, name.as_ptr(), libc::AT_REMOVEDIR).expect("rmdir");
        }
        // What was removed is behind: from the start again, in case something was not seen.
        sys!(libc::SYS_lseek, fd, 0, libc::SEEK_SET).expect("lseek");
    }
}
