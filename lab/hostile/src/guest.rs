//! The guest: a kernel with a small tree, and the processes that share it.

use crate::kind::NOFILE;
use crate::leftovers::{check_descriptors, check_limits, check_names, check_pids, occupant};
use crate::plant::Plant;
use crate::random::Random;
use crate::victim::Victim;
use quietline::{Capabilities, Config, Errno, Kernel, Process, SigPipe, dirents};
use quietline_sync::rcu;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes that the root file system holds.
const FS_SIZE: u64 = 24 << 20;
/// Files that the root file system holds.
const FS_INODES: u64 = 3000;
/// Open files of all processes together.
pub(crate) const FILES: u64 = 2000;
/// Processes at a time.
const PROCESSES: usize = 6;

/// A kernel, and the processes in which the threads call it.
#[derive(Debug)]
pub struct Guest {
    processes: Vec<RwLock<Arc<Process>>>,
    victim: Victim,
    kernel: Kernel,
}

impl Guest {
    /// Boots a kernel, and makes a tree, and processes of three users.
    ///
    /// # Errors
    ///
    /// Those of the calls.
    pub fn new() -> Result<Self, Errno> {
        let config = Config::default().privileged(true).proc(true).nofile(NOFILE);
        let config = config.fs_size(FS_SIZE).fs_inodes(FS_INODES).file_max(FILES).root_mode(0o777);
        let kernel = Kernel::boot(config)?;
        let victim = Victim::new(&kernel)?;
        let root = kernel.process()?;
        for directory in ["/a", "/b", "/a/c", "/m"] {
            root.mkdir(directory, 0o777)?;
            root.chmod(directory, 0o777)?;
        }
        root.mount("", "/m", "tmpfs", 0)?;
        for file in ["/f", "/a/f", "/m/f", "/a/g"] {
            let fd = root.open(file, libc::O_CREAT | libc::O_RDWR, 0o666)?;
            root.fchmod(fd, 0o666)?;
            root.write(fd, &[b'f'; 5000])?;
            root.close(fd)?;
        }
        root.mknod("/p", libc::S_IFIFO | 0o666, 0)?;
        root.mknod("/a/p", libc::S_IFIFO | 0o666, 0)?;
        root.mknod("/d", libc::S_IFCHR | 0o666, libc::makedev(1, 3))?;
        root.symlink("/a/c", "/l")?;
        root.symlink("s", "/s")?;
        root.symlink("/proc/self/fd/3", "/a/l")?;
        populate(&root);
        let processes = (0..PROCESSES)
            .map(|n| {
                let process = root.fork()?;
                match n {
                    0 | 1 => {}
                    2 => {
                        process.setresuid(1000, 1000, 1000)?;
                        process.set_dumpable(true);
                    }
                    3 => {
                        process.setresgid(1001, 1001, 1001)?;
                        process.setresuid(1001, 1001, 1001)?;
                    }
                    4 => process.set_sigpipe(SigPipe::Signal),
                    _ => {
                        let few = Capabilities::SYS_ADMIN | Capabilities::SETUID;
                        process.set_capabilities(few, few)?;
                    }
                }
                Ok(RwLock::new(Arc::new(process)))
            })
            .collect::<Result<_, Errno>>()?;
        Ok(Self { processes, victim, kernel })
    }

    /// Returns one of the processes.
    pub fn pick(&self, random: &mut Random) -> Arc<Process> {
        let slot = &self.processes[random.below(PROCESSES as u64) as usize];
        slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a process in the place of another, which ends with its last call.
    pub fn replace(&self, slot: usize, process: Process) {
        let slot = &self.processes[slot % PROCESSES];
        let new = Arc::new(process);
        let old =
            std::mem::replace(&mut *slot.write().unwrap_or_else(PoisonError::into_inner), new);
        drop(old);
    }

    /// Returns the process whose files no other user may have.
    pub(crate) fn victim(&self) -> &Victim {
        &self.victim
    }

    /// Ends all processes, empties the tree, and checks that nothing is left. Returns what the
    /// kernel has then, and the findings: no rest if the guest has left a root that cannot be
    /// changed. With `sweep`, all ports are bound.
    pub fn end(self, plant: Option<Plant>, sweep: bool) -> (Option<Rest>, Vec<String>) {
        let Self { processes, victim, kernel } = self;
        let mut findings = Vec::new();
        // The guest may have lowered the limit.
        kernel.set_file_max(u64::MAX);
        kernel.set_memory_limit(None);
        findings.extend(victim.leak());
        drop(victim);
        for process in processes {
            let process = process.into_inner().unwrap_or_else(PoisonError::into_inner);
            check_descriptors(&process, plant, &mut findings);
        }
        if plant == Some(Plant::DeafEnd) {
            loop {
                std::thread::park();
            }
        }
        let mut failed = |what: &str, errno: Errno| findings.push(format!("{what}: {errno}"));
        if let Err(errno) = close_local_socket(&kernel) {
            failed("a last socket", errno);
        }
        let changeable = match empty_tree(&kernel, plant) {
            Ok(changeable) => changeable,
            Err(finding) => {
                findings.push(finding);
                return (None, findings);
            }
        };
        let files = kernel.nr_files();
        if files != 0 {
            findings.push(format!("{files} files are open after the last process has ended"));
        }
        let mut checks = || {
            let occupant = plant.map(|plant| occupant(&kernel, plant)).transpose()?.flatten();
            let root = kernel.process()?;
            let used = used_in(&root)?;
            check_pids(&root, &mut findings);
            check_names(&root, sweep, &mut findings);
            if changeable {
                check_limits(&kernel, &root, &mut findings)?;
            }
            drop(occupant);
            Ok(used)
        };
        let used = match checks() {
            Ok(used) if changeable => used,
            Ok(_) => return (None, findings),
            Err(errno) => {
                let errno: Errno = errno;
                findings.push(format!("a check of the end: {errno}"));
                return (None, findings);
            }
        };
        kernel.shrink();
        if let Ok(domain) = rcu::global() {
            domain.barrier();
        }
        kernel.shrink();
        let later = kernel.process().and_then(|root| used_in(&root)).unwrap_or_default();
        let objects = kernel.slabinfo().map(|stats| (stats.name.to_string(), stats.active));
        let (dentries, inodes) = (kernel.dentries().nr_dentry, kernel.inodes().nr_inodes);
        (Some(Rest { used, later, dentries, inodes, objects: objects.into() }), findings)
    }
}

/// Opens one of each kind of file. The guest may have made that impossible.
pub(crate) fn populate(p: &Process) {
    use quietline::abi::{AF_INET, AF_UNIX, O_NONBLOCK, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
    let flags = libc::O_RDWR | O_NONBLOCK;
    let _ = p.open("/f", flags, 0);
    let _ = p.open("/a", libc::O_DIRECTORY, 0);
    let _ = p.open("/p", flags, 0);
    let _ = p.open("/m/f", flags, 0);
    let _ = p.pipe2(O_NONBLOCK);
    let _ = p.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    let _ = p.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    let _ = p.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    let _ = p.socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    let _ = p.epoll_create1(0);
    let _ = p.eventfd(3, O_NONBLOCK);
    let _ = p.timerfd_create(1, O_NONBLOCK);
    let _ = p.signalfd(-1, u64::MAX, O_NONBLOCK);
    if let Ok(fd) = p.inotify_init1(O_NONBLOCK) {
        let _ = p.inotify_add_watch(fd, "/a", quietline::inotify::IN_CREATE);
    }
    if let Ok(listener) = p.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0) {
        // An address that the kernel chooses.
        let _ = p.bind(listener, &(AF_UNIX as u16).to_ne_bytes());
        let _ = p.listen(listener, 8);
        if let Ok(address) = p.getsockname(listener) {
            for _ in 0..3 {
                let client = p.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
                let _ = client.and_then(|client| p.connect(client, address.bytes()));
            }
        }
    }
    let _ = p.memfd_create("m", 0);
    let _ = p.open("/proc/self/fdinfo/0", O_NONBLOCK, 0);
}

/// What a kernel has after its processes have ended and its tree has been emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// Inodes and blocks that the root file system counts as soon as the tree is empty.
    used: [i64; 2],
    /// The same after a grace period.
    later: [i64; 2],
    dentries: i64,
    inodes: i64,
    /// By cache: the objects that have a user.
    objects: Vec<(String, usize)>,
}

impl Rest {
    /// Returns a line of text for each count that exceeds the one in `before`.
    pub fn more_than(&self, before: &Self) -> String {
        let mut text = String::new();
        let mut compare = |name: &str, now: i64, then: i64| {
            if now > then {
                text.push_str(&format!("{name}: {now}, and {then} without calls\n"));
            }
        };
        for (when, now, then) in [
            ("at once", self.used, before.used),
            ("after a grace period", self.later, before.later),
        ] {
            for (what, now, then) in [("inodes", now[0], then[0]), ("blocks", now[1], then[1])] {
                compare(&format!("{what} of the root file system, {when}"), now, then);
            }
        }
        compare("dentries", self.dentries, before.dentries);
        compare("inodes", self.inodes, before.inodes);
        for ((name, now), (_, then)) in self.objects.iter().zip(&before.objects) {
            compare(name, *now as i64, *then as i64);
        }
        text
    }
}

/// Returns the inodes and blocks that the root file system counts.
fn used_in(p: &Process) -> Result<[i64; 2], Errno> {
    let now = p.statfs("/")?;
    Ok([now.f_files - now.f_ffree, now.f_blocks - now.f_bfree].map(|n| n as i64))
}

/// Closes a local socket. Loops of sockets in messages can stay until then, as on Linux.
fn close_local_socket(kernel: &Kernel) -> Result<(), Errno> {
    let p = kernel.process()?;
    for _ in 0..2 {
        let pair = p.socketpair(quietline::abi::AF_UNIX, quietline::abi::SOCK_STREAM, 0)?;
        pair.into_iter().try_for_each(|fd| p.close(fd))?;
    }
    Ok(())
}

/// Unmounts and removes all that is below the root directory. Returns `false` if the guest has
/// detached the root while it was read-only.
fn empty_tree(kernel: &Kernel, plant: Option<Plant>) -> Result<bool, String> {
    let p = kernel.process().map_err(|errno| format!("a last process: {errno}"))?;
    let failed = |what: &str, errno: Errno| format!("{what}: {errno}");
    // What is mounted on the root.
    while mount_id(&p, b"/..") != mount_id(&p, b"/") {
        p.umount2("/..", libc::MNT_DETACH as u32)
            .map_err(|errno| failed("unmount what is on the root", errno))?;
    }
    match p.mount("", "/", "", quietline::MS_REMOUNT | quietline::MS_BIND) {
        Ok(()) => {}
        // The guest has detached the root, with all that was mounted on it.
        Err(Errno::INVAL) if p.access("/", libc::W_OK) == Err(Errno::ROFS) => return Ok(false),
        Err(Errno::INVAL) => {}
        Err(errno) => return Err(failed("remount the root", errno)),
    }
    p.chmod("/", 0o777).map_err(|errno| failed("change the mode of the root", errno))?;
    // Attributes of the root take room of its file system.
    let mut names = vec![0; 1 << 16];
    let n = p.listxattr("/", &mut names).map_err(|errno| failed("list attributes", errno))?;
    for name in names[..n].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        p.removexattr("/", name).map_err(|errno| failed("remove an attribute", errno))?;
    }
    if plant == Some(Plant::Tree) {
        p.chmod("/", 0o555).map_err(|errno| failed("plant a fault", errno))?;
        p.setresuid(1, 1, 1).map_err(|errno| failed("plant a fault", errno))?;
    }
    p.set_nofile(4096).map_err(|errno| failed("more descriptors", errno))?;
    let root = p.open("/", libc::O_DIRECTORY, 0).map_err(|errno| failed("open the root", errno))?;
    empty(&p, root)?;
    Ok(true)
}

/// Returns the id of the mount that a path leads to; 0 if it leads nowhere.
pub(crate) fn mount_id(p: &Process, path: &[u8]) -> u64 {
    const STATX_MNT_ID: u32 = 0x1000;
    p.statx(libc::AT_FDCWD, path, 0, STATX_MNT_ID).map_or(0, |stat| stat.stx_mnt_id)
}

/// Unmounts and removes all below a directory.
fn empty(p: &Process, directory: i32) -> Result<(), String> {
    let failed = |what: &str, name: &[u8], errno: Errno| {
        format!("{what} {:?}: {errno}", String::from_utf8_lossy(name))
    };
    let mut buffer = vec![0; 1 << 16];
    let mut names = Vec::new();
    loop {
        let n = p.getdents64(directory, &mut buffer).map_err(|e| failed("list", b"", e))?;
        if n == 0 {
            break;
        }
        names.extend(dirents(&buffer[..n]).map(|entry| entry.name.to_vec()));
    }
    names.retain(|name| name != b"." && name != b"..");
    for name in &names {
        p.fchdir(directory).map_err(|errno| failed("enter the parent of", name, errno))?;
        let detach = libc::MNT_DETACH as u32 | libc::UMOUNT_NOFOLLOW as u32;
        while p.umount2(name, detach).is_ok() {}
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match p.openat(directory, name, flags, 0) {
            Ok(fd) => {
                empty(p, fd)?;
                p.close(fd).map_err(|errno| failed("close", name, errno))?;
                p.unlinkat(directory, name, libc::AT_REMOVEDIR)
                    .map_err(|errno| failed("remove", name, errno))?;
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                p.unlinkat(directory, name, 0).map_err(|errno| failed("unlink", name, errno))?;
            }
            Err(errno) => return Err(failed("open", name, errno)),
        }
    }
    Ok(())
}
