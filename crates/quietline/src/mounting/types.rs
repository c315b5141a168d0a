//! Types of file systems, by name: the kernel's own and those that the program has registered.

use super::options::{Options, TmpfsOptions};
use crate::kernel::Inner;
use crate::{Errno, Kernel, proc};
use core::fmt;
use quietline_platform::heap;
use quietline_sync::{LazyBox, Shared, SpinLock};
use quietline_vfs::operations::{Caller, FileSystem};
use quietline_vfs::ramfs::new_ramfs;
use quietline_vfs::{Limits, SuperRef};
use std::sync::Arc;

/// What `mount(2)` says of a file system that is to be mounted.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MountRequest<'a> {
    /// The source: a name that only the type understands.
    pub source: &'a [u8],
    /// The options, as they were given. The kernel shows them in `/proc/PID/mounts`.
    pub options: &'a [u8],
    /// Whether the file system is mounted read-only.
    pub read_only: bool,
}

/// A file system type of the program: makes an instance for each mount.
pub(crate) type Make =
    dyn Fn(&Caller<'_>, &MountRequest<'_>) -> Result<Arc<dyn FileSystem>, Errno> + Send + Sync;

/// Makes an instance of a type of the kernel's own.
pub(super) type NewSuper = for<'k> fn(&'k Inner, &NewMount<'_>) -> Result<SuperRef<'k>, Errno>;

/// A mount that is being made of a type of the kernel's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewMount<'a> {
    pub(super) dev: u64,
    /// Those that the kernel does not know for all types.
    pub(super) options: &'a Options<'a>,
    /// The user and the group of the caller.
    pub(super) owner: [u32; 2],
}

/// How instances of a type are made.
#[derive(Clone)]
pub(super) enum Type {
    Own(OwnType),
    Program(&'static str, Shared<Box<Make>>),
}

/// A type of the kernel's own.
#[derive(Clone, Copy)]
pub(super) struct OwnType {
    name: &'static str,
    /// Makes an instance.
    pub(super) new: NewSuper,
    /// Reads the options of a remount.
    pub(super) parse: fn(&Inner, &Options<'_>) -> Result<TmpfsOptions, Errno>,
}

/// The kernel's own types, in the order of `/proc/filesystems`.
const OWN: [OwnType; 3] = [
    OwnType {
        name: "sysfs",
        new: new_sysfs,
        parse: |_, options| options.none_is_left().map(|()| TmpfsOptions::default()),
    },
    OwnType {
        name: "tmpfs",
        new: new_tmpfs,
        parse: |k, options| TmpfsOptions::parse(options, memory(k)),
    },
    OwnType {
        name: "proc",
        new: new_proc,
        parse: |_, options| proc_options(options).map(|()| TmpfsOptions::default()),
    },
];

/// Types that are not mounted: the kernel has the only instance.
const INTERNAL: [&str; 2] = ["sockfs", "pipefs"];

/// The types that the program has registered.
#[derive(Debug)]
pub(crate) struct Types {
    registered: LazyBox<SpinLock<Vec<Registered>>>,
}

struct Registered {
    name: &'static str,
    make: Shared<Box<Make>>,
}

impl Types {
    pub(crate) fn new() -> Self {
        Self { registered: LazyBox::new() }
    }

    /// Returns the type of this name.
    ///
    /// # Errors
    /// `ENODEV`; `EINVAL` for a type that is not mounted.
    pub(super) fn find(&self, name: &str) -> Result<Type, Errno> {
        if let Some(own) = OWN.iter().find(|own| own.name == name) {
            return Ok(Type::Own(*own));
        }
        if INTERNAL.contains(&name) {
            return Err(Errno::INVAL);
        }
        let registered = self.registered.get().ok_or(Errno::NODEV)?.lock();
        let found = registered.iter().find(|registered| registered.name == name);
        found.map(|of| Type::Program(of.name, of.make.clone())).ok_or(Errno::NODEV)
    }

    /// Calls `each` with the names of all types, under the lock of the registered ones.
    pub(crate) fn each_name(&self, mut each: impl FnMut(&'static str)) {
        OWN.iter().map(|own| own.name).chain(INTERNAL).for_each(&mut each);
        if let Some(registered) = self.registered.get() {
            registered.lock().iter().for_each(|registered| each(registered.name));
        }
    }
}

impl Kernel {
    /// Registers a file system type of the program (`register_filesystem`): from now on
    /// [`mount`](crate::Process::mount) makes an instance by its name, and `/proc/filesystems` has
    /// it. `make` returns the instance. It may sleep and call the kernel, and gets the caller, the
    /// source and the options of the call. It lives as long as the kernel: a `Process` in it would
    /// keep both alive for ever.
    ///
    /// ```
    /// use quietline::{Caller, Config, Entry, Errno, FileOps, FileSystem, InodeOps, Kernel};
    /// use quietline::{MountRequest, abi::S_IFDIR};
    /// use std::sync::Arc;
    ///
    /// struct Empty;
    /// impl FileOps for Empty {}
    /// impl InodeOps for Empty {}
    /// impl FileSystem for Empty {
    ///     fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
    ///         Ok(Entry::new(self, S_IFDIR | 0o755))
    ///     }
    /// }
    ///
    /// let kernel = Kernel::boot(Config::default().owner(0, 0))?;
    /// kernel.register_file_system("empty", |_: &Caller<'_>, request: &MountRequest<'_>| {
    ///     if request.options == b"" { Ok(Arc::new(Empty)) } else { Err(Errno::INVAL) }
    /// })?;
    /// let p = kernel.process()?;
    /// p.mkdir("/e", 0o755)?;
    /// assert_eq!(p.mount_with("none", "/e", "empty", 0, "size=1"), Err(Errno::INVAL));
    /// p.mount("none", "/e", "empty", 0)?;
    /// # Ok::<(), Errno>(())
    /// ```
    ///
    /// # Errors
    /// `EBUSY` if there is a type of this name; `EINVAL` for a name that is empty or has space in
    /// it; `ENOMEM`.
    pub fn register_file_system<F>(&self, name: &'static str, make: F) -> Result<(), Errno>
    where
        F: Fn(&Caller<'_>, &MountRequest<'_>) -> Result<Arc<dyn FileSystem>, Errno>
            + Send
            + Sync
            + 'static,
    {
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(Errno::INVAL);
        }
        let make: Box<Make> = heap::try_box(make).map_err(|_| Errno::NOMEM)?;
        let make = Shared::new(make).map_err(|_| Errno::NOMEM)?;
        // Dropped after the lock if it is refused.
        let entry = Registered { name, make };
        let types = &self.inner().types;
        let registered = types.registered.get_or_make(|| Ok(SpinLock::new(Vec::new())));
        let mut registered = registered.map_err(|_| Errno::NOMEM)?.lock();
        let taken = OWN.iter().any(|own| own.name == name)
            || INTERNAL.contains(&name)
            || registered.iter().any(|other| other.name == name);
        if taken {
            drop(registered);
            return Err(Errno::BUSY);
        }
        if heap::try_reserve(&mut *registered, 1).is_err() {
            drop(registered);
            return Err(Errno::NOMEM);
        }
        registered.push(entry);
        Ok(())
    }

    /// Takes a file system type of the program back (`unregister_filesystem`). Mounts
    /// stay.
    ///
    /// # Errors
    /// `EINVAL` if the program has registered none of this name.
    pub fn unregister_file_system(&self, name: &str) -> Result<(), Errno> {
        let gone = {
            let registered = self.inner().types.registered.get().ok_or(Errno::INVAL)?;
            let mut registered = registered.lock();
            let at = registered.iter().position(|registered| registered.name == name);
            at.map(|at| registered.remove(at))
        };
        // The program's value is dropped without the lock.
        gone.map(drop).ok_or(Errno::INVAL)
    }
}

/// Returns the bytes of memory that a size in percent is of.
fn memory(k: &Inner) -> u64 {
    let physical = quietline_platform::memory::physical();
    k.config.memory.map_or(physical, |limit| physical.min(limit as u64))
}

fn new_tmpfs<'k>(k: &'k Inner, new: &NewMount<'_>) -> Result<SuperRef<'k>, Errno> {
    let told = TmpfsOptions::parse(new.options, memory(k))?;
    let [uid, gid] = new.owner;
    let owner = [told.uid.unwrap_or(uid), told.gid.unwrap_or(gid)];
    let limits = Limits::changeable(told.blocks, told.inodes).map_err(|_| Errno::NOMEM)?;
    new_ramfs(&k.vfs, new.dev, limits, told.mode.unwrap_or(0o1777), owner)
}

/// Changes the limits of a tmpfs. What else the options say stays as it was at the mount, as on
/// Linux.
///
/// # Errors
/// `EINVAL`.
pub(super) fn reconfigure(sb: &SuperRef<'_>, told: &TmpfsOptions) -> Result<(), Errno> {
    // There is no swap in any case, but a remount cannot end the use of swap on Linux.
    if told.noswap && !sb.options().ends_with(b"noswap") {
        return Err(Errno::INVAL);
    }
    match sb.ramfs() {
        Some(fs) => fs.limits().change(told.blocks, told.inodes),
        None => Ok(()),
    }
}

fn new_proc<'k>(k: &'k Inner, new: &NewMount<'_>) -> Result<SuperRef<'k>, Errno> {
    proc_options(new.options)?;
    proc::new_proc(k, new.dev)
}

fn new_sysfs<'k>(k: &'k Inner, new: &NewMount<'_>) -> Result<SuperRef<'k>, Errno> {
    new.options.none_is_left()?;
    proc::new_sysfs(k, new.dev)
}

/// Checks the options of `proc`: processes are hidden from no other.
///
/// # Errors
/// `EINVAL`.
fn proc_options(options: &Options<'_>) -> Result<(), Errno> {
    let known = |(key, value): (&[u8], Option<&[u8]>)| {
        key == b"hidepid" && matches!(value, Some(b"0" | b"off"))
    };
    if options.iter().all(known) { Ok(()) } else { Err(Errno::INVAL) }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
