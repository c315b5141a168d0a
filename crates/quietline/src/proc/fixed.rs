//! Directories that always have the same names.

use super::number;
use crate::Errno;
use crate::kernel::Inner;
use crate::raw::KernelRef;
use core::fmt::Write as _;
use quietline_vfs::abi::{S_IFDIR, S_IFLNK, S_IFREG};
use quietline_vfs::generated::{Directory, Link, Made, Names, Target, Text, TextBuffer, TextFile};
use quietline_vfs::{NodeLink, Path, PathBuffer, Requester, Vfs};

/// A name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Its permissions.
    pub(super) mode: u32,
    pub(super) what: What,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Directory(&'static [Entry]),
    /// A text.
    Text(fn(&Inner, &mut TextBuffer)),
    /// A number that may be set within bounds.
    Number {
        get: fn(&Inner) -> u64,
        set: fn(&Inner, u64),
        min: u64,
        max: u64,
    },
    /// Three numbers that may be set, in one line.
    Triple {
        get: fn(&Inner) -> [u64; 3],
        set: fn(&Inner, [u64; 3]),
    },
    /// A link with this body.
    Link(&'static str),
    /// The caches: see [`slab`](super::slab).
    Caches,
}

/// A directory with these names.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) kernel: KernelRef,
    pub(super) entries: &'static [Entry],
}

/// What a name in a list stands for.
pub(super) fn find(
    kernel: KernelRef,
    entries: &'static [Entry],
    name: &[u8],
    strict: bool,
) -> Result<Option<Made>, Errno> {
    let Some(entry) = entries.iter().find(|entry| entry.name.as_bytes() == name) else {
        return Ok(None);
    };
    let made = match entry.what {
        What::Directory(entries) => {
            Made::new(S_IFDIR | entry.mode, Directory(Fixed { kernel, entries }))
        }
        What::Caches => Made::new(S_IFDIR | entry.mode, Directory(super::slab::Caches { kernel })),
        What::Link(to) => Made::new(S_IFLNK | entry.mode, Link(Body(to))),
        What::Text(_) | What::Number { .. } | What::Triple { .. } => Made::new(
            S_IFREG | entry.mode,
            TextFile::new(Value { kernel, what: entry.what, strict }),
        ),
    };
    made.map(Some)
}

impl Names for Fixed {
    fn find(&self, _vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        find(self.kernel, self.entries, name, true)
    }

    fn list(
        &self,
        _vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        for (place, entry) in
            (0..).zip(self.entries).skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            if !each(place, entry.name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Value {
    kernel: KernelRef,
    what: What,
    /// As files of `/proc/sys` are.
    strict: bool,
}

impl Text for Value {
    fn polls(&self) -> bool {
        true
    }

    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno> {
        let k = self.kernel.get(vfs);
        match self.what {
            What::Text(show) => show(k, out),
            What::Number { get, .. } => {
                let _ = writeln!(out, "{}", get(k));
            }
            What::Triple { get, .. } => {
                let [a, b, c] = get(k);
                let _ = writeln!(out, "{a}\t{b}\t{c}");
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn store(&self, vfs: &Vfs, at: u64, text: &[u8]) -> Result<usize, Errno> {
        if matches!(self.what, What::Number { .. } | What::Triple { .. }) && at != 0 {
            // What goes on behind a number that has been written is no second one.
            return Ok(text.len());
        }
        match self.what {
            What::Number { set, min, max, .. } => {
                let (value, used) = number::sysctl(text, min, max)?;
                set(self.kernel.get(vfs), value);
                Ok(used)
            }
            What::Triple { get, set } => {
                let k = self.kernel.get(vfs);
                let (mut values, mut used, mut failed) = (get(k), 0, Ok(()));
                for value in &mut values {
                    match number::sysctl(&text[used..], 0, i64::MAX as u64) {
                        Ok((number, n)) => (*value, used) = (number, used + n),
                        Err(errno) if used == 0 => return Err(errno),
                        // Fewer numbers leave the others as they are.
                        Err(_) if used == text.len() => break,
                        Err(errno) => {
                            failed = Err(errno);
                            break;
                        }
                    }
                }
                // The numbers before an error are set, as on Linux.
                set(k, values);
                failed.map(|()| used)
            }
            _ => Err(Errno::IO),
        }
    }

    fn is_strict(&self) -> bool {
        self.strict
    }
}

#[derive(Debug)]
struct Body(&'static str);

impl Target for Body {
    fn follow<'k>(
        &self,
        _link: &Path<'k>,
        _requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        let mut body = quietline_platform::heap::try_boxed_slice(self.0.len(), |_| 0)
            .map_err(|_| Errno::NOMEM)?;
        body.copy_from_slice(self.0.as_bytes());
        Ok(NodeLink::Body(body))
    }

    fn name<'k>(
        &self,
        _link: &Path<'k>,
        _requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        path.prepend(self.0.as_bytes())
    }
}
