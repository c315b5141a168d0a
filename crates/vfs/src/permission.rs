//! Whether somebody may do something to a file, by its mode.
//!
//! The rules are written over plain values: what an inode says of itself at one moment, and what somebody is.
//!
//! # Source
//!
//! `inode(7)`, `capabilities(7)`, `chmod(2)`, `chown(2)`; `fs/namei.c` and `fs/attr.c` for what they leave open.

use crate::abi::{S_IFDIR, S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_ISVTX, S_IWOTH, S_IXGRP};
use crate::cred::{Capabilities, Cred};
use crate::inode::{Inode, InodeFlags, Requester};
use rustix::io::Errno;

/// Whether somebody may do all of `mask` to what an inode is of, by its mode. Writes nothing.
///
/// # Errors
/// `EACCES`.
#[inline]
pub fn permission(inode: &Inode, cred: &Cred, mask: Mask) -> Result<(), Errno> {
    Ownership { mode: inode.mode(), uid: inode.uid(), gid: inode.gid() }.permits(cred, mask)
}

/// Checks whether a process may do all of `mask` to an inode: by the rules of its
/// [`Node`](crate::Node), if it has one, else by its mode.
///
/// # Errors
/// `EACCES`, or the node's.
#[inline(always)]
pub fn may(inode: &Inode, requester: &Requester<'_, '_>, mask: Mask) -> Result<(), Errno> {
    if inode.flags().contains(InodeFlags::NODE) {
        return may_by_node(inode, *requester, mask);
    }
    permission(inode, requester.cred, mask)
}

#[cold]
#[inline(never)]
fn may_by_node(inode: &Inode, requester: Requester<'_, '_>, mask: Mask) -> Result<(), Errno> {
    match inode.node() {
        Some(node) => node.permission(inode, &requester, mask),
        None => permission(inode, requester.cred, mask),
    }
}

bitflags::bitflags! {
    /// What is to be done with a file; numbered as in a mode and in `access`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Mask: u32 {
        /// Execute it, or search it if it is a directory.
        const EXEC = 1;
        /// Write it.
        const WRITE = 2;
        /// Read it.
        const READ = 4;
    }
}

/// What the rules ask of an inode: one moment's mode and owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Ownership {
    /// Whether it is of a directory.
    #[inline]
    pub fn is_dir(self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    /// Whether somebody may do all of `mask` (`generic_permission`).
    ///
    /// # Errors
    /// `EACCES`.
    #[inline]
    pub fn permits(self, cred: &Cred, mask: Mask) -> Result<(), Errno> {
        // Where all three classes may, nobody's identity matters: what nearly every step of a walk finds.
        let wanted = mask.bits() * 0o111;
        if self.mode & wanted == wanted {
            return Ok(());
        }
        // Nor anything else of the owner's, where he may.
        let wanted = mask.bits() << 6;
        if cred.fsuid() == self.uid && self.mode & wanted == wanted {
            return Ok(());
        }
        self.permits_slow(cred, mask)
    }

    #[inline(never)]
    fn permits_slow(self, cred: &Cred, mask: Mask) -> Result<(), Errno> {
        let class = if cred.fsuid() == self.uid {
            self.mode >> 6
        } else if cred.in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if class & mask.bits() == mask.bits() || self.overrides(cred, mask) {
            return Ok(());
        }
        Err(Errno::ACCESS)
    }

    /// Whether capabilities stand in for the mode's bits.
    fn overrides(self, cred: &Cred, mask: Mask) -> bool {
        let looks = if self.is_dir() { !mask.contains(Mask::WRITE) } else { mask == Mask::READ };
        if looks && cred.has(Capabilities::DAC_READ_SEARCH) {
            return true;
        }
        // Nobody executes what nobody may execute.
        let runs = mask.contains(Mask::EXEC) && !self.is_dir();
        (!runs || self.mode & 0o111 != 0) && cred.has(Capabilities::DAC_OVERRIDE)
    }

    /// Whether somebody counts as its owner (`inode_owner_or_capable`).
    #[inline]
    pub fn owned_by(self, cred: &Cred) -> bool {
        cred.fsuid() == self.uid || cred.has(Capabilities::FOWNER)
    }

    /// Whether, seen from this directory, somebody may take away or replace a child that belongs to `child_uid`: in
    /// a sticky directory only who owns one of the two.
    #[inline]
    pub fn sticky_lets(self, cred: &Cred, child_uid: u32) -> bool {
        self.mode & S_ISVTX == 0
            || cred.fsuid() == child_uid
            || cred.fsuid() == self.uid
            || cred.has(Capabilities::FOWNER)
    }

    /// Whether somebody may open with `O_CREAT` what is in this directory already, a device or a socket that belongs to
    /// `child_uid`: in a sticky directory that everybody may write, only what is his or the directory's owner's.
    /// (Regular files and fifos may be, as with `fs.protected_regular` and `fs.protected_fifos` 0.)
    #[inline]
    pub fn lets_create_over(self, cred: &Cred, child_uid: u32) -> bool {
        self.mode & (S_ISVTX | S_IWOTH) != S_ISVTX | S_IWOTH
            || child_uid == self.uid
            || cred.fsuid() == child_uid
    }

    /// What a file that somebody makes with `mode` in this directory is like (`inode_init_owner`), before the
    /// umask is applied.
    #[inline]
    pub fn of_child(self, cred: &Cred, mode: u32) -> Ownership {
        let mut child = Ownership { mode, uid: cred.fsuid(), gid: cred.fsgid() };
        if self.mode & S_ISGID != 0 {
            child.gid = self.gid;
            if child.is_dir() {
                child.mode |= S_ISGID;
            } else if mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && !self.group_is_ours(cred) {
                child.mode &= !S_ISGID;
            }
        }
        child
    }

    /// Whether somebody may have files of this group that run with its rights.
    fn group_is_ours(self, cred: &Cred) -> bool {
        cred.in_group(self.gid) || cred.has(Capabilities::FSETID)
    }

    /// The mode after `chmod`: the type stays, and only members give a file the rights of its group.
    ///
    /// # Errors
    /// `EPERM` for who does not own it.
    pub fn chmod(self, cred: &Cred, mode: u32) -> Result<u32, Errno> {
        if !self.owned_by(cred) {
            return Err(Errno::PERM);
        }
        let keep = if self.group_is_ours(cred) { 0o7777 } else { 0o7777 & !S_ISGID };
        Ok(self.mode & S_IFMT | mode & keep)
    }

    /// What it is after `chown`. What is not a directory loses the set-id bits, whoever asks.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn chown(
        self,
        cred: &Cred,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<Ownership, Errno> {
        let (owner, may) = (cred.fsuid() == self.uid, cred.has(Capabilities::CHOWN));
        if uid.is_some_and(|uid| !(may || owner && uid == self.uid)) {
            return Err(Errno::PERM);
        }
        if gid.is_some_and(|gid| !(may || owner && (gid == self.gid || cred.in_group(gid)))) {
            return Err(Errno::PERM);
        }
        let mut after = Ownership {
            mode: self.mode,
            uid: uid.unwrap_or(self.uid),
            gid: gid.unwrap_or(self.gid),
        };
        if !self.is_dir() {
            let gone = self.mode & S_ISUID | self.set_gid_that_goes(cred);
            if gone != 0 {
                // To lose them is to change the mode.
                if !self.owned_by(cred) {
                    return Err(Errno::PERM);
                }
                after.mode &= !gone;
                if !after.group_is_ours(cred) {
                    after.mode &= !S_ISGID;
                }
            }
        }
        Ok(after)
    }

    /// The set-group bit, if a change of the file by somebody takes it away.
    fn set_gid_that_goes(self, cred: &Cred) -> u32 {
        let goes = self.mode & S_IXGRP != 0 || !self.group_is_ours(cred);
        if goes { self.mode & S_ISGID } else { 0 }
    }

    /// The set-id bits that a write or a change of length takes away (`file_remove_privs`).
    pub fn lost_by_writing(self, cred: &Cred) -> u32 {
        let lost = self.mode & S_ISUID | self.set_gid_that_goes(cred);
        if self.mode & S_IFMT == S_IFREG && !cred.has(Capabilities::FSETID) { lost } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REG: u32 = S_IFREG;
    const DIR: u32 = S_IFDIR;

    fn of(mode: u32) -> Ownership {
        Ownership { mode, uid: 10, gid: 20 }
    }

    fn may(mode: u32, cred: &Cred, mask: Mask) -> bool {
        of(mode).permits(cred, mask).is_ok()
    }

    /// The class decides alone: an owner without the bit is not helped by the group's.
    #[test]
    fn one_class_decides() {
        let (owner, member, other) = (Cred::new(10, 1), Cred::new(1, 20), Cred::new(1, 1));
        for (mode, expected) in [
            (0o400, [true, false, false]),
            (0o040, [false, true, false]),
            (0o004, [false, false, true]),
            (0o044, [false, true, true]),
            (0o444, [true, true, true]),
        ] {
            let found = [&owner, &member, &other].map(|cred| may(REG | mode, cred, Mask::READ));
            assert_eq!(found, expected, "{mode:o}");
        }
        assert!(!may(REG | 0o600, &owner, Mask::READ | Mask::EXEC), "all of the mask");
    }

    #[test]
    fn root_executes_what_somebody_may_execute() {
        let root = Cred::new(0, 0);
        assert!(may(REG, &root, Mask::READ | Mask::WRITE));
        assert!(!may(REG | 0o666, &root, Mask::EXEC));
        assert!(may(REG | 0o001, &root, Mask::EXEC));
        assert!(may(DIR, &root, Mask::EXEC | Mask::WRITE));
        let mut searcher = Cred::new(0, 0);
        let search = Capabilities::DAC_READ_SEARCH;
        searcher.set_capabilities(search, search).unwrap();
        assert!(may(REG, &searcher, Mask::READ) && may(DIR, &searcher, Mask::READ | Mask::EXEC));
        assert!(
            !may(REG, &searcher, Mask::READ | Mask::WRITE) && !may(DIR, &searcher, Mask::WRITE)
        );
    }

    #[test]
    fn sticky_directories() {
        let directory = of(DIR | 0o1777);
        assert!(!directory.sticky_lets(&Cred::new(1, 1), 2));
        assert!(directory.sticky_lets(&Cred::new(1, 1), 1), "its own file");
        assert!(directory.sticky_lets(&Cred::new(10, 1), 2), "its own directory");
        assert!(directory.sticky_lets(&Cred::new(0, 0), 2));
        assert!(of(DIR | 0o777).sticky_lets(&Cred::new(1, 1), 2));
        let root = Cred::new(0, 0);
        assert!(!directory.lets_create_over(&root, 2), "whoever asks");
        assert!(directory.lets_create_over(&root, 0) && directory.lets_create_over(&root, 10));
        assert!(
            of(DIR | 0o1775).lets_create_over(&root, 2)
                && of(DIR | 0o777).lets_create_over(&root, 2)
        );
    }

    #[test]
    fn children_of_a_set_group_directory() {
        let (parent, somebody) = (of(DIR | S_ISGID | 0o777), Cred::new(1, 1));
        let child = parent.of_child(&somebody, DIR | 0o755);
        assert_eq!(child, Ownership { mode: DIR | S_ISGID | 0o755, uid: 1, gid: 20 });
        assert_eq!(parent.of_child(&somebody, REG | S_ISGID | 0o755).mode, REG | 0o755);
        assert_eq!(parent.of_child(&somebody, REG | S_ISGID | 0o745).mode, REG | S_ISGID | 0o745);
        assert_eq!(of(DIR | 0o777).of_child(&somebody, REG).gid, 1);
    }

    #[test]
    fn modes_and_owners_change_by_the_rules() {
        let (owner, root) = (Cred::new(10, 1), Cred::new(0, 0));
        assert_eq!(of(REG).chmod(&Cred::new(1, 20), 0o777), Err(Errno::PERM));
        assert_eq!(of(REG).chmod(&owner, 0o6755), Ok(REG | 0o4755), "not a member");
        assert_eq!(of(REG).chmod(&root, 0o17_6755), Ok(REG | 0o6755));
        assert_eq!(of(REG).chown(&owner, Some(11), None), Err(Errno::PERM));
        assert!(of(REG).chown(&owner, Some(10), Some(1)).is_ok(), "a group of his");
        assert_eq!(of(REG).chown(&owner, None, Some(2)), Err(Errno::PERM));
        assert_eq!(of(REG | 0o6755).chown(&root, Some(1), Some(1)).unwrap().mode, REG | 0o755);
        assert_eq!(
            of(REG | 0o6745).chown(&root, None, None).unwrap().mode,
            REG | 0o2745,
            "no group executes"
        );
        assert_eq!(of(DIR | 0o6755).chown(&root, Some(1), None).unwrap().mode, DIR | 0o6755);
        // Nothing is asked for and nothing changes: anybody may.
        assert_eq!(of(REG | 0o755).chown(&Cred::new(1, 1), None, None), Ok(of(REG | 0o755)));
        assert_eq!(of(REG | 0o4755).chown(&Cred::new(1, 1), None, None), Err(Errno::PERM));
    }

    #[test]
    fn writing_takes_the_rights_away() {
        let (somebody, root) = (Cred::new(1, 1), Cred::new(0, 0));
        assert_eq!(of(REG | 0o6755).lost_by_writing(&somebody), S_ISUID | S_ISGID);
        assert_eq!(of(REG | 0o6755).lost_by_writing(&root), 0);
        assert_eq!(of(REG | 0o2745).lost_by_writing(&Cred::new(1, 20)), 0);
        assert_eq!(of(REG | 0o755).lost_by_writing(&somebody), 0);
    }
}
