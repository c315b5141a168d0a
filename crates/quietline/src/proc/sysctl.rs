//! `/proc/sys`.

use super::fixed::{Entry, What};
use crate::kernel::Inner;
use core::fmt::Write as _;
use quietline_platform::atomic::Ordering;
use quietline_vfs::abi::NR_OPEN;
use quietline_vfs::generated::TextBuffer;

pub(super) const SYS: &[Entry] = &[
    Entry { name: "fs", mode: 0o555, what: What::Directory(FS) },
    Entry { name: "net", mode: 0o555, what: What::Directory(NET) },
];

const FS: &[Entry] = &[
    Entry { name: "dentry-state", mode: 0o444, what: What::Text(dentry_state) },
    Entry { name: "epoll", mode: 0o555, what: What::Directory(EPOLL) },
    Entry {
        name: "file-max",
        mode: 0o644,
        what: What::Number {
            get: |k| k.files.max_files().min(i64::MAX as u64),
            set: |k, max| k.files.set_max_files(max),
            min: 0,
            max: i64::MAX as u64,
        },
    },
    Entry { name: "file-nr", mode: 0o444, what: What::Text(file_nr) },
    Entry { name: "inode-nr", mode: 0o444, what: What::Text(inode_nr) },
    Entry { name: "inode-state", mode: 0o444, what: What::Text(inode_state) },
    Entry { name: "inotify", mode: 0o555, what: What::Directory(INOTIFY) },
    Entry {
        name: "mount-max",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.mount_max().into(),
            set: |k, max| k.vfs.set_mount_max(max as u32),
            min: 1,
            max: i32::MAX as u64,
        },
    },
    Entry { name: "nr_open", mode: 0o444, what: What::Text(nr_open) },
    Entry {
        name: "pipe-max-size",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.pipe_limits().max_size().into(),
            set: |k, max| {
                // Never above what there can be.
                let _ = k.vfs.pipe_limits().set_max_size(max as u32);
            },
            min: 0,
            max: 1 << 31,
        },
    },
    Entry {
        name: "pipe-user-pages-hard",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.pipe_limits().user_pages_hard().load(Ordering::Relaxed),
            set: |k, max| k.vfs.pipe_limits().user_pages_hard().store(max, Ordering::Relaxed),
            min: 0,
            max: u64::MAX,
        },
    },
    Entry {
        name: "pipe-user-pages-soft",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.pipe_limits().user_pages_soft().load(Ordering::Relaxed),
            set: |k, max| k.vfs.pipe_limits().user_pages_soft().store(max, Ordering::Relaxed),
            min: 0,
            max: u64::MAX,
        },
    },
    // Links to others' files are for who may write them; symbolic links, fifos and files in sticky directories are everybody's.
    Entry { name: "protected_fifos", mode: 0o444, what: What::Text(|_, out| out.push(b"0\n")) },
    Entry { name: "protected_hardlinks", mode: 0o444, what: What::Text(|_, out| out.push(b"1\n")) },
    Entry { name: "protected_regular", mode: 0o444, what: What::Text(|_, out| out.push(b"0\n")) },
    Entry { name: "protected_symlinks", mode: 0o444, what: What::Text(|_, out| out.push(b"0\n")) },
];

// Relaxed, all, so below: tunables.
const EPOLL: &[Entry] = &[Entry {
    name: "max_user_watches",
    mode: 0o644,
    what: What::Number {
        get: |k| k.epolls.max_user_watches().load(Ordering::Relaxed),
        set: |k, max| k.epolls.max_user_watches().store(max, Ordering::Relaxed),
        min: 0,
        max: i64::MAX as u64,
    },
}];

const INOTIFY: &[Entry] = &[
    Entry {
        name: "max_queued_events",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.inotify_limits().max_queued_events().load(Ordering::Relaxed).into(),
            set: |k, max| {
                k.vfs.inotify_limits().max_queued_events().store(max as u32, Ordering::Relaxed)
            },
            min: 0,
            max: i32::MAX as u64,
        },
    },
    Entry {
        name: "max_user_instances",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.inotify_limits().max_user_instances().load(Ordering::Relaxed).into(),
            set: |k, max| {
                k.vfs.inotify_limits().max_user_instances().store(max as u32, Ordering::Relaxed)
            },
            min: 0,
            max: i32::MAX as u64,
        },
    },
    Entry {
        name: "max_user_watches",
        mode: 0o644,
        what: What::Number {
            get: |k| k.vfs.inotify_limits().max_user_watches().load(Ordering::Relaxed).into(),
            set: |k, max| {
                k.vfs.inotify_limits().max_user_watches().store(max as u32, Ordering::Relaxed)
            },
            min: 0,
            max: i32::MAX as u64,
        },
    },
];

const NET: &[Entry] = &[
    Entry { name: "core", mode: 0o555, what: What::Directory(CORE) },
    Entry { name: "ipv4", mode: 0o555, what: What::Directory(IPV4) },
];

const CORE: &[Entry] = &[
    Entry {
        name: "optmem_max",
        mode: 0o644,
        what: What::Number {
            get: |k| k.net.memory().optmem_max().load(Ordering::Relaxed).into(),
            set: |k, max| k.net.memory().optmem_max().store(max as u32, Ordering::Relaxed),
            min: 0,
            max: i32::MAX as u64,
        },
    },
    Entry { name: "rmem_default", mode: 0o444, what: What::Text(buffer_default) },
    Entry {
        name: "rmem_max",
        mode: 0o644,
        what: What::Number {
            get: |k| k.net.memory().rmem_max().load(Ordering::Relaxed).into(),
            set: |k, max| k.net.memory().rmem_max().store(max as u32, Ordering::Relaxed),
            // The least buffer (`SOCK_MIN_RCVBUF`).
            min: 2304,
            max: i32::MAX as u64,
        },
    },
    Entry { name: "wmem_default", mode: 0o444, what: What::Text(buffer_default) },
    Entry {
        name: "wmem_max",
        mode: 0o644,
        what: What::Number {
            get: |k| k.net.memory().wmem_max().load(Ordering::Relaxed).into(),
            set: |k, max| k.net.memory().wmem_max().store(max as u32, Ordering::Relaxed),
            // The least buffer (`SOCK_MIN_SNDBUF`).
            min: 4608,
            max: i32::MAX as u64,
        },
    },
];

const IPV4: &[Entry] = &[Entry {
    name: "tcp_mem",
    mode: 0o644,
    what: What::Triple {
        get: |k| k.net.memory().tcp_mem(),
        set: |k, pages| k.net.memory().set_tcp_mem(pages),
    },
}];

/// The buffer of a new socket that is none of TCP.
fn buffer_default(_: &Inner, out: &mut TextBuffer) {
    let _ = writeln!(out, "{}", quietline_net::abi::SOCKET_BUFFER);
}

/// Dentries, those of them that are unused, two limits of age that are no more, those that stand for nothing, and nothing.
fn dentry_state(k: &Inner, out: &mut TextBuffer) {
    let tree = k.vfs.dentry_state();
    let _ = writeln!(
        out,
        "{}\t{}\t45\t0\t{}\t0",
        k.dentries().nr_dentry,
        tree.nr_unused,
        tree.nr_negative
    );
}

fn inode_nr(k: &Inner, out: &mut TextBuffer) {
    // An inode that nobody uses is over.
    let _ = writeln!(out, "{}\t0", k.inodes().nr_inodes);
}

fn inode_state(k: &Inner, out: &mut TextBuffer) {
    let _ = writeln!(out, "{}\t0\t0\t0\t0\t0\t0", k.inodes().nr_inodes);
}

fn file_nr(k: &Inner, out: &mut TextBuffer) {
    let _ =
        writeln!(out, "{}\t0\t{}", k.files.nr_files(), k.files.max_files().min(i64::MAX as u64));
}

fn nr_open(_: &Inner, out: &mut TextBuffer) {
    let _ = writeln!(out, "{NR_OPEN}");
}
