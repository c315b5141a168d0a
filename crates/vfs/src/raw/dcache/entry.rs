//! The dentry's fields, and how its name is read while it changes.

use super::children::Children;
use super::long_name::LongName;
use crate::dcache::name::{INLINE, INLINE_WORDS, Name};
use crate::dentry::DentryFlags;
use crate::inode::Inode;
use crate::super_block::SuperBlock;
use core::fmt;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use quietline_sync::{Lockref, Seqcount};

/// A name for an inode (`struct dentry`).
///
/// Differs from the kernel's: it is in its directory's own table instead of one hash for all; its name lies in words; and it
/// is never made negative again, but taken out.
#[repr(C, align(64))]
pub struct Dentry {
    pub(crate) d_seq: Seqcount,
    /// UNHASHED, PINNED and UNCOUNTED: plain stores under the directory's lock.
    pub(super) d_state: AtomicU16,
    /// The others, each whoever's it is: indivisible changes.
    d_flags: AtomicU16,
    /// The name's hash and length: see [`Name`].
    pub(super) hash_len: AtomicU64,
    pub(super) d_inode: AtomicPtr<Inode>,
    pub(super) d_parent: AtomicPtr<Dentry>,
    pub(super) d_children: Children,
    /// The name, zero padded; if it is longer than these words, the first is the address of a block that has it.
    pub(super) name: [AtomicU64; INLINE_WORDS],

    pub(crate) d_lockref: Lockref,
    /// Neighbours on the LRU, under its lock; in a tree that is taken down, the next one to look at.
    pub(super) lru_next: AtomicPtr<Dentry>,
    pub(super) lru_prev: AtomicPtr<Dentry>,
    /// Whether and on which list, and the second chance: see [`lru`](super::lru).
    pub(super) lru_state: AtomicU32,
    unused: u32,
    /// Its place in its directory's log, for `readdir`: the directory's lock.
    d_offset: AtomicU64,
    pub(super) d_sb: NonNull<SuperBlock>,
    spare: [u64; 2],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Dentry>() == 128);
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Dentry, d_lockref) == 64);

// SAFETY: all that changes is atomic, and what the pointers point to is shared by design.
unsafe impl Send for Dentry {}
// SAFETY: as above.
unsafe impl Sync for Dentry {}

/// What belongs to the holder of the directory's lock.
const STATE: DentryFlags =
    DentryFlags::UNHASHED.union(DentryFlags::PINNED).union(DentryFlags::UNCOUNTED);

/// How a dentry's name compares with one that is looked for.
pub(super) enum Compared {
    Equal,
    Different,
    /// It was being written.
    Torn,
}

impl Dentry {
    /// A dentry that nobody has seen, unhashed, with one reference. Its parent's reference, if it is to be counted, is
    /// the caller's to give.
    #[inline(always)]
    pub(super) fn unborn(
        name: &Name<'_>,
        long: Option<LongName>,
        parent: *mut Dentry,
        counted: bool,
        d_sb: NonNull<SuperBlock>,
    ) -> Self {
        let uncounted = if counted { DentryFlags::empty() } else { DentryFlags::UNCOUNTED };
        let words = long.map_or(name.words, |long| [long.into_word(), 0, 0]);
        Self {
            d_seq: Seqcount::new(),
            d_state: AtomicU16::new(DentryFlags::UNHASHED.union(uncounted).bits() as u16),
            d_flags: AtomicU16::new(0),
            hash_len: AtomicU64::new(name.hash_len),
            d_inode: AtomicPtr::new(ptr::null_mut()),
            d_parent: AtomicPtr::new(parent),
            d_children: Children::none(),
            name: words.map(AtomicU64::new),
            d_lockref: Lockref::new(1),
            lru_next: AtomicPtr::new(ptr::null_mut()),
            lru_prev: AtomicPtr::new(ptr::null_mut()),
            lru_state: AtomicU32::new(0),
            unused: 0,
            d_offset: AtomicU64::new(0),
            d_sb,
            spare: [0; 2],
        }
    }

    /// What it is.
    #[inline(always)]
    pub fn flags(&self) -> DentryFlags {
        // Relaxed: who needs them to go with anything else asks `d_seq`.
        let bits = self.d_state.load(Ordering::Relaxed) | self.d_flags.load(Ordering::Relaxed);
        DentryFlags::from_bits_retain(bits.into())
    }

    /// Whether a walk must look twice: something is mounted on it, or its filesystem is to be asked about it.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        const SPECIAL: DentryFlags =
            DentryFlags::MOUNTED.union(DentryFlags::REVALIDATE).union(DentryFlags::TIMED);
        self.has_flags(SPECIAL)
    }

    /// Returns `true` if one of these flags is set, which do not belong to the holder of the
    /// directory's lock.
    #[inline(always)]
    pub(crate) fn has_flags(&self, any: DentryFlags) -> bool {
        debug_assert!(!any.intersects(STATE));
        // Relaxed: as in `flags`. All are in this word.
        self.d_flags.load(Ordering::Relaxed) & any.bits() as u16 != 0
    }

    /// Returns `true` if a lookup asks the filesystem whether the dentry is still right.
    #[inline(always)]
    pub(crate) fn is_revalidated(&self) -> bool {
        self.has_flags(DentryFlags::REVALIDATE)
    }

    /// Sets and clears flags that belong to the caller ([`DentryFlags::MOUNTED`],
    /// [`DentryFlags::REVALIDATE`], [`DentryFlags::TIMED`]).
    pub(crate) fn set_flags(&self, set: DentryFlags, clear: DentryFlags) {
        debug_assert!(!set.union(clear).intersects(STATE));
        // Relaxed: as in `flags`.
        let change = |old: u16| Some((old & !(clear.bits() as u16)) | set.bits() as u16);
        let _ = self.d_flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Says whether a directory has it, and whether for good: under that directory's lock.
    #[inline]
    pub(super) fn set_state(&self, state: DentryFlags) {
        debug_assert!(STATE.contains(state));
        // Relaxed: as in `flags`.
        self.d_state.store(state.bits() as u16, Ordering::Relaxed);
    }

    /// What belongs to the holder of the directory's lock.
    #[inline(always)]
    pub(super) fn state(&self) -> DentryFlags {
        // Relaxed: as in `flags`.
        DentryFlags::from_bits_retain(self.d_state.load(Ordering::Relaxed).into())
    }

    /// Whether its directory has it (`!d_unhashed`); of a root, whether its tree stands.
    #[inline(always)]
    pub fn is_hashed(&self) -> bool {
        // Relaxed: as in `flags`.
        self.d_state.load(Ordering::Relaxed) & DentryFlags::UNHASHED.bits() as u16 == 0
    }

    /// Whether it is the root of its filesystem (`IS_ROOT`).
    #[inline(always)]
    pub fn is_root(&self) -> bool {
        // Relaxed: only compared.
        ptr::eq(self.d_parent.load(Ordering::Relaxed), self)
    }

    /// Whether it is known to stand for nothing.
    #[inline(always)]
    pub fn is_negative(&self) -> bool {
        self.d_inode.load(Ordering::Relaxed).is_null()
    }

    /// What it stands for. For a holder of a reference, or inside a section.
    #[inline(always)]
    pub fn inode(&self) -> Option<&Inode> {
        // ORDERING: pairs with the release that made the dentry positive: the inode is seen made.
        // SAFETY: a dentry has its inode to its end, which comes by RCU.
        unsafe { self.d_inode.load(Ordering::Acquire).as_ref() }
    }

    /// The filesystem that it is of.
    #[inline(always)]
    pub fn super_block(&self) -> &SuperBlock {
        // SAFETY: a superblock outlives its dentries.
        unsafe { self.d_sb.as_ref() }
    }

    /// References to it.
    pub fn count(&self) -> i32 {
        self.d_lockref.count()
    }

    /// Where its directory's log has it; 0 if nobody said.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        // Relaxed: under the directory's lock.
        self.d_offset.load(Ordering::Relaxed)
    }

    /// Whether its directory lists it.
    #[inline(always)]
    pub(crate) fn is_listed(&self) -> bool {
        self.offset() != 0
    }

    /// Under the directory's lock.
    #[inline]
    pub(crate) fn set_offset(&self, offset: u64) {
        // Relaxed: as above.
        self.d_offset.store(offset, Ordering::Relaxed);
    }

    /// Whether both are the same.
    #[inline(always)]
    pub fn same(&self, other: &Dentry) -> bool {
        ptr::eq(self, other)
    }

    /// The name's hash, for those who keep it from changing.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        // Relaxed: does not change.
        self.hash_len.load(Ordering::Relaxed) >> 8
    }

    #[inline(always)]
    pub(super) fn parent_ptr(&self) -> NonNull<Dentry> {
        // ORDERING: pairs with the release in a move, or in whatever made the dentry known: the parent is seen made.
        let parent = self.d_parent.load(Ordering::Acquire);
        // SAFETY: a dentry has a parent from before it is known.
        unsafe { NonNull::new_unchecked(parent) }
    }

    /// Compares names. The dentry's is whole only if `d_seq` says so afterwards; `began` is what it said before.
    ///
    /// The caller is inside a section.
    #[inline(always)]
    pub(super) fn compare(&self, name: &Name<'_>, began: u32) -> Compared {
        // Relaxed, here and below: `d_seq` says whether they belong together.
        if self.hash_len.load(Ordering::Relaxed) != name.hash_len {
            return Compared::Different;
        }
        if name.bytes().len() > INLINE {
            return self.compare_long(name, began);
        }
        let mut differ = 0;
        for (mine, wanted) in self.name.iter().zip(name.words) {
            differ |= mine.load(Ordering::Relaxed) ^ wanted;
        }
        if differ == 0 { Compared::Equal } else { Compared::Different }
    }

    /// Whether the name is of this hash and length and of these words, which are all of it; what is seen is whole only if
    /// `d_seq` says so afterwards.
    #[inline(always)]
    pub(super) fn is_named<const N: usize>(&self, hash_len: u64, words: [u64; N]) -> bool {
        debug_assert!((hash_len & 0xff) as usize <= 8 * N && N <= INLINE_WORDS);
        // Relaxed, both: as in `compare`. Of a name that is no longer than the words, no other word has anything.
        self.hash_len.load(Ordering::Relaxed) == hash_len
            && self
                .name
                .iter()
                .zip(words)
                .all(|(mine, wanted)| mine.load(Ordering::Relaxed) == wanted)
    }

    /// Whether this is its name, for the holder of the directory's lock: it does not change.
    #[inline(always)]
    pub(super) fn is_called(&self, name: &Name<'_>) -> bool {
        // Relaxed, all of it: under the lock.
        self.hash_len.load(Ordering::Relaxed) == name.hash_len
            && match name.bytes().len() > INLINE {
                false => self
                    .name
                    .iter()
                    .zip(name.words)
                    .all(|(mine, word)| mine.load(Ordering::Relaxed) == word),
                true => self.is_called_long(name),
            }
    }

    /// [`is_called`](Self::is_called), of a name of the same length that is not in the dentry.
    #[cold]
    #[inline(never)]
    fn is_called_long(&self, name: &Name<'_>) -> bool {
        self.long_name().is_some_and(|long| long.equals(name))
    }

    #[cold]
    #[inline(never)]
    fn compare_long(&self, name: &Name<'_>, began: u32) -> Compared {
        let first = self.name[0].load(Ordering::Relaxed);
        // A long name has been here, and is still: so the word is its address.
        if self.d_seq.read_retry(began) {
            return Compared::Torn;
        }
        // SAFETY: the word and the length belong together, so the block was the dentry's when `began` was noted, inside the
        // section that the caller is in; blocks are freed by RCU.
        let block = unsafe { LongName::from_word(first, name.bytes().len()) };
        if block.equals(name) { Compared::Equal } else { Compared::Different }
    }

    /// The name as it was at one moment, copied into `buffer`; how long it is.
    ///
    /// The caller is inside a section.
    pub(super) fn copy_name(&self, buffer: &mut [u8; 255]) -> usize {
        loop {
            let began = self.d_seq.read_begin();
            let len = (self.hash_len.load(Ordering::Relaxed) & 0xff) as usize;
            let words = self.name.each_ref().map(|word| word.load(Ordering::Relaxed));
            if self.d_seq.read_retry(began) {
                continue;
            }
            if len <= INLINE {
                for (to, word) in buffer.chunks_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            } else {
                // SAFETY: as in `compare_long`.
                unsafe { LongName::from_word(words[0], len) }.copy_to(buffer);
            }
            return len;
        }
    }

    /// Whether it has no reference to its parent. For the holder of its directory's lock, and for who ends it.
    #[inline(always)]
    pub(super) fn is_uncounted(&self) -> bool {
        !self.uncounted().is_empty()
    }

    /// The mark of that, if it has it.
    #[inline(always)]
    pub(super) fn uncounted(&self) -> DentryFlags {
        self.state() & DentryFlags::UNCOUNTED
    }

    /// The block of a long name, for who ends the dentry or writes its name.
    #[inline]
    pub(super) fn long_name(&self) -> Option<LongName> {
        let len = (self.hash_len.load(Ordering::Relaxed) & 0xff) as usize;
        // SAFETY: the caller keeps the name from changing, so word and length belong together.
        (len > INLINE)
            .then(|| unsafe { LongName::from_word(self.name[0].load(Ordering::Relaxed), len) })
    }
}

impl fmt::Debug for Dentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dentry")
            .field("flags", &self.flags())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}
