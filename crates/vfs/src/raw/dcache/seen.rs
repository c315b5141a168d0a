//! Dentries that a reader has found, and has no reference to.

use super::entry::{Compared, Dentry};
use super::refs::DentryRef;
use super::table::{Changed, Verdict};
use crate::dcache::name::{NAME_MAX, Name};
use crate::inode::Inode;
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::Ordering;
use quietline_sync::rcu::Guard;

/// An open read section: what is found inside it stays readable until it ends.
#[derive(Debug)]
#[must_use = "the section ends at once if it is dropped"]
pub struct Section {
    guard: Guard<'static>,
}

/// A dentry found inside a section: valid memory as long as that is open, and as it was as long as
/// [`valid`](Self::valid) says so.
pub struct Seen<'g, 'k> {
    dentry: &'g Dentry,
    seq: u32,
    of: PhantomData<&'k Vfs>,
}

/// What came of looking for a name below a [`Seen`].
#[derive(Debug, Clone, Copy)]
pub enum Step<'g, 'k> {
    /// This has it.
    Found(Seen<'g, 'k>),
    /// The directory has no such name, and had none at one moment during the call.
    Missing,
    /// The directory itself was moved, renamed or taken out since it was seen.
    Stale,
}

/// What came of a quick look for a name below a [`Seen`].
pub(crate) enum Quick<'g, 'k> {
    /// This has it, if its own [`valid`](Seen::valid) and its directory's say so afterwards.
    Found(Seen<'g, 'k>),
    /// There is no such name, if the directory's [`valid`](Seen::valid) says so afterwards.
    Missing,
    /// Something moves, or two names have much of their hash in common: only [`child`](Seen::child) can say.
    Unsure,
}

impl Vfs {
    /// Opens a read section: about a nanosecond. Writes no shared line.
    #[inline(always)]
    pub fn read(&self) -> Section {
        Section { guard: self.domain.read() }
    }
}

impl Section {
    /// The section as RCU knows it.
    #[inline(always)]
    pub fn guard(&self) -> &Guard<'static> {
        &self.guard
    }
}

impl Clone for Seen<'_, '_> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Seen<'_, '_> {}

impl Deref for Seen<'_, '_> {
    type Target = Dentry;

    #[inline(always)]
    fn deref(&self) -> &Dentry {
        self.dentry
    }
}

impl<'k> DentryRef<'k> {
    /// The dentry as it is now, for a walk inside a section.
    #[inline(always)]
    pub fn seen<'g>(&self, section: &'g Section) -> Seen<'g, 'k> {
        // SAFETY: we have a reference, and the section is open.
        unsafe { Seen::new(self.as_ptr(), section) }
    }

    /// Looks a name up and takes a reference to what has it; none if nothing does. Never counts what it does not return.
    ///
    /// Writes the second line of what it finds.
    pub fn lookup(&self, name: &Name<'_>) -> Option<DentryRef<'k>> {
        let section = self.vfs().read();
        loop {
            match self.seen(&section).child(name) {
                Step::Found(child) => {
                    if let Some(child) = child.acquire() {
                        return Some(child);
                    }
                }
                Step::Missing => return None,
                Step::Stale => {}
            }
        }
    }
}

impl<'g, 'k> Seen<'g, 'k> {
    /// # Safety
    /// The dentry was not freed when the section began that is open, and is of a kernel that lives for `'k`.
    #[inline(always)]
    pub(crate) unsafe fn new(dentry: NonNull<Dentry>, _section: &'g Section) -> Self {
        // SAFETY: by contract; dentries are freed by RCU.
        let dentry = unsafe { dentry.as_ref() };
        Self { dentry, seq: dentry.d_seq.read_begin(), of: PhantomData }
    }

    /// The dentry, for as long as the section is open.
    #[inline(always)]
    pub fn dentry(self) -> &'g Dentry {
        self.dentry
    }

    /// What it stands for.
    #[inline(always)]
    pub fn inode(self) -> Option<&'g Inode> {
        self.dentry.inode()
    }

    /// Whether it is still where it was, by the same name and standing for the same, and was all the time since. Writes
    /// nothing.
    #[inline(always)]
    pub fn valid(self) -> bool {
        !self.dentry.d_seq.read_retry(self.seq)
    }

    /// Looks for a name in the directory. Writes nothing. O(1).
    #[inline(always)]
    pub fn child(self, name: &Name<'_>) -> Step<'g, 'k> {
        loop {
            let Some(table) = self.dentry.d_children.table() else {
                return if self.valid() { Step::Missing } else { Step::Stale };
            };
            let look = |child: NonNull<Dentry>| {
                // SAFETY: found in a table inside the section: dentries are freed by RCU after they are taken out.
                let child: &'g Dentry = unsafe { &*child.as_ptr().cast_const() };
                self.look(child, name)
            };
            // SAFETY: as above.
            let same =
                |child: NonNull<Dentry>, seq| !unsafe { child.as_ref() }.d_seq.read_retry(seq);
            match table.find(name.hash(), look, same) {
                Ok(found) => {
                    if !self.valid() {
                        return Step::Stale;
                    }
                    return found.map_or(Step::Missing, Step::Found);
                }
                Err(Changed) => continue,
            }
        }
    }

    /// [`child`](Self::child) for a name that is given as `N` words, which are all of it, and by its hash and length: in
    /// fewer steps, because it leaves the second looks to the caller. Writes nothing.
    ///
    /// To put them off is sound: a sequence count that has not moved between two looks at it says of all that was read in
    /// between, however long that took, that it was so at one moment and is no mixture.
    #[inline(always)]
    pub(crate) fn child_quick<const N: usize>(
        self,
        hash_len: u64,
        words: [u64; N],
    ) -> Quick<'g, 'k> {
        let Some(table) = self.dentry.d_children.table() else {
            return Quick::Missing;
        };
        let Some(child) = table.first(hash_len >> 8) else {
            return Quick::Missing;
        };
        // SAFETY: found in a table inside the section: dentries are freed by RCU after they are taken out.
        let child: &'g Dentry = unsafe { &*child.as_ptr().cast_const() };
        let Some(seq) = child.d_seq.read_try() else {
            return Quick::Unsure;
        };
        // Relaxed: as in `look`.
        let here =
            ptr::eq(child.d_parent.load(Ordering::Relaxed), self.dentry) && child.is_hashed();
        if child.is_named(hash_len, words) && here {
            Quick::Found(Seen { dentry: child, seq, of: PhantomData })
        } else {
            Quick::Unsure
        }
    }

    /// Whether a child that the table had is what is looked for.
    #[inline(always)]
    fn look(self, child: &'g Dentry, name: &Name<'_>) -> Verdict<Seen<'g, 'k>> {
        let seq = child.d_seq.read_begin();
        let compared = child.compare(name, seq);
        // Relaxed, both: the sequence count says whether they belong together.
        let here =
            ptr::eq(child.d_parent.load(Ordering::Relaxed), self.dentry) && child.is_hashed();
        if child.d_seq.read_retry(seq) {
            return Verdict::Changed;
        }
        match compared {
            Compared::Equal if here => Verdict::Found(Seen { dentry: child, seq, of: PhantomData }),
            Compared::Different if here => Verdict::Other(seq),
            _ => Verdict::Changed,
        }
    }

    /// The directory that it is in; the root is its own. None if it was moved, renamed or taken out since it was seen.
    #[inline(always)]
    pub fn parent(self) -> Option<Seen<'g, 'k>> {
        // SAFETY: found inside the section as the parent of a dentry that had a reference to it.
        let parent: &'g Dentry = unsafe { &*self.dentry.parent_ptr().as_ptr().cast_const() };
        let seq = parent.d_seq.read_begin();
        self.valid().then_some(Seen { dentry: parent, seq, of: PhantomData })
    }

    /// Takes a reference, if it is still what was seen (`legitimize`). Writes its second line.
    #[inline(always)]
    pub fn acquire(self) -> Option<DentryRef<'k>> {
        if !self.dentry.d_lockref.get_not_dead() {
            return None;
        }
        // SAFETY: just taken; the dentry's kernel lives for 'k.
        let dentry = unsafe { DentryRef::from_raw(NonNull::from(self.dentry)) };
        // Looked at after the count was taken: if it is the same still, the reference is to what was seen.
        self.valid().then_some(dentry)
    }

    /// Copies the name as it was at one moment during the call; how long it is.
    pub fn name(self, buffer: &mut [u8; NAME_MAX]) -> usize {
        self.dentry.copy_name(buffer)
    }

    /// Whether both are the same dentry.
    #[inline(always)]
    pub fn is(self, other: &Dentry) -> bool {
        ptr::eq(self.dentry, other)
    }
}

impl fmt::Debug for Seen<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("dentry", self.dentry).field("valid", &self.valid()).finish()
    }
}
