//! What is asked of the host about interfaces: calls whose arguments are addresses.

use super::super::OpenError;
use core::mem::size_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The longest name of an interface, and a zero.
const IFNAMSIZ: usize = 16;

/// An interface's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name([u8; IFNAMSIZ]);

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, OpenError> {
        let wrong = |byte: &u8| *byte == 0 || *byte == b'/' || byte.is_ascii_whitespace();
        if name.is_empty() || name.len() >= IFNAMSIZ || name.as_bytes().iter().any(wrong) {
            return Err(OpenError::NAME);
        }
        let mut bytes = [0; IFNAMSIZ];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self(bytes))
    }

    pub(crate) fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(IFNAMSIZ);
        // Made of a `str`.
        core::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

/// `struct ifreq`: a name, and 24 bytes that mean something else for each request.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; IFNAMSIZ],
    value: [u64; 3],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    fn of(name: Name) -> Self {
        Self { name: name.0, value: [0; 3] }
    }

    /// The value's bytes.
    fn bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, word) in bytes.chunks_mut(8).zip(self.value) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);
const SIOCGIFMTU: Opcode = libc::SIOCGIFMTU as Opcode;
const SIOCGIFHWADDR: Opcode = libc::SIOCGIFHWADDR as Opcode;
const SIOCETHTOOL: Opcode = libc::SIOCETHTOOL as Opcode;
/// Whether received segments are merged by the host (GRO) and, as one of many flags, by the device
/// (LRO).
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// Opens a TAP device; makes it, if there is none of that name. Its descriptor does not block.
pub(crate) fn open_tap(name: Name) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(OpenError::of("open /dev/net/tun"))?;
    let mut request = Request::of(name);
    // A short at the value's first bytes.
    let mut value = [0; 8];
    value[..2].copy_from_slice(&((libc::IFF_TAP | libc::IFF_NO_PI) as u16).to_ne_bytes());
    request.value[0] = u64::from_ne_bytes(value);
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`.
    let result = unsafe { ioctl::ioctl(&fd, Updater::<TUNSETIFF, Request>::new(&mut request)) };
    result.map_err(OpenError::of("attach to a TAP device"))?;
    Ok(fd)
}

/// An interface's MTU, and its link address, which is an Ethernet's.
pub(crate) fn interface(name: Name) -> Result<(usize, [u8; 6]), OpenError> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(OpenError::of("ask about an interface"))?;
    let mtu = mtu(socket.as_fd(), name).map_err(OpenError::of("find the interface"))?;
    let mut link = Request::of(name);
    // SAFETY: SIOCGIFHWADDR reads and writes a `struct ifreq`.
    let result =
        unsafe { ioctl::ioctl(&socket, Updater::<SIOCGIFHWADDR, Request>::new(&mut link)) };
    result.map_err(OpenError::of("find the interface's address"))?;
    // A family, then the address.
    let [low, high, address @ ..] = link.bytes();
    if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&u16::from_ne_bytes([low, high])) {
        return Err(OpenError::of("use the interface as an Ethernet")(Errno::INVAL));
    }
    Ok((mtu, core::array::from_fn(|i| address[i])))
}

/// An interface's MTU, by any socket.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: Name) -> Result<usize, Errno> {
    let mut mtu = Request::of(name);
    // SAFETY: SIOCGIFMTU reads and writes a `struct ifreq`.
    unsafe { ioctl::ioctl(socket, Updater::<SIOCGIFMTU, Request>::new(&mut mtu)) }?;
    let [a, b, c, d, ..] = mtu.bytes();
    Ok(i32::from_ne_bytes([a, b, c, d]).max(0) as usize)
}

/// Whether an interface merges received segments into packets that may be longer than its MTU.
/// Returns `false` if the host does not say.
pub(crate) fn merges_segments(socket: BorrowedFd<'_>, name: Name) -> bool {
    let ask = |command: u32| {
        // `struct ethtool_value`: a command and its answer.
        let mut value = [command, 0];
        let mut request = Request::of(name);
        request.value[0] = value.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: SIOCETHTOOL reads a `struct ifreq` and reads and writes the command's structure
        // that it points to, which outlives the call.
        let result =
            unsafe { ioctl::ioctl(socket, Updater::<SIOCETHTOOL, Request>::new(&mut request)) };
        if result.is_ok() { value[1] } else { 0 }
    };
    ask(ETHTOOL_GGRO) != 0 || ask(ETHTOOL_GFLAGS) & ETH_FLAG_LRO != 0
}

/// A socket for all packets of an interface, but those that the host sends there. No packet comes before it is
/// [bound](bind).
pub(crate) fn packet_socket() -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(OpenError::of("make a packet socket"))?;
    set(fd.as_fd(), libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))
        .map_err(OpenError::of("choose the layout of rings"))?;
    set(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1)
        .map_err(OpenError::of("leave out what the host sends"))?;
    Ok(fd)
}

/// Lets the packets of an interface come, and has it take those for other stations, too, as long as the socket is open.
pub(crate) fn bind(fd: BorrowedFd<'_>, name: Name) -> Result<(), OpenError> {
    let index = rustix::net::netdevice::name_to_index(fd, name.as_str())
        .map_err(OpenError::of("find the interface"))?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is of the size that is given, and read during the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    done(result).map_err(OpenError::of("bind to the interface"))?;
    let all = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &all)
        .map_err(OpenError::of("receive all that is on the link"))
}

/// How many packets the host had no room for since it was asked last.
pub(crate) fn lost(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the value is of the size that is given, and written during the call.
    done(unsafe {
        let counts = (&raw mut counts).cast();
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts,
            &raw mut len,
        )
    })?;
    Ok(counts.tp_drops as usize)
}

/// Sets an option of a packet socket.
pub(super) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: the value is of the size that is given, and read during the call.
    done(unsafe {
        let len = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            core::ptr::from_ref(value).cast(),
            len,
        )
    })
}

fn done(result: libc::c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
