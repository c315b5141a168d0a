//! Control messages: files and who has sent them (`net/core/scm.c`).

use super::UnixEnd;
use super::flight::Flights;
use super::parcel::Parcel;
use super::segment::Sender;
use super::sock::Sock;
use crate::abi::{
    MSG_CMSG_ANYFD, MSG_CMSG_CLOEXEC, MSG_CTRUNC, SCM_CREDENTIALS, SCM_MAX_FD, SCM_RIGHTS,
    SO_PASSCRED, SOL_SOCKET,
};
use crate::caller::{Caller, Ids, Right};
use crate::message::{Control, cmsgs};
use crate::raw;
use quietline_vfs::FdFlags;
use rustix::io::Errno;

/// Whether a message tells who has sent it without being asked to: where one of both wants to know, or nobody has accepted the
/// receiver, for who does that may want it then.
#[inline(always)]
pub(super) fn tells_sender(own: &Sock, other: &Sock) -> bool {
    other.options.is_on(SO_PASSCRED) || own.options.is_on(SO_PASSCRED) || other.is_embryo()
}

/// What a message carries beside its bytes, when it is sent (`scm_cookie`).
pub(super) struct Outward<'f> {
    flights: &'f Flights,
    /// The first segment's.
    parcel: Option<Box<Parcel>>,
    /// As whom the sender wants to be known.
    pub(super) sender: Option<Sender>,
}

impl<'f> Outward<'f> {
    /// Nothing.
    #[inline(always)]
    pub(super) fn none(flights: &'f Flights) -> Self {
        Self { flights, parcel: None, sender: None }
    }

    /// What these control messages say (`scm_send`).
    ///
    /// # Errors
    /// `EINVAL` for what is no control message of this family, or has too many files; `EBADF`; `EPERM` and `ESRCH` for somebody
    /// else's name; `ETOOMANYREFS`; `ENOMEM`.
    pub(super) fn new(
        flights: &'f Flights,
        who: &dyn Caller,
        control: &[u8],
    ) -> Result<Self, Errno> {
        let mut outward = Self::none(flights);
        let mut parcel = None;
        for cmsg in cmsgs(control) {
            let cmsg = cmsg.ok_or(Errno::INVAL)?;
            match (cmsg.level, cmsg.ty) {
                (SOL_SOCKET, SCM_RIGHTS) => collect(&mut parcel, who, cmsg.data)?,
                (SOL_SOCKET, SCM_CREDENTIALS) => outward.sender = Some(claimed(who, cmsg.data)?),
                (SOL_SOCKET, _) => return Err(Errno::INVAL),
                _ => {}
            }
        }
        if let Some(mut parcel) = parcel {
            if flights.files() > who.nofile() && !who.may(Right::Resource) {
                return Err(Errno::TOOMANYREFS);
            }
            flights.enter(&mut parcel)?;
            outward.parcel = Some(parcel);
        }
        Ok(outward)
    }

    /// The files, for the first segment.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Box<Parcel>> {
        self.parcel.take()
    }

    /// They were put where they may close a loop.
    #[cold]
    pub(super) fn suspect(&self) {
        self.flights.suspect();
    }
}

impl Drop for Outward<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(parcel) = self.parcel.take() {
            recall(self.flights, parcel);
        }
    }
}

/// Files that were not sent.
#[cold]
fn recall(flights: &Flights, mut parcel: Box<Parcel>) {
    flights.leave(&mut parcel);
    drop(parcel);
}

/// Adds the files of an `SCM_RIGHTS`.
fn collect(parcel: &mut Option<Box<Parcel>>, who: &dyn Caller, data: &[u8]) -> Result<(), Errno> {
    let (fds, _) = data.as_chunks::<4>();
    if fds.is_empty() {
        return Ok(());
    }
    let parcel = match parcel {
        Some(parcel) => parcel,
        None => parcel.insert(Parcel::new()?),
    };
    if parcel.len() + fds.len() > SCM_MAX_FD {
        return Err(Errno::INVAL);
    }
    parcel.reserve(fds.len())?;
    for fd in fds {
        parcel.push(raw::in_flight(who, i32::from_ne_bytes(*fd))?);
    }
    Ok(())
}

/// Who an `SCM_CREDENTIALS` says has sent it, if the sender may say so.
fn claimed(who: &dyn Caller, data: &[u8]) -> Result<Sender, Errno> {
    let &[pid, uid, gid] = data.as_chunks::<4>().0 else { return Err(Errno::INVAL) };
    if data.len() != 12 {
        return Err(Errno::INVAL);
    }
    let (pid, uid, gid) =
        (i32::from_ne_bytes(pid), u32::from_ne_bytes(uid), u32::from_ne_bytes(gid));
    let [own_user, own_group] = who.has_ids(uid, gid);
    let own_pid = who.ids().is_some_and(|ids| ids.pid == pid) || who.may(Right::AnyPid);
    if !(own_pid && own_user && own_group) {
        return Err(Errno::PERM);
    }
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    if !who.has_process(pid) {
        return Err(Errno::SRCH);
    }
    Ok(Sender { pid, uid, gid })
}

/// What a receiver finds beside the bytes.
#[derive(Default)]
pub(super) struct Inward {
    pub(super) sender: Option<Sender>,
    /// Files that have left their message, or were copied by a look.
    pub(super) parcel: Option<Box<Parcel>>,
}

impl Inward {
    /// Takes the files of a message that is not frozen, or looks at them.
    ///
    /// # Errors
    /// `ENOMEM`, for a look.
    #[inline]
    pub(super) fn take(
        &mut self,
        parcel: &mut Option<Box<Parcel>>,
        peek: bool,
    ) -> Result<(), Errno> {
        match parcel {
            Some(parcel) if peek => self.parcel = Some(parcel.copy()?),
            Some(_) => self.parcel = parcel.take(),
            None => {}
        }
        Ok(())
    }

    /// No lock is held any more: files that were taken are in flight no longer.
    #[inline]
    pub(super) fn arrive(&mut self, flights: &Flights) {
        if let Some(parcel) = &mut self.parcel {
            flights.leave(parcel);
        }
    }

    /// Tells the caller (`scm_recv`): the flags to be added to the message's.
    #[inline]
    pub(super) fn deliver(
        self,
        end: &UnixEnd,
        who: &dyn Caller,
        control: &mut Control<'_>,
        flags: i32,
    ) -> i32 {
        let passcred = end.get().is_some_and(|sock| sock.options.is_on(SO_PASSCRED));
        if passcred || self.parcel.is_some() {
            self.deliver_slow(passcred, who, control, flags)
        } else {
            0
        }
    }

    #[inline(never)]
    fn deliver_slow(
        self,
        passcred: bool,
        who: &dyn Caller,
        control: &mut Control<'_>,
        flags: i32,
    ) -> i32 {
        if !control.is_wanted() {
            if let Some(parcel) = self.parcel {
                control.keep(parcel);
            }
            return MSG_CTRUNC;
        }
        let mut found = 0;
        if passcred {
            // At the end of a stream there is none, and Linux's is all zeroes.
            let sender = self.sender.unwrap_or(Sender { pid: 0, uid: 0, gid: 0 });
            let [uid, gid] =
                [sender.uid, sender.gid].map(|id| if id == u32::MAX { 65534 } else { id });
            let words = [sender.pid.to_ne_bytes(), uid.to_ne_bytes(), gid.to_ne_bytes()].concat();
            if !control.put(SOL_SOCKET, SCM_CREDENTIALS, &words) {
                found |= MSG_CTRUNC;
            }
        }
        if let Some(mut parcel) = self.parcel {
            let (count, room) = (parcel.len(), control.room().unwrap_or(0) / 4);
            let how = FdFlags {
                cloexec: flags & MSG_CMSG_CLOEXEC != 0,
                any: flags & MSG_CMSG_ANYFD != 0,
            };
            let fds = parcel.hand_out(room, |file| who.install(file, how));
            if control.put_ints(SOL_SOCKET, SCM_RIGHTS, fds) < count {
                found |= MSG_CTRUNC;
                control.keep(parcel);
            }
        }
        found
    }
}

/// Who is told to be at the other end (`SO_PEERCRED`): the effective ids, or that nobody is.
pub(super) fn ucred(ids: Option<Ids>) -> [u8; 12] {
    let (pid, [uid, gid]) = ids.map_or((0, [u32::MAX; 2]), |ids| (ids.pid, ids.effective));
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&pid.to_ne_bytes());
    bytes[4..8].copy_from_slice(&uid.to_ne_bytes());
    bytes[8..].copy_from_slice(&gid.to_ne_bytes());
    bytes
}
