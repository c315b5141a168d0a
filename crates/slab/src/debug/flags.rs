//! What is checked, and how one says so.

use core::fmt;
use core::str::FromStr;
use quietline_platform::atomic::{AtomicBool, Ordering};
use std::io::Write;

bitflags::bitflags! {
    /// What is checked: see [`Control::set_debug`](crate::Control::set_debug). As text, the letters that the kernel's
    /// `slab_debug` uses: `"FZPU"`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Debug: u8 {
        /// `F`: that an object is freed once, is one, and is of this cache. Every other check includes this one.
        const CONSISTENCY = 1;
        /// `Z`: that the 16 bytes or more behind an object, and the 16 before it, are as they were.
        const RED_ZONE = 2;
        /// `P`: that a free object's bytes are as they were. A fresh object is filled with `0x5a`, a freed one with `0x6b`
        /// and `0xa5` at its end. Not in caches with a constructor, a destructor, or typesafe memory, whose free objects
        /// are their users'.
        const POISON = 4;
        /// `U`: who allocated and who freed each object: call sites, thread, CPU and time.
        const TRACK = 8;
    }
}

/// A letter that stands for no check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{letter}' is no check of slab caches: there are F (consistency), Z (red zones), P (poison) and U (call sites), \
     or - alone for none"
)]
pub struct DebugError {
    /// The letter.
    pub letter: char,
}

const LETTERS: [(char, Debug); 4] =
    [('F', Debug::CONSISTENCY), ('Z', Debug::RED_ZONE), ('P', Debug::POISON), ('U', Debug::TRACK)];

impl Debug {
    /// Nothing.
    pub const OFF: Self = Self::empty();
    /// Everything.
    pub const ALL: Self = Self::all();

    /// Of letters in either case: `"FZ"`; `"-"` for nothing.
    ///
    /// # Errors
    /// [`DebugError`] names the first letter that stands for nothing; of no text at all, `' '`.
    pub fn parse(text: &str) -> Result<Self, DebugError> {
        match text {
            "-" => Ok(Self::OFF),
            "" => Err(DebugError { letter: ' ' }),
            _ => text.chars().try_fold(Self::OFF, |flags, letter| {
                let known = LETTERS.iter().find(|known| known.0 == letter.to_ascii_uppercase());
                known.map(|known| flags | known.1).ok_or(DebugError { letter })
            }),
        }
    }

    pub(crate) fn is_off(self) -> bool {
        self.is_empty()
    }

    /// What the environment adds for a cache of this name: `QUIETLINE_SLAB_DEBUG=FZPU`, for some caches
    /// `=FZ,name,prefix*`, several such groups divided by `;`, of which the first that fits counts. No letters before the
    /// names are all, and `-` is nothing, whatever the options say.
    pub(crate) fn from_environment(name: &str) -> Option<Self> {
        static REFUSED: AtomicBool = AtomicBool::new(false);
        let text = std::env::var("QUIETLINE_SLAB_DEBUG").ok().filter(|text| !text.is_empty())?;
        Self::wished(&text, name).unwrap_or_else(|error| {
            // Relaxed: it orders nothing.
            if !REFUSED.swap(true, Ordering::Relaxed) {
                // Nobody can be told that standard error is gone.
                let _ = writeln!(
                    std::io::stderr(),
                    "quietline: QUIETLINE_SLAB_DEBUG={text} is ignored: {error}"
                );
            }
            None
        })
    }

    /// What a text asks for a cache of this name; none if it says nothing of it.
    fn wished(text: &str, name: &str) -> Result<Option<Self>, DebugError> {
        let mut found = None;
        // An empty group is one only if it is all there is: not what a last semicolon is followed by.
        for group in text.split(';').filter(|group| !group.is_empty() || text.is_empty()) {
            let mut parts = group.split(',');
            let flags = match parts.next().unwrap_or("") {
                "" => Self::ALL,
                letters => Self::parse(letters)?,
            };
            let mut names = parts.filter(|pattern| !pattern.is_empty()).peekable();
            let fits = names.peek().is_none()
                || names.any(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) => name.starts_with(prefix),
                    None => name == pattern,
                });
            if fits {
                found = found.or(Some(flags));
            }
        }
        Ok(found)
    }
}

impl FromStr for Debug {
    type Err = DebugError;

    fn from_str(text: &str) -> Result<Self, DebugError> {
        Self::parse(text)
    }
}

impl fmt::Display for Debug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_off() {
            return f.write_str("-");
        }
        let letters = LETTERS.iter().filter(|known| self.contains(known.1)).map(|known| known.0);
        f.write_str(&letters.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::Debug;

    #[test]
    fn the_environment_is_read_as_the_kernel_reads_its_command_line() {
        let wished = |text, name| Debug::wished(text, name).unwrap();
        assert_eq!(wished("FZ", "any"), Some(Debug::CONSISTENCY | Debug::RED_ZONE));
        assert_eq!(wished("", "any"), Some(Debug::ALL));
        assert_eq!(wished("-", "any"), Some(Debug::OFF));
        assert_eq!(wished("P,inode,dentry*", "inode"), Some(Debug::POISON));
        assert_eq!(wished("P,inode,dentry*", "dentry_2"), Some(Debug::POISON));
        assert_eq!(wished("P,inode,dentry*", "inode_2"), None);
        assert_eq!(wished(",inode", "inode"), Some(Debug::ALL));
        assert_eq!(wished("-,inode;U", "inode"), Some(Debug::OFF));
        assert_eq!(wished("-,inode;U", "other"), Some(Debug::TRACK));
        assert_eq!(Debug::wished("F;X,inode", "").unwrap_err().letter, 'X');
    }
}
