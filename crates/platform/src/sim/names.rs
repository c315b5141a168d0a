//! Names for addresses: which field of which structure a word is.

use core::cell::RefCell;
use std::borrow::Cow;
use std::collections::BTreeMap;

thread_local! {
    /// By first byte: the byte behind the last, and the name.
    static NAMES: RefCell<BTreeMap<usize, (usize, Name)>> = const { RefCell::new(BTreeMap::new()) };
}

/// The name of a field, such as `Dentry.d_lockref`.
pub type Name = Cow<'static, str>;

/// Names that one word may be inside of: a field of a structure in a page, and some more.
const NESTED: usize = 64;

/// Gives `bytes` from `address` on a name. Names inside are forgotten: whoever names a structure and its fields names the
/// structure first.
pub fn name(address: usize, bytes: usize, name: impl Into<Name>) {
    let (end, name) = (address + bytes.max(1), name.into());
    let _ = NAMES.try_with(|names| {
        let mut names = names.borrow_mut();
        if names.get(&address).is_some_and(|known| *known == (end, name.clone())) {
            return;
        }
        let inside =
            names.range(address..end).filter(|(_, (until, _))| *until <= end).map(|(start, _)| *start);
        for start in inside.collect::<Vec<_>>() {
            names.remove(&start);
        }
        names.insert(address, (end, name));
    });
}

/// The name of the word at `address`, the innermost if it has several.
pub fn name_of(address: usize) -> Option<Name> {
    NAMES.with(|names| {
        let names = names.borrow();
        let mut before = names.range(..=address).rev().take(NESTED);
        before.find(|(_, (end, _))| address < *end).map(|(_, (_, name))| name.clone())
    })
}

/// Forgets all names of this thread.
pub fn forget_names() {
    NAMES.with(|names| names.borrow_mut().clear());
}
