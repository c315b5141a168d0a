//! `/sys/kernel/slab`.

use super::fixed::{Entry, What};
use super::number;
use crate::Errno;
use crate::raw::KernelRef;
use core::fmt::Write as _;
use quietline_platform::pages::PAGE_SIZE;
use quietline_slab::{Control, LazyCache, Stats, Tunables};
use quietline_vfs::Vfs;
use quietline_vfs::abi::{S_IFDIR, S_IFREG};
use quietline_vfs::generated::{Directory, Made, Names, Text, TextBuffer, TextFile};

pub(super) const SYSFS: &[Entry] =
    &[Entry { name: "kernel", mode: 0o755, what: What::Directory(KERNEL) }];
const KERNEL: &[Entry] = &[Entry { name: "slab", mode: 0o755, what: What::Caches }];

/// What `stat` says of the size of a file in `sysfs`.
const FILE_SIZE: u64 = 4096;

/// Does what a text says.
type Store = fn(&Control, &[u8]) -> Result<(), Errno>;

/// What is known of a cache, and may be changed.
#[derive(Debug)]
struct Attribute {
    name: &'static str,
    show: Option<fn(&Stats) -> usize>,
    store: Option<Store>,
}

const fn shown(name: &'static str, show: fn(&Stats) -> usize) -> Attribute {
    Attribute { name, show: Some(show), store: None }
}

const ATTRIBUTES: &[Attribute] = &[
    shown("aliases", |s| s.aliases),
    Attribute {
        name: "cpu_partial",
        show: Some(|s| s.tunables.cpu_partial),
        store: Some(set_cpu_partial),
    },
    Attribute {
        name: "min_partial",
        show: Some(|s| s.tunables.min_partial),
        store: Some(set_min_partial),
    },
    shown("object_size", |s| s.size),
    shown("objects", |s| s.active + s.waiting + s.cached),
    shown("objs_per_slab", |s| s.objects_per_slab),
    shown("order", |s| (s.slab_size / PAGE_SIZE).max(1).ilog2() as usize),
    shown("partial", |s| s.partial_slabs),
    shown("sheaf_capacity", |s| s.tunables.sheaf_capacity),
    Attribute { name: "shrink", show: None, store: Some(shrink) },
    shown("slab_size", |s| s.object_size),
    shown("slabs", |s| s.slabs),
    shown("total_objects", |s| s.places),
    shown("usersize", |s| s.size),
    Attribute { name: "validate", show: None, store: Some(validate) },
];

fn set_min_partial(cache: &Control, text: &[u8]) -> Result<(), Errno> {
    let min_partial = usize::try_from(number::sysfs(text)?).map_err(|_| Errno::RANGE)?;
    let tunables = cache.stats().tunables;
    cache.set_tunables(Tunables { min_partial, ..tunables }).map_err(|_| Errno::INVAL)
}

/// 0, which elsewhere asks for the default, is refused: a miss takes something.
fn set_cpu_partial(cache: &Control, text: &[u8]) -> Result<(), Errno> {
    let cpu_partial = u32::try_from(number::sysfs(text)?).map_err(|_| Errno::RANGE)? as usize;
    if cpu_partial == 0 {
        return Err(Errno::INVAL);
    }
    let tunables = cache.stats().tunables;
    cache.set_tunables(Tunables { cpu_partial, ..tunables }).map_err(|_| Errno::INVAL)
}

fn shrink(cache: &Control, text: &[u8]) -> Result<(), Errno> {
    if text.first() != Some(&b'1') {
        return Err(Errno::INVAL);
    }
    cache.shrink();
    Ok(())
}

/// What is wrong goes where violations go.
fn validate(cache: &Control, text: &[u8]) -> Result<(), Errno> {
    if text.first() != Some(&b'1') || cache.debug().is_empty() {
        return Err(Errno::INVAL);
    }
    cache.validate();
    Ok(())
}

/// `/sys/kernel/slab`: this kernel's caches.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) kernel: KernelRef,
}

impl Names for Caches {
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        let caches = self.kernel.get(vfs).slabinfo();
        let Some(index) = caches.iter().position(|stats| stats.name.as_bytes() == name) else {
            return Ok(None);
        };
        let cache = Cache { kernel: self.kernel, index };
        Made::new(S_IFDIR | 0o755, Directory(cache)).map(Some)
    }

    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        let caches = self.kernel.get(vfs).slabinfo();
        for (place, stats) in (0..).zip(&caches).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !each(place, stats.name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}

/// A cache of a kernel, by its index among them.
#[derive(Debug, Clone, Copy)]
struct Cache {
    kernel: KernelRef,
    index: usize,
}

impl Cache {
    fn get<'v>(&self, vfs: &'v Vfs) -> &'v LazyCache {
        self.kernel.get(vfs).caches()[self.index]
    }
}

impl Names for Cache {
    fn find(&self, _vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        let Some(attribute) = ATTRIBUTES.iter().find(|attribute| attribute.name.as_bytes() == name)
        else {
            return Ok(None);
        };
        let mode = if attribute.store.is_some() { 0o600 } else { 0o400 };
        let made = Made::new(S_IFREG | mode, TextFile::new(Value { cache: *self, attribute }))?;
        Ok(Some(Made { size: FILE_SIZE, ..made }))
    }

    fn list(
        &self,
        _vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        for (place, attribute) in
            (0..).zip(ATTRIBUTES).skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            if !each(place, attribute.name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Value {
    cache: Cache,
    attribute: &'static Attribute,
}

impl Text for Value {
    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno> {
        if let Some(show) = self.attribute.show {
            let _ = writeln!(out, "{}", show(&self.cache.get(vfs).stats()));
        }
        Ok(())
    }

    /// Makes the cache, if it was not made: it is to keep what it is told.
    fn store(&self, vfs: &Vfs, _at: u64, text: &[u8]) -> Result<usize, Errno> {
        let store = self.attribute.store.ok_or(Errno::IO)?;
        let cache = self.cache.get(vfs).get_or_make().map_err(|_| Errno::NOMEM)?;
        store(cache, text)?;
        Ok(text.len())
    }

    fn is_strict(&self) -> bool {
        true
    }
}
