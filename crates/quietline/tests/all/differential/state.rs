//! What a process's descriptors look like from outside, the same for both sides.

/// An open descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) fd: i32,
    /// `F_GETFD`.
    pub(crate) fd_flags: i32,
    /// `F_GETFL`.
    pub(crate) status: i32,
    /// The link in `/proc/self/fd`, an inode's number replaced by N.
    pub(crate) shape: String,
    /// The lowest descriptor with the same inode number in its name, if there is one in its name.
    pub(crate) inode_first_at: Option<i32>,
    /// The lowest descriptor of the same open file (what `dup` shares).
    pub(crate) file_first_at: i32,
}

/// An open descriptor as a side sees it, before numbers that differ between sides are taken out.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) fd: i32,
    pub(crate) fd_flags: i32,
    pub(crate) status: i32,
    pub(crate) name: String,
}

/// Brings what a side sees into the common form. `same_file` tells whether two descriptors are of one open file.
pub(crate) fn abstracted(raw: &[Raw], same_file: impl Fn(i32, i32) -> bool) -> Vec<Open> {
    let mut inodes: Vec<(u64, i32)> = Vec::new();
    let mut files: Vec<&Raw> = Vec::new();
    let mut open = Vec::with_capacity(raw.len());
    for r in raw {
        let (shape, ino) = split(&r.name);
        let inode_first_at = ino.map(|ino| match inodes.iter().find(|(seen, _)| *seen == ino) {
            Some((_, first)) => *first,
            None => {
                inodes.push((ino, r.fd));
                r.fd
            }
        });
        let twin = |f: &&&Raw| f.name == r.name && f.status == r.status && same_file(f.fd, r.fd);
        let file_first_at = match files.iter().find(twin) {
            Some(first) => first.fd,
            None => {
                files.push(r);
                r.fd
            }
        };
        let Raw { fd, fd_flags, status, .. } = *r;
        open.push(Open { fd, fd_flags, status, shape, inode_first_at, file_first_at });
    }
    open
}

/// `socket:[123]` is `socket:[N]` and 123.
fn split(name: &str) -> (String, Option<u64>) {
    let number = name.strip_suffix(']').and_then(|n| n.split_once('[')).and_then(|(kind, n)| {
        let ino: u64 = n.parse().ok()?;
        Some((format!("{kind}[N]"), Some(ino)))
    });
    number.unwrap_or_else(|| (name.to_owned(), None))
}
