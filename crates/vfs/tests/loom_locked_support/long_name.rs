//! Long names for `loom_locked`, of which there are none.

use crate::dcache::name::Name;
use quietline_platform::AllocError;

pub(crate) struct LongNames;

#[derive(Clone, Copy)]
pub(crate) struct LongName;

impl LongNames {
    pub(super) fn alloc(&self, _: &Name<'_>) -> Result<LongName, AllocError> {
        unreachable!("names are short")
    }
    pub(super) unsafe fn free(&self, _: LongName) {}
    pub(super) unsafe fn free_rcu(&self, _: LongName) {}
}

impl LongName {
    pub(super) fn into_word(self) -> u64 {
        unreachable!("names are short")
    }
    pub(super) unsafe fn from_word(_: u64, _: usize) -> Self {
        unreachable!("names are short")
    }
    pub(super) fn equals(&self, _: &Name<'_>) -> bool {
        unreachable!("names are short")
    }
    pub(super) fn copy_to(&self, _: &mut [u8; 255]) {}
}
