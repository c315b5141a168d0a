//! What a player holds of one cache, and knows of it.

use super::plan::Kind;
use super::raw::{FRESH, FRESH_ENDS, Fresh, KIND, Object, PLAIN, Subject, USER, USER_ENDS};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

#[derive(Debug)]
pub(crate) struct Holding<'a> {
    pub(crate) subject: &'a Subject,
    kind: Kind,
    out: Vec<Object>,
    /// Their addresses.
    addresses: HashSet<usize, ByAddress>,
    /// The marks that freed objects had, where their bytes are kept and nobody else uses the cache.
    left: Option<HashMap<usize, u64, ByAddress>>,
}

impl<'a> Holding<'a> {
    pub(crate) fn new(subject: &'a Subject, kind: Kind, alone: bool) -> Self {
        let left = (alone && kind != Kind::Plain).then(HashMap::default);
        Self { subject, kind, out: Vec::new(), addresses: HashSet::default(), left }
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// The cache gave an object out.
    ///
    /// # Panics
    /// When it is not one that can have come.
    pub(crate) fn came(&mut self, fresh: Fresh, mark: u64) {
        let (address, options) = (fresh.address(), self.subject.asked());
        assert!(
            address.is_multiple_of(options.align),
            "{address:x} is not aligned to {}",
            options.align
        );
        let (user, made) = match self.kind {
            Kind::Plain => (PLAIN, None),
            Kind::Constructed => (USER, Some(FRESH)),
            Kind::Ends => (USER_ENDS, Some(FRESH_ENDS)),
        };
        if let Some(made) = made {
            let found = self.subject.mark_found(&fresh);
            let found = found
                .unwrap_or_else(|| panic!("{address:x} is as no user and no constructor left it"));
            // That of the constructor, or of the last user.
            let as_left = match self.left.as_mut().map(|left| left.remove(&address)) {
                Some(last) => Some(found) == last,
                None => found & KIND == user,
            };
            assert!(
                as_left || found == made | address as u64,
                "{address:x} has the mark {found:x}"
            );
        }
        self.hold(self.subject.own(fresh, user | mark));
    }

    /// An object came, from the cache or from another player.
    ///
    /// # Panics
    /// When it is out already.
    pub(crate) fn hold(&mut self, object: Object) {
        assert!(
            self.addresses.insert(object.address()),
            "{:x} is given out twice",
            object.address()
        );
        self.out.push(object);
    }

    /// One that is out, for the caller to free.
    ///
    /// # Panics
    /// When it is not as it was filled, or none is out.
    pub(crate) fn take(&mut self, index: usize) -> Object {
        let object = self.out.swap_remove(index);
        assert!(self.addresses.remove(&object.address()));
        assert!(self.subject.is_intact(&object), "somebody else wrote to {:x}", object.address());
        if let Some(left) = &mut self.left {
            left.insert(object.address(), object.mark);
        }
        object
    }
}

/// Addresses differ in the bits above the alignment.
#[derive(Default)]
struct Multiply(u64);

type ByAddress = BuildHasherDefault<Multiply>;

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
