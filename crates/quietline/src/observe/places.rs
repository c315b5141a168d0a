//! Where observers are found.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A process that publishes its caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Its number.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
}

/// The socket of a process that binds without a path.
///
/// # Errors
/// When the system does not say who the user is.
pub fn default_path(pid: u32) -> io::Result<PathBuf> {
    Ok(folder()?.join(format!("{pid}.sock")))
}

/// The processes of this user that can be asked at their default paths, by number. Sockets of those that are gone are removed.
///
/// # Errors
/// What the system says; that there is no folder yet is none.
pub fn processes() -> io::Result<Vec<Observed>> {
    let entries = match std::fs::read_dir(folder()?) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "sock")
            && let Some(pid) = path.file_stem().and_then(|name| name.to_str()?.parse().ok())
        {
            if super::is_stale(&path) {
                // Another one that looks may be quicker.
                let _ = std::fs::remove_file(&path);
            } else {
                found.push(Observed { pid, path });
            }
        }
    }
    found.sort_by_key(|observed| observed.pid);
    Ok(found)
}

fn folder() -> io::Result<PathBuf> {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => Ok(runtime.join("quietline")),
        _ => Ok(std::env::temp_dir().join(format!("quietline-{}", user()?))),
    }
}

fn user() -> io::Result<u32> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}

/// The folder, the user's alone.
pub(super) fn make_folder() -> io::Result<()> {
    let folder = folder()?;
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => other?,
    }
    check(&folder, user()?)
}

/// Among temporary files, anybody may have made it first.
fn check(folder: &Path, user: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "{} must be a folder of yours that nobody else may enter (mode 0700); remove it, or set XDG_RUNTIME_DIR",
        folder.display()
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}
