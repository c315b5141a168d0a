//! Credentials: user and group ids, supplementary groups and capabilities.
//!
//! # Guarantees
//!
//! A [`Cred`] does not change once it is shared: whoever changes a process's makes another one, so that a call that
//! began with one ends with it.
//!
//! # Limits
//!
//! The capabilities are the ones that a call of this kernel consults. There are no user namespaces
//! and no securebits.
//!
//! # Source
//!
//! `kernel/cred.c`, `security/commoncap.c`; `credentials(7)`, `capabilities(7)`.

use crate::raw::dcache::seen::Section;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::heap;
use rustix::io::Errno;

bitflags::bitflags! {
    /// Capabilities, numbered as on Linux.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Capabilities: u64 {
        /// Give files away.
        const CHOWN = 1 << 0;
        /// Read, write and execute against a file's mode.
        const DAC_OVERRIDE = 1 << 1;
        /// Read files and search directories against their mode.
        const DAC_READ_SEARCH = 1 << 2;
        /// Count as the owner of files that are another's.
        const FOWNER = 1 << 3;
        /// Keep the set-id bits of files that are changed.
        const FSETID = 1 << 4;
        /// Send signals to processes of other users.
        const KILL = 1 << 5;
        /// Take any group.
        const SETGID = 1 << 6;
        /// Take any user.
        const SETUID = 1 << 7;
        /// Bind ports below 1,024.
        const NET_BIND_SERVICE = 1 << 10;
        /// Change sockets beyond the limits of their options.
        const NET_ADMIN = 1 << 12;
        /// Create raw sockets.
        const NET_RAW = 1 << 13;
        /// Change the root directory.
        const SYS_CHROOT = 1 << 18;
        /// Inspect processes of other users.
        const SYS_PTRACE = 1 << 19;
        /// Mount, trusted attributes, and much else.
        const SYS_ADMIN = 1 << 21;
        /// Make pipes larger than others may.
        const SYS_RESOURCE = 1 << 24;
        /// Make device nodes.
        const MKNOD = 1 << 27;
        /// Take leases of files that are another's.
        const LEASE = 1 << 28;
        /// Set the capabilities of files.
        const SETFCAP = 1 << 31;
        /// Create and set timers that wake the system.
        const WAKE_ALARM = 1 << 35;
    }
}

impl Capabilities {
    /// Those that go and come with the user id for files.
    const OF_FILES: Self = Self::CHOWN
        .union(Self::DAC_OVERRIDE)
        .union(Self::DAC_READ_SEARCH)
        .union(Self::FOWNER)
        .union(Self::FSETID)
        .union(Self::MKNOD);

    /// The capabilities of root in a kernel that is not privileged.
    pub const UNPRIVILEGED: Self = Self::all()
        .difference(Self::NET_BIND_SERVICE)
        .difference(Self::NET_ADMIN)
        .difference(Self::NET_RAW)
        .difference(Self::WAKE_ALARM);
}

/// The most supplementary groups (`NGROUPS_MAX`).
pub const NGROUPS_MAX: usize = 65_536;

/// "No change", where an id is set.
const KEEP: u32 = u32::MAX;

/// Ids, groups and capabilities (`struct cred`).
#[derive(Debug)]
pub struct Cred {
    // What a path walk reads comes first.
    fsuid: u32,
    fsgid: u32,
    effective: Capabilities,
    /// Supplementary groups, sorted.
    groups: Box<[u32]>,
    permitted: Capabilities,
    uids: Ids,
    gids: Ids,
    id: u32,
    /// Whether this is a call's own copy: see [`for_sleeping_call`](Self::for_sleeping_call).
    may_sleep: bool,
}

fn next_id() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only different numbers are wanted.
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The real, the effective and the saved id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    real: u32,
    effective: u32,
    saved: u32,
}

impl Ids {
    fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id }
    }

    fn has(self, id: u32) -> bool {
        self.real == id || self.effective == id || self.saved == id
    }

    fn any_is_root(self) -> bool {
        self.has(0)
    }

    /// Whether a change changes nothing, the id for files included: then it is not even asked whether it is allowed.
    fn stays(self, [real, effective, saved]: [u32; 3], for_files: u32) -> bool {
        let same = |id, old| id == KEEP || id == old;
        same(real, self.real)
            && (effective == KEEP || (effective == self.effective && effective == for_files))
            && same(saved, self.saved)
    }

    /// With those changed that are not -1; none if the caller, who is not `privileged`, has not got one of the new ids.
    fn changed(self, [real, effective, saved]: [u32; 3], privileged: bool) -> Option<Self> {
        let may = |id| id == KEEP || privileged || self.has(id);
        let pick = |id, old| if id == KEEP { old } else { id };
        (may(real) && may(effective) && may(saved)).then(|| Self {
            real: pick(real, self.real),
            effective: pick(effective, self.effective),
            saved: pick(saved, self.saved),
        })
    }
}

/// Credentials of a caller, which another thread may replace.
pub trait CredCell {
    /// Returns the current credentials. They stay as long as the read section is open, in which the
    /// caller does not wait.
    fn load_in_walk<'g>(&'g self, section: &'g Section) -> &'g Cred;
}

impl Cred {
    /// A user with one group. User 0 has all capabilities, others none.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self::bounded(uid, gid, Capabilities::all())
    }

    /// A user with one group. User 0 has the capabilities of `bound`, others none.
    pub fn bounded(uid: u32, gid: u32, bound: Capabilities) -> Self {
        let capabilities = if uid == 0 { bound } else { Capabilities::empty() };
        Self {
            fsuid: uid,
            fsgid: gid,
            effective: capabilities,
            groups: Box::default(),
            permitted: capabilities,
            uids: Ids::all(uid),
            gids: Ids::all(gid),
            id: next_id(),
            may_sleep: false,
        }
    }

    /// Tells credentials apart, also equal ones: a file knows by it whether who uses it has opened it. (Until 2^32 have been
    /// made.)
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Whether both may do the same, and have opened the same.
    pub fn is_like(&self, other: &Self) -> bool {
        let ids = |cred: &Self| {
            (cred.fsuid, cred.fsgid, cred.effective, cred.permitted, cred.uids, cred.gids)
        };
        self.id == other.id && ids(self) == ids(other) && self.groups == other.groups
    }

    /// Makes it one that has opened nothing yet: to be called on a copy that is changed.
    pub fn renew(&mut self) {
        self.id = next_id();
    }

    /// Whether a change from these credentials to `new` clears the dumpable flag of the process
    /// (`PR_SET_DUMPABLE(2const)`): if an effective or file-system id differs.
    pub fn ends_dumpable(&self, new: &Self) -> bool {
        let ids = |cred: &Self| (cred.uids.effective, cred.gids.effective, cred.fsuid, cred.fsgid);
        ids(self) != ids(new) || !self.permitted.contains(new.permitted)
    }

    /// Whether these credentials permit to inspect a process with the credentials `other`, which is
    /// `dumpable` or not (`ptrace_may_access` with `PTRACE_MODE_READ_FSCREDS`).
    pub fn may_inspect(&self, other: &Self, dumpable: bool) -> bool {
        let is = |ids: Ids, id| [ids.real, ids.effective, ids.saved] == [id; 3];
        let same_user = is(other.uids, self.fsuid) && is(other.gids, self.fsgid);
        (same_user && dumpable && self.effective.contains(other.permitted))
            || self.has(Capabilities::SYS_PTRACE)
    }

    /// A copy, which counts as the same: what one has opened the other has.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the groups.
    pub fn duplicate(&self) -> Result<Self, AllocError> {
        let groups = if self.groups.is_empty() {
            Box::default()
        } else {
            heap::try_boxed_slice(self.groups.len(), |n| self.groups[n])?
        };
        let Self { fsuid, fsgid, effective, permitted, uids, gids, .. } = *self;
        let (id, may_sleep) = (self.id, false);
        Ok(Self { fsuid, fsgid, effective, groups, permitted, uids, gids, id, may_sleep })
    }

    /// A copy for one call, which holds no lock and has no read-side critical section open: with
    /// it, the call may run methods of [embedders' file systems](crate::operations). A call with
    /// other credentials ends with [`RESTART`](crate::operations::RESTART) where it needs one.
    ///
    /// # Errors
    /// As [`duplicate`](Self::duplicate).
    pub fn for_sleeping_call(&self) -> Result<Self, AllocError> {
        Ok(Self { may_sleep: true, ..self.duplicate()? })
    }

    /// Whether the call may run methods of embedders' file systems.
    #[inline]
    pub fn may_sleep(&self) -> bool {
        self.may_sleep
    }

    /// As whom `access` asks: with the real ids for files, and root's capabilities if that is root. None: as this.
    pub(crate) fn by_real_ids(&self) -> Result<Option<Self>, AllocError> {
        let root = self.uids.real == 0;
        let effective = if root { self.permitted } else { Capabilities::empty() };
        if (self.uids.real, self.gids.real) == (self.fsuid, self.fsgid)
            && effective == self.effective
        {
            return Ok(None);
        }
        let mut real = Self { may_sleep: self.may_sleep, ..self.duplicate()? };
        (real.fsuid, real.fsgid, real.effective) = (self.uids.real, self.gids.real, effective);
        Ok(Some(real))
    }

    /// The user that files see.
    #[inline]
    pub fn fsuid(&self) -> u32 {
        self.fsuid
    }

    /// The group that new files get.
    #[inline]
    pub fn fsgid(&self) -> u32 {
        self.fsgid
    }

    /// The real, effective and saved user (`getresuid`).
    pub fn uids(&self) -> [u32; 3] {
        [self.uids.real, self.uids.effective, self.uids.saved]
    }

    /// The real, effective and saved group (`getresgid`).
    pub fn gids(&self) -> [u32; 3] {
        [self.gids.real, self.gids.effective, self.gids.saved]
    }

    /// The supplementary groups, sorted (`getgroups`).
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// The capabilities in effect.
    #[inline]
    pub fn capabilities(&self) -> Capabilities {
        self.effective
    }

    /// Whether all of these are in effect.
    #[inline]
    pub fn has(&self, capabilities: Capabilities) -> bool {
        self.effective.contains(capabilities)
    }

    /// Whether a file of this group is one of ours (`in_group_p`). O(log groups).
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || (!self.groups.is_empty() && self.groups.binary_search(&gid).is_ok())
    }

    /// Sets the real, effective and saved user; -1 keeps one. The user for files follows the effective one, if
    /// anything changes at all (`setresuid`).
    ///
    /// # Errors
    /// `EPERM` for a user that is none of the three, without [`Capabilities::SETUID`].
    pub fn setresuid(&mut self, uids: [u32; 3]) -> Result<(), Errno> {
        let old = self.uids;
        if old.stays(uids, self.fsuid) {
            return Ok(());
        }
        self.uids = old.changed(uids, self.has(Capabilities::SETUID)).ok_or(Errno::PERM)?;
        if old.any_is_root() && !self.uids.any_is_root() {
            self.permitted = Capabilities::empty();
            self.effective = Capabilities::empty();
        }
        match (old.effective == 0, self.uids.effective == 0) {
            (true, false) => self.effective = Capabilities::empty(),
            (false, true) => self.effective = self.permitted,
            _ => {}
        }
        self.fsuid = self.uids.effective;
        Ok(())
    }

    /// Sets the real, effective and saved group; -1 keeps one. The group for files follows the effective one
    /// (`setresgid`).
    ///
    /// # Errors
    /// `EPERM` for a group that is none of the three, without [`Capabilities::SETGID`].
    pub fn setresgid(&mut self, gids: [u32; 3]) -> Result<(), Errno> {
        if self.gids.stays(gids, self.fsgid) {
            return Ok(());
        }
        self.gids = self.gids.changed(gids, self.has(Capabilities::SETGID)).ok_or(Errno::PERM)?;
        self.fsgid = self.gids.effective;
        Ok(())
    }

    /// Sets the user for files alone, if that is allowed; the one before (`setfsuid`).
    pub fn setfsuid(&mut self, uid: u32) -> u32 {
        let old = self.fsuid;
        if uid != KEEP && (self.uids.has(uid) || uid == old || self.has(Capabilities::SETUID)) {
            self.fsuid = uid;
            match (old == 0, uid == 0) {
                (true, false) => self.effective.remove(Capabilities::OF_FILES),
                (false, true) => self.effective |= self.permitted & Capabilities::OF_FILES,
                _ => {}
            }
        }
        old
    }

    /// Sets the group for files alone, if that is allowed; the one before (`setfsgid`).
    pub fn setfsgid(&mut self, gid: u32) -> u32 {
        let old = self.fsgid;
        if gid != KEEP && (self.gids.has(gid) || gid == old || self.has(Capabilities::SETGID)) {
            self.fsgid = gid;
        }
        old
    }

    /// Sets the supplementary groups (`setgroups`).
    ///
    /// # Errors
    /// `EPERM` without [`Capabilities::SETGID`]; `EINVAL` for more than [`NGROUPS_MAX`], or for group -1; `ENOMEM`.
    pub fn setgroups(&mut self, groups: &[u32]) -> Result<(), Errno> {
        if !self.has(Capabilities::SETGID) {
            return Err(Errno::PERM);
        }
        if groups.len() > NGROUPS_MAX || groups.contains(&KEEP) {
            return Err(Errno::INVAL);
        }
        let mut sorted =
            heap::try_boxed_slice(groups.len(), |n| groups[n]).map_err(|_| Errno::NOMEM)?;
        sorted.sort_unstable();
        self.groups = sorted;
        // As on Linux also if they are what they were.
        self.renew();
        Ok(())
    }

    /// Changes the credentials as `execve` of a file without set-id bits does: the saved ids, and
    /// those for files, become the effective ones. Without user 0 among the real and the effective
    /// one, all capabilities go; with a real one alone, those in effect. None is added.
    pub fn exec(&mut self) {
        for ids in [&mut self.uids, &mut self.gids] {
            ids.saved = ids.effective;
        }
        (self.fsuid, self.fsgid) = (self.uids.effective, self.gids.effective);
        if self.uids.real != 0 && self.uids.effective != 0 {
            self.permitted = Capabilities::empty();
        }
        let root = self.uids.effective == 0;
        self.effective = if root { self.permitted } else { Capabilities::empty() };
        self.renew();
    }

    /// Sets the capabilities in effect and those that may be put into effect again (`capset`).
    ///
    /// # Errors
    /// `EPERM` when the first are not among the second, or the second not among those that were permitted.
    pub fn set_capabilities(
        &mut self,
        effective: Capabilities,
        permitted: Capabilities,
    ) -> Result<(), Errno> {
        if !permitted.contains(effective) || !self.permitted.contains(permitted) {
            return Err(Errno::PERM);
        }
        (self.effective, self.permitted) = (effective, permitted);
        self.renew();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_given_up_for_good_or_for_a_while() {
        let mut cred = Cred::new(0, 0);
        assert_eq!(cred.capabilities(), Capabilities::all());
        cred.setresuid([KEEP, 7, KEEP]).unwrap();
        assert_eq!((cred.uids(), cred.fsuid()), ([0, 7, 0], 7));
        assert!(cred.capabilities().is_empty());
        cred.setresuid([KEEP, 0, KEEP]).unwrap();
        assert_eq!(cred.capabilities(), Capabilities::all());
        cred.setresuid([7, 7, 7]).unwrap();
        assert_eq!(cred.setresuid([KEEP, 0, KEEP]), Err(Errno::PERM));
        assert!(cred.capabilities().is_empty());
        assert_eq!(cred.setresgid([1, KEEP, KEEP]), Err(Errno::PERM));
        assert_eq!(cred.setgroups(&[1]), Err(Errno::PERM));
    }

    #[test]
    fn the_user_for_files_alone() {
        let mut cred = Cred::new(0, 0);
        assert_eq!(cred.setfsuid(5), 0);
        assert!(!cred.has(Capabilities::DAC_OVERRIDE) && cred.has(Capabilities::SYS_ADMIN));
        assert_eq!(cred.setfsuid(u32::MAX), 5, "asks only");
        assert_eq!((cred.setfsuid(0), cred.capabilities()), (5, Capabilities::all()));
        let mut cred = Cred::new(3, 4);
        assert_eq!((cred.setfsuid(9), cred.fsuid()), (3, 3), "not allowed");
        assert_eq!((cred.setfsgid(9), cred.fsgid()), (4, 4), "not allowed");
    }

    #[test]
    fn groups_are_found() {
        let mut cred = Cred::new(0, 10);
        cred.setgroups(&[30, 5, 20]).unwrap();
        assert!([5, 10, 20, 30].into_iter().all(|gid| cred.in_group(gid)));
        assert!(!cred.in_group(6));
        assert_eq!(cred.duplicate().unwrap().groups(), [5, 20, 30]);
        assert_eq!(cred.setgroups(&[KEEP]), Err(Errno::INVAL));
    }

    #[test]
    fn exec_keeps_what_root_has() {
        let mut cred = Cred::new(0, 0);
        cred.set_capabilities(Capabilities::CHOWN, Capabilities::CHOWN | Capabilities::KILL)
            .unwrap();
        cred.exec();
        assert_eq!(cred.capabilities(), Capabilities::CHOWN | Capabilities::KILL);
        let mut cred = Cred::new(0, 0);
        cred.setresuid([KEEP, 7, KEEP]).unwrap();
        cred.exec();
        assert_eq!((cred.uids(), cred.fsuid()), ([0, 7, 7], 7));
        cred.setresuid([KEEP, 0, KEEP]).unwrap();
        assert_eq!(cred.capabilities(), Capabilities::all());
        cred.setresuid([7, 7, 0]).unwrap();
        cred.exec();
        assert_eq!(cred.setresuid([KEEP, 0, KEEP]), Err(Errno::PERM));
    }

    #[test]
    fn capabilities_only_shrink() {
        let mut cred = Cred::new(0, 0);
        let few = Capabilities::CHOWN | Capabilities::MKNOD;
        cred.set_capabilities(Capabilities::CHOWN, few).unwrap();
        assert_eq!(cred.set_capabilities(Capabilities::FOWNER, few), Err(Errno::PERM));
        assert_eq!(cred.set_capabilities(few, Capabilities::all()), Err(Errno::PERM));
        cred.set_capabilities(few, few).unwrap();
        assert_eq!(cred.capabilities(), few);
    }
}
