//! Caches whose objects are known to the model.

use core::ptr::NonNull;
pub use quietline_platform::AllocError as CacheError;
use quietline_platform::cell::UnsafeCell;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub type Entry = Option<NonNull<u8>>;

/// An object. Its memory is used once in an execution, so that no address comes back.
struct Block {
    layout: Layout,
    /// Of which cache.
    of: usize,
    live: Cell<bool>,
    users: UnsafeCell<()>,
}

thread_local! {
    /// By address. (A model's threads are all on the test's thread.)
    static BLOCKS: RefCell<BTreeMap<usize, Rc<Block>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The object that an address is in.
fn block(address: usize) -> Rc<Block> {
    let found = BLOCKS.with_borrow(|blocks| {
        let (start, block) = blocks.range(..=address).next_back()?;
        (address - start < block.layout.size()).then(|| block.clone())
    });
    let block = found.expect("an address of an object");
    assert!(block.live.get(), "it was given back");
    block
}

/// Whether a model has failed, and its threads unwind: then nothing is found any more.
fn has_failed() -> bool {
    std::thread::panicking()
}

/// Somebody reads the object: nobody may write it meanwhile.
pub fn read(address: usize) {
    if !has_failed() {
        block(address).users.with(|_| ());
    }
}

/// Somebody writes it: nobody else may use it meanwhile.
pub fn write(address: usize) {
    if !has_failed() {
        block(address).users.with_mut(|_| ());
    }
}

pub struct Options {
    pub size: usize,
    /// The model's caches have none.
    pub sheaf_capacity: usize,
    pub link_offset: Option<usize>,
}

impl Options {
    pub fn new(_name: &'static str, size: usize, _align: usize) -> Self {
        Self { size, sheaf_capacity: 0, link_offset: None }
    }
}

pub struct Stats {
    pub active: usize,
}

pub struct RawCache {
    id: usize,
    layout: Layout,
}

impl RawCache {
    pub fn new(options: Options) -> Result<Self, CacheError> {
        static IDS: AtomicUsize = AtomicUsize::new(0);
        let layout = Layout::from_size_align(options.size, 64).unwrap();
        Ok(Self { id: IDS.fetch_add(1, Relaxed), layout })
    }

    pub fn alloc(&self) -> Result<NonNull<u8>, CacheError> {
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(self.layout) }).ok_or(CacheError)?;
        let block = Block {
            layout: self.layout,
            of: self.id,
            live: Cell::new(true),
            users: UnsafeCell::new(()),
        };
        BLOCKS.with_borrow_mut(|blocks| blocks.insert(memory.addr().get(), Rc::new(block)));
        Ok(memory)
    }

    /// # Safety
    /// None is needed: what is wrong is found.
    pub unsafe fn free(&self, object: NonNull<u8>) {
        if has_failed() {
            return;
        }
        let block = block(object.addr().get());
        assert_eq!(block.of, self.id, "of another cache");
        block.users.with_mut(|_| ());
        block.live.set(false);
        // Whoever still reads a word of it finds what the model takes for none of its own.
        // SAFETY: an object of this cache, of this size, which nobody uses.
        unsafe { object.write_bytes(0xee, block.layout.size()) };
    }

    pub fn alloc_bulk(&self, objects: &mut [Entry]) -> Result<(), CacheError> {
        objects.iter_mut().try_for_each(|object| self.alloc().map(|new| *object = Some(new)))
    }

    /// # Safety
    /// As `free`.
    pub unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        for object in objects.iter_mut().filter_map(Option::take) {
            // SAFETY: as there.
            unsafe { self.free(object) };
        }
    }

    pub fn stats(&self) -> Stats {
        let mine = |block: &&Rc<Block>| block.of == self.id && block.live.get();
        Stats { active: BLOCKS.with_borrow(|blocks| blocks.values().filter(mine).count()) }
    }

    pub fn shrink(&self) {}
}

impl Drop for RawCache {
    fn drop(&mut self) {
        if has_failed() {
            return;
        }
        assert_eq!(self.stats().active, 0, "objects were not given back");
        let gone = BLOCKS.with_borrow_mut(|blocks| {
            blocks.extract_if(.., |_, block| block.of == self.id).collect::<Vec<_>>()
        });
        for (address, block) in gone {
            // SAFETY: allocated in `alloc`, and taken out.
            unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address), block.layout) };
        }
    }
}
