//! Objects as raw memory: who owns one, what is written into it, and the hooks of a cache.
//!
//! An [`Object`] is what a user of a cache holds. It is not `Copy`: whoever has it may write to it, and gives it away by
//! freeing it. All its bytes follow from one number, its mark, so that a single wrong byte shows, and shows whose it is.
#![allow(unsafe_code)]

use quietline_platform::AllocError;
use quietline_slab::{CacheError, Entry, Hook, Options, RawCache};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// An object that is out of its cache, filled from its mark.
#[derive(Debug)]
pub(crate) struct Object {
    at: NonNull<u8>,
    pub(crate) mark: u64,
}

// SAFETY: memory with one owner, which is given to another thread.
unsafe impl Send for Object {}

/// An object that has just been allocated: its bytes are as the cache had them.
#[derive(Debug)]
pub(crate) struct Fresh(NonNull<u8>);

// SAFETY: as above.
unsafe impl Send for Fresh {}

/// A freed object that a read section may still look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    at: NonNull<u8>,
    pub(crate) mark: u64,
}

/// A cache, and how its objects are filled.
#[derive(Debug)]
pub(crate) struct Subject {
    cache: RawCache,
    asked: Options,
    size: usize,
    /// Four bytes of a freed object that say nothing: the allocator's link.
    hole: Option<usize>,
}

/// How the marks of users begin, in bits above those that tell the place of a word: in caches without a constructor, in those
/// with one, and in those with a destructor too.
pub(crate) const PLAIN: u64 = 0x0800 << 48;
pub(crate) const USER: u64 = 0x1000 << 48;
pub(crate) const USER_ENDS: u64 = 0x1800 << 48;
/// How those of the constructors begin, and those of the destructor.
pub(crate) const FRESH: u64 = 0x2000 << 48;
pub(crate) const FRESH_ENDS: u64 = 0x2800 << 48;
const DEAD: u64 = 0x3000 << 48;
pub(crate) const KIND: u64 = 0xFFFF << 48;

const WORD: usize = size_of::<u64>();

/// The word at a place in an object: the mark, and the place in its topmost bits, so that no two words are alike.
fn word(mark: u64, index: usize) -> u64 {
    mark ^ (index as u64) << 48
}

fn fill(memory: &mut [u8], mark: u64) {
    let (words, rest) = memory.as_chunks_mut::<WORD>();
    let last = word(mark, words.len()).to_le_bytes();
    words
        .iter_mut()
        .enumerate()
        .for_each(|(index, bytes)| *bytes = word(mark, index).to_le_bytes());
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Whether all bytes are what follows from the mark; those of the hole may be anything.
fn is_filled(memory: &[u8], mark: u64, hole: Option<usize>) -> bool {
    let (words, rest) = memory.as_chunks::<WORD>();
    let last = word(mark, words.len()).to_le_bytes();
    let differing =
        |(index, bytes): (usize, &[u8; WORD])| u64::from_le_bytes(*bytes) ^ word(mark, index);
    match hole {
        None => {
            words.iter().enumerate().fold(0, |bits, pair| bits | differing(pair)) == 0
                && (rest.is_empty() || *rest == last[..rest.len()])
        }
        Some(hole) => (0..memory.len())
            .filter(|at| !(hole..hole + 4).contains(at))
            .all(|at| memory[at] == word(mark, at / WORD).to_le_bytes()[at % WORD]),
    }
}

impl Subject {
    /// # Errors
    /// What the library says.
    pub(crate) fn new(options: Options, keeps_state: bool) -> Result<Self, CacheError> {
        // SAFETY: the hooks are those of `hooks` for this size, which keep to memory of that size.
        let cache = unsafe { RawCache::with_hooks(options)? };
        Ok(Self {
            cache,
            asked: options,
            size: options.size,
            hole: options.link_offset.filter(|_| keeps_state),
        })
    }

    /// The cache, for all that is safe.
    pub(crate) fn cache(&self) -> &RawCache {
        &self.cache
    }

    /// What the cache was asked to be.
    pub(crate) fn asked(&self) -> &Options {
        &self.asked
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn alloc(&self) -> Result<Fresh, AllocError> {
        self.cache.alloc().map(Fresh)
    }

    /// All or nothing, by one call.
    pub(crate) fn alloc_bulk(&self, count: usize, to: &mut Vec<Fresh>) -> Result<(), AllocError> {
        // Whatever was in the array is overwritten.
        let mut entries: Vec<Entry> = vec![Some(NonNull::dangling()); count];
        let result = self.cache.alloc_bulk(&mut entries);
        match result {
            Ok(()) => {
                to.extend(entries.into_iter().map(|entry| Fresh(entry.expect("all or nothing"))))
            }
            Err(AllocError) => assert!(entries.iter().all(Option::is_none), "all or nothing"),
        }
        result
    }

    /// The first `take` objects of a batch, all if it has fewer; the others go back with it.
    pub(crate) fn alloc_batch(
        &self,
        want: usize,
        take: usize,
        to: &mut Vec<Fresh>,
    ) -> Result<(), AllocError> {
        let mut batch = self.cache.alloc_batch(want)?;
        let count = batch.len();
        assert!(count > 0, "an empty batch");
        to.extend(batch.by_ref().take(take).map(Fresh));
        assert_eq!(batch.len(), count - to.len(), "a batch miscounts");
        if take >= count {
            assert!(batch.next().is_none(), "a batch has more than it says");
        }
        Ok(())
    }

    /// Takes what the cache gave out: fills it.
    pub(crate) fn own(&self, Fresh(at): Fresh, mark: u64) -> Object {
        // SAFETY: allocated with this size, and nobody else's.
        fill(unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), self.size) }, mark);
        Object { at, mark }
    }

    /// The mark that an object has whose cache keeps state: that of its last user or of the constructor; none if its bytes do
    /// not follow from any.
    pub(crate) fn mark_found(&self, fresh: &Fresh) -> Option<u64> {
        self.mark_at(fresh.0)
    }

    fn mark_at(&self, at: NonNull<u8>) -> Option<u64> {
        // SAFETY: of this size and constructed; the caller's, or kept by a read section while nobody writes to it.
        let memory = unsafe { core::slice::from_raw_parts(at.as_ptr(), self.size) };
        let mark = u64::from_le_bytes(*memory.first_chunk()?);
        is_filled(memory, mark, self.hole).then_some(mark)
    }

    /// Whether the object is as its owner left it.
    pub(crate) fn is_intact(&self, object: &Object) -> bool {
        // SAFETY: owned, of this size, filled when it came.
        is_filled(
            unsafe { core::slice::from_raw_parts(object.at.as_ptr(), self.size) },
            object.mark,
            None,
        )
    }

    /// Whether a freed object is still as it was; for objects that nobody may write to.
    pub(crate) fn is_still(&self, seen: Seen) -> bool {
        // SAFETY: the caller's read section keeps the memory, and nobody writes to it meanwhile.
        is_filled(
            unsafe { core::slice::from_raw_parts(seen.at.as_ptr(), self.size) },
            seen.mark,
            self.hole,
        )
    }

    /// Whether a freed object of a typesafe cache is still one: as somebody left it. While one thread uses the cache.
    pub(crate) fn is_object(&self, seen: Seen) -> bool {
        let state = [USER, USER_ENDS, FRESH, FRESH_ENDS];
        self.mark_at(seen.at).is_some_and(|mark| state.contains(&(mark & KIND)))
    }

    pub(crate) fn free(&self, object: Object) {
        // SAFETY: it came from this cache, and its owner gives it away.
        unsafe { self.cache.free(object.at) };
    }

    pub(crate) fn free_rcu(&self, object: Object) {
        if self.asked.release.is_some() {
            // Relaxed: a count.
            RETIRED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as above; nobody can find it but by what a section has seen.
        unsafe { self.cache.free_rcu(object.at) };
    }

    /// Frees them by one call. The array may have nulls, and has nothing else afterwards.
    pub(crate) fn free_bulk(&self, objects: impl Iterator<Item = Option<Object>>) {
        let mut entries: Vec<Entry> =
            objects.map(|object| object.map(|object| object.at)).collect();
        // SAFETY: they came from this cache, and their owner gives them away.
        unsafe { self.cache.free_bulk(&mut entries) };
        assert!(entries.iter().all(Option::is_none), "a bulk free left an entry");
    }
}

impl Fresh {
    pub(crate) fn address(&self) -> usize {
        self.0.addr().get()
    }
}

impl Object {
    pub(crate) fn address(&self) -> usize {
        self.at.addr().get()
    }

    /// What a read section remembers of it.
    pub(crate) fn seen(&self) -> Seen {
        Seen { at: self.at, mark: self.mark }
    }
}

/// Objects that destructors have still to see.
pub(crate) static CONSTRUCTED: AtomicI64 = AtomicI64::new(0);
/// Objects that release functions have still to see.
pub(crate) static RETIRED: AtomicI64 = AtomicI64::new(0);

/// Sizes for which there are hooks.
pub(crate) const HOOKED: [usize; 5] = [16, 24, 64, 200, 648];

/// The hooks for a size.
pub(crate) struct Hooks {
    pub(crate) construct: Hook,
    /// With a destructor.
    pub(crate) construct_once: Hook,
    pub(crate) destroy: Hook,
    pub(crate) release: Hook,
}

/// # Panics
/// For a size that is not in [`HOOKED`].
pub(crate) fn hooks(size: usize) -> Hooks {
    fn of<const SIZE: usize>() -> Hooks {
        Hooks {
            construct: Hook::new(construct::<SIZE>),
            construct_once: Hook::new(construct_once::<SIZE>),
            destroy: Hook::new(destroy::<SIZE>),
            release: Hook::new(release::<SIZE>),
        }
    }
    match size {
        16 => of::<16>(),
        24 => of::<24>(),
        64 => of::<64>(),
        200 => of::<200>(),
        648 => of::<648>(),
        _ => unreachable!("no hooks for {size} bytes"),
    }
}

unsafe fn construct<const SIZE: usize>(at: NonNull<u8>) {
    // SAFETY: by the contract of hooks, memory of this size that nobody uses; zeros or a former user's bytes.
    let memory = unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), SIZE) };
    fill(memory, FRESH | at.addr().get() as u64);
}

/// Where destructors run, no object is left in memory that goes back: one that is found is being constructed again.
unsafe fn construct_once<const SIZE: usize>(at: NonNull<u8>) {
    // SAFETY: as above.
    let memory = unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), SIZE) };
    let found = u64::from_le_bytes(*memory.first_chunk().expect("hooked objects have a word"));
    let is_object =
        matches!(found & KIND, USER_ENDS | FRESH_ENDS) && is_filled(memory, found, None);
    assert!(!is_object, "constructed twice: {at:p}");
    // Relaxed: a count, so below.
    CONSTRUCTED.fetch_add(1, Ordering::Relaxed);
    fill(memory, FRESH_ENDS | at.addr().get() as u64);
}

unsafe fn destroy<const SIZE: usize>(at: NonNull<u8>) {
    // SAFETY: by the contract of hooks, a constructed object that nobody uses any more.
    let memory = unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), SIZE) };
    let found =
        u64::from_le_bytes(*memory.first_chunk().expect("hooked objects have a word")) & KIND;
    assert!(
        matches!(found, USER_ENDS | FRESH_ENDS),
        "{at:p} ends as {found:x}, which is no object"
    );
    CONSTRUCTED.fetch_sub(1, Ordering::Relaxed);
    fill(memory, DEAD);
}

unsafe fn release<const SIZE: usize>(at: NonNull<u8>) {
    // SAFETY: by the contract of hooks, an object that was given to `free_rcu` and that nobody uses any more.
    let memory = unsafe { core::slice::from_raw_parts(at.as_ptr(), SIZE) };
    let found = u64::from_le_bytes(*memory.first_chunk().expect("hooked objects have a word"));
    let is_object = matches!(found & KIND, USER | USER_ENDS) && is_filled(memory, found, None);
    assert!(is_object, "{at:p} is released as {found:x}, which is no object");
    RETIRED.fetch_sub(1, Ordering::Relaxed);
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Puts this thread on one of these CPUs.
pub(crate) fn pin(cpus: &[usize]) {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
