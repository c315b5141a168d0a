//! Mounting, serving, unmounting.

use crate::guard;
use crate::options::Options;
use crate::server::Server;
use fuser::{Config, MountOption, Session};
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a tree is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory to mount on is not one.
    #[error("cannot mount on {}: {error}; give a directory that is there", .path.display())]
    NoDirectory {
        /// What was given.
        path: PathBuf,
        /// What it is instead.
        error: io::Error,
    },
    /// The host cannot, or will not.
    #[error("{0}")]
    Refused(String),
    /// There is no memory for a kernel.
    #[error("cannot make a kernel: {0}")]
    Kernel(quietline::Errno),
    /// Something else went wrong.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What became of it.
        error: io::Error,
    },
}

/// A tree that is mounted.
#[derive(Debug)]
pub struct Mounted {
    session: Session<Server>,
    directory: PathBuf,
    signals: Signals,
}

impl Mounted {
    /// Makes a kernel with an empty tree and mounts that on a directory. SIGINT, SIGTERM and SIGHUP unmount it from here on.
    ///
    /// # Errors
    /// [`MountError`], which says what is missing.
    pub fn new(directory: &Path, options: &Options) -> Result<Self, MountError> {
        let no_directory = |error| MountError::NoDirectory { path: directory.into(), error };
        let canonical = directory.canonicalize().map_err(no_directory)?;
        if !canonical.is_dir() {
            return Err(no_directory(ErrorKind::NotADirectory.into()));
        }
        let server = Server::new(options).map_err(MountError::Kernel)?;
        let mut config = Config::default();
        config.mount_options.clone_from(&options.flags);
        config.mount_options.push(MountOption::FSName(options.fsname.clone()));
        config.acl = options.acl;
        config.n_threads = Some(options.threads);
        config.clone_fd = true;
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| MountError::System { what: "cannot wait for signals", error })?;
        let session = Session::new(server, &canonical, &config)
            .map_err(|error| refused(&canonical, &error))?;
        Ok(Self { session, directory: canonical, signals })
    }

    /// Where it is mounted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Answers requests until the tree is unmounted, by a signal or by hand. `guard` starts the program that
    /// [watches](guard::watch) this one.
    ///
    /// # Errors
    /// [`MountError::System`] when the host breaks off.
    pub fn serve(self, guard: impl FnOnce(&str) -> io::Result<Command>) -> Result<(), MountError> {
        let Self { session, directory, mut signals } = self;
        let device = guard::device(&directory);
        let at = directory.clone();
        let guard = guard::Guard::start(&directory, guard);
        if let Err(error) = &guard {
            log::warn!(
                "nobody watches this program, and if it is killed a dead mount stays: {error}"
            );
        }
        let handle = signals.handle();
        let waiter = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for (n, signal) in signals.forever().enumerate() {
                    log::info!("signal {signal}");
                    if n > 0 {
                        // Asked twice: those who use it still get ENOTCONN.
                        std::process::exit(1);
                    }
                    unmount_for_good(&directory);
                }
            })
            .map_err(|error| MountError::System { what: "cannot start a thread", error })?;
        let served = session.run().or_else(|error| {
            // At the end of a mount, one thread may find the connection aborted where another has
            // found it ended. An administrator who aborts a connection leaves the mount.
            let aborted = error.kind() == ErrorKind::ConnectionAborted;
            let mounted =
                matches!((guard::device(&at), device), (Ok(now), Ok(then)) if now == then);
            if aborted && !mounted {
                Ok(())
            } else {
                Err(MountError::System { what: "cannot go on serving", error })
            }
        });
        handle.close();
        // It has nothing to tell.
        let _ = waiter.join();
        served
    }
}

/// Unmounts now, or takes the tree out of everybody's sight and ends when its last user goes.
fn unmount_for_good(directory: &Path) {
    match unmount(directory, false) {
        Ok(()) => {}
        Err(error) => {
            eprintln!(
                "{} is in use ({error}); it is taken away, and this program ends when the last user goes or another signal comes",
                directory.display()
            );
            if let Err(error) = unmount(directory, true) {
                eprintln!("error: cannot unmount {}: {error}", directory.display());
            }
        }
    }
}

/// Unmounts a directory; `lazy`: also when it is in use. By `fusermount3` where we may not ourselves.
pub(crate) fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, flags) {
        Err(rustix::io::Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q").args(lazy.then_some("-z")).arg("--").arg(directory);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(ErrorKind::ResourceBusy.into()),
        Err(error) => Err(error),
    }
}

fn can_run_fusermount() -> bool {
    Command::new("fusermount3").arg("-V").output().is_ok()
}

/// Says what is missing for a mount.
fn refused(directory: &Path, error: &io::Error) -> MountError {
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map(drop)
        .map_err(|error| error.kind());
    let text = error.to_string();
    let why = if device == Err(ErrorKind::NotFound) {
        "there is no /dev/fuse; load the module (`modprobe fuse`), or give it to the container (`--device /dev/fuse`)".into()
    } else if text.contains("user_allow_other") {
        "allow_other is for root, unless /etc/fuse.conf has a line `user_allow_other`".into()
    } else if let Err(kind) = device {
        format!(
            "cannot open /dev/fuse ({kind}); a user needs the permission 0666 there, a container `--device /dev/fuse --cap-add SYS_ADMIN`"
        )
    } else if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied)
        && !can_run_fusermount()
    {
        "only root may mount without fusermount3, and that is not there or may not be run; install it (Debian: `apt-get install fuse3`)".into()
    } else {
        text.trim().to_owned()
    };
    MountError::Refused(format!("cannot mount on {}: {why}", directory.display()))
}
