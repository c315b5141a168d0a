//! `QUIETLINE_OBSERVE`: the command's own caches, for `ql slabtop`.

use std::path::PathBuf;

use quietline::observe::Observer;

/// While it lives, this process tells what its caches hold.
pub(crate) struct Published(PathBuf);

/// Does what the environment asks for. What goes wrong is told, and the command goes on.
pub(crate) fn start() -> Option<Published> {
    let observer = match Observer::from_env() {
        Ok(observer) => observer?,
        Err(error) => {
            eprintln!("warning: the caches are not published: {error}");
            return None;
        }
    };
    let published = Published(observer.path().to_owned());
    std::thread::spawn(move || observer.run());
    Some(published)
}

impl Drop for Published {
    fn drop(&mut self) {
        // The observer's thread ends with the process, so it does not tidy up.
        let _ = std::fs::remove_file(&self.0);
    }
}
