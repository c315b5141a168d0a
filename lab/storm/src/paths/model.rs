//! The tree as it should be.

use std::collections::BTreeMap;

/// A file, by its place in the list of all.
pub(super) type Id = usize;

/// The root.
pub(super) const ROOT: Id = 0;

/// What a file is.
#[derive(Debug)]
pub(super) enum Kind {
    File,
    Link(String),
    Directory(Directory),
}

/// A directory: what it has, and where it is. A removed one is where it was.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) names: BTreeMap<String, Entry>,
    pub(super) parent: Id,
    pub(super) removed: bool,
}

/// A name, and the how manieth that was ever given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) given: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Names of what is no directory.
    pub(super) nlink: u64,
    /// The number that the kernel gave it.
    pub(super) ino: u64,
}

/// All files that ever were.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) nodes: Vec<Node>,
    given: u64,
}

impl Model {
    pub(super) fn new(root: u64) -> Self {
        let mut model = Self { nodes: Vec::new(), given: 0 };
        model.add(Kind::directory(ROOT), root);
        model
    }

    pub(super) fn add(&mut self, kind: Kind, ino: u64) -> Id {
        self.nodes.push(Node { kind, nlink: 0, ino });
        self.nodes.len() - 1
    }

    pub(super) fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes[id].kind, Kind::Directory(_))
    }

    pub(super) fn target(&self, id: Id) -> Option<&str> {
        match &self.nodes[id].kind {
            Kind::Link(target) => Some(target),
            _ => None,
        }
    }

    /// A directory.
    pub(super) fn dir(&self, id: Id) -> &Directory {
        match &self.nodes[id].kind {
            Kind::Directory(directory) => directory,
            _ => panic!("{id} is no directory"),
        }
    }

    fn dir_mut(&mut self, id: Id) -> &mut Directory {
        match &mut self.nodes[id].kind {
            Kind::Directory(directory) => directory,
            _ => panic!("{id} is no directory"),
        }
    }

    pub(super) fn find(&self, dir: Id, name: &str) -> Option<Id> {
        self.dir(dir).names.get(name).map(|entry| entry.id)
    }

    /// Gives a file a name. Moves it, if it is a directory.
    pub(super) fn link(&mut self, dir: Id, name: &str, id: Id) {
        self.given += 1;
        let entry = Entry { id, given: self.given };
        self.dir_mut(dir).names.insert(name.to_owned(), entry);
        match &mut self.nodes[id].kind {
            Kind::Directory(moved) => moved.parent = dir,
            _ => self.nodes[id].nlink += 1,
        }
    }

    /// Takes a name away; what had it.
    pub(super) fn unlink(&mut self, dir: Id, name: &str) -> Id {
        let entry = self.dir_mut(dir).names.remove(name).expect("it is there");
        if !self.is_dir(entry.id) {
            self.nodes[entry.id].nlink -= 1;
        }
        entry.id
    }

    /// A directory that has lost its name for good.
    pub(super) fn remove(&mut self, id: Id) {
        if self.is_dir(id) {
            self.dir_mut(id).removed = true;
        }
    }

    /// What `st_nlink` says.
    pub(super) fn nlink(&self, id: Id) -> u64 {
        match &self.nodes[id].kind {
            Kind::Directory(directory) if directory.removed => 0,
            Kind::Directory(directory) => {
                2 + directory.names.values().filter(|entry| self.is_dir(entry.id)).count() as u64
            }
            _ => self.nodes[id].nlink,
        }
    }

    /// Whether `below` is `above`, or in it.
    pub(super) fn is_in(&self, below: Id, above: Id) -> bool {
        let mut at = below;
        loop {
            if at == above {
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.dir(at).parent;
        }
    }

    /// The path of a directory; none if it, or one above it, was removed.
    pub(super) fn path(&self, id: Id) -> Option<String> {
        let mut path = String::new();
        let mut at = id;
        while at != ROOT {
            let directory = self.dir(at);
            let mut names = self.dir(directory.parent).names.iter();
            let (name, _) = names.find(|(_, entry)| entry.id == at)?;
            path = format!("/{name}{path}");
            at = directory.parent;
        }
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }
}

impl Kind {
    pub(super) fn directory(parent: Id) -> Self {
        Self::Directory(Directory { names: BTreeMap::new(), parent, removed: false })
    }
}
