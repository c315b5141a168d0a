//! Bytes through pipes, sockets and event counters.

mod control;
mod gift;
mod splice;

use crate::abi::UIO_MAXIOV;
use crate::{Errno, FileHandle, FileMode, Process, Socket};
use quietline_net::On;
use quietline_vfs::file::Direction;
use quietline_vfs::inotify::Inotify;
use quietline_vfs::{Sink, Source, file};

impl Process {
    /// Reads what is there, inside a read section and without a reference; none if that is not how to read the file, or if
    /// the caller is to wait.
    #[inline(always)]
    pub(crate) fn read_at_once(
        &self,
        fd: i32,
        to: &mut Sink<'_, '_>,
    ) -> Option<Result<usize, Errno>> {
        let section = self.inner().vfs.read();
        let file = match self.table.look(fd, &section) {
            Ok(file) => file,
            Err(errno) => return Some(Err(errno)),
        };
        if !file.waits() {
            return None;
        }
        match file.try_read(to) {
            Err(Errno::AGAIN) if file.io().may_wait() => None,
            // Some have a way of their own yet.
            Err(Errno::INVAL) => None,
            done => Some(done),
        }
    }

    /// Writes what fits, inside a read section and without a reference, and then the rest; none if that is not how to write
    /// to the file, or if the caller is to wait first.
    #[inline(always)]
    pub(crate) fn write_at_once(
        &self,
        fd: i32,
        mut from: Source<'_, '_>,
    ) -> Option<Result<usize, Errno>> {
        let section = self.inner().vfs.read();
        let file = match self.table.look(fd, &section) {
            Ok(file) => file,
            Err(errno) => return Some(Err(errno)),
        };
        if !file.waits() {
            return None;
        }
        match file.try_write(&mut from) {
            Ok(n) if from.left() == 0 => Some(Ok(n)),
            Err(Errno::AGAIN) if file.io().may_wait() => None,
            Err(errno) => Some(Err(self.not_written(errno, &from))),
            Ok(n) => {
                // The rest goes to the same file, or nowhere.
                let same = self.file(fd).ok().filter(|held| held.opened().is_same(file));
                drop(section);
                let rest = same.map_or(0, |held| self.write_rest(&held, &mut from));
                Some(Ok(n + rest))
            }
        }
    }

    /// Reads from what lets its callers wait; none if the file is nothing of that kind.
    pub(crate) fn read_object(
        &self,
        file: &FileHandle<'_>,
        to: &mut Sink<'_, '_>,
    ) -> Option<Result<usize, Errno>> {
        if !file.opened().waits() {
            return None;
        }
        // A stream that wants more than a byte may have to take it as it comes; a message is waited for as by `recv`.
        let socket = file.payload::<Socket>().filter(|_| file.mode().contains(FileMode::READ));
        let at_least = socket.and_then(|socket| {
            On { socket, who: self, flags: file.flags(), may_sleep: true }.read(to)
        });
        Some(at_least.unwrap_or_else(|| file::read_object(file, to)))
    }

    /// Writes to what lets its callers wait; none if the file is nothing of that kind.
    pub(crate) fn write_object(
        &self,
        file: &FileHandle<'_>,
        mut from: Source<'_, '_>,
    ) -> Option<Result<usize, Errno>> {
        if !file.opened().waits() {
            return None;
        }
        let socket = file.payload::<Socket>().filter(|_| file.mode().contains(FileMode::WRITE));
        let message = socket.and_then(|socket| {
            On { socket, who: self, flags: file.flags(), may_sleep: true }.write(&mut from)
        });
        let written = message.unwrap_or_else(|| file::write_object(file, &mut from));
        if from.is_broken() {
            self.broken_pipe();
        }
        Some(written)
    }

    /// Writes what is left after a part was written: how much of it came.
    fn write_rest(&self, file: &FileHandle<'_>, from: &mut Source<'_, '_>) -> usize {
        from.set_again();
        let written = file::write_object(file, from);
        let rest = written.unwrap_or_else(|errno| {
            file.opened().untold(errno, from);
            0
        });
        if from.is_broken() {
            self.broken_pipe();
        }
        rest
    }

    /// [`read_object`](Self::read_object) into buffers that a caller has listed.
    pub(crate) fn read_many(
        &self,
        file: &FileHandle<'_>,
        buffers: &mut [&mut [u8]],
    ) -> Option<Result<usize, Errno>> {
        if !file.opened().waits() {
            return None;
        }
        if !file.mode().contains(FileMode::READ) {
            return Some(Err(Errno::BADF));
        }
        if buffers.len() > UIO_MAXIOV {
            return Some(Err(Errno::INVAL));
        }
        if file.payload::<Inotify>().is_some() {
            return self.read_one_by_one(file, buffers);
        }
        let mut to = Sink::new(buffers);
        let read = match to.left() {
            0 => Some(nothing_passed(file, Direction::Read)),
            _ => self.read_object(file, &mut to),
        };
        if read == Some(Ok(0)) {
            // Also that nothing was read is told, by `readv` alone.
            file::tell_passed(file.opened(), &self.inner().vfs, Direction::Read);
        }
        read
    }

    /// Reads into each buffer by itself, until one is not filled, as Linux does for inotify: no
    /// event goes into two buffers.
    #[cold]
    fn read_one_by_one(
        &self,
        file: &FileHandle<'_>,
        buffers: &mut [&mut [u8]],
    ) -> Option<Result<usize, Errno>> {
        let mut done = 0;
        for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
            match self.read_object(file, &mut Sink::new(&mut [buffer]))? {
                Ok(n) => {
                    done += n;
                    if n < buffer.len() {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Some(Err(errno)),
                Err(_) => break,
            }
        }
        Some(Ok(done))
    }

    /// [`write_object`](Self::write_object) from buffers that a caller has listed.
    pub(crate) fn write_many(
        &self,
        file: &FileHandle<'_>,
        buffers: &[&[u8]],
    ) -> Option<Result<usize, Errno>> {
        if !file.opened().waits() {
            return None;
        }
        if !file.mode().contains(FileMode::WRITE) {
            return Some(Err(Errno::BADF));
        }
        if buffers.len() > UIO_MAXIOV {
            return Some(Err(Errno::INVAL));
        }
        let from = Source::new(buffers);
        match from.left() {
            0 => Some(nothing_passed(file, Direction::Write)),
            _ => self.write_object(file, from),
        }
    }

    /// The error of a write of which nothing came.
    #[cold]
    fn not_written(&self, errno: Errno, from: &Source<'_, '_>) -> Errno {
        if from.is_broken() {
            self.broken_pipe();
        }
        errno
    }
}

/// The result of a transfer of no bytes through listed buffers: `EINVAL` if the kind of file has no
/// such transfer, as one of bytes fails.
#[cold]
fn nothing_passed(file: &FileHandle<'_>, direction: Direction) -> Result<usize, Errno> {
    if file.opened().has(direction) { Ok(0) } else { Err(Errno::INVAL) }
}
