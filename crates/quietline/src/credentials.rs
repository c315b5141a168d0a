//! System calls on who a process is.

use crate::{Errno, Process};
use quietline_platform::atomic::Ordering;
use quietline_platform::heap;
use quietline_vfs::Owner;
use quietline_vfs::cred::{Capabilities, Cred};

impl Process {
    fn ask<R>(&self, question: impl FnOnce(&Cred) -> R) -> R {
        question(self.cred.load(&self.cred.section()))
    }

    /// Makes the process somebody else: nobody sees it half changed. What other threads change meanwhile is not lost.
    fn become_another<R>(
        &self,
        change: impl Fn(&mut Cred) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let result = loop {
            let section = self.cred.section();
            let current = self.cred.load(&section);
            let mut new = current.duplicate().map_err(|_| Errno::NOMEM)?;
            let result = change(&mut new)?;
            if new.is_like(current) {
                return Ok(result);
            }
            new.renew();
            if current.ends_dumpable(&new) {
                // Relaxed: `replace` publishes it together with the new credentials. A reader that
                // finds these finds the process not dumpable.
                self.dumpable.store(false, Ordering::Relaxed);
            }
            if self.cred.replace(current, new, &section)? {
                break result;
            }
        };
        let following = self.owner_lock.lock();
        self.owner.store(self.ask(Owner::of));
        drop(following);
        // A process that changes all the time leaves no more behind than a batch.
        self.cred.pass_on_replaced();
        Ok(self.returning(result))
    }

    /// Changes credentials and the dumpable flag as `execve` does. Without memory nothing changes.
    pub(crate) fn exec_cred(&self) -> Result<(), Errno> {
        let was = self.dumpable();
        let same = |cred: &Cred| {
            let ([uid, euid, _], [gid, egid, _]) = (cred.uids(), cred.gids());
            (uid, gid) == (euid, egid)
        };
        self.set_dumpable(self.ask(same));
        let changed = self.become_another(|cred| {
            cred.exec();
            Ok(())
        });
        changed.inspect_err(|_| self.set_dumpable(was))
    }

    /// Returns whether processes with the same ids may inspect this one through `/proc`
    /// (`PR_GET_DUMPABLE`). A change of an effective or file-system id sets it to `false`.
    pub fn dumpable(&self) -> bool {
        // Relaxed: a setting.
        self.dumpable.load(Ordering::Relaxed)
    }

    /// Sets whether processes with the same ids may inspect this one (`PR_SET_DUMPABLE`).
    pub fn set_dumpable(&self, dumpable: bool) {
        // Relaxed: a setting.
        self.dumpable.store(dumpable, Ordering::Relaxed);
    }

    /// The real, effective and saved user. Writes no shared line.
    pub fn getresuid(&self) -> [u32; 3] {
        self.ask(Cred::uids)
    }

    /// The real, effective and saved group. Writes no shared line.
    pub fn getresgid(&self) -> [u32; 3] {
        self.ask(Cred::gids)
    }

    /// The supplementary groups, sorted.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn getgroups(&self) -> Result<Vec<u32>, Errno> {
        self.ask(|cred| {
            let groups = cred.groups();
            let copy =
                heap::try_boxed_slice(groups.len(), |n| groups[n]).map_err(|_| Errno::NOMEM)?;
            Ok(copy.into_vec())
        })
    }

    /// The capabilities in effect.
    pub fn capabilities(&self) -> Capabilities {
        self.ask(Cred::capabilities)
    }

    /// Sets the real, effective and saved user of the process, -1 keeping one; the user for files follows the effective
    /// one. Capabilities go and come as on Linux.
    ///
    /// # Errors
    /// `EPERM` for a user that is none of the three, without `CAP_SETUID`; `ENOMEM`.
    pub fn setresuid(&self, real: u32, effective: u32, saved: u32) -> Result<(), Errno> {
        self.become_another(|cred| cred.setresuid([real, effective, saved]))
    }

    /// Sets the real, effective and saved group of the process, -1 keeping one; the group for files follows the
    /// effective one.
    ///
    /// # Errors
    /// `EPERM` for a group that is none of the three, without `CAP_SETGID`; `ENOMEM`.
    pub fn setresgid(&self, real: u32, effective: u32, saved: u32) -> Result<(), Errno> {
        self.become_another(|cred| cred.setresgid([real, effective, saved]))
    }

    /// Sets the user for files alone, if that is allowed; the one before.
    ///
    /// # Errors
    /// `ENOMEM`. (That it is not allowed is no error.)
    pub fn setfsuid(&self, uid: u32) -> Result<u32, Errno> {
        self.become_another(|cred| Ok(cred.setfsuid(uid)))
    }

    /// Sets the group for files alone, if that is allowed; the one before.
    ///
    /// # Errors
    /// `ENOMEM`. (That it is not allowed is no error.)
    pub fn setfsgid(&self, gid: u32) -> Result<u32, Errno> {
        self.become_another(|cred| Ok(cred.setfsgid(gid)))
    }

    /// Sets the supplementary groups.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SETGID`; `EINVAL` for more than 65,536; `ENOMEM`.
    pub fn setgroups(&self, groups: &[u32]) -> Result<(), Errno> {
        self.become_another(|cred| cred.setgroups(groups))
    }

    /// Sets the capabilities in effect, and those that may be put into effect again.
    ///
    /// # Errors
    /// `EPERM` for any that the process may not have; `ENOMEM`.
    pub fn set_capabilities(
        &self,
        effective: Capabilities,
        permitted: Capabilities,
    ) -> Result<(), Errno> {
        self.become_another(|cred| cred.set_capabilities(effective, permitted))
    }
}
