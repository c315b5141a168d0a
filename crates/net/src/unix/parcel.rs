//! The open files in a message.

use crate::abi::AF_UNIX;
use crate::socket::Socket;
use quietline_platform::{fault, heap};
use quietline_vfs::FileHandle;
use rustix::io::Errno;

/// The open files in a message: one allocation for the usual one.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    first: Option<FileHandle<'static>>,
    rest: Vec<FileHandle<'static>>,
    /// How many of them are sockets that the message is counted with: the first so many.
    pub(super) sockets: u32,
    /// Whether the kernel's count of files in messages has them.
    pub(super) counted: bool,
    /// The next to be dropped.
    pub(crate) next: Option<Box<Parcel>>,
}

/// The local socket that a file is.
pub(super) fn sock_of<'f>(file: &'f FileHandle<'_>) -> Option<&'f Socket> {
    file.payload::<Socket>().filter(|socket| socket.family() == AF_UNIX)
}

impl Parcel {
    /// No files yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Box<Self>, Errno> {
        heap::try_box(Self::default()).map_err(|_| Errno::NOMEM)
    }

    /// Makes room for so many more.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        let more = if self.first.is_none() { more.saturating_sub(1) } else { more };
        if more != 0 {
            fault::check().map_err(|_| Errno::NOMEM)?;
            self.rest.try_reserve_exact(more).map_err(|_| Errno::NOMEM)?;
        }
        Ok(())
    }

    /// Adds one. There is room for it.
    pub(super) fn push(&mut self, file: FileHandle<'static>) {
        match self.first {
            None => self.first = Some(file),
            Some(_) => self.rest.push(file),
        }
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// All of them.
    pub(super) fn files(&self) -> impl Iterator<Item = &FileHandle<'static>> {
        self.first.iter().chain(&self.rest)
    }

    /// Hands out the first so many, or all if there are fewer, as they are asked for. One that is not taken stays, with those behind it.
    pub(super) fn hand_out<T, F>(&mut self, n: usize, to: F) -> HandOut<'_, F>
    where
        F: FnMut(FileHandle<'static>) -> Result<T, FileHandle<'static>>,
    {
        // The next one is the last.
        self.rest.reverse();
        HandOut { of: self, n, to }
    }

    /// Whether there are sockets among them.
    #[inline(always)]
    pub(super) fn has_sockets(&self) -> bool {
        self.sockets != 0
    }

    /// Another one with the same files, in no message.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn copy(&self) -> Result<Box<Self>, Errno> {
        let mut copy = Self::new()?;
        copy.reserve(self.len())?;
        self.files().for_each(|file| copy.push(file.clone()));
        Ok(copy)
    }
}

/// A parcel's files on their way out.
pub(super) struct HandOut<'p, F> {
    of: &'p mut Parcel,
    n: usize,
    to: F,
}

impl<T, F> Iterator for HandOut<'_, F>
where
    F: FnMut(FileHandle<'static>) -> Result<T, FileHandle<'static>>,
{
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.n = self.n.checked_sub(1)?;
        let (is_first, file) = match self.of.first.take() {
            Some(file) => (true, file),
            None => (false, self.of.rest.pop()?),
        };
        (self.to)(file)
            .map_err(|file| {
                // It goes to where it was, and is the last to be asked for.
                self.n = 0;
                if is_first { self.of.first = Some(file) } else { self.of.rest.push(file) }
            })
            .ok()
    }
}

impl<F> Drop for HandOut<'_, F> {
    fn drop(&mut self) {
        self.of.rest.reverse();
    }
}
