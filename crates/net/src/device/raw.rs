//! The unsafe part of the devices: slots that two threads use in turn, and what the host asks for by address.

#![allow(unsafe_code)]

pub(super) mod host;
pub(super) mod packet_ring;
pub(super) mod spsc;
