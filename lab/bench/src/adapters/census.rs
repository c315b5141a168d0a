//! What exists in a world: the counters that an operation must leave as it found them.

use crate::harness::Fault;
use crate::workloads::Object;

/// The exact sums of a world's three counters, read while nothing runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Census {
    /// `nr_files`.
    pub(super) files: i64,
    /// `nr_dentry`.
    pub(super) dentries: i64,
    /// `nr_inodes`.
    pub(super) inodes: i64,
}

impl Census {
    /// Fails unless everything that was made since `before` is gone again.
    pub(super) fn back_at(self, before: Self) -> Result<(), Fault> {
        Fault::unless(self == before, || {
            format!("counters not back at the start: {before:?} became {self:?}")
        })
    }

    /// Fails unless exactly what one `object` is was added since `before`: a file for every descriptor, one
    /// dentry, and an inode for those that have their own (the anonymous ones share the world's).
    pub(super) fn holds_one(self, object: Object, before: Self) -> Result<(), Fault> {
        let own_inode = matches!(object, Object::Socket(_) | Object::Pipe);
        let expected = Self {
            files: before.files + object.descriptors() as i64,
            dentries: before.dentries + 1,
            inodes: before.inodes + i64::from(own_inode),
        };
        Fault::unless(self == expected, || {
            format!("{object:?} open: expected {expected:?}, found {self:?}")
        })
    }
}
