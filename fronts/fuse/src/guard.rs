//! Takes a dead mount away.
//!
//! A server that is killed leaves a mount on which every call fails with `ENOTCONN`. So a server starts a program beside
//! it, which has the other end of a pipe: when that is closed, the server is gone, and the guard unmounts what is left.

use crate::mount::unmount;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The watching program, seen from the one that is watched.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the program that `command` makes of the mount's device number; it is to call [`watch`].
    pub(crate) fn start(
        directory: &Path,
        command: impl FnOnce(&str) -> io::Result<Command>,
    ) -> io::Result<Self> {
        let device = device(directory)?.ok_or(io::ErrorKind::NotFound)?;
        let mut command = command(&device)?;
        Ok(Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Waits until the standard input is at its end, and unmounts the directory if the mount is there still.
///
/// # Errors
/// That it cannot be unmounted.
pub fn watch(directory: &Path, of: &str) -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    if device(directory)?.as_deref() == Some(of) { unmount(directory, true) } else { Ok(()) }
}

/// The number of the filesystem that is mounted on a directory last, if it is of FUSE.
pub(crate) fn device(directory: &Path) -> io::Result<Option<String>> {
    Ok(device_in(&fs::read("/proc/self/mountinfo")?, directory))
}

fn device_in(mountinfo: &[u8], directory: &Path) -> Option<String> {
    let line = mountinfo.split(|&byte| byte == b'\n').rev().find(|line| {
        let mut fields = line.split(|&byte| byte == b' ').skip(4);
        fields.next().is_some_and(|at| unescaped(at) == directory.as_os_str().as_bytes())
    })?;
    let kind = line.split(|&byte| byte == b' ').skip_while(|field| *field != b"-").nth(1)?;
    let number = line.split(|&byte| byte == b' ').nth(2)?;
    kind.starts_with(b"fuse").then(|| String::from_utf8_lossy(number).into_owned())
}

/// A path without the octal numbers that mountinfo has in place of white space.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = (byte == b'\\')
            .then(|| {
                after.get(..3).and_then(|digits| {
                    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
                })
            })
            .flatten();
        out.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &[u8] = b"\
22 1 0:21 / / rw shared:1 - ext4 /dev/root rw
40 22 0:44 / /mnt/a\\040b rw,nosuid - fuse quietline rw,user_id=0
41 22 0:45 / /mnt/c rw,nosuid shared:7 - fuse.quietline quietline rw
42 22 0:46 / /mnt/c rw - tmpfs tmpfs rw
";

    #[test]
    fn the_last_mount_on_a_directory_counts() {
        assert_eq!(device_in(INFO, Path::new("/mnt/a b")).as_deref(), Some("0:44"));
        assert_eq!(device_in(INFO, Path::new("/mnt/c")), None, "a tmpfs is above it");
        assert_eq!(device_in(INFO, Path::new("/mnt")), None);
        let below = INFO.strip_suffix(b"42 22 0:46 / /mnt/c rw - tmpfs tmpfs rw\n").unwrap();
        assert_eq!(device_in(below, Path::new("/mnt/c")).as_deref(), Some("0:45"));
    }
}
