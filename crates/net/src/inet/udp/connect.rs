//! Binding and connecting of datagram sockets, and their end.

use super::super::address::{Local, any, check_bind};
use super::super::names;
use super::super::ports::{Claim, Holding};
use super::{BOUND, CLOSED, End, READABLE, SHUT_RD, SHUT_WR, WRITABLE, from_where};
use crate::abi::{SHUT_RD as HOW_RD, SHUT_WR as HOW_WR, SO_REUSEADDR, SO_REUSEPORT};
use crate::address::SockAddr;
use crate::proto::On;
use crate::raw::Object;
use core::net::{IpAddr, SocketAddr};
use quietline_platform::atomic::Ordering;
use quietline_sync::WaitQueue;
use quietline_vfs::Events;
use rustix::io::Errno;

/// What changes when a socket is bound and connected.
#[derive(Debug)]
pub(super) struct Control {
    holding: Option<Holding>,
    /// The address that it was bound to, if it was told one.
    pub(super) bound: Option<IpAddr>,
    /// Whether it was ever told one (`SOCK_BINDADDR_LOCK`): from then on it keeps the address that it has when it is disconnected.
    keeps_address: bool,
    /// Whether the port was asked for by its number.
    keeps_port: bool,
    /// Its address: as it was bound, or as the connection has it.
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// From where and to where it sends when it is not told to whom.
    pub(super) path: Option<(SocketAddr, SocketAddr)>,
    uid: u32,
}

impl Control {
    pub(super) const fn new() -> Self {
        Self {
            holding: None,
            bound: None,
            keeps_address: false,
            keeps_port: false,
            local: None,
            remote: None,
            path: None,
            uid: 0,
        }
    }
}

impl End {
    fn claim(&self, ip: IpAddr, uid: u32) -> Claim {
        Claim {
            local: Local::of(ip, self.settings.is_v6only()),
            v6: self.v6,
            reuse: self.options.is_on(SO_REUSEADDR),
            reuseport: self.options.is_on(SO_REUSEPORT),
            uid,
        }
    }

    fn take_port(
        this: &Object<Self>,
        on: &On<'_>,
        control: &mut Control,
        address: SocketAddr,
    ) -> Result<(), Errno> {
        control.uid = on.who.ids().map_or(0, |ids| ids.effective[0]);
        let id = core::ptr::from_ref::<Self>(this).addr();
        let claim = this.claim(address.ip(), control.uid);
        let holding = this.ports().bind(address.port(), claim, id, Some(this))?;
        control.holding = Some(holding);
        control.local = Some(SocketAddr::new(address.ip(), holding.port()));
        // Relaxed: a hint; what is done with the port is done under the control's lock.
        this.flags.fetch_or(BOUND, Ordering::Relaxed);
        Ok(())
    }

    /// `bind`.
    ///
    /// # Errors
    /// `EINVAL`, `EAFNOSUPPORT`, `EADDRNOTAVAIL`, `EACCES`, `EADDRINUSE`, `ENOMEM`.
    pub(in super::super) fn bind(
        this: &Object<Self>,
        on: &On<'_>,
        address: &SockAddr,
    ) -> Result<(), Errno> {
        let address = names::to_bind(address, this.v6)?;
        check_bind(address, this.v6, this.settings.is_v6only(), this.settings.is_free_bind())?;
        if address.port() != 0 && !on.who.may_bind(address.port()) {
            return Err(Errno::ACCESS);
        }
        let mut control = this.control.lock();
        if control.holding.is_some() || control.remote.is_some() {
            return Err(Errno::INVAL);
        }
        if let Err(errno) = Self::take_port(this, on, &mut control, address) {
            if errno == Errno::ADDRINUSE {
                // The address that it had has gone.
                (control.bound, control.local) = (None, None);
            }
            return Err(errno);
        }
        control.keeps_port = address.port() != 0;
        control.bound = (!address.ip().is_unspecified()).then_some(address.ip());
        control.keeps_address |= control.bound.is_some();
        if !address.ip().is_unspecified() && address.ip().to_canonical().is_ipv6() {
            this.settings.set_v6only();
        }
        Ok(())
    }

    /// Gives it a port if it has none.
    ///
    /// # Errors
    /// `EAGAIN` if there is none; `ENOMEM`.
    pub(in super::super) fn autobind(this: &Object<Self>, on: &On<'_>) -> Result<(), Errno> {
        let mut control = this.control.lock();
        if control.holding.is_some() {
            return Ok(());
        }
        // A send does not hold its file, which may have been closed meanwhile.
        if this.flags() & CLOSED != 0 {
            return Err(Errno::BADF);
        }
        let ip = control.local.map_or(any(this.v6).ip(), |local| local.ip());
        match Self::take_port(this, on, &mut control, SocketAddr::new(ip, 0)) {
            Err(Errno::ADDRINUSE) => Err(Errno::AGAIN),
            done => done,
        }
    }

    /// The socket's address, or its peer's.
    ///
    /// # Errors
    /// `ENOTCONN` without a peer.
    pub(in super::super) fn name(&self, peer: bool) -> Result<SockAddr, Errno> {
        let control = self.control.lock();
        // A connection to port 0 has no name, though it is one.
        let remote = control.remote.filter(|remote| remote.port() != 0);
        match if peer { remote } else { control.local } {
            Some(address) => Ok(names::shown(address, self.v6)),
            None if peer => Err(Errno::NOTCONN),
            None => Ok(names::unbound(self.v6, 0)),
        }
    }

    /// `connect`: from now on there is one sender, and one to send to.
    ///
    /// # Errors
    /// `EINVAL`, `EAFNOSUPPORT`, `ENETUNREACH`, `EACCES`, `EAGAIN`, `ENOMEM`.
    pub(in super::super) fn connect(
        this: &Object<Self>,
        on: &On<'_>,
        address: &SockAddr,
    ) -> Result<(), Errno> {
        if address.len() < 2 {
            return Err(Errno::INVAL);
        }
        if address.family() == crate::abi::AF_UNSPEC {
            Self::disconnect(this);
            return Ok(());
        }
        Self::autobind(this, on)?;
        let Some(remote) = names::to_connect(address, this.v6, true)? else { return Ok(()) };
        let mut control = this.control.lock();
        let (there, source) = this.way(control.local.map(|local| local.ip()), remote)?;
        let (Some(holding), Some(local)) = (control.holding, control.local) else {
            return Err(Errno::AGAIN);
        };
        let ip = from_where(control.bound, local.ip(), there, source)?;
        let remote = SocketAddr::new(there, remote.port());
        let claim = this.claim(ip, control.uid);
        this.ports().change(holding, claim, Some(remote), Some(this), false)?;
        if local.ip().is_unspecified() {
            // It stays: another connection may go elsewhere, but from there.
            control.local = Some(SocketAddr::new(ip, local.port()));
        }
        control.remote = Some(remote);
        control.path = Some((SocketAddr::new(ip.to_canonical(), local.port()), remote));
        Ok(())
    }

    /// `connect` with `AF_UNSPEC`. A port that nobody asked for is given back.
    fn disconnect(this: &Object<Self>) {
        let mut control = this.control.lock();
        let was = control.remote.take();
        control.path = None;
        let (Some(holding), Some(local)) = (control.holding, control.local) else { return };
        let ip = if control.keeps_address { local.ip() } else { any(this.v6).ip() };
        control.bound = control.keeps_address.then_some(ip).filter(|ip| !ip.is_unspecified());
        if control.keeps_port {
            let claim = this.claim(ip, control.uid);
            control.local = Some(SocketAddr::new(ip, holding.port()));
            if was.is_some() {
                // Without a check there is no error.
                let _ = this.ports().change(holding, claim, None, Some(this), false);
            }
        } else {
            control.holding = None;
            // Relaxed: as in `take_port`.
            this.flags.fetch_and(!BOUND, Ordering::Relaxed);
            control.local = Some(SocketAddr::new(ip, 0));
            this.ports().release(holding, None);
        }
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// `ENOTCONN`; what is not connected remembers it all the same.
    pub(in super::super) fn shutdown(&self, how: i32) -> Result<(), Errno> {
        let shut =
            if how == HOW_WR { 0 } else { SHUT_RD } | if how == HOW_RD { 0 } else { SHUT_WR };
        let is_connected = self.control.with(|control| control.remote.is_some());
        // ORDERING: SeqCst, as `wake_exchanged` wants it.
        self.flags.fetch_or(shut, Ordering::SeqCst);
        self.readers
            .wake_exchanged((READABLE | Events::RDHUP | Events::HUP).bits(), WaitQueue::ALL);
        self.writers.wake_exchanged((WRITABLE | Events::HUP).bits(), WaitQueue::ALL);
        if is_connected { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// The last file on it has ended.
    pub(in super::super) fn close(&self) {
        let holding = self.control.with(|control| {
            // ORDERING: SeqCst as in `shutdown`; looked at under this lock by who would take a port, and under the queue's, which
            // comes after it here, by who would add to it.
            self.flags.fetch_or(CLOSED, Ordering::SeqCst);
            control.holding.take()
        });
        if let Some(holding) = holding {
            self.ports().release(holding, None);
        }
        let lost = self.received.0.lock().clear();
        drop(lost);
    }

    /// The socket goes. A call without a reference may have made this state, and given it a port, when the last file had ended.
    #[inline]
    pub(in super::super) fn close_late(&self) {
        if self.flags() & CLOSED == 0 {
            self.close();
        }
    }

    /// What it wants of its port has changed.
    pub(super) fn claim_again(&self) {
        let control = self.control.lock();
        if let (Some(holding), Some(local)) = (control.holding, control.local) {
            self.ports().reclaim(holding, self.claim(local.ip(), control.uid));
        }
    }

    /// Whether it has an address.
    pub(in super::super) fn is_bound(&self) -> bool {
        self.flags() & BOUND != 0
    }
}
