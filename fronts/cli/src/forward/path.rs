//! What is between the devices: a cable, or a router.

use std::time::Duration;

use quietline_net::device::Batch;
use quietline_net::packet::Packets;

use super::ForwardArgs;
use super::ports::Ports;
use super::routed::Router;

/// The way that packets take.
pub(super) enum Path<'n> {
    /// From one to the other as they are.
    Cable,
    /// By their addresses.
    Router(Box<Router<'n>>),
}

impl<'n> Path<'n> {
    pub(super) fn new(
        packets: &'n Packets,
        arguments: &ForwardArgs,
        ports: &Ports<'n>,
    ) -> anyhow::Result<Self> {
        let router = Router::new(packets, arguments, ports)?;
        Ok(router.map_or(Self::Cable, |router| Self::Router(Box::new(router))))
    }

    /// Passes on what came from a device.
    pub(super) fn forward(
        &mut self,
        from: usize,
        batch: &mut Batch<'n>,
        now: Duration,
        ports: &mut Ports<'n>,
    ) {
        match self {
            Self::Cable => ports.send(1 - from, batch),
            Self::Router(router) => router.forward(from, batch, now, ports),
        }
    }

    /// Packets that were dropped on the way.
    pub(super) fn dropped(&self) -> u64 {
        match self {
            Self::Cable => 0,
            Self::Router(router) => router.dropped(),
        }
    }

    /// Packets that wait for a neighbour.
    pub(super) fn waiting(&self) -> u64 {
        match self {
            Self::Cable => 0,
            Self::Router(router) => router.waiting(),
        }
    }

    /// What has been counted on the way, but what is zero.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Cable => Vec::new(),
            Self::Router(router) => router.counts(),
        }
    }
}
