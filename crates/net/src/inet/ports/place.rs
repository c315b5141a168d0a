//! A port: who holds it, and who may hold it beside them.

use super::few::Few;
use super::{Claim, Tuple, make_room};
use core::net::SocketAddr;
use rustix::io::Errno;

/// When a port is taken for somebody who would share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Taken {
    /// If it is for one of those who have it; sockets that listen do not share it by `SO_REUSEADDR`.
    ByAny,
    /// If it is for the latest one of those that do not share it by `SO_REUSEADDR`: the others are not asked (`udp_lib_lport_inuse`).
    ByLatest,
}

/// On lines of its own, as are ports: the lists of two of them lie side by side.
#[repr(align(64))]
pub(super) struct Owner<T> {
    pub(super) id: usize,
    pub(super) claim: Claim,
    /// The only sender that it takes anything from.
    pub(super) from: Option<SocketAddr>,
    /// What is found.
    pub(super) open: Option<T>,
    /// Of two that are found alike the one with the higher number is.
    pub(super) order: i64,
    /// The first sender that it was connected to since it has this address, and when: by that it is found before all others.
    pub(super) link: Option<(SocketAddr, i64)>,
}

pub(super) struct Group {
    claim: Claim,
    /// Connected from a port that nobody asked for: it may be shared with another connection to somewhere else.
    auto: bool,
    pub(super) count: u32,
}

#[repr(align(64))]
pub(super) struct Port<T> {
    pub(super) number: u16,
    /// In the order in which they were bound.
    pub(super) owners: Vec<Owner<T>>,
    pub(super) groups: Few<Group>,
    /// The connections that were made from here.
    pub(super) connections: Few<Tuple>,
    /// How often somebody was bound or changed.
    changes: i64,
}

impl Claim {
    /// Whether one could be told from the other neither by its address nor because both have said `SO_REUSEADDR`.
    fn meets(&self, taken: &Self, listens: bool) -> bool {
        self.local.overlaps(taken.local) && !(self.reuse && taken.reuse && !listens)
    }

    /// Whether the two balance what comes.
    fn balances(&self, taken: &Self) -> bool {
        self.reuseport && taken.reuseport && self.uid == taken.uid
    }
}

impl<T> Port<T> {
    pub(super) fn new(number: u16) -> Self {
        Self { number, owners: Vec::new(), groups: Few::new(), connections: Few::new(), changes: 0 }
    }

    /// Whether there is room for a claim beside those that are here.
    pub(super) fn takes(&self, claim: &Claim, id: usize, taken: Taken) -> bool {
        let others = self.owners.iter().filter(|owner| owner.id != id);
        match taken {
            Taken::ByAny => {
                let clash =
                    |taken: &Claim, listens| claim.meets(taken, listens) && !claim.balances(taken);
                !others.into_iter().any(|owner| clash(&owner.claim, owner.open.is_some()))
                    && !self.groups.iter().any(|group| clash(&group.claim, false))
            }
            Taken::ByLatest => {
                let latest = others.rev().find(|owner| claim.meets(&owner.claim, false));
                latest.is_none_or(|owner| claim.balances(&owner.claim))
            }
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.owners.is_empty() && self.groups.is_empty() && self.connections.is_empty()
    }

    /// One more owner.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn own(&mut self, id: usize, claim: Claim, open: Option<T>) -> Result<(), Errno> {
        make_room(&mut self.owners)?;
        self.changes += 1;
        // As on Linux: those of version 6 that balance are found after all that came before them.
        let order = if claim.v6 && claim.reuseport { -self.changes } else { self.changes };
        self.owners.push(Owner { id, claim, from: None, open, order, link: None });
        Ok(())
    }

    /// Changes an owner; what was found there.
    pub(super) fn change(
        &mut self,
        id: usize,
        claim: Claim,
        from: Option<SocketAddr>,
        open: Option<T>,
    ) -> Option<T> {
        let owner = self.owners.iter_mut().find(|owner| owner.id == id)?;
        self.changes += 1;
        if claim.local != owner.claim.local {
            (owner.order, owner.link) = (self.changes, None);
        }
        // Those that were connected anew, elsewhere, keep the first: then they are found as if they were not.
        owner.link = owner.link.or(from.map(|from| (from, self.changes)));
        (owner.claim, owner.from) = (claim, from);
        core::mem::replace(&mut owner.open, open)
    }

    pub(super) fn count(&mut self, claim: Claim, auto: bool) -> Result<(), Errno> {
        match self.groups.find_mut(|group| group.claim == claim && group.auto == auto) {
            Some(group) => {
                group.count += 1;
                Ok(())
            }
            None => self.groups.push(Group { claim, auto, count: 1 }),
        }
    }

    pub(super) fn uncount(&mut self, claim: Claim, auto: bool) {
        let is = |group: &Group| group.claim == claim && group.auto == auto;
        if let Some(group) = self.groups.find_mut(is) {
            group.count -= 1;
            if group.count == 0 {
                self.groups.take(is);
            }
        }
    }

    /// Whether connections that are made from here without having asked for a port may share it.
    pub(super) fn is_auto(&self) -> bool {
        self.owners.is_empty() && self.groups.iter().all(|group| group.auto)
    }

    pub(super) fn enter(&mut self, tuple: Tuple) -> Result<bool, Errno> {
        if self.connections.iter().any(|other| *other == tuple) {
            return Ok(false);
        }
        self.connections.push(tuple)?;
        Ok(true)
    }

    pub(super) fn leave(&mut self, tuple: Tuple) {
        self.connections.take(|other| *other == tuple);
    }
}
