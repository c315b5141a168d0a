//! Who hands out objects: quietline, SLUB of 2015, the C library, and, behind cargo features, what else there is.

#[cfg(feature = "peer-dpdk")]
pub(crate) mod dpdk;
pub(crate) mod glibc;
pub(crate) mod history;
#[cfg(feature = "peer-jemalloc")]
pub(crate) mod jemalloc;
pub(crate) mod malloc;
#[cfg(feature = "peer-mimalloc")]
pub(crate) mod mimalloc;
pub(crate) mod null;
pub(crate) mod quietline;
#[cfg(feature = "peer-sharded-slab")]
pub(crate) mod sharded_slab;
#[cfg(feature = "peer-snmalloc")]
pub(crate) mod snmalloc;
#[cfg(feature = "peer-tcmalloc")]
pub(crate) mod tcmalloc;
