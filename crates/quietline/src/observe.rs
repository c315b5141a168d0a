//! A look inside a running process, for those who ask: which slab caches it has, and what they hold.
//!
//! A process that wants to be looked at binds an [`Observer`], a Unix socket, and answers on a thread of its own or in its
//! event loop:
//!
//! ```no_run
//! let observer = quietline::observe::Observer::bind()?;
//! std::thread::spawn(move || observer.run());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Then `ql slabtop` shows it. Whoever connects is sent one [`Report`] as JSON, and nothing is read from him. Without an
//! observer there is no thread, no socket and no cost.
//!
//! The socket is `$XDG_RUNTIME_DIR/quietline/PID.sock`, or, where that is not set, in a folder of the user's among the
//! temporary files. The folder is the user's alone, so who may look is who could also debug the process.

#[cfg(feature = "metrics")]
mod metrics;
mod places;
mod report;

pub use places::{Observed, default_path, processes};
pub use report::{Cache, Report};

use rustix::io::Errno;
use rustix::net::SendFlags;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one who asked may take to read: the next one waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a process that leaves it to its user publishes its caches: see [`Observer::from_env`].
pub const VARIABLE: &str = "QUIETLINE_OBSERVE";

/// A socket where this process tells what its caches hold. Dropping it takes the socket away.
#[derive(Debug)]
pub struct Observer {
    listener: UnixListener,
    path: PathBuf,
    /// A child has the parent's observer, but the path is the parent's.
    owner: u32,
}

impl Observer {
    /// A socket at the [default path](default_path) of this process.
    ///
    /// # Errors
    /// As [`bind_to`](Self::bind_to); also when the folder belongs to somebody else, or is open to others.
    pub fn bind() -> io::Result<Self> {
        places::make_folder()?;
        Self::bind_to(default_path(std::process::id())?)
    }

    /// A socket at a path. One that was left there by a process that is gone is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] when somebody answers there or when it is no socket; whatever the system says.
    pub fn bind_to(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_stale(&path) => {
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            other => other?,
        };
        Ok(Self { listener, path, owner: std::process::id() })
    }

    /// What the environment variable `QUIETLINE_OBSERVE` asks for: nothing if it is not set, empty or `0`; the default path
    /// if it is `1`; else the path that it holds.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn from_env() -> io::Result<Option<Self>> {
        Self::from_value(std::env::var_os(VARIABLE).as_deref())
    }

    fn from_value(value: Option<&OsStr>) -> io::Result<Option<Self>> {
        match value {
            None => Ok(None),
            Some(value) if value.is_empty() || value == "0" => Ok(None),
            Some(value) if value == "1" => Self::bind().map(Some),
            Some(path) => Self::bind_to(path).map(Some),
        }
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for one who asks, and answers. For event loops: does not wait when [the socket](AsFd) is ready to be read.
    ///
    /// # Errors
    /// What is wrong with the socket. That one who asked went away, or reads too slowly, is none.
    pub fn answer(&self) -> io::Result<()> {
        let (asker, _) = self.listener.accept()?;
        // His failure is his own.
        let _ = tell(asker);
        Ok(())
    }

    /// Answers until something is wrong with the socket.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn run(&self) -> io::Result<()> {
        loop {
            match self.answer() {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                other => other?,
            }
        }
    }
}

impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn tell(asker: UnixStream) -> io::Result<()> {
    asker.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(&Report::of_this_process())?;
    text.push(b'\n');
    let mut rest = &text[..];
    while !rest.is_empty() {
        // In a program without Rust's runtime, the signal of a plain write to one who has left would end it.
        match rustix::net::send(&asker, rest, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => rest = &rest[sent?..],
        }
    }
    Ok(())
}

/// Whether a socket is there that nobody listens to.
fn is_stale(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Asks the process behind a socket.
///
/// # Errors
/// [`ErrorKind::NotFound`] or [`ErrorKind::ConnectionRefused`] when nobody answers there; [`ErrorKind::InvalidData`] when what
/// answers is no observer; [`ErrorKind::WouldBlock`] when it takes longer than some seconds.
pub fn ask(path: impl AsRef<Path>) -> io::Result<Report> {
    let observed = UnixStream::connect(path)?;
    observed.set_read_timeout(Some(2 * PATIENCE))?;
    serde_json::from_reader(io::BufReader::new(observed)).map_err(|error| {
        match error.io_error_kind() {
            Some(kind) => io::Error::new(kind, error),
            None => io::Error::new(ErrorKind::InvalidData, error),
        }
    })
}
