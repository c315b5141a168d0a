//! Pages given to pipes and taken from them, without a copy: what `vmsplice` with `SPLICE_F_GIFT` is where a page has one owner.

use super::splice::ALL;
use crate::abi::{SPLICE_F_NONBLOCK, UIO_MAXIOV};
use crate::{Errno, FileHandle, FileMode, Process};
use quietline_vfs::file::Direction;
use quietline_vfs::pipe::{self, GiftPage, Stop, TakenPage};
use quietline_vfs::{Opened, PipeCore};

impl Process {
    /// An empty page, to be filled and given to a pipe of this kernel.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn gift_page(&self) -> Result<GiftPage<'_>, Errno> {
        self.inner().vfs.gift_page()
    }

    /// Puts pages into a pipe by reference, each as a buffer of its own, in their order and as long as there is room: how many
    /// bytes. Those that went are taken from their places, the others stay. Waits for room for the first one only.
    /// Empty pages go back to the kernel; places without a page are passed over. Flags: `SPLICE_F_NONBLOCK`, and hints.
    ///
    /// Each page takes one of the pipe's places, however few bytes are in it. In a pipe of packets (`O_DIRECT`) it is no packet.
    ///
    /// # Errors
    /// As `vmsplice(2)` to a pipe; `EXDEV` for a page of another kernel. No page with bytes is gone then.
    pub fn vmsplice_gift(
        &self,
        fd: i32,
        pages: &mut [Option<GiftPage<'_>>],
        flags: u32,
    ) -> Result<usize, Errno> {
        let waits = asks_to_wait(flags)?;
        let section = self.inner().vfs.read();
        let file = open_for(self.table.look(fd, &section)?, FileMode::WRITE)?;
        if pages.len() > UIO_MAXIOV {
            return Err(Errno::INVAL);
        }
        if pages.iter().flatten().all(|page| page.is_empty()) {
            // As a `vmsplice` of no bytes, whatever the file is.
            pages.fill_with(|| None);
            return Ok(0);
        }
        // Inside the section and without a reference, unless there is something to wait for.
        match pipe::give_pages(pipe_of(file)?, false, pages) {
            Err(Stop::Failed(Errno::AGAIN)) if waits => {}
            said => {
                let n = said.or_else(|stop| self.stopped(stop))?;
                self.tell_spliced(file, Direction::Write, n);
                return Ok(n);
            }
        }
        drop(section);
        let file = self.file(fd)?;
        let file = open_for(file.opened(), FileMode::WRITE)?;
        let n = pipe::give_pages(pipe_of(file)?, true, pages).or_else(|stop| self.stopped(stop))?;
        self.tell_spliced(file, Direction::Write, n);
        Ok(n)
    }

    /// Takes pages out of a pipe by reference, as many as there are vacant places in `to`: how many bytes; 0 if nobody will write
    /// any. A page has what a read would have found next in one piece: a packet, or what is left of a page. Flags: `SPLICE_F_NONBLOCK`, and
    /// hints.
    ///
    /// # Errors
    /// As `vmsplice(2)` from a pipe; `ENOMEM` for a few bytes that had no page yet.
    pub fn take_pages<'k>(
        &'k self,
        fd: i32,
        to: &mut [Option<TakenPage<'k>>],
        flags: u32,
    ) -> Result<usize, Errno> {
        let waits = asks_to_wait(flags)?;
        let section = self.inner().vfs.read();
        let file = open_for(self.table.look(fd, &section)?, FileMode::READ)?;
        if to.len() > UIO_MAXIOV {
            return Err(Errno::INVAL);
        }
        let vfs = &self.inner().vfs;
        match vfs.take_pages(pipe_of(file)?, false, to) {
            Err(Errno::AGAIN) if waits => {}
            said => {
                let n = said?;
                self.tell_spliced(file, Direction::Read, n);
                return Ok(n);
            }
        }
        drop(section);
        let file = self.file(fd)?;
        let file = open_for(file.opened(), FileMode::READ)?;
        let n = vfs.take_pages(pipe_of(file)?, true, to)?;
        self.tell_spliced(file, Direction::Read, n);
        Ok(n)
    }

    /// The file of a `vmsplice`, and whether it waits for the pipe.
    pub(super) fn vmsplice_file(
        &self,
        fd: i32,
        flags: u32,
        mode: FileMode,
    ) -> Result<(FileHandle<'_>, bool), Errno> {
        let waits = asks_to_wait(flags)?;
        let file = self.file(fd)?;
        open_for(file.opened(), mode)?;
        Ok((file, waits))
    }
}

/// What the flags of a `vmsplice` say.
fn asks_to_wait(flags: u32) -> Result<bool, Errno> {
    if flags & !ALL != 0 { Err(Errno::INVAL) } else { Ok(flags & SPLICE_F_NONBLOCK == 0) }
}

fn open_for(file: Opened<'_>, mode: FileMode) -> Result<Opened<'_>, Errno> {
    if file.mode().contains(mode) { Ok(file) } else { Err(Errno::BADF) }
}

fn pipe_of(file: Opened<'_>) -> Result<&PipeCore, Errno> {
    file.pipe().ok_or(Errno::BADF)
}
