//! Embedders' file systems: what they are asked, what they may do meanwhile, and what the kernel
//! does not believe.

use crate::support::alone;
use quietline::abi::*;
use quietline::{
    Attributes, Caller, Config, Entry, Errno, FileOps, FileSystem, InodeOps, Kernel, MS_BIND,
    MS_REMOUNT, NodeEntry, Process, dirents,
};
use quietline_platform::{fault, percpu};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// What is called before each method, with its name.
type Hook = Box<dyn Fn(&str, &Caller<'_>) + Send + Sync>;

/// The state of a file system that records its calls.
#[derive(Default)]
struct World {
    calls: Mutex<Vec<String>>,
    hook: Mutex<Option<Arc<Hook>>>,
    valid: Mutex<Option<Duration>>,
    still: AtomicBool,
    size: AtomicU64,
    objects: AtomicU32,
}

impl World {
    fn enter(&self, method: &str, caller: &Caller<'_>) {
        self.calls.lock().unwrap().push(method.into());
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(method, caller);
        }
    }

    fn calls(&self) -> String {
        std::mem::take(&mut *self.calls.lock().unwrap()).join(" ")
    }

    fn hook(&self, hook: impl Fn(&str, &Caller<'_>) + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(Box::new(hook)));
    }

    fn unhook(&self) {
        *self.hook.lock().unwrap() = None;
    }
}

/// A directory of each: `file`, `dir`, `link` and `own`, a file whose open files have an object.
struct Dir(Arc<World>);
struct Data(Arc<World>);
struct Link(Arc<World>);
struct Own(Arc<World>);
/// The object of an open file.
struct Open(Arc<World>);

const TEXT: &[u8] = b"0123456789";

impl FileSystem for Dir {
    fn root(self: Arc<Self>, caller: &Caller<'_>) -> Result<Entry, Errno> {
        self.0.enter("root", caller);
        Ok(Entry::new(Arc::new(Dir(self.0.clone())), S_IFDIR | 0o755))
    }

    fn name(&self) -> &'static str {
        "world"
    }

    fn statfs(&self, caller: &Caller<'_>) -> Result<StatFs, Errno> {
        self.0.enter("statfs", caller);
        Ok(StatFs { f_blocks: 17, ..StatFs::default() })
    }
}

impl InodeOps for Dir {
    fn lookup(&self, caller: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let world = self.0.clone();
        world.enter("lookup", caller);
        let size = world.size.load(SeqCst);
        let valid = *world.valid.lock().unwrap();
        let mut entry = match name {
            b"file" => Entry::new(Arc::new(Data(world)), S_IFREG | 0o644).with_size(size),
            b"own" => Entry::new(Arc::new(Own(world)), S_IFREG | 0o644),
            b"dir" => Entry::new(Arc::new(Dir(world)), S_IFDIR | 0o755),
            b"link" => Entry::new(Arc::new(Link(world)), S_IFLNK | 0o777),
            b"fifo" => Entry::new(Arc::new(Data(world)), S_IFIFO | 0o666),
            b"tty" => Entry::new(Arc::new(Data(world)), S_IFCHR | 0o666),
            _ => return Err(Errno::NOENT),
        };
        entry.valid = valid;
        entry.attributes.ino = 100 + u64::from(name[0]);
        Ok(entry)
    }

    fn revalidate(
        &self,
        caller: &Caller<'_>,
        name: &[u8],
        child: &dyn InodeOps,
    ) -> Result<bool, Errno> {
        self.0.enter("revalidate", caller);
        let child: &dyn Any = child;
        assert_eq!(child.is::<Data>(), name == b"file");
        Ok(self.0.still.load(SeqCst))
    }
}

impl FileOps for Dir {
    fn read_dir(
        &self,
        caller: &Caller<'_>,
        from: u64,
        each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.0.enter("read_dir", caller);
        let names = [(&b"file"[..], S_IFREG), (b"dir", S_IFDIR), (b"link", S_IFLNK)];
        for (place, (name, mode)) in (0..).zip(names).skip(from as usize) {
            if !each(NodeEntry { place, ino: 0, mode, name }) {
                break;
            }
        }
        Ok(())
    }
}

impl InodeOps for Data {
    fn getattr(&self, caller: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        self.0.enter("getattr", caller);
        let size = self.0.size.load(SeqCst);
        Ok(Some(Attributes { mode: S_IFREG | 0o600, nlink: 1, size, ..Attributes::default() }))
    }
}

fn read(to: &mut [u8], at: u64) -> Result<usize, Errno> {
    let rest = TEXT.get(at as usize..).unwrap_or(&[]);
    let n = rest.len().min(to.len());
    to[..n].copy_from_slice(&rest[..n]);
    Ok(n)
}

impl FileOps for Data {
    fn read_at(&self, caller: &Caller<'_>, to: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.0.enter("read_at", caller);
        read(to, at)
    }
}

impl InodeOps for Link {
    fn readlink(&self, caller: &Caller<'_>) -> Result<Box<[u8]>, Errno> {
        self.0.enter("readlink", caller);
        Ok((*b"dir/file").into())
    }
}

impl FileOps for Link {}

impl InodeOps for Own {
    fn open(&self, caller: &Caller<'_>, _: i32) -> Result<Option<Arc<dyn FileOps>>, Errno> {
        self.0.enter("open", caller);
        self.0.objects.fetch_add(1, SeqCst);
        Ok(Some(Arc::new(Open(self.0.clone()))))
    }
}

impl FileOps for Own {}

impl FileOps for Open {
    fn read_at(&self, caller: &Caller<'_>, to: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.0.enter("read_own", caller);
        read(to, at)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.objects.fetch_sub(1, SeqCst);
        panic!("a panic of an embedder's `Drop` is contained");
    }
}

fn world() -> (Arc<Process>, Arc<World>) {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    let world = Arc::new(World { still: AtomicBool::new(true), ..World::default() });
    world.size.store(TEXT.len() as u64, SeqCst);
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", Arc::new(Dir(world.clone())), 0).unwrap();
    assert_eq!(world.calls(), "root");
    (p, world)
}

/// Names that a directory lists, with their numbers.
fn list(p: &Process, path: &str, room: usize) -> BTreeMap<String, u64> {
    let fd = p.open(path, O_RDONLY | O_DIRECTORY, 0).unwrap();
    let (mut names, mut buffer) = (BTreeMap::new(), vec![0; room]);
    loop {
        let n = p.getdents64(fd, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        for entry in dirents(&buffer[..n]) {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            assert!(names.insert(name, entry.ino).is_none());
        }
    }
    p.close(fd).unwrap();
    names
}

#[test]
fn a_tree_is_read() {
    let (p, world) = world();
    let stat = p.stat("/m/dir/file").unwrap();
    assert_eq!((stat.st_size, stat.st_mode, stat.st_ino), (10, S_IFREG | 0o644, 202));
    assert_eq!(world.calls(), "lookup lookup");
    // What is cached is not asked for.
    let fd = p.open("/m/dir/file", O_RDONLY, 0).unwrap();
    assert_eq!(p.stat("/m/dir/file").unwrap(), stat);
    assert_eq!(p.fstat(fd).unwrap(), stat);
    assert_eq!(world.calls(), "");
    let mut bytes = [0; 4];
    assert_eq!(p.read(fd, &mut bytes), Ok(4));
    assert_eq!(p.read(fd, &mut bytes), Ok(4));
    assert_eq!(&bytes, b"4567");
    assert_eq!(p.pread(fd, &mut bytes, 1), Ok(4));
    assert_eq!(&bytes, b"1234");
    assert_eq!(p.read(fd, &mut bytes), Ok(2));
    assert_eq!(p.read(fd, &mut bytes), Ok(0));
    assert_eq!(p.lseek(fd, 2, SEEK_SET), Ok(2));
    let mut more = [0; 3];
    assert_eq!(p.readv(fd, &mut [&mut bytes, &mut more]), Ok(7));
    assert_eq!(more, *b"678");
    assert_eq!(p.preadv(fd, &mut [&mut bytes, &mut more], 8), Ok(2));
    assert_eq!(p.pread(fd, &mut vec![0; 100_000], 3), Ok(7));
    assert_eq!(p.write(fd, b"x"), Err(Errno::BADF));
    assert_eq!(p.read(fd, &mut []), Ok(0));
    p.close(fd).unwrap();
    let mut target = [0; 64];
    assert_eq!(p.readlink("/m/link", &mut target), Ok(8));
    assert_eq!(&target[..8], b"dir/file");
    assert_eq!(p.stat("/m/link").unwrap(), stat);
    assert_eq!(p.lstat("/m/link").unwrap().st_mode, S_IFLNK | 0o777);
    assert_eq!(p.stat("/m/dir/dir/dir/link").unwrap().st_size, 10);
    for room in [64, 4096] {
        let names = list(&p, "/m/dir", room);
        assert_eq!(
            names.keys().map(String::as_str).collect::<Vec<_>>(),
            [".", "..", "dir", "file", "link"]
        );
        assert_eq!(names["file"], 202);
    }
    assert_eq!(p.statfs("/m/dir").unwrap().f_blocks, 17);
    let fd = p.open("/m", O_RDONLY, 0).unwrap();
    assert_eq!(p.fstatfs(fd).unwrap().f_blocks, 17);
    assert_eq!(p.read(fd, &mut bytes), Err(Errno::ISDIR));
    assert_eq!(p.fstatat(fd, "dir/file", 0).unwrap(), stat);
    let file = p.openat(fd, "dir/dir/file", O_RDONLY, 0).unwrap();
    let copy = p.memfd_create("copy", 0).unwrap();
    assert_eq!(p.sendfile(copy, file, None, 100), Ok(10));
    assert_eq!(p.fstat(copy).unwrap().st_size, 10);
    p.umount2("/m", 0).unwrap_err();
    p.close_range(0, u32::MAX, 0).unwrap();
    p.umount2("/m", 0).unwrap();
    p.kernel().shrink();
    assert_eq!(p.kernel().dentries().nr_dentry, 1);
}

#[test]
fn what_is_not_implemented_fails_as_on_linux() {
    let (p, world) = world();
    for (made, path) in [(Err(Errno::EXIST), "/m/file"), (Err(Errno::PERM), "/m/new")] {
        assert_eq!(p.mkdir(path, 0o755), made);
        assert_eq!(p.symlink("x", path), made);
        assert_eq!(p.mknod(path, S_IFREG | 0o644, 0), made);
        assert_eq!(p.link("/m/dir/file", path), made);
        assert_eq!(p.open(path, O_CREAT | O_EXCL | O_RDWR, 0o644), made.map(|()| 0));
    }
    assert_eq!(p.unlink("/m/missing"), Err(Errno::NOENT));
    assert_eq!(p.unlink("/m/file"), Err(Errno::PERM));
    assert_eq!(p.unlink("/m/dir"), Err(Errno::ISDIR));
    assert_eq!(p.rmdir("/m/dir"), Err(Errno::PERM));
    assert_eq!(p.rmdir("/m/file"), Err(Errno::NOTDIR));
    assert_eq!(p.rename("/m/file", "/m/other"), Err(Errno::PERM));
    assert_eq!(p.rename("/m/missing", "/m/other"), Err(Errno::NOENT));
    assert_eq!(p.chmod("/m/file", 0o777), Err(Errno::PERM));
    assert_eq!(p.chown("/m/file", 1, 1), Err(Errno::PERM));
    assert_eq!(p.chown("/m/file", u32::MAX, u32::MAX), Ok(()));
    assert_eq!(p.truncate("/m/file", 3), Err(Errno::PERM));
    assert_eq!(p.truncate("/m/dir", 3), Err(Errno::ISDIR));
    assert_eq!(p.setxattr("/m/file", "user.x", b"1", 0), Err(Errno::OPNOTSUPP));
    assert_eq!(p.getxattr("/m/file", "user.x", &mut []), Err(Errno::OPNOTSUPP));
    assert_eq!(p.removexattr("/m/file", "user.x"), Err(Errno::OPNOTSUPP));
    assert_eq!(p.listxattr("/m/file", &mut []), Ok(0));
    assert_eq!(p.readlink("/m/file", &mut [0; 9]), Err(Errno::INVAL));
    assert_eq!(p.stat("/m/file/x"), Err(Errno::NOTDIR));
    let tty = p.open("/m/tty", O_RDWR, 0).unwrap();
    assert_eq!(p.write(tty, b"x"), Err(Errno::INVAL));
    assert_eq!(p.ioctl(tty, 1, &mut 0), Err(Errno::NOTTY));
    assert_eq!(p.open("/m/fifo", O_WRONLY | O_NONBLOCK, 0), Err(Errno::NXIO));
    let fd = p.open("/m/file", O_RDWR | O_CREAT, 0o644).unwrap();
    assert_eq!(p.write(fd, b"x"), Err(Errno::INVAL));
    assert_eq!(p.fsync(fd), Err(Errno::INVAL));
    assert_eq!(p.ftruncate(fd, 3), Err(Errno::PERM));
    assert_eq!(p.lseek(fd, -3, SEEK_END), Ok(7));
    let dir = p.open("/m/file/../", O_RDONLY, 0);
    assert_eq!(dir, Err(Errno::NOTDIR));
    world.calls();
}

#[test]
fn only_who_may_mount_mounts() {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = kernel.process().unwrap();
    p.mkdir("/m", 0o755).unwrap();
    let fs = Arc::new(Dir(Arc::new(World::default())));
    assert_eq!(p.mount_fs("/missing", fs.clone(), 0), Err(Errno::NOENT));
    p.mount_fs("/m", fs.clone(), 1).unwrap();
    assert_eq!(p.unlink("/m/file"), Err(Errno::ROFS));
    assert_eq!(p.mkdir("/m/new", 0o755), Err(Errno::ROFS));
    p.setresuid(1000, 1000, 1000).unwrap();
    assert_eq!(p.mount_fs("/m", fs, 0), Err(Errno::PERM));
    // Modes and owners decide as elsewhere.
    assert_eq!(p.open("/m/file", O_RDWR, 0), Err(Errno::ACCESS));
    assert_eq!(p.access("/m/file", 4), Ok(()));
    assert_eq!(p.access("/m/file", 2), Err(Errno::ACCESS));
}

#[test]
fn names_and_attributes_hold_for_their_time() {
    let (p, world) = world();
    *world.valid.lock().unwrap() = Some(Duration::from_secs(1000));
    let first = p.stat("/m/file").unwrap();
    assert_eq!(world.calls(), "lookup");
    assert_eq!(p.stat("/m/file"), Ok(first));
    assert_eq!(world.calls(), "");
    *world.valid.lock().unwrap() = Some(Duration::ZERO);
    // An inode keeps the time that it came with.
    let (kernel, fresh) = (p.kernel().clone(), 4);
    kernel.shrink();
    p.stat("/m/file").unwrap();
    assert_eq!(world.calls(), "lookup getattr");
    world.size.store(fresh, SeqCst);
    let now = p.stat("/m/file").unwrap();
    assert_eq!((now.st_size, now.st_mode, now.st_ino), (4, S_IFREG | 0o600, first.st_ino));
    assert!(world.calls().starts_with("revalidate getattr"));
    // A name that stands for something else: the open file keeps what it has.
    let fd = p.open("/m/file", O_RDONLY, 0).unwrap();
    world.still.store(false, SeqCst);
    world.calls();
    assert_eq!(p.stat("/m/file").unwrap().st_mode, S_IFREG | 0o600);
    assert!(world.calls().starts_with("revalidate lookup"));
    assert_eq!(p.read(fd, &mut [0; 99]), Ok(10));
    // So does a working directory, below which nothing is found.
    p.chdir("/m/dir").unwrap();
    p.stat("/m/dir").unwrap();
    assert_eq!(p.stat("file"), Err(Errno::NOENT));
    assert_eq!(p.stat(".").unwrap().st_mode, S_IFDIR | 0o755);
    assert_eq!(p.stat("..").unwrap().st_mode, S_IFDIR | 0o755);
}

/// Whatever a method is for, it may do what any program may, in the process that called it.
#[test]
fn methods_call_into_the_same_process() {
    quietline_testing::isolated!();
    let (p, world) = world();
    *world.valid.lock().unwrap() = Some(Duration::ZERO);
    let (weak, depth) = (Arc::downgrade(&p), AtomicU32::new(0));
    world.hook(move |method, caller| {
        let p: Arc<Process> = Weak::upgrade(&weak).unwrap();
        assert_eq!((caller.pid(), caller.is_interrupted()), (p.getpid(), false));
        if depth.fetch_add(1, SeqCst) == 0 {
            // These end only if no section is open, of the tree's domain or of the credentials.
            quietline_sync::might_sleep();
            quietline_sync::rcu::global().unwrap().synchronize();
            p.setresgid(7, 7, 7).unwrap();
            p.setresgid(0, 0, 0).unwrap();
            p.kernel().shrink();
            // The same file system, by each kind of call.
            p.stat("/m/dir/file").unwrap();
            let fd = p.open("/m/file", O_RDONLY, 0).unwrap();
            assert_eq!(p.read(fd, &mut [0; 4]), Ok(4), "{method}");
            p.close(fd).unwrap();
            assert!(list(&p, "/m/dir", 1000).contains_key("file"));
            assert_eq!(p.mkdir("/m/file", 0), Err(Errno::EXIST));
            // The tree around it changes.
            p.mkdir("/new", 0o755).unwrap();
            p.mount("none", "/m/dir", "tmpfs", 0).unwrap();
            p.umount2("/m/dir", 0).unwrap();
            p.rmdir("/new").unwrap();
            p.chdir("/").unwrap();
        }
        depth.fetch_sub(1, SeqCst);
    });
    let mut target = [0; 64];
    p.stat("/m/dir/link").unwrap();
    p.readlink("/m/link", &mut target).unwrap();
    p.statfs("/m/dir").unwrap();
    let fd = p.open("/m/own", O_RDONLY, 0).unwrap();
    p.read(fd, &mut [0; 9]).unwrap();
    p.close(fd).unwrap();
    let fd = p.open("/m", O_RDONLY, 0).unwrap();
    p.fstatfs(fd).unwrap();
    p.fstatat(fd, "file", 0).unwrap();
    list(&p, "/m", 100);
    p.access("/m/file", 0).unwrap();
    assert_eq!(p.rename("/m/file", "/m/new"), Err(Errno::PERM));
    assert_eq!(p.link("/m/file", "/m/new"), Err(Errno::PERM));
    p.mkdir("/n", 0o755).unwrap();
    p.mount_fs("/n", Arc::new(Dir(world.clone())), 0).unwrap();
    world.unhook();
    for method in [
        "root",
        "lookup",
        "revalidate",
        "getattr",
        "readlink",
        "open",
        "read_own",
        "read_dir",
        "statfs",
    ] {
        assert!(world.calls.lock().unwrap().iter().any(|call| call == method), "{method}");
    }
}

#[test]
fn a_method_sleeps_while_others_go_on() {
    let (p, world) = world();
    let (entered, go) =
        (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let (e, g) = (entered.clone(), go.clone());
    world.hook(move |method, _| {
        if method == "read_at" {
            e.wait();
            g.wait();
        }
    });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let fd = p.open("/m/file", O_RDONLY, 0).unwrap();
            p.read(fd, &mut [0; 4])
        });
        entered.wait();
        // A grace period, other credentials, the same descriptor, the same directory.
        quietline_sync::rcu::global().unwrap().synchronize();
        p.setresgid(5, 5, 5).unwrap();
        p.kernel().shrink();
        assert_eq!(p.lseek(0, 0, SEEK_CUR), Ok(0));
        p.stat("/m/dir").unwrap();
        world.unhook();
        go.wait();
        assert_eq!(reader.join().unwrap(), Ok(4));
    });
    assert_eq!(p.lseek(0, 0, SEEK_CUR), Ok(4));
}

#[test]
fn a_panic_in_a_method_leaves_nothing_behind() {
    quietline_testing::isolated!();
    let (p, world) = world();
    let dir = p.open("/m", O_RDONLY, 0).unwrap();
    let file = p.open("/m/file", O_RDONLY, 0).unwrap();
    let own = p.open("/m/own", O_RDONLY, 0).unwrap();
    type Call = Box<dyn Fn(&Process) -> Result<(), Errno>>;
    let calls: Vec<(&str, Call)> = vec![
        ("lookup", Box::new(|p| p.stat("/m/dir").map(drop))),
        ("lookup", Box::new(|p| p.open("/m/dir/file", O_CREAT | O_RDWR, 0).map(drop))),
        ("readlink", Box::new(|p| p.stat("/m/link").map(drop))),
        ("open", Box::new(|p| p.close(p.open("/m/own", O_RDONLY, 0)?))),
        ("read_at", Box::new(move |p| p.read(file, &mut [0; 1]).map(drop))),
        ("read_own", Box::new(move |p| p.read(own, &mut [0; 1]).map(drop))),
        ("read_dir", Box::new(move |p| p.getdents64(dir, &mut [0; 999]).map(drop))),
        ("statfs", Box::new(|p| p.statfs("/m").map(drop))),
        (
            "root",
            Box::new({
                let world = world.clone();
                move |p| {
                    p.mount_fs("/m/dir", Arc::new(Dir(world.clone())), 0)?;
                    p.umount2("/m/dir", 0)
                }
            }),
        ),
    ];
    for (method, call) in calls {
        p.kernel().shrink();
        let before = p.kernel().dentries();
        world.hook(move |at, _| assert!(at != method, "on purpose"));
        catch_unwind(AssertUnwindSafe(|| call(&p))).expect_err(method);
        world.unhook();
        p.kernel().shrink();
        assert_eq!(p.kernel().dentries().nr_dentry, before.nr_dentry, "{method}");
        assert_eq!(p.open_fds().unwrap().len(), 3, "{method}");
        call(&p).unwrap_or_else(|errno| panic!("{method}: {errno}"));
        while p.open_fds().unwrap().len() > 3 {
            p.close(*p.open_fds().unwrap().last().unwrap()).unwrap();
        }
    }
    // The end of an open file's object waits for a grace period.
    quietline_sync::rcu::global().unwrap().barrier();
    assert_eq!(world.objects.load(SeqCst), 1);
    p.close_range(0, u32::MAX, 0).unwrap();
    assert_eq!(world.objects.load(SeqCst), 1);
    quietline_sync::rcu::global().unwrap().barrier();
    assert_eq!(world.objects.load(SeqCst), 0);
    p.umount2("/m", 0).unwrap();
}

/// A file system that answers wrongly.
struct Wrong(fn(&str) -> Entry);
struct Liar(fn(&str) -> Entry, &'static str);

fn liar(entry: fn(&str) -> Entry, name: &'static str, mode: u32) -> Entry {
    Entry::new(Arc::new(Liar(entry, name)), mode)
}

impl FileSystem for Wrong {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        Ok(liar(self.0, "", S_IFDIR | 0o755))
    }

    fn statfs(&self, _: &Caller<'_>) -> Result<StatFs, Errno> {
        Err(Errno::from_raw_os_error(512))
    }
}

impl InodeOps for Liar {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        if name == b"restart" {
            return Err(Errno::from_raw_os_error(512));
        }
        Ok((self.0)(std::str::from_utf8(name).unwrap()))
    }

    fn revalidate(&self, _: &Caller<'_>, _: &[u8], _: &dyn InodeOps) -> Result<bool, Errno> {
        Ok(true)
    }

    fn getattr(&self, _: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        Ok(Some(Attributes { mode: S_IFLNK | 0o777, ..Attributes::default() }))
    }

    fn readlink(&self, _: &Caller<'_>) -> Result<Box<[u8]>, Errno> {
        Ok(match self.1 {
            "empty" => [].into(),
            "zero" => [b'a', 0].into(),
            _ => vec![b'a'; 5000].into(),
        })
    }
}

impl FileOps for Liar {
    fn read_at(&self, _: &Caller<'_>, to: &mut [u8], _: u64) -> Result<usize, Errno> {
        Ok(to.len() + 1)
    }

    fn read_dir(
        &self,
        _: &Caller<'_>,
        from: u64,
        each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let entry = |place, name| NodeEntry { place, ino: 1, mode: 0o170_000, name };
        // It does not stop when it is told to.
        for _ in 0..3 {
            match self.1 {
                "slash" => each(entry(from, b"a/b")),
                "back" => each(entry(0, b"a")),
                "far" => each(entry(u64::MAX, b"a")),
                "long" => each(entry(from, &[b'a'; 256])),
                _ => each(entry(from, b"")),
            };
        }
        Ok(())
    }
}

/// The wrong entry of a name.
fn lie(name: &str) -> Entry {
    let (mode, at): (u32, &'static str) = match name {
        "kind" => (0o030_644, ""),
        "none" => (0o644, ""),
        "bits" => (S_IFREG | 1 << 20, ""),
        "empty" => (S_IFLNK, "empty"),
        "zero" => (S_IFLNK, "zero"),
        "endless" => (S_IFLNK, "endless"),
        "slash" => (S_IFDIR | 0o777, "slash"),
        "back" => (S_IFDIR | 0o777, "back"),
        "far" => (S_IFDIR | 0o777, "far"),
        "long" => (S_IFDIR | 0o777, "long"),
        "nameless" => (S_IFDIR | 0o777, ""),
        _ => (S_IFREG | 0o666, ""),
    };
    let mut entry = liar(lie, at, mode);
    match name {
        "size" => entry.attributes.size = u64::MAX,
        "time" => entry.attributes.mtime.tv_nsec = 1_000_000_000,
        "changes" => entry.valid = Some(Duration::ZERO),
        _ => {}
    }
    entry
}

#[test]
fn wrong_answers_are_errors() {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = kernel.process().unwrap();
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", Arc::new(Wrong(lie)), 0).unwrap();
    for name in ["kind", "none", "bits", "size", "time", "changes", "restart"] {
        assert_eq!(p.stat(format!("/m/{name}")), Err(Errno::IO), "{name}");
        assert_eq!(p.open(format!("/m/{name}"), O_CREAT, 0o644), Err(Errno::IO), "{name}");
        assert_eq!(p.rename(format!("/m/{name}"), "/m/x"), Err(Errno::IO), "{name}");
    }
    for (name, errno) in
        [("empty", Errno::NOENT), ("zero", Errno::IO), ("endless", Errno::NAMETOOLONG)]
    {
        assert_eq!(p.stat(format!("/m/{name}")), Err(errno), "{name}");
        assert_eq!(p.readlink(format!("/m/{name}"), &mut [0; 9]), Err(errno), "{name}");
    }
    for name in ["slash", "back", "far", "long", "nameless"] {
        let fd = p.open(format!("/m/{name}"), O_RDONLY, 0).unwrap();
        // The dots come first.
        assert_eq!(p.getdents64(fd, &mut [0; 48]), Ok(48), "{name}");
        let listed = p.getdents64(fd, &mut [0; 999]);
        match name {
            // The first entry is right, the second one is at the same place.
            "back" => assert_eq!(listed, Ok(24)),
            _ => assert_eq!(listed, Err(Errno::IO), "{name}"),
        }
        assert_eq!(p.getdents64(fd, &mut [0; 999]), Err(Errno::IO), "{name}");
        p.close(fd).unwrap();
    }
    let fd = p.open("/m/file", O_RDONLY, 0).unwrap();
    assert_eq!(p.read(fd, &mut [0; 8]), Err(Errno::IO));
    assert_eq!(p.statfs("/m"), Err(Errno::IO));
    // A root that is no directory.
    struct Flat;
    impl FileSystem for Flat {
        fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
            Ok(lie("file"))
        }
    }
    assert_eq!(p.mount_fs("/m", Arc::new(Flat), 0), Err(Errno::NOTDIR));
}

#[test]
fn each_allocation_of_a_lookup_may_fail() {
    quietline_testing::isolated!();
    let _alone = alone();
    for call in [
        |p: &Process| p.stat("/m/dir/link").map(drop),
        |p: &Process| p.close(p.open("/m/own", O_RDONLY, 0)?),
        |p: &Process| p.statfs("/m/dir").map(drop),
        |p: &Process| p.mount_fs("/m", Arc::new(Dir(Arc::default())), 0),
    ] {
        for n in 1.. {
            let (p, world) = world();
            fault::fail_nth(n);
            let done = call(&p);
            let met = !fault::armed();
            fault::fail_nth(0);
            if let Err(errno) = done {
                assert_eq!(errno, Errno::NOMEM, "allocation {n}");
                call(&p).unwrap();
            }
            quietline_sync::rcu::global().unwrap().barrier();
            assert_eq!(world.objects.load(SeqCst), 0);
            if !met {
                break;
            }
        }
    }
}

#[test]
fn threads_look_up_while_dentries_go() {
    let (p, world) = world();
    *world.valid.lock().unwrap() = Some(Duration::from_micros(20));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (p, stop) = (&p, &stop);
            scope.spawn(move || {
                let mut bytes = [0; 10];
                while !stop.load(SeqCst) {
                    let stat = p.stat("/m/dir/dir/link").or_else(|_| p.stat("/m/dir/file"));
                    assert!(matches!(stat, Ok(_) | Err(Errno::NOENT)), "{stat:?}");
                    if let Ok(fd) = p.open("/m/dir/file", O_RDONLY, 0) {
                        assert_eq!(p.read(fd, &mut bytes), Ok(10));
                        p.close(fd).unwrap();
                    }
                    if n == 0 {
                        p.kernel().shrink();
                    }
                }
            });
        }
        for round in 0..400 {
            world.still.store(round % 3 != 0, SeqCst);
            p.stat("/m/file").unwrap();
            world.calls();
        }
        stop.store(true, SeqCst);
    });
    p.umount2("/m", 0).unwrap();
    p.kernel().shrink();
    assert_eq!(p.kernel().dentries().nr_dentry, 1);
}

/// A hit costs what a hit in tmpfs costs, to a tenth; one on a name with a validity time reads the
/// clock.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_hit_costs_as_much_as_in_tmpfs() {
    quietline_testing::isolated!();
    let (p, world) = world();
    p.mkdir("/t", 0o755).unwrap();
    p.mount("none", "/t", "tmpfs", 0).unwrap();
    p.mkdir("/t/dir", 0o755).unwrap();
    let fd = p.creat("/t/dir/file", 0o644).unwrap();
    p.close(fd).unwrap();
    p.mkdir("/v", 0o755).unwrap();
    *world.valid.lock().unwrap() = Some(Duration::from_secs(100_000));
    p.mount_fs("/v", Arc::new(Dir(world.clone())), 0).unwrap();
    let count = |path: &str| {
        let stat = || {
            let _ = p.stat(std::hint::black_box(path)).unwrap();
        };
        (0..100).for_each(|_| stat());
        world.calls();
        let counts = quietline_count::count(stat);
        assert_eq!(world.calls(), "", "{path} is cached");
        counts.map(|counts| (counts.instructions, counts.locked))
    };
    let timed = count("/v/dir/file");
    *world.valid.lock().unwrap() = None;
    let (Ok(tmpfs), Ok(custom), Ok(timed)) = (count("/t/dir/file"), count("/m/dir/file"), timed)
    else {
        eprintln!("not checked: this system refuses to trace");
        return;
    };
    println!("instructions and locked ones: tmpfs {tmpfs:?}, custom {custom:?}, timed {timed:?}");
    // In the fallback, per-CPU operations lock.
    let locked = if percpu::is_fallback() { tmpfs.1 } else { 0 };
    assert_eq!((tmpfs.1, custom.1, timed.1), (locked, locked, locked));
    assert!(custom.0 * 10 <= tmpfs.0 * 11, "custom {}, tmpfs {}", custom.0, tmpfs.0);
}

/// Called with the number of each question for attributes.
type Slow = Arc<dyn Fn(u64) + Send + Sync>;

/// A file system with a directory and a file that hold for a given time. `file` fails to be opened
/// with an error, and says that its size is the number of the question.
#[derive(Default)]
struct Timed {
    valid: Option<Duration>,
    fails: Mutex<Option<Errno>>,
    opened: AtomicU32,
    asked: AtomicU64,
    slow: Mutex<Option<Slow>>,
}

struct Part(Arc<Timed>, bool);

impl Part {
    fn entry(of: &Arc<Timed>, is_dir: bool) -> Entry {
        let mode = if is_dir { S_IFDIR | 0o755 } else { S_IFREG | 0o644 };
        let mut entry = Entry::new(Arc::new(Self(of.clone(), is_dir)), mode);
        entry.valid = of.valid;
        entry
    }

    fn answer(&self) -> u64 {
        let number = self.0.asked.fetch_add(1, SeqCst) + 1;
        let slow = self.0.slow.lock().unwrap().clone();
        if let Some(slow) = slow {
            slow(number);
        }
        number
    }
}

impl FileSystem for Timed {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        Ok(Entry { valid: None, ..Part::entry(&self, true) })
    }
}

impl InodeOps for Part {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        match name {
            b"file" => Ok(Part::entry(&self.0, false).with_size(self.answer())),
            b"dir" => Ok(Part::entry(&self.0, true)),
            _ => Err(Errno::NOENT),
        }
    }

    fn revalidate(&self, _: &Caller<'_>, _: &[u8], _: &dyn InodeOps) -> Result<bool, Errno> {
        Ok(true)
    }

    fn getattr(&self, _: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        if self.1 {
            return Ok(None);
        }
        let size = self.answer();
        Ok(Some(Attributes { mode: S_IFREG | 0o644, nlink: 1, size, ..Attributes::default() }))
    }

    fn open(&self, _: &Caller<'_>, _: i32) -> Result<Option<Arc<dyn FileOps>>, Errno> {
        // A call that repeats it must not hang the test.
        match *self.0.fails.lock().unwrap() {
            Some(errno) if self.0.opened.fetch_add(1, SeqCst) < 10 => Err(errno),
            _ => Ok(None),
        }
    }
}

impl FileOps for Part {}

fn timed(valid: Option<Duration>) -> (Arc<Process>, Arc<Timed>) {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    let fs = Arc::new(Timed { valid, ..Timed::default() });
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", fs.clone(), 0).unwrap();
    (p, fs)
}

#[test]
fn an_open_runs_its_method_once() {
    let (p, fs) = timed(None);
    p.symlink("/m/file", "/link").unwrap();
    for errno in [Errno::EXIST, Errno::NOENT, Errno::AGAIN, Errno::NOSPC] {
        *fs.fails.lock().unwrap() = Some(errno);
        for path in ["/m/file", "/link", "/m/dir/../file"] {
            for flags in [0, O_CREAT] {
                p.kernel().shrink();
                for _ in ["it is looked up", "it is in the cache"] {
                    fs.opened.store(0, SeqCst);
                    assert_eq!(p.open(path, flags, 0o644), Err(errno), "{path} {flags:o}");
                    assert_eq!(fs.opened.load(SeqCst), 1, "{path} {flags:o} {errno}");
                }
            }
        }
    }
}

#[test]
fn times_and_lengths_stay() {
    let (p, fs) = timed(None);
    *fs.fails.lock().unwrap() = Some(Errno::NOSPC);
    let before = p.stat("/m/file").unwrap();
    let times = [Timespec { tv_sec: 7, tv_nsec: 0 }; 2];
    for path in ["/m/file", "/m/dir", "/m"] {
        for times in [None, Some(times)] {
            assert_eq!(p.utimensat(AT_FDCWD, Some(path), times, 0), Err(Errno::PERM), "{path}");
        }
        let fd = p.open(path, O_PATH, 0).unwrap();
        assert_eq!(p.utimensat(fd, Some(""), Some(times), AT_EMPTY_PATH), Err(Errno::PERM));
        p.close(fd).unwrap();
    }
    // As on Linux, the file is opened first, and then its length is set.
    for (fails, errno) in [(Some(Errno::NOSPC), Errno::NOSPC), (None, Errno::PERM)] {
        *fs.fails.lock().unwrap() = fails;
        for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT] {
            assert_eq!(p.open("/m/file", flags | O_TRUNC, 0o644), Err(errno));
        }
    }
    let fd = p.open("/m/file", O_RDWR, 0).unwrap();
    assert_eq!(p.futimens(fd, Some(times)), Err(Errno::PERM));
    assert_eq!(p.fstat(fd), Ok(before));
    p.close(fd).unwrap();
    // Nothing keeps the mount writable.
    p.mount("none", "/m", "", MS_REMOUNT | MS_BIND | 1).unwrap();
    assert_eq!(p.open("/m/file", O_RDONLY | O_TRUNC, 0), Err(Errno::ROFS));
    assert_eq!(p.futimens(p.open("/m/file", O_RDONLY, 0).unwrap(), None), Err(Errno::ROFS));
}

/// The validity time of a directory on the way may end at any moment of a `bind`.
#[test]
fn a_socket_that_is_not_bound_leaves_no_name() {
    const VALID: Duration = Duration::from_micros(40);
    let (p, _fs) = timed(Some(VALID));
    p.mkdir("/t", 0o755).unwrap();
    p.mount("none", "/t", "tmpfs", 0).unwrap();
    p.stat("/m/dir").unwrap();
    p.mount("/t", "/m/dir", "", MS_BIND).unwrap();
    let address = [&(AF_UNIX as u16).to_ne_bytes()[..], b"/m/dir/socket"].concat();
    let bound = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(bound, &[&(AF_UNIX as u16).to_ne_bytes()[..], b"/t/other"].concat()).unwrap();
    let (mut done, mut refused, mut twice) = (0, 0, 0);
    for round in 0..6000 {
        p.stat("/m/dir").unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < VALID * (round % 1000) / 1000 {}
        // Every other one fails after the name is made.
        let fd = match round % 2 {
            0 => p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap(),
            _ => bound,
        };
        match p.bind(fd, &address) {
            Ok(()) => {
                done += 1;
                p.unlink("/t/socket").unwrap();
            }
            Err(Errno::OPNOTSUPP) => refused += 1,
            Err(errno) => {
                assert_eq!((errno, round % 2), (Errno::INVAL, 1));
                twice += 1;
            }
        }
        assert_eq!(p.stat("/t/socket"), Err(Errno::NOENT), "round {round}");
        if fd != bound {
            p.close(fd).unwrap();
        }
    }
    println!("{done} bound, {refused} refused, {twice} bound before");
}

#[test]
fn an_answer_that_comes_late_is_dropped() {
    let (p, fs) = timed(Some(Duration::ZERO));
    p.stat("/m/file").unwrap();
    let fd = p.open("/m/file", O_RDONLY, 0).unwrap();
    let late = fs.asked.load(SeqCst) + 1;
    let [entered, go] = [(); 2].map(|()| Arc::new(std::sync::Barrier::new(2)));
    let (e, g, seen) = (entered.clone(), go.clone(), Arc::new(Mutex::new(Vec::new())));
    *fs.slow.lock().unwrap() = Some(Arc::new(move |number| {
        if number == late {
            e.wait();
            g.wait();
        }
    }));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| p.access("/m/file", 0));
        entered.wait();
        p.access("/m/file", 0).unwrap();
        let newer = p.fstat(fd).unwrap().st_size;
        assert!(newer > late as i64);
        // The first call may ask again, and sees what its late answer has done.
        let (weak, sizes) = (Arc::downgrade(&p), seen.clone());
        *fs.slow.lock().unwrap() = Some(Arc::new(move |_| {
            let p: Arc<Process> = Weak::upgrade(&weak).unwrap();
            sizes.lock().unwrap().push(p.fstat(fd).unwrap().st_size);
        }));
        go.wait();
        first.join().unwrap().unwrap();
        *fs.slow.lock().unwrap() = None;
        assert!(p.fstat(fd).unwrap().st_size >= newer);
        let sizes: Vec<i64> = seen.lock().unwrap().clone();
        assert!(sizes.iter().all(|&size| size >= newer), "{sizes:?}, not {newer}");
    });
}

#[test]
fn the_validity_time_begins_before_the_method() {
    const VALID: Duration = Duration::from_millis(30);
    let (p, fs) = timed(Some(VALID));
    *fs.slow.lock().unwrap() = Some(Arc::new(|_| std::thread::sleep(VALID)));
    let asked = |p: &Process| {
        p.access("/m/file", 0).unwrap();
        fs.asked.load(SeqCst)
    };
    // The answer of the lookup is too old when it comes, and so is that of `getattr`.
    let first = asked(&p);
    assert!(first >= 2);
    assert!(asked(&p) > first);
}
