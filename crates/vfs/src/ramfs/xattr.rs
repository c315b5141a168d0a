//! Extended attributes: bytes by name.
//!
//! # Which names
//!
//! Those of tmpfs: `security.`, `trusted.` and `user.`, each with something behind the dot. Access
//! control lists (`system.`) are not kept: no file has one, and one with entries cannot be set
//! (`EOPNOTSUPP`). Who may do what with a name is said by [`Name::check_read`] and
//! [`Name::check_write`], as far as it does not follow from the file's mode.
//!
//! # Limits
//!
//! 255 bytes for a name, 64 KiB for a value and for a list. What all attributes of a filesystem take together is counted
//! against a [`Budget`], in bytes as tmpfs counts them: an attribute takes 40 bytes, its name's and its
//! value's. (tmpfs takes them out of the room for inodes, of which each has 1 KiB; here that is up to whoever makes the budget.)
//!
//! # Locks
//!
//! None: whoever uses it holds the inode's.
//!
//! # Source
//!
//! `fs/xattr.c`, `mm/shmem.c`, Linux 6.18; compared with the host's tmpfs by `tests/all/xattr.rs`.

use quietline_platform::{AllocError, fault};
use rustix::io::Errno;

/// Bytes of the longest name.
pub const NAME_MAX: usize = 255;
/// Bytes of the longest value.
pub const SIZE_MAX: usize = 65_536;
/// Bytes of the longest list of names.
pub const LIST_MAX: usize = 65_536;

/// The name of the capabilities that a file gives to the program in it.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The attribute must not be there yet (`XATTR_CREATE`).
pub const CREATE: i32 = 1;
/// The attribute must be there (`XATTR_REPLACE`).
pub const REPLACE: i32 = 2;

/// What an attribute takes besides name and value.
const OVERHEAD: usize = 40;

/// A name that attributes can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'n> {
    bytes: &'n [u8],
    namespace: Namespace,
}

/// Whose attributes these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// Of security modules: everybody may read them, and whoever is privileged write them.
    Security,
    /// Of privileged processes: nobody else sees them.
    Trusted,
    /// Of everybody, on files and directories, as the mode says.
    User,
}

/// Who asks, as far as the file's mode does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asker {
    /// Has `CAP_SYS_ADMIN`.
    pub admin: bool,
    /// Owns the file, or has `CAP_FOWNER`.
    pub owner: bool,
}

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A regular file.
    File,
    /// A directory, perhaps sticky.
    Directory {
        /// `S_ISVTX` is set.
        sticky: bool,
    },
    /// Anything else.
    Other,
}

/// Who counts the bytes that attributes take: their filesystem.
pub trait Budget {
    /// Takes room for so many bytes; false, and nothing taken, if there is none.
    #[must_use = "false means that there is no room"]
    fn charge(&self, bytes: u64) -> bool;

    /// Gives room back that was taken.
    fn uncharge(&self, bytes: u64);
}

/// No limit.
impl Budget for () {
    fn charge(&self, _bytes: u64) -> bool {
        true
    }

    fn uncharge(&self, _bytes: u64) {}
}

/// The attributes of one inode, by name.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// The last name first: so tmpfs lists them.
    sorted: Vec<Attribute>,
}

#[derive(Debug)]
struct Attribute {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

impl<'n> Name<'n> {
    /// A name as a system call is given it.
    ///
    /// # Errors
    /// `ERANGE` if it is empty or too long, `EOPNOTSUPP` if it begins with none of the namespaces, `EINVAL` if it ends there.
    pub fn new(bytes: &'n [u8]) -> Result<Self, Errno> {
        if bytes.is_empty() || bytes.len() > NAME_MAX {
            return Err(Errno::RANGE);
        }
        let namespaces = [
            (&b"security."[..], Namespace::Security),
            (b"trusted.", Namespace::Trusted),
            (b"user.", Namespace::User),
        ];
        let found = namespaces.into_iter().find(|(prefix, _)| bytes.starts_with(prefix));
        let (prefix, namespace) = found.ok_or(Errno::OPNOTSUPP)?;
        if bytes.len() == prefix.len() {
            return Err(Errno::INVAL);
        }
        Ok(Self { bytes, namespace })
    }

    /// Its namespace.
    pub fn namespace(self) -> Namespace {
        self.namespace
    }

    /// Whether it is [`CAPABILITY`].
    pub fn is_capability(self) -> bool {
        self.bytes == CAPABILITY
    }

    /// Whether the file's mode is asked too, for reading or for writing.
    pub fn asks_mode(self) -> bool {
        self.namespace == Namespace::User
    }

    /// Whether such an attribute may be read.
    ///
    /// # Errors
    /// `ENODATA`: to whoever may not, it is not there.
    pub fn check_read(self, asker: Asker, target: Target) -> Result<(), Errno> {
        match self.namespace {
            Namespace::Security => Ok(()),
            Namespace::Trusted if asker.admin => Ok(()),
            Namespace::User if target != Target::Other => Ok(()),
            _ => Err(Errno::NODATA),
        }
    }

    /// Whether such an attribute may be written or removed.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_write(self, asker: Asker, target: Target) -> Result<(), Errno> {
        let may = match (self.namespace, target) {
            // The caller has checked `CAP_SETFCAP` where that is needed.
            (Namespace::Security, _) if self.is_capability() => true,
            (Namespace::Security | Namespace::Trusted, _) => asker.admin,
            (Namespace::User, Target::Other) => false,
            (Namespace::User, Target::Directory { sticky: true }) => asker.owner,
            (Namespace::User, _) => true,
        };
        if may { Ok(()) } else { Err(Errno::PERM) }
    }
}

/// What an attribute counts for.
fn room(name: &[u8], value: &[u8]) -> u64 {
    (OVERHEAD + name.len() + value.len()) as u64
}

impl Xattrs {
    /// None. Allocates nothing.
    pub const fn new() -> Self {
        Self { sorted: Vec::new() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    fn find(&self, name: Name<'_>) -> Result<usize, usize> {
        self.sorted.binary_search_by(|attribute| name.bytes.cmp(&attribute.name))
    }

    /// Copies a value out; its length. Into nothing, only the length (`getxattr`).
    ///
    /// # Errors
    /// `ENODATA` if there is none, `ERANGE` if it is longer than `to`; `EINVAL` for an empty
    /// [`CAPABILITY`].
    pub fn get(&self, name: Name<'_>, to: &mut [u8]) -> Result<usize, Errno> {
        let value = &self.sorted[self.find(name).map_err(|_| Errno::NODATA)?].value;
        if !name.is_capability() {
            return copy(value, to);
        }
        match value.split_last_chunk() {
            None => Err(Errno::INVAL),
            // Of user 0's namespace: told without the namespace's owner.
            Some((shorter, [0, 0, 0, 0])) if value.len() == CAPABILITY_V3 => {
                let mut told = [0; CAPABILITY_V2];
                told.copy_from_slice(shorter);
                let magic = u32::from_le_bytes(*told.first_chunk().expect("longer"));
                let magic = REVISION_2 | magic & EFFECTIVE;
                told[..4].copy_from_slice(&magic.to_le_bytes());
                copy(&told, to)
            }
            Some(_) => copy(value, to),
        }
    }

    /// The value of [`CAPABILITY`], unless it is empty.
    fn find_capability(&self) -> Option<usize> {
        let name = Name { bytes: CAPABILITY, namespace: Namespace::Security };
        self.find(name).ok().filter(|&at| !self.sorted[at].value.is_empty())
    }

    /// Whether [`CAPABILITY`] has a value.
    pub fn has_capability(&self) -> bool {
        self.find_capability().is_some()
    }

    /// Removes [`CAPABILITY`], if it has a value.
    pub fn drop_capability(&mut self, budget: &impl Budget) {
        if let Some(at) = self.find_capability() {
            let old = self.sorted.remove(at);
            budget.uncharge(room(&old.name, &old.value));
        }
    }

    /// Sets a value (`setxattr`). O(n) for a new name.
    ///
    /// # Errors
    /// `EINVAL` for other flags than [`CREATE`] and [`REPLACE`], `E2BIG` for a value that is too long, `EEXIST` and `ENODATA`
    /// as the flags want it, `ENOSPC` if the budget refuses, `ENOMEM`. Nothing is changed then.
    pub fn set(
        &mut self,
        budget: &impl Budget,
        name: Name<'_>,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        check_set(value, flags)?;
        let (add, found) = (room(name.bytes, value), self.find(name));
        // tmpfs wants room for the new value before it looks for the old one, and gives that back afterwards.
        if !budget.charge(add) {
            return Err(Errno::NOSPC);
        }
        let set = match found {
            Ok(_) if flags & CREATE != 0 => Err(Errno::EXIST),
            Err(_) if flags & REPLACE != 0 => Err(Errno::NODATA),
            Ok(at) => boxed(value)
                .map(|value| core::mem::replace(&mut self.sorted[at].value, value))
                .map(Some),
            Err(at) => self.insert(at, name.bytes, value).map(|()| None),
        };
        match set {
            Ok(None) => Ok(()),
            Ok(Some(old)) => {
                budget.uncharge(room(name.bytes, &old));
                Ok(())
            }
            Err(errno) => {
                budget.uncharge(add);
                Err(errno)
            }
        }
    }

    fn insert(&mut self, at: usize, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let attribute = Attribute { name: boxed(name)?, value: boxed(value)? };
        if self.sorted.len() == self.sorted.capacity() {
            fault::check().map_err(|_| Errno::NOMEM)?;
            self.sorted.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        }
        self.sorted.insert(at, attribute);
        Ok(())
    }

    /// Removes an attribute (`removexattr`). O(n). Needs no memory.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn remove(&mut self, budget: &impl Budget, name: Name<'_>) -> Result<(), Errno> {
        let old = self.sorted.remove(self.find(name).map_err(|_| Errno::NODATA)?);
        budget.uncharge(room(&old.name, &old.value));
        Ok(())
    }

    /// Copies all names out, each with a zero behind it, in their order; how many bytes. Into nothing, only the length
    /// (`listxattr`). Without `admin`, those that are [`Trusted`](Namespace::Trusted) are left out.
    ///
    /// # Errors
    /// `ERANGE` if there are more than `to` holds; `E2BIG` if more than can be asked for.
    pub fn list(&self, admin: bool, to: &mut [u8]) -> Result<usize, Errno> {
        let names = || {
            let shown = |a: &&Attribute| admin || !a.name.starts_with(b"trusted.");
            self.sorted.iter().filter(shown).map(|attribute| &attribute.name)
        };
        let length = names().map(|name| name.len() + 1).sum();
        if to.is_empty() {
            return Ok(length);
        }
        if length > to.len() {
            return Err(if to.len() >= LIST_MAX { Errno::TOOBIG } else { Errno::RANGE });
        }
        let mut at = 0;
        for name in names() {
            to[at..at + name.len()].copy_from_slice(name);
            to[at + name.len()] = 0;
            at += name.len() + 1;
        }
        Ok(length)
    }

    /// Takes all attributes away; for an inode that ends.
    pub fn clear(&mut self, budget: &impl Budget) {
        for attribute in core::mem::take(&mut self.sorted) {
            budget.uncharge(room(&attribute.name, &attribute.value));
        }
    }
}

/// Bytes of a [`CAPABILITY`] for all user namespaces.
const CAPABILITY_V2: usize = 20;
/// Bytes of a [`CAPABILITY`] for the user namespace of one user.
const CAPABILITY_V3: usize = 24;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
/// The capabilities take effect without a call.
const EFFECTIVE: u32 = 1;

/// Checks a value of [`CAPABILITY`] that a caller sets. `may_set`: it has `CAP_SETFCAP`.
///
/// # Errors
/// `EINVAL` for an invalid value; `EPERM` without the capability.
pub fn check_capability(value: &[u8], may_set: bool) -> Result<(), Errno> {
    let magic = value.first_chunk().map(|magic| u32::from_le_bytes(*magic) & !EFFECTIVE);
    match (magic, value.len()) {
        (Some(REVISION_2), CAPABILITY_V2) | (Some(REVISION_3), CAPABILITY_V3) if !may_set => {
            Err(Errno::PERM)
        }
        (Some(REVISION_2), CAPABILITY_V2) => Ok(()),
        // The last word is a user.
        (Some(REVISION_3), CAPABILITY_V3) if !value.ends_with(&[0xff; 4]) => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// What is refused before a name is looked for.
///
/// # Errors
/// `EINVAL`, `E2BIG` as [`Xattrs::set`] says.
pub fn check_set(value: &[u8], flags: i32) -> Result<(), Errno> {
    if flags & !(CREATE | REPLACE) != 0 {
        return Err(Errno::INVAL);
    }
    if value.len() > SIZE_MAX {
        return Err(Errno::TOOBIG);
    }
    Ok(())
}

fn copy(from: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
    if !to.is_empty() {
        to.get_mut(..from.len()).ok_or(Errno::RANGE)?.copy_from_slice(from);
    }
    Ok(from.len())
}

fn boxed(bytes: &[u8]) -> Result<Box<[u8]>, Errno> {
    let copy = || -> Result<_, AllocError> {
        fault::check()?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).map_err(|_| AllocError)?;
        copy.extend_from_slice(bytes);
        Ok(copy.into_boxed_slice())
    };
    copy().map_err(|_| Errno::NOMEM)
}
