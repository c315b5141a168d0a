//! Debug builds only: which words were written, by address, in order.
//!
//! Everything shared in this crate is an atomic, and in debug builds every write to one ends here. The
//! addresses get their names from [`World::words`](crate::sockets::World::words) and
//! [`Process::words`](crate::sockets::Process::words).

use core::cell::RefCell;

thread_local! {
    static WRITES: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
}

/// The address of every word that this thread writes while `f` runs, once for each write. A locked
/// instruction counts whether it changes the word or not: it takes the line all the same.
pub fn writes(f: impl FnOnce()) -> Vec<usize> {
    WRITES.set(Some(Vec::new()));
    f();
    WRITES.take().unwrap_or_default()
}

/// Notes that `word` is written.
pub(crate) fn wrote<T>(word: &T) {
    WRITES.with_borrow_mut(|writes| {
        if let Some(writes) = writes {
            writes.push(core::ptr::from_ref(word).addr());
        }
    });
}
