//! Names for addresses: which field of which structure a word is.

use core::cell::RefCell;
use core::cmp::Reverse;
use std::borrow::Cow;
use std::collections::BTreeMap;

thread_local! {
    /// By first byte and the byte behind the last: a structure comes before its first field.
    static NAMES: RefCell<BTreeMap<Bytes, Name>> = const { RefCell::new(BTreeMap::new()) };
}

type Bytes = (usize, Reverse<usize>);

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
        if names.get(&(address, Reverse(end))) == Some(&name) {
            return;
        }
        let until = |(_, Reverse(until)): &Bytes| *until;
        let known = names.range((address, Reverse(usize::MAX))..(end, Reverse(usize::MAX)));
        let inside = known.map(|(bytes, _)| *bytes).filter(|bytes| until(bytes) <= end);
        for bytes in inside.collect::<Vec<_>>() {
            names.remove(&bytes);
        }
        names.insert((address, Reverse(end)), name);
    });
}

/// The name of the word at `address`, the innermost if it has several.
pub fn name_of(address: usize) -> Option<Name> {
    NAMES.with(|names| {
        let names = names.borrow();
        let mut before = names.range(..=(address, Reverse(0))).rev().take(NESTED);
        before.find(|((_, Reverse(end)), _)| address < *end).map(|(_, name)| name.clone())
    })
}

/// Forgets all names of this thread.
pub fn forget_names() {
    NAMES.with(|names| names.borrow_mut().clear());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_at_the_beginning_leaves_its_structure_a_name() {
        name(0x1000, 64, "File");
        name(0x1000, 8, "File.f_ref");
        name(0x1010, 8, "File.f_mode");
        let names = [0x0fff, 0x1000, 0x1008, 0x1010, 0x103f, 0x1040].map(name_of);
        let names = names.each_ref().map(|name| name.as_deref().unwrap_or("-"));
        assert_eq!(names, ["-", "File.f_ref", "File", "File.f_mode", "File", "-"]);
        // A structure that comes to lie there has no fields yet.
        name(0x1000, 64, "Dentry");
        assert_eq!([0x1000, 0x1010].map(name_of), [Some("Dentry".into()), Some("Dentry".into())]);
        forget_names();
        assert_eq!(name_of(0x1000), None);
    }
}
