//! Reading and writing.

#[cfg(doc)]
use crate::FileOps;
use crate::abi::UIO_MAXIOV;
use crate::{Errno, FileHandle, FileMode, Process};
use quietline_vfs::file::{self, To};
use quietline_vfs::namei::Caller;
use quietline_vfs::operations::{self, RESTART};
use quietline_vfs::{Content, Inode, Sink, Source};

/// Bytes that are read without a reference to the file: few enough for one read section.
const SHORT: usize = 64 << 10;

/// Whether there may be so many buffers; who may not read or write the file at all is told that first.
#[inline]
fn not_too_many(buffers: usize, file: &FileHandle<'_>, mode: FileMode) -> Result<(), Errno> {
    match buffers {
        0..=UIO_MAXIOV => Ok(()),
        _ if file.mode().contains(mode) => Err(Errno::INVAL),
        _ => Err(Errno::BADF),
    }
}

impl Process {
    /// Reads from where the file stands, which moves on; from a pipe, a socket or an event counter, what comes first.
    ///
    /// Writes the file's line. From what is not of the tree: no shared line but the object's, and no reference is taken,
    /// unless it has to wait.
    ///
    /// # Errors
    /// As `read(2)`.
    #[inline]
    pub fn read(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
        if buffer.len() <= SHORT
            && let Some(read) = self.read_at_once(fd, &mut Sink::new(&mut [buffer]))
        {
            return read;
        }
        let file = self.file(fd)?;
        if file.opened().is_memory() {
            return file::read_on(&file, &self.inner().vfs, buffer);
        }
        match self.read_object(&file, &mut Sink::new(&mut [buffer])) {
            Some(read) => read,
            None => self.read_node(&file, None, buffer),
        }
    }

    /// Reads from a file of the tree at an offset.
    #[inline]
    pub(crate) fn read_place(
        &self,
        file: &FileHandle<'_>,
        offset: i64,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        if file.opened().is_memory() {
            return file::read_long(file, &self.inner().vfs, offset, to);
        }
        self.read_node(file, Some(offset), to)
    }

    /// Reads from a file whose file system makes its content, at an offset or where it stands.
    #[cold]
    #[inline(never)]
    fn read_node(
        &self,
        file: &FileHandle<'_>,
        offset: Option<i64>,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        let vfs = &self.inner().vfs;
        let read = match offset {
            Some(offset) => file::read_long(file, vfs, offset, to),
            None => file::read_on(file, vfs, to),
        };
        self.or_foreign(read, |c| operations::read(c, file, offset, &mut [&mut *to]))
    }

    /// Returns the result of a call on an open file, or of `method` if that is an embedder's.
    fn or_foreign<R>(
        &self,
        done: Result<R, Errno>,
        method: impl FnOnce(&Caller<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match done {
            Err(RESTART) => self.returning(self.call_sleeping(method)),
            done => done,
        }
    }

    /// Writes to where the file stands, which moves on; to the end, if it was opened so. To a pipe or a socket: waits until
    /// all is written, unless it is not to.
    ///
    /// Writes the file's line. To what is not of the tree: as [`read`](Self::read).
    ///
    /// # Errors
    /// As `write(2)`.
    #[inline]
    pub fn write(&self, fd: i32, buffer: &[u8]) -> Result<usize, Errno> {
        if buffer.len() <= SHORT
            && let Some(written) = self.write_at_once(fd, Source::new(&[buffer]))
        {
            return written;
        }
        let file = self.file(fd)?;
        if file.opened().is_memory() {
            return self.call(|c| file::write_on(&file, c.vfs, c.cred, &[buffer]));
        }
        match self.write_object(&file, Source::new(&[buffer])) {
            Some(written) => written,
            None => self.write_node(&file, None, &[buffer]),
        }
    }

    /// Writes to a file of a file system that takes the bytes at once, at an offset or where the
    /// file stands.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_node(
        &self,
        file: &FileHandle<'_>,
        offset: Option<i64>,
        buffers: &[&[u8]],
    ) -> Result<usize, Errno> {
        let written = self.call(|c| match offset {
            Some(offset) => {
                let to = To::Offset(u64::try_from(offset).map_err(|_| Errno::INVAL)?);
                file::write(file, c.vfs, c.cred, to, buffers).map(|(_, n)| n)
            }
            None => file::write_on(file, c.vfs, c.cred, buffers),
        });
        self.or_foreign(written, |c| operations::write(c, file, offset, buffers))
    }

    /// Reads at an offset. Up to 64 KiB: takes no reference and writes no shared line.
    ///
    /// # Errors
    /// As `pread(2)`.
    #[inline]
    pub fn pread(&self, fd: i32, buffer: &mut [u8], offset: i64) -> Result<usize, Errno> {
        let vfs = &self.inner().vfs;
        if offset < 0 {
            return Err(Errno::INVAL);
        }
        if buffer.len() <= SHORT {
            let section = vfs.read();
            let file = self.table.look(fd, &section)?;
            match file::read_at(file, vfs, &section, offset, buffer) {
                // It may be one that its filesystem makes, which takes its time.
                Err(Errno::INVAL | Errno::BADF) if file.waits() => return Err(Errno::SPIPE),
                Err(Errno::INVAL) => {}
                done => return done,
            }
        }
        self.pread_slow(fd, buffer, offset)
    }

    #[inline(never)]
    fn pread_slow(&self, fd: i32, buffer: &mut [u8], offset: i64) -> Result<usize, Errno> {
        let file = self.file(fd)?;
        if file.opened().waits() {
            return Err(Errno::SPIPE);
        }
        self.read_place(&file, offset, buffer)
    }

    /// Writes at an offset; at the end, if it was opened to be appended to.
    ///
    /// Writes the lines of the file and of its inode.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    #[inline]
    pub fn pwrite(&self, fd: i32, buffer: &[u8], offset: i64) -> Result<usize, Errno> {
        self.pwritev(fd, &[buffer], offset)
    }

    /// [`read`](Self::read) into several buffers.
    ///
    /// # Errors
    /// As `readv(2)`.
    pub fn readv(&self, fd: i32, buffers: &mut [&mut [u8]]) -> Result<usize, Errno> {
        let file = self.file(fd)?;
        if let Some(read) = self.read_many(&file, buffers) {
            return read;
        }
        not_too_many(buffers.len(), &file, FileMode::READ)?;
        let read = file::read_all_on(&file, &self.inner().vfs, buffers);
        self.or_foreign(read, |c| operations::read(c, &file, None, buffers))
    }

    /// [`write`](Self::write) from several buffers, at once.
    ///
    /// # Errors
    /// As `writev(2)`.
    pub fn writev(&self, fd: i32, buffers: &[&[u8]]) -> Result<usize, Errno> {
        let file = self.file(fd)?;
        if file.opened().is_memory() {
            not_too_many(buffers.len(), &file, FileMode::WRITE)?;
            return self.call(|c| file::write_on(&file, c.vfs, c.cred, buffers));
        }
        if let Some(written) = self.write_many(&file, buffers) {
            return written;
        }
        not_too_many(buffers.len(), &file, FileMode::WRITE)?;
        self.write_node(&file, None, buffers)
    }

    /// [`pread`](Self::pread) into several buffers.
    ///
    /// # Errors
    /// As `preadv(2)`.
    pub fn preadv(&self, fd: i32, buffers: &mut [&mut [u8]], offset: i64) -> Result<usize, Errno> {
        if offset < 0 {
            return Err(Errno::INVAL);
        }
        let file = self.file(fd)?;
        if file.opened().waits() {
            return Err(Errno::SPIPE);
        }
        not_too_many(buffers.len(), &file, FileMode::READ)?;
        let read = file::read_all(&file, &self.inner().vfs, offset, buffers);
        self.or_foreign(read, |c| operations::read(c, &file, Some(offset), buffers))
    }

    /// [`pwrite`](Self::pwrite) from several buffers, at once.
    ///
    /// # Errors
    /// As `pwritev(2)`.
    #[inline]
    pub fn pwritev(&self, fd: i32, buffers: &[&[u8]], offset: i64) -> Result<usize, Errno> {
        let at = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let file = self.file(fd)?;
        if !file.opened().is_memory() {
            return self.pwrite_node(&file, buffers, offset);
        }
        not_too_many(buffers.len(), &file, FileMode::WRITE)?;
        self.call(|c| file::write(&file, c.vfs, c.cred, To::Offset(at), buffers)).map(|(_, n)| n)
    }

    /// [`pwritev`](Self::pwritev) to a file that is not a regular file in memory.
    #[cold]
    #[inline(never)]
    fn pwrite_node(
        &self,
        file: &FileHandle<'_>,
        buffers: &[&[u8]],
        offset: i64,
    ) -> Result<usize, Errno> {
        if file.opened().waits() {
            return Err(Errno::SPIPE);
        }
        not_too_many(buffers.len(), file, FileMode::WRITE)?;
        self.write_node(file, Some(offset), buffers)
    }

    /// Moves where the file stands: from the beginning, from there, from the end, to data, to a hole.
    ///
    /// # Errors
    /// As `lseek(2)`.
    pub fn lseek(&self, fd: i32, offset: i64, whence: i32) -> Result<i64, Errno> {
        file::seek(&self.file(fd)?, &self.inner().vfs, offset, whence)
    }

    /// Reserves room in a file, or makes a hole in it.
    ///
    /// # Errors
    /// As `fallocate(2)`, for a file in memory.
    pub fn fallocate(&self, fd: i32, mode: i32, offset: i64, len: i64) -> Result<(), Errno> {
        let file = self.file(fd)?;
        self.returning(self.call(|c| file::fallocate(&file, c.vfs, c.cred, mode, offset, len)))
    }

    /// Copies bytes from file to file. Offsets that are not given are those where the files stand, which move on.
    ///
    /// # Errors
    /// As `copy_file_range(2)`.
    pub fn copy_file_range(
        &self,
        from: i32,
        from_offset: Option<&mut i64>,
        to: i32,
        to_offset: Option<&mut i64>,
        len: usize,
        flags: u32,
    ) -> Result<usize, Errno> {
        let (source, target) = (self.fget(from)?, self.fget(to)?);
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        // What has no position has no data either, and is told so below.
        let here = |file: &FileHandle<'_>| {
            file::seek(file, &self.inner().vfs, 0, crate::abi::SEEK_CUR).unwrap_or(0)
        };
        let at = |file: &FileHandle<'_>, offset: Option<&i64>| {
            offset.copied().unwrap_or_else(|| here(file))
        };
        let (start, offset) =
            (at(&source, from_offset.as_deref()), at(&target, to_offset.as_deref()));
        let n =
            self.call(|c| file::copy_range(&source, start, &target, offset, len, c.vfs, c.cred))?;
        for (file, given) in [(&source, from_offset), (&target, to_offset)] {
            match given {
                Some(offset) => *offset += n as i64,
                None => drop(file::seek(file, &self.inner().vfs, n as i64, crate::abi::SEEK_CUR)),
            }
        }
        Ok(n)
    }

    /// The entries of a directory from where the file stands, which moves on, as `getdents64(2)` writes them: how many bytes; 0 at
    /// the end. [`dirents`](crate::dirents) reads them.
    ///
    /// # Errors
    /// As `getdents64(2)`.
    pub fn getdents64(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
        // Entries of `/proc` that no longer hold are freed.
        let file = self.file(fd)?;
        let listed = file::list(&file, &self.inner().vfs, buffer);
        self.returning(self.or_foreign(listed, |c| operations::list(c, &file, buffer)))
    }

    /// Makes written bytes durable. In memory there is nothing to do; the file system of an
    /// embedder
    /// is asked.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for a file that is not in the tree; those of [`FileOps::fsync`].
    pub fn fsync(&self, fd: i32) -> Result<(), Errno> {
        self.fsync_as(fd, false)
    }

    fn fsync_as(&self, fd: i32, datasync: bool) -> Result<(), Errno> {
        let file = self.fget(fd)?;
        if file.opened().is_foreign() {
            let synced = self.call_sleeping(|c| operations::fsync(c, &file, datasync));
            return self.returning(synced);
        }
        let generated = |inode: &Inode| matches!(inode.content(), Content::Node(_));
        let opened = file.opened();
        let kept = opened.inode().is_some_and(|inode| !generated(inode)) && !opened.waits();
        if kept { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// As [`fsync`](Self::fsync), without attributes that no read needs.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, fd: i32) -> Result<(), Errno> {
        self.fsync_as(fd, true)
    }

    /// As [`fsync`](Self::fsync), for a filesystem.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn syncfs(&self, fd: i32) -> Result<(), Errno> {
        self.fget(fd).map(drop)
    }

    /// As [`fsync`](Self::fsync), for all filesystems.
    pub fn sync(&self) {}
}
