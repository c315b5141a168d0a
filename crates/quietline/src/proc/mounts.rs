//! `/proc/PID/mounts`.

use crate::Errno;
use crate::process::Task;
use crate::raw::KernelRef;
use core::fmt::Write as _;
use quietline_sync::WaitQueue;
use quietline_vfs::abi::PATH_MAX;
use quietline_vfs::generated::{Text, TextBuffer};
use quietline_vfs::{MountFlags, Path, PathBuffer, Reach, SuperFlags, Vfs};

/// What is mounted, as a process sees it.
#[derive(Debug)]
pub(super) struct Mounts {
    pub(super) kernel: KernelRef,
    pub(super) pid: i32,
}

const WORDS: [(MountFlags, &str); 7] = [
    (MountFlags::NOSUID, ",nosuid"),
    (MountFlags::NODEV, ",nodev"),
    (MountFlags::NOEXEC, ",noexec"),
    (MountFlags::NOATIME, ",noatime"),
    (MountFlags::NODIRATIME, ",nodiratime"),
    (MountFlags::RELATIME, ",relatime"),
    (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
];

const SUPER_WORDS: [(SuperFlags, &str); 4] = [
    (SuperFlags::SYNCHRONOUS, ",sync"),
    (SuperFlags::DIRSYNC, ",dirsync"),
    (SuperFlags::MANDLOCK, ",mand"),
    (SuperFlags::LAZYTIME, ",lazytime"),
];

/// Writes bytes, those of `escaped` in octal.
fn escape(out: &mut TextBuffer, bytes: &[u8], escaped: &[u8]) {
    for &byte in bytes {
        if escaped.contains(&byte) {
            let _ = write!(out, "\\{byte:03o}");
        } else {
            out.push(&[byte]);
        }
    }
}

impl Text for Mounts {
    fn polls(&self) -> bool {
        true
    }

    fn changes<'v>(&self, vfs: &'v Vfs) -> Option<(&'v WaitQueue, u64)> {
        let events = vfs.mount_events();
        Some((events.queue(), events.count()))
    }

    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno> {
        let k = self.kernel.get(vfs);
        let of = |task: &Task| (task.fs.root_path(), task.namespace(k));
        let (root, namespace) = k.processes.with(self.pid, of).ok_or(Errno::SRCH)?;
        let mut buffer = [0; PATH_MAX];
        for info in namespace.mounts()? {
            let mut path = PathBuffer::new(&mut buffer);
            let place = Path::root_of(info.mount.clone());
            if k.vfs.d_path(&place, &root, &mut path)? != Reach::Root {
                // Not below the process's root.
                continue;
            }
            let sb = info.mount.super_block();
            escape(out, sb.source(), b" \t\n\\#");
            out.push(b" ");
            escape(out, path.bytes(), b" \t\n\\");
            out.push(b" ");
            escape(out, sb.s_type().as_bytes(), b" \t\n\\#");
            let write = if info.flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" };
            let _ = write!(out, " {write}");
            for (flag, word) in SUPER_WORDS {
                if sb.flags().contains(flag) {
                    let _ = out.write_str(word);
                }
            }
            for (flag, word) in WORDS {
                if info.flags.contains(flag) {
                    let _ = out.write_str(word);
                }
            }
            sb.info().show_options(out);
            if !sb.options().is_empty() {
                out.push(b",");
                escape(out, sb.options(), b" \t\n\\");
            }
            let _ = out.write_str(" 0 0\n");
        }
        Ok(())
    }
}
