//! The last component of a path, for those who make, remove or rename what it names.

use super::component::{Component, split};
use super::mode::Stop;
use quietline_platform::heap;
use rustix::io::Errno;

/// What kind of last component a path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastKind {
    /// A name.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// None: the path is of slashes alone.
    Root,
    /// None: a link in the last place, which was to be followed, led not to a name but to an object, as those of
    /// `/proc/self/fd` do; that is what was walked to.
    Jumped,
}

/// The last component of a path.
pub struct Last<'p> {
    kind: LastKind,
    slash: bool,
    name: Text<'p>,
}

enum Text<'p> {
    /// The path's own.
    Of(&'p [u8]),
    /// A symbolic link's.
    Copied(Vec<u8>),
}

/// What a walk says of the last component.
pub(super) struct Ending {
    kind: LastKind,
    slash: bool,
    /// Of the name, if it is one.
    len: u16,
    /// The name, if the path itself does not end with it.
    copied: Option<Vec<u8>>,
}

impl Ending {
    pub(super) const ROOT: Self = Self::special(LastKind::Root, false);

    pub(super) const fn special(kind: LastKind, slash: bool) -> Self {
        Self { kind, slash, len: 0, copied: None }
    }

    /// A name, perhaps one that is too long, with which the path ends that was given, or that of a link.
    pub(super) fn name(bytes: &[u8], slash: bool, of_link: bool) -> Result<Self, Stop> {
        let copied = if of_link { Some(copy(bytes)?) } else { None };
        Ok(Self { kind: LastKind::Name, slash, len: bytes.len() as u16, copied })
    }

    /// The last component of the path that was given.
    pub(super) fn of(self, path: &[u8]) -> Last<'_> {
        let name = match self.copied {
            Some(copied) => Text::Copied(copied),
            None => {
                let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
                let begin = end.saturating_sub(self.len.into());
                Text::Of(path.get(begin..end).unwrap_or(&[]))
            }
        };
        Last { kind: self.kind, slash: self.slash, name }
    }
}

#[cold]
fn copy(bytes: &[u8]) -> Result<Vec<u8>, Stop> {
    let mut copy = Vec::new();
    heap::try_reserve(&mut copy, bytes.len()).map_err(|_| Stop::Errno(Errno::NOMEM))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// What a path of one component is: a name in the directory that it begins in, perhaps one that is too long, and whether a slash
/// comes after it. None if it is not of one component, or that is not a name.
#[inline(always)]
pub(super) fn alone(path: &[u8]) -> Option<(&[u8], bool)> {
    let part = split(path)?;
    match part.component {
        Component::Name(bytes) if part.rest.is_empty() => Some((bytes, part.slash)),
        _ => None,
    }
}

impl<'p> Last<'p> {
    /// A name that the path itself has.
    #[inline]
    pub(super) fn of_path((bytes, slash): (&'p [u8], bool)) -> Self {
        Self { kind: LastKind::Name, slash, name: Text::Of(bytes) }
    }
}

impl Last<'_> {
    /// The name, perhaps one that is too long: who looks it up says so. Empty if it is none.
    pub fn bytes(&self) -> &[u8] {
        match &self.name {
            Text::Of(bytes) => bytes,
            Text::Copied(bytes) => bytes,
        }
    }

    /// What it is.
    pub fn kind(&self) -> LastKind {
        self.kind
    }

    /// Whether a slash came after it.
    pub fn has_slash(&self) -> bool {
        self.slash
    }
}

impl core::fmt::Debug for Last<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = String::from_utf8_lossy(self.bytes());
        f.debug_struct("Last")
            .field("kind", &self.kind)
            .field("name", &name)
            .field("slash", &self.slash)
            .finish()
    }
}
