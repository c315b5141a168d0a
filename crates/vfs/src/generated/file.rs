//! Files whose text is made when it is read, and which may take text that is written.

use crate::file::{FileMode, Files};
use crate::inode::{Node, Requester};
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::walk_path::Path;
use crate::vfs::Vfs;
use core::fmt;
use quietline_platform::fault;
use quietline_sync::{Shared, SpinLock, WaitQueue};
use rustix::io::Errno;
use std::collections::HashMap;

/// What is in a file.
pub trait Text: Send + Sync + fmt::Debug + 'static {
    /// Writes the whole text.
    ///
    /// # Errors
    /// Whatever `read` is to end with. (That there is no memory, the buffer remembers by itself.)
    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno>;

    /// Takes text, which is not empty, that is written at an offset: how many bytes of it.
    ///
    /// # Errors
    /// Whatever `write` is to end with.
    fn store(&self, _vfs: &Vfs, _at: u64, _text: &[u8]) -> Result<usize, Errno> {
        Err(Errno::IO)
    }

    /// Whether callers can wait for the file in `poll` and `epoll`.
    fn polls(&self) -> bool {
        false
    }

    /// Returns the queue that is woken after each change of the text, and the count of changes.
    /// `None` if `poll` reports no change.
    fn changes<'v>(&self, _vfs: &'v Vfs) -> Option<(&'v WaitQueue, u64)> {
        None
    }

    /// Whether nobody may open it to write whom the mode does not let, whatever his capabilities.
    fn is_strict(&self) -> bool {
        false
    }
}

/// A text that is being written, and that knows whether there was memory for it.
#[derive(Debug, Default)]
pub struct TextBuffer {
    bytes: Vec<u8>,
    failed: bool,
}

/// The node of a file with a text made when it is read.
#[derive(Debug)]
pub struct TextFile<T> {
    text: T,
    /// The state of the open files that have any, by their numbers.
    open: SpinLock<HashMap<u64, OpenText>>,
}

/// The state of an open file.
#[derive(Debug, Default)]
struct OpenText {
    /// The text that a read has begun; none before the first one.
    text: Option<Shared<Vec<u8>>>,
    /// The count of changes that the file has reported.
    changes: u64,
}

impl TextBuffer {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.failed |= fault::check().is_err() || self.bytes.try_reserve(bytes.len()).is_err();
        if !self.failed {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// What was written.
    ///
    /// # Errors
    /// `ENOMEM` if there was no memory for all of it.
    pub fn finish(self) -> Result<Vec<u8>, Errno> {
        if self.failed { Err(Errno::NOMEM) } else { Ok(self.bytes) }
    }
}

impl fmt::Write for TextBuffer {
    /// Never fails: see [`finish`](Self::finish).
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl<T: Text> TextFile<T> {
    /// Returns a file with this text.
    pub fn new(text: T) -> Self {
        Self { text, open: SpinLock::new(HashMap::new()) }
    }

    /// Returns the text that an open file has begun to read.
    fn begun(&self, file: u64) -> Option<Shared<Vec<u8>>> {
        self.open.lock().get(&file)?.text.clone()
    }

    /// Calls `change` with the state of an open file, under the lock.
    fn change<R>(&self, file: u64, change: impl FnOnce(&mut OpenText) -> R) -> Result<R, Errno> {
        let mut open = self.open.lock();
        if !open.contains_key(&file) {
            fault::check().map_err(|_| Errno::NOMEM)?;
            open.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        }
        Ok(change(open.entry(file).or_default()))
    }

    /// Returns `true` if the text has changed since an open file was opened or polled last.
    fn has_changed(&self, file: u64, changes: u64) -> bool {
        let mut open = self.open.lock();
        open.get_mut(&file).is_some_and(|open| {
            let reported = core::mem::replace(&mut open.changes, changes);
            reported != changes
        })
    }

    /// Begins to read: the text as it is now.
    fn begin(&self, vfs: &Vfs, file: u64) -> Result<Shared<Vec<u8>>, Errno> {
        let mut out = TextBuffer::default();
        self.text.show(vfs, &mut out)?;
        let text = Shared::new(out.finish()?).map_err(|_| Errno::NOMEM)?;
        // The old text is dropped outside the lock.
        let old = self.change(file, |open| open.text.replace(text.clone()))?;
        drop(old);
        Ok(text)
    }
}

impl<T: Text> Node for TextFile<T> {
    fn open<'k>(
        &self,
        place: &Path<'k>,
        _files: &'k Files,
        _flags: i32,
        mode: FileMode,
        _requester: &Requester<'_, 'k>,
    ) -> Result<Option<FileHandle<'k>>, Errno> {
        let writable = place.dentry().inode().is_some_and(|inode| inode.mode() & 0o222 != 0);
        if mode.contains(FileMode::WRITE) && self.text.is_strict() && !writable {
            Err(Errno::ACCESS)
        } else {
            Ok(None)
        }
    }

    fn opened(
        &self,
        vfs: &Vfs,
        file: u64,
        _flags: i32,
        _requester: &Requester<'_, '_>,
    ) -> Result<(), Errno> {
        match self.text.changes(vfs) {
            Some((_, changes)) => self.change(file, |open| open.changes = changes),
            None => Ok(()),
        }
    }

    fn polls(&self, _file: u64) -> bool {
        self.text.polls()
    }

    fn poll(&self, vfs: &Vfs, file: u64, table: &mut PollTable<'_>) -> Events {
        let Some((queue, _)) = self.text.changes(vfs) else { return Events::ALWAYS };
        table.wait_on(queue);
        let (_, changes) = self.text.changes(vfs).expect("as before");
        let readable = Events::IN | Events::RDNORM;
        if self.has_changed(file, changes) {
            readable | Events::ERR | Events::PRI
        } else {
            readable
        }
    }

    /// At offset 0 the text is made anew; elsewhere it is what this open file has begun to read.
    fn read(&self, vfs: &Vfs, file: u64, at: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let text = match self.begun(file).filter(|_| at != 0) {
            Some(text) => text,
            None => self.begin(vfs, file)?,
        };
        let rest = usize::try_from(at).ok().and_then(|at| text.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write(&self, vfs: &Vfs, at: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.text.store(vfs, at, bytes)
    }

    fn closed(&self, file: u64) {
        let ended = self.open.lock().remove(&file);
        drop(ended);
    }
}
