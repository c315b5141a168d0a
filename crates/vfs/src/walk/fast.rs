//! The walk that nearly all walks are: through directories that everybody or at least the caller may search, by names, to
//! what is there.
//!
//! # The problem
//!
//! [`run`](super::run) has the rules, all of them, and asks at each step whether one of them applies: a link, a limit, a flag of
//! `openat2`, `..`. That is several times the work of finding a name.
//!
//! # Our way
//!
//! This goes as far as nothing of the kind comes up. A component is split off and hashed in one pass, a word of eight bytes at a
//! time; one look at a mode says that it is a directory and may be searched; each dentry's sequence count is looked at twice
//! in all, when it is found and when its child has been. Whatever is not ordinary ends the matter: where it stopped, in a directory
//! that is known to be one and with the path that is left, [`run`](super::run) begins, and finds the error or goes on. So this
//! says nothing but "here it is" and "there is no such name".
//!
//! # Guarantees
//!
//! Those of a [walk by RCU](super::by_rcu). Writes nothing. The walk does not leave a directory
//! with rules of its own: names in it are asked for at each lookup, by a walk that begins anew.
//!
//! # Source
//!
//! The steps are those of `run`. For finding a byte in a word: H. S. Warren, "Hacker's Delight", 6-1.

use super::component::{Component, before_slash, slashes, split, trim, word_at};
use super::last;
use super::step;
use crate::abi::{S_IFDIR, S_IFLNK, S_IFMT};
use crate::cred::Cred;
use crate::dcache::name::{INLINE, Name};
use crate::dentry::DentryFlags;
use crate::inode::{Inode, InodeFlags};
use crate::permission::{Mask, permission};
use crate::raw::dcache::seen::{Quick, Section, Seen, Step};
use crate::raw::walk_path::Spot;
use crate::vfs::Vfs;

/// How far the quick walk came.
pub(super) enum Quickly<'g, 'k> {
    /// To the end.
    There(Spot<'g, 'k>),
    /// To a name that is not there.
    Nothing,
    /// To this directory; of the path is left what begins at the index, without slashes in front.
    Onwards(Spot<'g, 'k>, usize),
    /// The same, and what is left is a name of less than eight bytes, from the first index to the second, and perhaps slashes. Only
    /// until the parent.
    Short(Spot<'g, 'k>, usize, usize),
    /// Nowhere.
    No,
}

/// What the last component is to a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// A name like the others, but a link is followed only if that is said.
    Object { follow: bool },
    /// Not looked up.
    Parent,
}

/// Mode of a directory that everybody may search.
const OPEN: u32 = S_IFDIR | 0o111;

/// Walks along a path from `at`, which is where it begins. It has a byte at least.
#[inline(always)]
pub(super) fn quickly<'g, 'k>(
    vfs: &'k Vfs,
    section: &'g Section,
    cred: &Cred,
    at: Spot<'g, 'k>,
    path: &[u8],
    until: Until,
) -> Quickly<'g, 'k> {
    let mut at = at;
    match at.seen.inode() {
        Some(inode) if may_pass(inode, inode.mode(), cred) => {}
        _ => return Quickly::No,
    }
    let mut pos = usize::from(path.first() == Some(&b'/'));
    while pos < path.len() {
        let word = word_at(path, pos);
        let slashes = slashes(word);
        let (found, end) = if slashes != 0 {
            let (name, len) = before_slash(word, slashes);
            let end = pos + len;
            if len == 0 {
                pos += 1;
                continue;
            }
            if until == Until::Parent && (end == path.len() || trim(&path[end..]).is_empty()) {
                if name as u8 == b'.' {
                    return Quickly::Onwards(at, pos);
                }
                return Quickly::Short(at, pos, end);
            }
            if name as u8 == b'.' {
                if len == 1 && !step::is_asked_about(&at.seen) {
                    pos = end;
                    continue;
                }
                if len == 1 {
                    return Quickly::Onwards(at, pos);
                }
                if name == u64::from_le_bytes(*b"..\0\0\0\0\0\0") {
                    return Quickly::Onwards(at, pos);
                }
            }
            (at.seen.child_quick(vfs.keys.hash_len([name, 0, 0], len), [name]), end)
        } else {
            match longer(vfs, at.seen, path, pos, word, until) {
                Some(found) => found,
                None => return Quickly::Onwards(at, pos),
            }
        };
        let next = match found {
            Quick::Found(next) => next,
            Quick::Missing if at.seen.valid() && !is_asked(at.seen) => return Quickly::Nothing,
            _ => return Quickly::Onwards(at, pos),
        };
        // The directory was there, and by its name, when the child was seen in it.
        if !at.seen.valid() {
            return Quickly::Onwards(at, pos);
        }
        let (mut mount, mut seen) = (at.mount, next);
        if next.is_special() {
            match mounted(vfs, section, Spot { mount, seen }) {
                Some(root) => (mount, seen) = (root.mount, root.seen),
                None => return Quickly::Onwards(at, pos),
            }
        }
        let Some(inode) = seen.inode() else {
            return if seen.valid() { Quickly::Nothing } else { Quickly::Onwards(at, pos) };
        };
        let mode = inode.mode();
        if end == path.len() {
            let link = mode & S_IFMT == S_IFLNK && until == (Until::Object { follow: true });
            if link || !seen.valid() {
                return Quickly::Onwards(at, pos);
            }
            return Quickly::There(Spot { mount, seen });
        }
        if !may_pass(inode, mode, cred) {
            return Quickly::Onwards(at, pos);
        }
        (at, pos) = (Spot { mount, seen }, end + 1);
    }
    match until {
        Until::Object { .. } if at.seen.valid() => Quickly::There(at),
        // A path without a component.
        _ => Quickly::Onwards(at, pos),
    }
}

/// [`quickly`] until the parent, for who goes on with the last component: the directory, the name, and whether slashes come after it.
/// None if anything is not ordinary, or if a directory is not there.
///
/// By itself, because with one way out what it has found stays in registers.
#[inline(always)]
pub(super) fn to_parent<'g, 'k, 'p>(
    vfs: &'k Vfs,
    section: &'g Section,
    cred: &Cred,
    at: Spot<'g, 'k>,
    path: &'p [u8],
) -> Option<(Spot<'g, 'k>, Name<'p>, bool)> {
    let mut at = at;
    let inode = at.seen.inode()?;
    if !may_pass(inode, inode.mode(), cred) {
        return None;
    }
    let mut pos = usize::from(path.first() == Some(&b'/'));
    let (end, word) = loop {
        if pos >= path.len() {
            return None;
        }
        let word = word_at(path, pos);
        let slashes = slashes(word);
        let (found, end) = if slashes != 0 {
            let (name, len) = before_slash(word, slashes);
            let end = pos + len;
            if name as u8 == b'.' && (len == 1 || name == u64::from_le_bytes(*b"..\0\0\0\0\0\0")) {
                return None;
            }
            if len == 0 {
                pos += 1;
                continue;
            }
            // Nearly always it is the byte after the slash that says so.
            if path.get(end + 1).is_none_or(|&byte| byte == b'/') && trim(&path[end..]).is_empty() {
                break (end, Some(name));
            }
            (at.seen.child_quick(vfs.keys.hash_len([name, 0, 0], len), [name]), end)
        } else {
            match longer(vfs, at.seen, path, pos, word, Until::Parent) {
                Some(found) => found,
                None => break (pos, None),
            }
        };
        let Quick::Found(next) = found else { return None };
        // As in `quickly`.
        if !at.seen.valid() {
            return None;
        }
        let mut spot = Spot { mount: at.mount, seen: next };
        if next.is_special() {
            spot = mounted(vfs, section, spot)?;
        }
        let inode = spot.seen.inode()?;
        if !may_pass(inode, inode.mode(), cred) {
            return None;
        }
        (at, pos) = (spot, end + 1);
    };
    if step::has_own_rules(&at.seen) {
        return None;
    }
    let (name, slash) = match word {
        Some(word) => (Name::short(&path[pos..end], word, &vfs.keys), end != path.len()),
        None => {
            let (bytes, slash) = last::alone(&path[pos..])?;
            (vfs.name(bytes).ok()?, slash)
        }
    };
    Some((at, name, slash))
}

/// Whether it is a directory in which names may be looked up.
#[inline(always)]
fn may_pass(inode: &Inode, mode: u32, cred: &Cred) -> bool {
    mode & (S_IFMT | 0o111) == OPEN || may_pass_some(inode, cred)
}

#[inline(never)]
fn may_pass_some(inode: &Inode, cred: &Cred) -> bool {
    inode.is_dir() && permission(inode, cred, Mask::EXEC).is_ok()
}

/// Whether a filesystem is to be asked for names that a directory has not got.
#[inline(always)]
fn is_asked(dir: Seen<'_, '_>) -> bool {
    dir.inode().is_none_or(|inode| inode.flags().contains(InodeFlags::NODE))
}

/// Onto what is mounted there; none if that is for others to find.
#[cold]
#[inline(never)]
fn mounted<'g, 'k>(vfs: &'k Vfs, section: &'g Section, at: Spot<'g, 'k>) -> Option<Spot<'g, 'k>> {
    if at.seen.flags().contains(DentryFlags::REVALIDATE) || !at.seen.valid() {
        return None;
    }
    if step::is_timed(&at.seen) && step::is_expired(&at.seen) {
        return None;
    }
    step::current(step::cross(vfs, at, section).0).ok()
}

/// A component of more than seven bytes, whose first eight are known; and where it ends. None if it is for others to look at.
#[inline(never)]
fn longer<'g, 'k>(
    vfs: &'k Vfs,
    dir: Seen<'g, 'k>,
    path: &[u8],
    pos: usize,
    first: u64,
    until: Until,
) -> Option<(Quick<'g, 'k>, usize)> {
    let mut words = [first, 0, 0];
    let mut len = 8;
    while len < INLINE {
        let word = word_at(path, pos + len);
        let slashes = slashes(word);
        if slashes == 0 {
            words[len / 8] = word;
            len += 8;
            continue;
        }
        let (tail, more) = before_slash(word, slashes);
        words[len / 8] = tail;
        len += more;
        let end = pos + len;
        if until == Until::Parent && trim(&path[end..]).is_empty() {
            return None;
        }
        return Some((dir.child_quick(vfs.keys.hash_len(words, len), words), end));
    }
    longest(vfs, dir, path, pos, until)
}

/// [`longer`], for a name that does not fit into a dentry.
#[inline(never)]
fn longest<'g, 'k>(
    vfs: &'k Vfs,
    dir: Seen<'g, 'k>,
    path: &[u8],
    pos: usize,
    until: Until,
) -> Option<(Quick<'g, 'k>, usize)> {
    let part = split(&path[pos..])?;
    let Component::Name(bytes) = part.component else { return None };
    if until == Until::Parent && part.rest.is_empty() {
        return None;
    }
    let name = vfs.name(bytes).ok()?;
    let found = match dir.child(&name) {
        Step::Found(child) => Quick::Found(child),
        Step::Missing => Quick::Missing,
        Step::Stale => Quick::Unsure,
    };
    Some((found, pos + bytes.len()))
}
