//! `splice`, `tee`, `vmsplice`, `sendfile`.

use crate::abi::{
    MAX_RW_COUNT, O_APPEND, O_NONBLOCK, SEEK_CUR, SEEK_SET, SPLICE_F_GIFT, SPLICE_F_MORE,
    SPLICE_F_MOVE, SPLICE_F_NONBLOCK, UIO_MAXIOV,
};
use crate::{Errno, FileHandle, FileMode, Process, Socket};
use quietline_vfs::file::{self, Direction, To};
use quietline_vfs::pipe::{self, Stop, Transfer};
use quietline_vfs::{Opened, PipeCore, Sink, Source};

const PAGE: usize = quietline_vfs::PAGE as usize;
pub(super) const ALL: u32 = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;

/// Fails if a transfer begins before the file or ends beyond the last possible offset.
fn in_area(start: i64, len: usize) -> Result<(), Errno> {
    let end = i64::try_from(len).ok().and_then(|len| start.checked_add(len));
    if start >= 0 && end.is_some() { Ok(()) } else { Err(Errno::INVAL) }
}

impl Process {
    /// Moves bytes between a pipe and a pipe, a file or a socket: how many; 0 at the end. Between pipes none is copied but the few that
    /// lie beside a pipe's lock.
    /// Offsets that are not given are those where the files stand, which move on. Flags: `SPLICE_F_NONBLOCK`, and hints.
    ///
    /// # Errors
    /// As `splice(2)`.
    pub fn splice(
        &self,
        from: i32,
        from_offset: Option<&mut i64>,
        to: i32,
        to_offset: Option<&mut i64>,
        len: usize,
        flags: u32,
    ) -> Result<usize, Errno> {
        if len == 0 {
            return Ok(0);
        }
        if flags & !ALL != 0 {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.fget(from)?, self.fget(to)?);
        let (from_pipe, to_pipe) = (source.opened().pipe(), target.opened().pipe());
        if from_pipe.is_some() && from_offset.is_some() || to_pipe.is_some() && to_offset.is_some()
        {
            return Err(Errno::SPIPE);
        }
        if !source.mode().contains(FileMode::READ) || !target.mode().contains(FileMode::WRITE) {
            return Err(Errno::BADF);
        }
        if from_pipe.is_none() {
            in_area(self.offset_of(&source, from_offset.as_deref()), len)?;
        }
        if to_pipe.is_none() {
            in_area(self.offset_of(&target, to_offset.as_deref()), len)?;
        }
        let len = len.min(MAX_RW_COUNT);
        let how = |pipes: i32| Transfer {
            len,
            waits: flags & SPLICE_F_NONBLOCK == 0 && pipes & O_NONBLOCK == 0,
        };
        let n = match (from_pipe, to_pipe) {
            (Some(one), Some(other)) if core::ptr::eq(one, other) => Err(Errno::INVAL),
            (Some(one), Some(other)) => {
                let how = how(source.flags() | target.flags());
                pipe::move_between(one, other, how).or_else(|stop| self.stopped(stop))
            }
            (Some(one), None) => self.splice_out(one, how(source.flags()), &target, to_offset),
            (None, Some(other)) => self.splice_in(&source, from_offset, other, how(target.flags())),
            (None, None) => Err(Errno::INVAL),
        }?;
        self.tell_spliced(target.opened(), Direction::Write, n);
        self.tell_spliced(source.opened(), Direction::Read, n);
        Ok(n)
    }

    /// Tells who watches a named pipe of bytes that went past `read` and `write`.
    pub(super) fn tell_spliced(&self, file: Opened<'_>, what: Direction, n: usize) {
        if n > 0 {
            file::tell_passed(file, &self.inner().vfs, what);
        }
    }

    /// Puts what is first in a pipe into another one, too: how many bytes; 0 at the end. None is copied but
    /// the few that lie beside a pipe's lock.
    ///
    /// # Errors
    /// As `tee(2)`.
    pub fn tee(&self, from: i32, to: i32, len: usize, flags: u32) -> Result<usize, Errno> {
        if flags & !ALL != 0 {
            return Err(Errno::INVAL);
        }
        if len == 0 {
            return Ok(0);
        }
        let (source, target) = (self.fget(from)?, self.fget(to)?);
        if !source.mode().contains(FileMode::READ) || !target.mode().contains(FileMode::WRITE) {
            return Err(Errno::BADF);
        }
        match (source.opened().pipe(), target.opened().pipe()) {
            (Some(one), Some(other)) if !core::ptr::eq(one, other) => {
                let waits = flags & SPLICE_F_NONBLOCK == 0
                    && (source.flags() | target.flags()) & O_NONBLOCK == 0;
                let n =
                    pipe::share_between(one, other, Transfer { len: len.min(MAX_RW_COUNT), waits })
                        .or_else(|stop| self.stopped(stop))?;
                self.tell_spliced(source.opened(), Direction::Read, n);
                self.tell_spliced(target.opened(), Direction::Write, n);
                Ok(n)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Puts memory into a pipe, each piece of a page as a buffer of its own: how many bytes. They are copied, also with
    /// `SPLICE_F_GIFT`; [`vmsplice_gift`](Self::vmsplice_gift) takes pages that are not.
    ///
    /// # Errors
    /// As `vmsplice(2)` to a pipe.
    pub fn vmsplice(&self, fd: i32, buffers: &[&[u8]], flags: u32) -> Result<usize, Errno> {
        let (file, waits) = self.vmsplice_file(fd, flags, FileMode::WRITE)?;
        if buffers.len() > UIO_MAXIOV {
            return Err(Errno::INVAL);
        }
        let mut from = Source::new(buffers);
        let len = from.left();
        if len == 0 {
            return Ok(0);
        }
        let pipe = file.opened().pipe().ok_or(Errno::BADF)?;
        // A cursor of its own, as the pipe asks how much is to go to a page before it takes it.
        let ahead = core::cell::Cell::new(from);
        let room = |_| {
            let mut at = ahead.get();
            while at.buffer().is_empty() && at.next_buffer() {}
            ahead.set(at);
            at.buffer().len().min(PAGE - at.buffer().as_ptr().addr() % PAGE)
        };
        let read = |to: &mut [u8], _| {
            from = ahead.get();
            let n = from.take(to);
            ahead.set(from);
            Ok(n)
        };
        let n = pipe::splice_to(pipe, Transfer { len, waits }, room, read)
            .or_else(|stop| self.stopped(stop))?;
        self.tell_spliced(file.opened(), Direction::Write, n);
        Ok(n)
    }

    /// Takes bytes out of a pipe into memory: how many; 0 at the end.
    ///
    /// # Errors
    /// As `vmsplice(2)` from a pipe.
    pub fn vmsplice_from(
        &self,
        fd: i32,
        buffers: &mut [&mut [u8]],
        flags: u32,
    ) -> Result<usize, Errno> {
        let (file, waits) = self.vmsplice_file(fd, flags, FileMode::READ)?;
        if buffers.len() > UIO_MAXIOV {
            return Err(Errno::INVAL);
        }
        let mut to = Sink::new(buffers);
        let len = to.left();
        if len == 0 {
            return Ok(0);
        }
        let pipe = file.opened().pipe().ok_or(Errno::BADF)?;
        let n = pipe::splice_from(pipe, Transfer { len, waits }, |bytes| Ok(to.put(bytes)))?;
        self.tell_spliced(file.opened(), Direction::Read, n);
        Ok(n)
    }

    /// Copies bytes from a file to whatever can be written: how many. An offset that is not given is that where the file
    /// stands, which moves on.
    ///
    /// # Errors
    /// As `sendfile(2)`.
    pub fn sendfile(
        &self,
        to: i32,
        from: i32,
        offset: Option<&mut i64>,
        count: usize,
    ) -> Result<usize, Errno> {
        let source = self.file(from)?;
        if !source.mode().contains(FileMode::READ) {
            return Err(Errno::BADF);
        }
        let place = source.place().is_some() && !source.opened().waits();
        if offset.is_some() && !place {
            return Err(Errno::SPIPE);
        }
        let start = self.offset_of(&source, offset.as_deref());
        in_area(start, count)?;
        let target = self.file(to)?;
        if !target.mode().contains(FileMode::WRITE) {
            return Err(Errno::BADF);
        }
        let count = count.min(MAX_RW_COUNT);
        if let Some(pipe) = target.opened().pipe() {
            let how = Transfer { len: count, waits: target.flags() & O_NONBLOCK == 0 };
            let n = self.splice_in(&source, offset, pipe, how)?;
            self.tell_spliced(target.opened(), Direction::Write, n);
            return Ok(n);
        }
        let passes = source.payload::<Socket>().is_some() || source.opened().pipe().is_some();
        if passes || target.flags() & O_APPEND != 0 {
            return Err(Errno::INVAL);
        }
        if count == 0 {
            return Ok(0);
        }
        if !place || source.opened().inode().is_some_and(quietline_vfs::Inode::is_dir) {
            return Err(Errno::INVAL);
        }
        let (mut page, mut done) = ([0; PAGE], 0);
        let result = loop {
            if done == count {
                break Ok(());
            }
            let most = PAGE.min(count - done);
            let n = match self.read_place(&source, start + done as i64, &mut page[..most]) {
                Ok(0) => break Ok(()),
                Ok(n) => n,
                Err(errno) => break Err(errno),
            };
            match self.write_piece(&target, None, &page[..n]) {
                Ok(written) => {
                    done += written;
                    if written < n {
                        break Ok(());
                    }
                }
                Err(errno) => break Err(errno),
            }
        };
        if done == 0 {
            result?;
        }
        match offset {
            Some(offset) => *offset = start + done as i64,
            // Not from where it stands now: a file that is written to itself has moved.
            None => drop(file::seek(&source, &self.inner().vfs, start + done as i64, SEEK_SET)),
        }
        Ok(done)
    }

    /// Returns the offset at which a transfer begins: the one given, or the file's own.
    fn offset_of(&self, file: &FileHandle<'_>, given: Option<&i64>) -> i64 {
        let own = || file::seek(file, &self.inner().vfs, 0, SEEK_CUR).unwrap_or(0);
        given.copied().unwrap_or_else(own)
    }

    /// From a pipe to what is none.
    fn splice_out(
        &self,
        pipe: &PipeCore,
        how: Transfer,
        target: &FileHandle<'_>,
        offset: Option<&mut i64>,
    ) -> Result<usize, Errno> {
        let file = target.opened().inode().is_some_and(quietline_vfs::Inode::is_file);
        if offset.is_some() && !file || target.flags() & O_APPEND != 0 {
            return Err(Errno::INVAL);
        }
        // The pipe is locked meanwhile, so no method of an embedder can run.
        if !file && target.payload::<Socket>().is_none() || target.opened().is_foreign() {
            return Err(Errno::INVAL);
        }
        let start = match &offset {
            Some(offset) if **offset < 0 => return Err(Errno::INVAL),
            Some(offset) => Some(**offset as u64),
            None => None,
        };
        let mut at = start;
        let n = pipe::splice_from(pipe, how, |bytes| {
            let n = self.write_piece(target, at, bytes)?;
            at = at.map(|at| at + n as u64);
            Ok(n)
        })?;
        if let Some(offset) = offset {
            *offset += n as i64;
        }
        Ok(n)
    }

    /// To a pipe from what is none.
    fn splice_in(
        &self,
        source: &FileHandle<'_>,
        offset: Option<&mut i64>,
        pipe: &PipeCore,
        how: Transfer,
    ) -> Result<usize, Errno> {
        let vfs = &self.inner().vfs;
        if source.payload::<Socket>().is_some() {
            if offset.is_some() {
                return Err(Errno::INVAL);
            }
            let read = |to: &mut [u8], done| match done {
                0 => {
                    self.read_object(source, &mut Sink::new(&mut [to])).unwrap_or(Err(Errno::INVAL))
                }
                _ => source.opened().try_read(&mut Sink::new(&mut [to])),
            };
            return pipe::splice_to(pipe, how, |_| PAGE, read).or_else(|stop| self.stopped(stop));
        }
        let readable = source.place().is_some() && !source.opened().waits();
        if !readable || source.opened().inode().is_none_or(quietline_vfs::Inode::is_dir) {
            // What there is to wait for comes before what cannot be read.
            let nothing = |_: &mut [u8], _| Err(Errno::INVAL);
            return pipe::splice_to(pipe, how, |_| PAGE, nothing)
                .or_else(|stop| self.stopped(stop));
        }
        let start = match &offset {
            Some(offset) if **offset < 0 => return Err(Errno::INVAL),
            Some(offset) => **offset,
            None => file::seek(source, vfs, 0, SEEK_CUR)?,
        };
        let room = |done: usize| PAGE - (start as usize).wrapping_add(done) % PAGE;
        // The pipe is locked meanwhile, so no method of an embedder can run.
        if source.opened().is_foreign() {
            return Err(Errno::INVAL);
        }
        let read =
            |to: &mut [u8], done: usize| file::read_long(source, vfs, start + done as i64, to);
        let n = pipe::splice_to(pipe, how, room, read).or_else(|stop| self.stopped(stop))?;
        match offset {
            Some(offset) => *offset += n as i64,
            None => drop(file::seek(source, vfs, n as i64, SEEK_CUR)),
        }
        Ok(n)
    }

    /// Writes to a file, at an offset or where it stands, or to what lets its callers wait.
    fn write_piece(
        &self,
        target: &FileHandle<'_>,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        if let Some(written) = self.write_object(target, Source::new(&[bytes])) {
            return written;
        }
        match at {
            None if target.opened().is_foreign() => self.write_node(target, None, &[bytes]),
            Some(at) => self
                .call(|c| file::write(target, c.vfs, c.cred, To::Offset(at), &[bytes]))
                .map(|(_, n)| n),
            None => self.call(|c| file::write_on(target, c.vfs, c.cred, &[bytes])),
        }
    }

    /// What a transfer that was stopped says.
    #[cold]
    pub(super) fn stopped(&self, stop: Stop) -> Result<usize, Errno> {
        match stop {
            Stop::Failed(errno) => Err(errno),
            Stop::Broken => {
                self.broken_pipe();
                Err(Errno::PIPE)
            }
        }
    }
}
