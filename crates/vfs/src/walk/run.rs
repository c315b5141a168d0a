//! The walk itself, in words that do for both ways of walking.

use super::component::{Component, MAXSYMLINKS, split, trim};
use super::how::{How, Lookup, Resolve};
use super::last::{Ending, Last, LastKind};
use super::mode::{Link, Mode, Stop, Type};
use crate::cred::Cred;
use rustix::io::Errno;

/// A walk on its way.
pub(crate) struct Walk<'a, M: Mode> {
    mode: M,
    cred: &'a Cred,
    how: How,
    /// The root, once it was asked for; from the beginning, if the walk must not leave its start.
    root: Option<M::At>,
    /// Symbolic links followed.
    links: u32,
    /// For a walk that must not leave its start: when it began.
    began: Option<M::Moment>,
}

/// What the walk is to end at.
enum End<'e> {
    /// At what the last component stands for.
    Object { follow: bool },
    /// At the directory that the last component is a name in; the name is told.
    Parent { follow: bool, last: &'e mut Option<Ending> },
}

impl<'a, M: Mode> Walk<'a, M> {
    pub(crate) fn new(mode: M, cred: &'a Cred, how: How) -> Self {
        Self { mode, cred, how, root: None, links: 0, began: None }
    }

    /// Walks to what the path stands for.
    #[inline]
    pub(crate) fn object(&mut self, path: &[u8]) -> Result<M::At, Stop> {
        let at = self.start(path)?;
        self.object_from(at, path)
    }

    /// Walks to what the path stands for, from a directory that its beginning led to, without a link.
    pub(super) fn object_from(&mut self, at: M::At, path: &[u8]) -> Result<M::At, Stop> {
        let follow = self.how.lookup.contains(Lookup::FOLLOW);
        let at = self.along(at, path, End::Object { follow })?;
        if self.how.lookup.contains(Lookup::DIRECTORY) {
            self.directory(&at)?;
        }
        Ok(at)
    }

    /// Walks to the directory of the path's last component, which it tells.
    pub(crate) fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(M::At, Last<'p>), Stop> {
        let at = self.start(path)?;
        self.parent_from(at, path)
    }

    /// [`parent`](Self::parent) from a directory that the path's beginning led to, without a link.
    pub(super) fn parent_from<'p>(
        &mut self,
        at: M::At,
        path: &'p [u8],
    ) -> Result<(M::At, Last<'p>), Stop> {
        let (follow, mut last) = (self.how.lookup.contains(Lookup::FOLLOW), None);
        let at = self.along(at, path, End::Parent { follow, last: &mut last })?;
        Ok((at, last.unwrap_or(Ending::ROOT).of(path)))
    }

    /// Where a path begins.
    #[inline]
    fn start(&mut self, path: &[u8]) -> Result<M::At, Stop> {
        if path.is_empty() && !self.how.lookup.contains(Lookup::EMPTY) {
            return Err(Stop::Errno(Errno::NOENT));
        }
        if self.how.resolve.is_scoped() {
            return self.start_scoped(path);
        }
        if path.first() == Some(&b'/') {
            return self.root();
        }
        let at = self.mode.start()?;
        // A process's working directory is one.
        if !path.is_empty() && !self.mode.starts_at_cwd() {
            self.directory(&at)?;
        }
        Ok(at)
    }

    #[cold]
    fn start_scoped(&mut self, path: &[u8]) -> Result<M::At, Stop> {
        self.began = Some(self.mode.moment());
        if path.first() == Some(&b'/') && self.how.resolve.contains(Resolve::BENEATH) {
            return Err(Stop::Errno(Errno::XDEV));
        }
        let at = self.mode.start()?;
        if !path.is_empty() {
            self.directory(&at)?;
        }
        self.root = Some(self.mode.copy(&at));
        Ok(at)
    }

    fn root(&mut self) -> Result<M::At, Stop> {
        if self.root.is_none() {
            self.root = Some(self.mode.root()?);
        }
        Ok(self.mode.copy(self.root.as_ref().expect("just set")))
    }

    #[inline(always)]
    fn directory(&self, at: &M::At) -> Result<(), Stop> {
        match self.mode.kind(at) {
            Type::Directory => Ok(()),
            _ => Err(Stop::Errno(Errno::NOTDIR)),
        }
    }

    /// Walks along a path that begins at `at`, which is a directory unless the path is empty. Slashes in front have been
    /// dealt with.
    fn along(&mut self, mut at: M::At, path: &[u8], mut end: End<'_>) -> Result<M::At, Stop> {
        let mut rest = trim(path);
        while let Some(part) = split(rest) {
            self.mode.may_search(&at, self.cred)?;
            rest = part.rest;
            let is_last = rest.is_empty();
            if is_last && let End::Parent { .. } = end {
                return self.last(at, part.component, part.slash, end);
            }
            let onwards = !is_last || part.slash;
            at = match part.component {
                Component::Name(bytes) => {
                    let next = self.child(&at, bytes)?.ok_or(Stop::Errno(Errno::NOENT))?;
                    match self.mode.kind(&next) {
                        Type::Directory => next,
                        // A slash after a link in the last place has it followed.
                        Type::Symlink if onwards || matches!(end, End::Object { follow: true }) => {
                            let led = self.follow(at, &next, End::Object { follow: true })?;
                            if onwards {
                                self.directory(&led)?;
                            }
                            led
                        }
                        _ if onwards => return Err(Stop::Errno(Errno::NOTDIR)),
                        _ => next,
                    }
                }
                Component::Dot => at,
                Component::DotDot => self.up(at)?,
            };
        }
        if let End::Parent { last, .. } = &mut end {
            **last = Some(Ending::ROOT);
        }
        Ok(at)
    }

    /// The end of a walk to a directory: the last component, which may be a link that is to be followed.
    #[cold]
    fn last(
        &mut self,
        at: M::At,
        component: Component<'_>,
        slash: bool,
        end: End<'_>,
    ) -> Result<M::At, Stop> {
        let End::Parent { follow, last } = end else { unreachable!("asked for the parent") };
        let Component::Name(bytes) = component else {
            let kind = if component == Component::Dot { LastKind::Dot } else { LastKind::DotDot };
            *last = Some(Ending::special(kind, slash));
            // `..` itself is not gone to, but what it is must not be above the scope: who uses it asks for the object.
            return Ok(at);
        };
        if follow
            && !slash
            && let Some(next) = self.child(&at, bytes)?
            && self.mode.kind(&next) == Type::Symlink
        {
            return self.follow(at, &next, End::Parent { follow, last });
        }
        *last = Some(Ending::name(bytes, slash, self.links > 0)?);
        Ok(at)
    }

    /// The child of a directory, and from there onto what is mounted on it; none if there is no such name.
    #[inline(always)]
    fn child(&mut self, at: &M::At, bytes: &[u8]) -> Result<Option<M::At>, Stop> {
        match self.mode.child(at, bytes, self.cred)? {
            Some(next) => Ok(Some(self.cross(next)?)),
            None => Ok(None),
        }
    }

    /// Onto what is mounted here, and on that, and so on.
    #[inline(always)]
    fn cross(&self, at: M::At) -> Result<M::At, Stop> {
        if !self.mode.maybe_mounted(&at) {
            return Ok(at);
        }
        let (at, crossed) = self.mode.cross(at)?;
        if crossed {
            self.other_mount()?
        }
        Ok(at)
    }

    fn other_mount(&self) -> Result<(), Stop> {
        let forbidden = self.how.resolve.contains(Resolve::NO_XDEV);
        if forbidden { Err(Stop::Errno(Errno::XDEV)) } else { Ok(()) }
    }

    /// `..`: never above the root.
    fn up(&mut self, at: M::At) -> Result<M::At, Stop> {
        let root = self.root()?;
        let below = if self.mode.same(&at, &root) {
            Err(at)
        } else if !self.mode.is_mount_root(&at) {
            Ok(at)
        } else {
            match self.mode.above(&at, &root)? {
                Some(mountpoint) => {
                    self.other_mount()?;
                    Ok(mountpoint)
                }
                None => Err(at),
            }
        };
        let at = match below {
            Ok(below) => self.mode.parent(&below)?,
            Err(_) if self.how.resolve.contains(Resolve::BENEATH) => {
                return Err(Stop::Errno(Errno::XDEV));
            }
            Err(top) => top,
        };
        if let Some(began) = &self.began
            && self.mode.has_moved(began)
        {
            // Somebody renamed or mounted something: whether this is still inside nobody can say.
            return Err(Stop::Errno(Errno::AGAIN));
        }
        self.cross(at)
    }

    /// What a symbolic link in directory `at` leads to.
    fn follow(&mut self, at: M::At, link: &M::At, end: End<'_>) -> Result<M::At, Stop> {
        self.links += 1;
        let forbidden =
            self.how.resolve.contains(Resolve::NO_SYMLINKS) || self.mode.no_symlinks(link);
        if self.links > MAXSYMLINKS || forbidden {
            return Err(Stop::Errno(Errno::LOOP));
        }
        match self.mode.link(link, self.cred)? {
            Link::Body(path) => self.along_link(at, path, end),
            Link::Made(path) => self.along_link(at, &path, end),
            Link::Jump(to) => {
                if self.how.resolve.contains(Resolve::NO_MAGICLINKS) {
                    return Err(Stop::Errno(Errno::LOOP));
                }
                if !self.mode.same_mount(&at, &to) {
                    self.other_mount()?;
                }
                if self.how.resolve.is_scoped() {
                    return Err(Stop::Errno(Errno::XDEV));
                }
                if let End::Parent { last, .. } = end {
                    *last = Some(Ending::special(LastKind::Jumped, false));
                }
                Ok(to)
            }
        }
    }

    fn along_link(&mut self, at: M::At, path: &[u8], end: End<'_>) -> Result<M::At, Stop> {
        let at = match path.first() {
            Some(b'/') => self.at_root(&at)?,
            _ => at,
        };
        self.along(at, path, end)
    }

    /// To the root, for a link whose body begins with a slash.
    fn at_root(&mut self, at: &M::At) -> Result<M::At, Stop> {
        if self.how.resolve.contains(Resolve::BENEATH) {
            return Err(Stop::Errno(Errno::XDEV));
        }
        // As Linux does: a walk that has not asked for its root yet does not know that the root is in this mount.
        if self.root.is_none() {
            self.other_mount()?;
        }
        let root = self.root()?;
        if !self.mode.same_mount(at, &root) {
            self.other_mount()?;
        }
        Ok(root)
    }
}
