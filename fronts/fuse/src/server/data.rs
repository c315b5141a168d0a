//! What is in files.

use super::Server;
use fuser::INodeNo;
use quietline::Errno;
use std::cell::RefCell;

thread_local! {
    /// What a thread reads goes through here.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn signed(offset: u64) -> Result<i64, Errno> {
    i64::try_from(offset).map_err(|_| Errno::INVAL)
}

impl Server {
    /// Reads, and hands on what was read.
    pub(super) fn read_at(
        &self,
        node: INodeNo,
        offset: u64,
        size: usize,
        then: impl FnOnce(Result<&[u8], Errno>),
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                let more = size - buffer.len();
                if buffer.try_reserve(more).is_err() {
                    return then(Err(Errno::NOMEM));
                }
                buffer.resize(size, 0);
            }
            let buffer = &mut buffer[..size];
            let read = self.fd(node).and_then(|fd| self.base.pread(fd.fd, buffer, signed(offset)?));
            then(read.map(|n| &buffer[..n]));
        });
    }

    /// Writes; `kill`: by somebody who may not keep set-id bits.
    pub(super) fn write_at(
        &self,
        node: INodeNo,
        offset: u64,
        data: &[u8],
        kill: bool,
    ) -> Result<usize, Errno> {
        let file = self.fd(node)?;
        if kill {
            self.lose_set_ids(&file)?;
        }
        self.base.pwrite(file.fd, data, signed(offset)?)
    }

    /// Reserves room, or makes a hole.
    pub(super) fn allocate(
        &self,
        node: INodeNo,
        offset: u64,
        length: u64,
        mode: i32,
        root: bool,
    ) -> Result<(), Errno> {
        let file = self.fd(node)?;
        self.base.fallocate(file.fd, mode, signed(offset)?, signed(length)?)?;
        if root { Ok(()) } else { self.lose_set_ids(&file) }
    }

    /// Copies from file to file.
    pub(super) fn copy(
        &self,
        nodes: [INodeNo; 2],
        offsets: [u64; 2],
        len: u64,
        root: bool,
    ) -> Result<usize, Errno> {
        let [from, to] = nodes;
        let (from, to) = (self.fd(from)?, self.fd(to)?);
        let [mut from_offset, mut to_offset] = [signed(offsets[0])?, signed(offsets[1])?];
        // What does not fit into the answer is asked for again.
        let len = len.min(1 << 30) as usize;
        let n = self.base.copy_file_range(
            from.fd,
            Some(&mut from_offset),
            to.fd,
            Some(&mut to_offset),
            len,
            0,
        )?;
        if !root {
            self.lose_set_ids(&to)?;
        }
        Ok(n)
    }
}
