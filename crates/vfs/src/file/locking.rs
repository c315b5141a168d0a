//! Locks on open files.

use super::FileMode;
use crate::inode::{Inode, PseudoState};
use crate::locks::{F_GETLK, FileLocks, Flock, LOCK_MAND, LOCK_NB, LOCK_UN, LockUser};
use crate::ramfs::pages::MAX_SIZE;
use crate::raw::handle::FileHandle;
use crate::vfs::Vfs;
use core::ops::Deref;
use quietline_sync::Shared;
use rustix::io::Errno;

/// The locks of a file.
enum LocksOf<'f> {
    Tree(&'f FileLocks),
    Pseudo(Shared<PseudoState>),
}

impl Deref for LocksOf<'_> {
    type Target = FileLocks;

    fn deref(&self) -> &FileLocks {
        match self {
            Self::Tree(locks) => locks,
            Self::Pseudo(state) => &state.locks,
        }
    }
}

/// The locks of a file, made if there are none.
fn locks_of<'f>(file: &'f FileHandle<'_>, vfs: &Vfs) -> Result<LocksOf<'f>, Errno> {
    let opened = file.opened();
    if opened.mode().contains(FileMode::PATH) {
        return Err(Errno::BADF);
    }
    if let Some(inode) = opened.inode() {
        let locks = inode.i_flctx.get_or_make(|| Ok(FileLocks::new()));
        return locks.map(LocksOf::Tree).map_err(|_| Errno::NOLCK);
    }
    let state = crate::namei::pseudo_state(file, vfs).map_err(|_| Errno::NOLCK)?;
    file.lock();
    Ok(LocksOf::Pseudo(state))
}

/// Locks the whole file for the open file, or unlocks it (`flock`). A wait is interruptible.
///
/// # Errors
/// `EINVAL`, `EWOULDBLOCK`, `EINTR`, `ENOLCK`, `EBADF`.
pub fn flock(file: &FileHandle<'_>, vfs: &Vfs, operation: i32) -> Result<(), Errno> {
    let nothing = operation & LOCK_MAND != 0 || operation & !LOCK_NB == LOCK_UN;
    if !nothing && !file.mode().intersects(FileMode::READ.union(FileMode::WRITE)) {
        return Err(Errno::BADF);
    }
    locks_of(file, vfs)?.flock(&vfs.lock_waits, file.opened().id(), operation)
}

/// Locks bytes for a process or for the open file, unlocks them, or asks who has (`fcntl` with `F_GETLK` and so on).
///
/// # Errors
/// As `fcntl(2)`.
pub fn lock_bytes(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    cmd: i32,
    flock: &mut Flock,
    process: i32,
) -> Result<(), Errno> {
    let locks = locks_of(file, vfs)?;
    let opened = file.opened();
    let size = opened.inode().map_or(0, Inode::size).min(MAX_SIZE) as i64;
    // What lets its callers wait stands nowhere: the word is its pollers'.
    let stands = flock.l_whence == 1 && !opened.waits();
    let position = if stands { file.position().offset() as i64 } else { 0 };
    let user = LockUser { process, file: opened.id(), mode: opened.mode(), position, size };
    debug_assert!(cmd >= F_GETLK);
    locks.fcntl(&vfs.lock_waits, cmd, flock, &user)
}

/// A process closes a descriptor of the file: its record locks go, whichever descriptor it took them by. (Not with `O_PATH`.)
pub fn process_closes(file: &FileHandle<'_>, vfs: &Vfs, process: i32) {
    if file.mode().contains(FileMode::PATH) {
        return;
    }
    if let Some(inode) = file.opened().inode() {
        if let Some(locks) = inode.i_flctx.get()
            && !locks.is_unlocked()
        {
            locks.process_closes(&vfs.lock_waits, process);
        }
    } else if let Some(state) = file.pseudo_state()
        && !state.locks.is_unlocked()
    {
        state.locks.process_closes(&vfs.lock_waits, process);
    }
}
