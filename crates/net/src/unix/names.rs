//! Names of local sockets: paths, and names in no tree (`unix_table`).
//!
//! A path's socket is found by its inode. The inode is not kept: its number is used once only, so that a name whose socket was
//! closed leads nowhere. (Linux keeps the path, so that its filesystem cannot be unmounted meanwhile.)

use super::sock::Sock;
use crate::abi::AF_UNIX;
use crate::address::SockAddr;
use crate::caller::Node;
use crate::raw::Object;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, fault, heap};
use quietline_sync::{LazyBox, Shared, SpinLock};
use quietline_vfs::NameKeys;
use rustix::io::Errno;

/// The family, which an address begins with.
pub(super) const FAMILY: usize = 2;
/// The longest address: the family, and 108 bytes.
const LONGEST: usize = 110;

/// What a socket is bound to.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) address: SockAddr,
    pub(super) key: Key,
}

/// By what a socket is found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key {
    /// The type, and the hash of a name in no tree.
    Abstract(i32, u64),
    /// An inode.
    Node(Node),
}

/// An address of this family, as a caller means it.
pub(super) enum Target<'a> {
    /// No name: any.
    Any,
    /// A path, up to its first zero.
    Path(&'a [u8]),
    /// A name in no tree.
    Abstract,
}

/// What an address says (`unix_validate_addr`, `unix_mkname_bsd`).
///
/// # Errors
/// `EINVAL` for a wrong length or another family.
pub(super) fn target(address: &SockAddr) -> Result<Target<'_>, Errno> {
    if address.len() > LONGEST || address.len() < FAMILY || address.family() != AF_UNIX {
        return Err(Errno::INVAL);
    }
    Ok(match &address.bytes()[FAMILY..] {
        [] => Target::Any,
        [0, ..] => Target::Abstract,
        path => Target::Path(path.split(|byte| *byte == 0).next().unwrap_or(path)),
    })
}

/// The address that a socket has by a path: with one zero at its end.
pub(super) fn path_address(path: &[u8]) -> SockAddr {
    let mut bytes = [0; LONGEST + 1];
    bytes[..FAMILY].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    let n = path.len().min(LONGEST - FAMILY);
    bytes[FAMILY..FAMILY + n].copy_from_slice(&path[..n]);
    SockAddr::new(&bytes[..FAMILY + n + 1]).expect("not as long as that")
}

/// The address of a socket without a name.
pub(super) fn no_name() -> SockAddr {
    SockAddr::new(&(AF_UNIX as u16).to_ne_bytes()).expect("two bytes")
}

/// The name that the kernel chooses: five digits in no tree.
fn chosen(number: u32) -> SockAddr {
    let mut bytes = [0; FAMILY + 6];
    bytes[..FAMILY].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    for (at, digit) in bytes[FAMILY + 1..].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
    }
    SockAddr::new(&bytes).expect("eight bytes")
}

const BUCKETS: usize = if cfg!(loom) { 1 } else { 64 };

/// Names whose hashes are alike. On a line of its own: to be found costs a lock.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket(SpinLock<Vec<Object<Sock>>>);

/// Sockets that have a name of their own.
#[derive(Debug)]
pub(super) struct Names {
    /// Made for the first name.
    buckets: LazyBox<Box<[Bucket]>>,
    /// Others for each kernel, so that nobody can choose names that are alike.
    keys: NameKeys,
    /// Where the kernel looks for the next name to choose.
    next: AtomicU32,
}

impl Names {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { buckets: LazyBox::new(), keys: NameKeys::draw()?, next: AtomicU32::new(0) })
    }

    /// The key of a name in no tree. Sockets of several types may have it, each its own.
    pub(super) fn abstract_key(&self, address: &SockAddr, ty: i32) -> Key {
        Key::Abstract(ty, self.keys.hash(address.bytes()))
    }

    fn buckets(&self) -> Result<&[Bucket], AllocError> {
        let make = || heap::try_boxed_slice(BUCKETS, |_| Bucket(SpinLock::new(Vec::new())));
        self.buckets.get_or_make(make).map(|buckets| &**buckets)
    }

    fn bucket<'b>(&self, buckets: &'b [Bucket], key: Key) -> &'b SpinLock<Vec<Object<Sock>>> {
        let hash = match key {
            Key::Abstract(ty, hash) => hash ^ ty as u64,
            Key::Node(node) => {
                self.keys.hash(&[node.dev.to_ne_bytes(), node.ino.to_ne_bytes()].concat())
            }
        };
        &buckets[hash as usize % BUCKETS].0
    }

    /// The socket with a name.
    pub(super) fn find(&self, key: Key, address: &SockAddr) -> Option<Object<Sock>> {
        let list = self.bucket(self.buckets.get()?, key).lock();
        list.iter().find(|sock| sock.name.get().is_some_and(|name| name.is(key, address))).cloned()
    }

    /// Gives a socket a name.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL` for a socket that has one; `ENOMEM`.
    pub(super) fn bind(&self, sock: &Object<Sock>, name: Name) -> Result<(), Errno> {
        let (key, address) = (name.key, name.address);
        let name = Shared::new(name).map_err(|_| Errno::NOMEM)?;
        let buckets = self.buckets().map_err(|_| Errno::NOMEM)?;
        let mut list = self.bucket(buckets, key).lock();
        if sock.name.get().is_some() {
            return Err(Errno::INVAL);
        }
        if list.iter().any(|other| other.name.get().is_some_and(|name| name.is(key, &address))) {
            return Err(Errno::ADDRINUSE);
        }
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        // Two threads that bind one socket may hold two buckets: this decides.
        let set = sock.name.set(name).is_ok();
        if !set {
            return Err(Errno::INVAL);
        }
        sock.set_bound();
        list.push(sock.clone());
        Ok(())
    }

    /// Gives a socket a name that nobody has; nothing if it has one.
    ///
    /// # Errors
    /// `ENOSPC` when there is none left, `ENOMEM`.
    pub(super) fn choose(&self, sock: &Object<Sock>, ty: i32) -> Result<(), Errno> {
        const ALL: u32 = 1 << 20;
        for _ in 0..ALL {
            // Relaxed: only different numbers are wanted.
            let address = chosen(self.next.fetch_add(1, Ordering::Relaxed) % ALL);
            match self.bind(sock, Name { address, key: self.abstract_key(&address, ty) }) {
                Err(Errno::ADDRINUSE) => {}
                Err(Errno::INVAL) => return Ok(()),
                done => return done,
            }
        }
        Err(Errno::NOSPC)
    }

    /// A socket's name leads nowhere from now on.
    pub(super) fn forget(&self, sock: &Sock) {
        // The end of a connection has its listener's name, and is not found by it.
        let Some(name) = sock.name.get().filter(|_| sock.is_bound()) else { return };
        let buckets = self.buckets.get().expect("a socket has a name");
        let mut list = self.bucket(buckets, name.key).lock();
        let gone = list.iter().position(|other| other.is(sock)).map(|at| list.swap_remove(at));
        drop(list);
        drop(gone);
    }
}

impl Name {
    fn is(&self, key: Key, address: &SockAddr) -> bool {
        match (self.key, key) {
            (Key::Abstract(ty, hash), Key::Abstract(wanted, hash2)) => {
                ty == wanted && hash == hash2 && self.address == *address
            }
            (Key::Node(node), Key::Node(wanted)) => node == wanted,
            _ => false,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn address(bytes: &[u8]) -> SockAddr {
        SockAddr::new(&[&1u16.to_ne_bytes(), bytes].concat()).unwrap()
    }

    #[test]
    fn addresses_mean_what_linux_takes_them_for() {
        assert!(matches!(target(&address(b"")), Ok(Target::Any)));
        assert!(matches!(target(&address(b"\0x")), Ok(Target::Abstract)));
        assert!(matches!(target(&address(b"a/b\0c")), Ok(Target::Path(b"a/b"))));
        assert!(
            matches!(target(&address(&[b'x'; 108])), Ok(Target::Path(path)) if path.len() == 108)
        );
        assert!(target(&address(&[b'x'; 109])).is_err());
        assert!(target(&SockAddr::new(&[2, 0, 1]).unwrap()).is_err());
        assert_eq!(path_address(b"ab").bytes(), address(b"ab\0").bytes());
        assert_eq!(path_address(&[b'x'; 108]).len(), 111);
        assert_eq!(chosen(0xabcde), address(b"\0abcde"));
    }

    #[test]
    fn names_that_count_up_are_spread() {
        let names = Names::new().unwrap();
        let mut counts = [0; BUCKETS];
        (0..6400).for_each(|n| counts[names.keys.hash(chosen(n).bytes()) as usize % BUCKETS] += 1);
        assert!(counts.iter().all(|count| (40..180).contains(count)), "{counts:?}");
        let inode = |ino: u64| names.keys.hash(&[1u64.to_ne_bytes(), ino.to_ne_bytes()].concat());
        let mut counts = [0; BUCKETS];
        (0..6400).for_each(|ino| counts[inode(ino) as usize % BUCKETS] += 1);
        assert!(counts.iter().all(|count| (40..180).contains(count)), "{counts:?}");
        assert_ne!(names.keys.hash(b"a"), names.keys.hash(b"a\0"), "the length counts");
    }

    #[test]
    fn a_name_is_one_sockets_of_a_type() {
        let all = crate::raw::Objects::new().unwrap();
        let [one, two, three]: [Object<Sock>; 3] = [(); 3].map(|()| {
            let [sock] = Sock::new(&all, 1).unwrap();
            sock
        });
        let names = Names::new().unwrap();
        let at = address(b"\0name");
        let name = |ty| Name { address: at, key: names.abstract_key(&at, ty) };
        names.bind(&one, name(1)).unwrap();
        assert_eq!(names.bind(&one, name(1)).unwrap_err(), Errno::INVAL);
        assert_eq!(names.bind(&two, name(1)).unwrap_err(), Errno::ADDRINUSE);
        names.bind(&two, name(2)).unwrap();
        assert!(names.find(name(1).key, &at).unwrap().is(&one));
        assert!(names.find(name(2).key, &at).unwrap().is(&two));
        names.forget(&one);
        assert!(names.find(name(1).key, &at).is_none());
        names.choose(&three, 1).unwrap();
        assert_eq!(three.name.get().unwrap().address, address(b"\x0000000"));
        names.choose(&three, 1).unwrap();
    }
}
