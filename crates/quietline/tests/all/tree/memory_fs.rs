//! A writable file system of an embedder, as a program would write it: a map behind a mutex.

use quietline::abi::*;
use quietline::{
    Attributes, Caller, Changes, Entry, Errno, FileOps, FileSystem, InodeOps, NewFile, NodeEntry,
};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Called with the name of each method, before (`false`) and after it.
pub(crate) type Hook = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// The file system.
#[derive(Default)]
pub(crate) struct MemoryFs {
    pub(crate) files: Mutex<HashMap<u64, File>>,
    pub(crate) valid: Option<Duration>,
    pub(crate) hook: Mutex<Option<Hook>>,
}

/// A file of any kind.
#[derive(Default)]
pub(crate) struct File {
    attributes: Attributes,
    /// The text of a file, the target of a link.
    bytes: Vec<u8>,
    pub(crate) names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Box<[u8]>>,
}

/// The number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// An inode: the number of a file.
pub(crate) struct Inode {
    fs: Arc<MemoryFs>,
    id: u64,
}

impl MemoryFs {
    /// Returns a file system with an empty root directory.
    pub(crate) fn new(valid: Option<Duration>) -> Arc<Self> {
        let attributes =
            Attributes { ino: ROOT, mode: S_IFDIR | 0o777, nlink: 2, ..Attributes::default() };
        let files = [(ROOT, File { attributes, ..File::default() })].into();
        Arc::new(Self { files: Mutex::new(files), valid, ..Self::default() })
    }

    pub(crate) fn set_hook(&self, hook: impl Fn(&str, bool) + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    pub(crate) fn unhook(&self) {
        *self.hook.lock().unwrap() = None;
    }

    fn tell(&self, method: &str, after: bool) {
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(method, after);
        }
    }

    fn entry(self: &Arc<Self>, file: &File) -> Entry {
        let inode = Arc::new(Inode { fs: self.clone(), id: file.attributes.ino });
        Entry { inode, attributes: file.attributes, valid: self.valid }
    }
}

impl Inode {
    /// Runs a method with all files, of which this inode's is taken out.
    fn with<R>(
        &self,
        method: &str,
        f: impl FnOnce(&mut HashMap<u64, File>, &mut File) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.fs.tell(method, false);
        let done = {
            let mut files = self.fs.files.lock().unwrap();
            let mut own = files.remove(&self.id).expect("files stay");
            let done = f(&mut files, &mut own);
            files.insert(self.id, own);
            done
        };
        self.fs.tell(method, true);
        done
    }
}

impl FileSystem for MemoryFs {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        let files = self.files.lock().unwrap();
        Ok(self.entry(&files[&ROOT]))
    }
}

fn is_dir(file: &File) -> bool {
    file.attributes.mode & S_IFMT == S_IFDIR
}

/// Takes a name of a file away.
fn lose(files: &mut HashMap<u64, File>, dir: &mut File, id: u64) -> Result<(), Errno> {
    let file = files.get_mut(&id).expect("files stay");
    if !file.names.is_empty() {
        return Err(Errno::NOTEMPTY);
    }
    if is_dir(file) {
        file.attributes.nlink = 0;
        dir.attributes.nlink -= 1;
    } else {
        file.attributes.nlink -= 1;
    }
    Ok(())
}

impl InodeOps for Inode {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        self.with("lookup", |files, own| {
            let id = own.names.get(name).ok_or(Errno::NOENT)?;
            Ok(self.fs.entry(&files[id]))
        })
    }

    fn revalidate(&self, _: &Caller<'_>, name: &[u8], child: &dyn InodeOps) -> Result<bool, Errno> {
        let child: &dyn Any = child;
        let child = child.downcast_ref::<Self>().expect("one of ours").id;
        self.with("revalidate", |_, own| Ok(own.names.get(name) == Some(&child)))
    }

    fn getattr(&self, _: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        self.with("getattr", |_, own| Ok(Some(own.attributes)))
    }

    fn readlink(&self, _: &Caller<'_>) -> Result<Box<[u8]>, Errno> {
        self.with("readlink", |_, own| Ok(own.bytes.clone().into()))
    }

    fn create(&self, _: &Caller<'_>, name: &[u8], new: &NewFile<'_>) -> Result<Entry, Errno> {
        self.with("create", |files, own| {
            if own.names.contains_key(name) {
                return Err(Errno::EXIST);
            }
            if own.attributes.nlink == 0 {
                return Err(Errno::NOENT);
            }
            let id = files.len() as u64 + 2;
            let attributes = Attributes { ino: id, ..new.attributes };
            let file = File { attributes, bytes: new.target.to_vec(), ..File::default() };
            own.attributes.nlink += u32::from(is_dir(&file));
            own.names.insert(name.to_vec(), id);
            let entry = self.fs.entry(&file);
            files.insert(id, file);
            Ok(entry)
        })
    }

    fn link(&self, _: &Caller<'_>, name: &[u8], target: &dyn InodeOps) -> Result<(), Errno> {
        let target: &dyn Any = target;
        let id = target.downcast_ref::<Self>().expect("one of ours").id;
        self.with("link", |files, own| {
            let file = files.get_mut(&id).expect("files stay");
            if own.names.contains_key(name) {
                return Err(Errno::EXIST);
            }
            if file.attributes.nlink == 0 || own.attributes.nlink == 0 {
                return Err(Errno::NOENT);
            }
            file.attributes.nlink += 1;
            own.names.insert(name.to_vec(), id);
            Ok(())
        })
    }

    fn unlink(&self, _: &Caller<'_>, name: &[u8]) -> Result<(), Errno> {
        self.with("unlink", |files, own| {
            let id = *own.names.get(name).ok_or(Errno::NOENT)?;
            if is_dir(&files[&id]) {
                return Err(Errno::ISDIR);
            }
            lose(files, own, id)?;
            own.names.remove(name);
            Ok(())
        })
    }

    fn rmdir(&self, _: &Caller<'_>, name: &[u8]) -> Result<(), Errno> {
        self.with("rmdir", |files, own| {
            let id = *own.names.get(name).ok_or(Errno::NOENT)?;
            if !is_dir(&files[&id]) {
                return Err(Errno::NOTDIR);
            }
            lose(files, own, id)?;
            own.names.remove(name);
            Ok(())
        })
    }

    fn rename(
        &self,
        _: &Caller<'_>,
        name: &[u8],
        to: &dyn InodeOps,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let to: &dyn Any = to;
        let to = to.downcast_ref::<Self>().expect("one of ours").id;
        self.with("rename", |files, own| {
            if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
                return Err(Errno::INVAL);
            }
            let source = *own.names.get(name).ok_or(Errno::NOENT)?;
            // A directory that becomes its own ancestor.
            if source == to || source == self.id {
                return Err(Errno::INVAL);
            }
            // The other directory is taken out, too, if it is another one.
            let mut other = files.remove(&to);
            let new = other.as_mut().unwrap_or(&mut *own);
            let target = new.names.get(new_name).copied();
            let done = rename_in(files, new, source, target, flags);
            if done.is_ok() && target != Some(source) {
                new.names.insert(new_name.to_vec(), source);
            }
            let moved = i64::from(is_dir_of(files, &other, to, source));
            let back = target.filter(|_| flags & RENAME_EXCHANGE != 0);
            if done.is_ok() && target != Some(source) {
                let comes = back.map_or(0, |back| i64::from(is_dir_of(files, &other, to, back)));
                let count = |file: &mut File, n: i64| {
                    file.attributes.nlink = (i64::from(file.attributes.nlink) + n) as u32;
                };
                if let Some(other) = &mut other {
                    count(other, moved - comes);
                    count(own, comes - moved);
                }
                match back {
                    Some(back) => own.names.insert(name.to_vec(), back),
                    None => own.names.remove(name),
                };
            }
            if let Some(other) = other {
                files.insert(to, other);
            }
            done
        })
    }

    fn setattr(&self, _: &Caller<'_>, changes: &Changes) -> Result<(), Errno> {
        self.with("setattr", |_, own| {
            let of = &mut own.attributes;
            of.mode = changes.mode.unwrap_or(of.mode);
            of.uid = changes.uid.unwrap_or(of.uid);
            of.gid = changes.gid.unwrap_or(of.gid);
            of.atime = changes.atime.unwrap_or(of.atime);
            of.mtime = changes.mtime.unwrap_or(of.mtime);
            of.ctime = changes.ctime.unwrap_or(of.ctime);
            if let Some(size) = changes.size {
                of.size = size;
                own.bytes.resize(size as usize, 0);
            }
            Ok(())
        })
    }

    fn getxattr(&self, _: &Caller<'_>, name: &[u8]) -> Result<Box<[u8]>, Errno> {
        self.with("getxattr", |_, own| own.xattrs.get(name).cloned().ok_or(Errno::NODATA))
    }

    fn setxattr(&self, _: &Caller<'_>, name: &[u8], value: &[u8], flags: i32) -> Result<(), Errno> {
        self.with("setxattr", |_, own| match own.xattrs.contains_key(name) {
            true if flags & XATTR_CREATE != 0 => Err(Errno::EXIST),
            false if flags & XATTR_REPLACE != 0 => Err(Errno::NODATA),
            _ => {
                own.xattrs.insert(name.to_vec(), value.into());
                Ok(())
            }
        })
    }

    fn removexattr(&self, _: &Caller<'_>, name: &[u8]) -> Result<(), Errno> {
        self.with("removexattr", |_, own| own.xattrs.remove(name).map(drop).ok_or(Errno::NODATA))
    }

    fn listxattr(&self, _: &Caller<'_>, each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let names: Vec<Vec<u8>> =
            self.with("listxattr", |_, own| Ok(own.xattrs.keys().cloned().collect()))?;
        names.iter().for_each(|name| each(name));
        Ok(())
    }
}

/// Whether a file is a directory, which may be one that is taken out.
fn is_dir_of(files: &HashMap<u64, File>, other: &Option<File>, to: u64, id: u64) -> bool {
    match other {
        Some(other) if id == to => is_dir(other),
        _ => files.get(&id).is_some_and(is_dir),
    }
}

/// Checks a rename into a directory, and takes a name of the replaced file away.
fn rename_in(
    files: &mut HashMap<u64, File>,
    new: &mut File,
    source: u64,
    target: Option<u64>,
    flags: u32,
) -> Result<(), Errno> {
    match target {
        _ if new.attributes.nlink == 0 => Err(Errno::NOENT),
        None if flags & RENAME_EXCHANGE != 0 => Err(Errno::NOENT),
        Some(_) if flags & RENAME_NOREPLACE != 0 => Err(Errno::EXIST),
        Some(target) if flags & RENAME_EXCHANGE == 0 && target != source => {
            // The source's own directory may be the target.
            let over = files.get(&target).ok_or(Errno::NOTEMPTY)?;
            match (is_dir(&files[&source]), is_dir(over)) {
                (true, false) => Err(Errno::NOTDIR),
                (false, true) => Err(Errno::ISDIR),
                _ => lose(files, new, target),
            }
        }
        _ => Ok(()),
    }
}

impl FileOps for Inode {
    fn read_at(&self, _: &Caller<'_>, to: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.with("read_at", |_, own| {
            let rest = own.bytes.get(at as usize..).unwrap_or(&[]);
            let n = rest.len().min(to.len());
            to[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, _: &Caller<'_>, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        self.with("write_at", |_, own| {
            let end = own.bytes.len().max(at as usize + bytes.len());
            own.bytes.resize(end, 0);
            own.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
            own.attributes.size = end as u64;
            Ok(bytes.len())
        })
    }

    fn fsync(&self, _: &Caller<'_>, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn read_dir(
        &self,
        _: &Caller<'_>,
        from: u64,
        each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let names: Vec<(Vec<u8>, u64, u32)> = self.with("read_dir", |files, own| {
            let mode = |id: &u64| files[id].attributes.mode;
            Ok(own.names.iter().map(|(name, id)| (name.clone(), *id, mode(id))).collect())
        })?;
        for (place, (name, ino, mode)) in (0..).zip(&names).skip(from as usize) {
            if !each(NodeEntry { place, ino: *ino, mode: *mode, name }) {
                break;
            }
        }
        Ok(())
    }
}
