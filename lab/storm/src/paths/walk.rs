//! Paths, walked the simple way.

use super::model::{Id, Model, ROOT};
use quietline::Errno;

/// The most links of a walk.
const LINKS: u32 = 40;

/// `RESOLVE_*`.
pub(super) const NO_XDEV: u64 = 0x01;
pub(super) const NO_SYMLINKS: u64 = 0x04;
pub(super) const BENEATH: u64 = 0x08;
pub(super) const IN_ROOT: u64 = 0x10;

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The last component is followed, if it is a link.
    pub(super) follow: bool,
    pub(super) resolve: u64,
}

/// The last component of a path that is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) dir: Id,
    pub(super) name: Named,
    /// A slash comes after it.
    pub(super) slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Name(String),
    Dot,
    DotDot,
    Root,
}

impl Last {
    /// Its name, if it is an ordinary one.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.name {
            Named::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// A walk that goes on.
struct Walk<'m> {
    model: &'m Model,
    start: Id,
    rules: Rules,
    links: u32,
}

impl Model {
    /// What a path leads to.
    pub(super) fn walk(&self, start: Id, path: &str, rules: Rules) -> Result<Id, Errno> {
        Walk { model: self, start, rules, links: 0 }.end_of(path)
    }

    /// Where the last component of a path is.
    pub(super) fn last(&self, start: Id, path: &str) -> Result<Last, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let rules = Rules { follow: false, resolve: 0 };
        let mut walk = Walk { model: self, start, rules, links: 0 };
        let slash = path.ends_with('/');
        let trimmed = path.trim_end_matches('/');
        let (above, name) = match trimmed.rsplit_once('/') {
            // Slashes alone.
            _ if trimmed.is_empty() => return Ok(Last { dir: ROOT, name: Named::Root, slash }),
            Some((above, name)) => (format!("{above}/"), name),
            None => (String::new(), trimmed),
        };
        let dir = if above.is_empty() { start } else { walk.end_of(&above)? };
        if !self.is_dir(dir) {
            return Err(Errno::NOTDIR);
        }
        let name = match name {
            "." => Named::Dot,
            ".." => Named::DotDot,
            name => Named::Name(name.to_owned()),
        };
        Ok(Last { dir, name, slash })
    }
}

impl Walk<'_> {
    fn end_of(&mut self, path: &str) -> Result<Id, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut at = self.start;
        let mut left = path.to_owned();
        if left.starts_with('/') {
            at = self.root()?;
        }
        loop {
            let rest = left.trim_start_matches('/');
            if rest.is_empty() {
                return Ok(at);
            }
            let (component, after) = match rest.find('/') {
                Some(end) => (rest[..end].to_owned(), rest[end..].to_owned()),
                None => (rest.to_owned(), String::new()),
            };
            if !self.model.is_dir(at) {
                return Err(Errno::NOTDIR);
            }
            let is_last = after.is_empty();
            left = after;
            match component.as_str() {
                "." => continue,
                ".." => {
                    at = self.up(at)?;
                    continue;
                }
                _ => {}
            }
            let found = self.model.find(at, &component).ok_or(Errno::NOENT)?;
            match self.model.target(found) {
                Some(target) if !is_last || self.rules.follow => {
                    self.links += 1;
                    if self.links > LINKS || self.rules.resolve & NO_SYMLINKS != 0 {
                        return Err(Errno::LOOP);
                    }
                    if target.starts_with('/') {
                        at = self.root()?;
                    }
                    left = format!("{target}{left}");
                }
                _ if !left.is_empty() && !self.model.is_dir(found) => return Err(Errno::NOTDIR),
                _ => at = found,
            }
        }
    }

    /// Where an absolute path begins.
    fn root(&self) -> Result<Id, Errno> {
        match self.rules.resolve {
            resolve if resolve & BENEATH != 0 => Err(Errno::XDEV),
            resolve if resolve & IN_ROOT != 0 => Ok(self.start),
            _ => Ok(ROOT),
        }
    }

    fn up(&self, at: Id) -> Result<Id, Errno> {
        if self.rules.resolve & (BENEATH | IN_ROOT) != 0 && at == self.start {
            return if self.rules.resolve & BENEATH != 0 { Err(Errno::XDEV) } else { Ok(at) };
        }
        Ok(if at == ROOT { ROOT } else { self.model.dir(at).parent })
    }
}
