//! What `-o` says.

use fuser::{MountOption, SessionACL};
use std::num::NonZero;
use std::thread::available_parallelism;

/// How a tree is mounted, and what may be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes that it may hold; none for no limit.
    pub size: Option<u64>,
    /// Files that it may hold; none for no limit.
    pub nr_inodes: Option<u64>,
    /// Permissions of the root directory.
    pub mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Whether reading leaves no time of access.
    pub noatime: bool,
    /// Threads that answer.
    pub threads: usize,
    pub(crate) fsname: String,
    pub(crate) acl: SessionACL,
    /// Those that go to the host as they are.
    pub(crate) flags: Vec<MountOption>,
}

/// What is wrong with an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// There is none of that name.
    #[error("there is no option `{0}`; the options are: {KNOWN}")]
    Unknown(String),
    /// Its value cannot be.
    #[error("`{option}` wants {wants}, such as `{example}`")]
    Value {
        /// What was given.
        option: String,
        /// What is wanted.
        wants: &'static str,
        /// How that looks.
        example: &'static str,
    },
}

const KNOWN: &str = "ro, rw, noexec, exec, nosuid, suid, nodev, dev, noatime, atime, sync, async, dirsync, allow_other, \
     allow_root, default_permissions, auto_unmount, size=, nr_inodes=, mode=, uid=, gid=, fsname=, subtype=, threads=";

/// Threads that answer, unless told.
fn threads() -> usize {
    available_parallelism().map_or(2, NonZero::get).clamp(2, 16)
}

impl Default for Options {
    /// As tmpfs: half of the memory, and a file for every two of its pages. The tree belongs to the caller.
    fn default() -> Self {
        let memory = memory();
        Self {
            size: Some(memory / 2),
            nr_inodes: Some(memory / 4096 / 2),
            mode: 0o755,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            noatime: false,
            threads: threads(),
            fsname: "quietline".into(),
            acl: SessionACL::Owner,
            // Always on: the host knows the groups of a caller, and we do not.
            flags: vec![MountOption::DefaultPermissions],
        }
    }
}

fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    // As wide as the machine's words.
    #[allow(clippy::unnecessary_cast)]
    let pages = info.totalram as u64;
    pages.saturating_mul(info.mem_unit.into())
}

impl Options {
    /// Adds what a list of options says, such as `ro,size=1g`. The last word counts.
    ///
    /// # Errors
    /// [`OptionsError`] for the first that is unknown or cannot be.
    pub fn add(&mut self, list: &str) -> Result<(), OptionsError> {
        list.split(',')
            .map(str::trim)
            .filter(|option| !option.is_empty())
            .try_for_each(|option| self.add_one(option))
    }

    fn add_one(&mut self, option: &str) -> Result<(), OptionsError> {
        let wants = |wants, example| OptionsError::Value { option: option.into(), wants, example };
        if let Some((name, value)) = option.split_once('=') {
            match name {
                "size" => {
                    self.size = limit(amount(value).ok_or_else(|| wants(BYTES, "size=512m"))?)
                }
                "nr_inodes" => {
                    self.nr_inodes =
                        limit(amount(value).ok_or_else(|| wants(COUNT, "nr_inodes=100k"))?)
                }
                "mode" => {
                    self.mode =
                        mode(value).ok_or_else(|| wants("permissions in octal", "mode=1777"))?
                }
                "uid" => self.uid = value.parse().map_err(|_| wants("a number", "uid=1000"))?,
                "gid" => self.gid = value.parse().map_err(|_| wants("a number", "gid=1000"))?,
                "threads" => {
                    let threads = value.parse().ok().filter(|threads| (1..=256).contains(threads));
                    self.threads =
                        threads.ok_or_else(|| wants("a number from 1 to 256", "threads=4"))?;
                }
                "fsname" => self.fsname = value.into(),
                "subtype" => self.set(MountOption::Subtype(value.into())),
                _ => return Err(OptionsError::Unknown(option.into())),
            }
            return Ok(());
        }
        match option {
            "ro" => self.either(MountOption::RO, MountOption::RW),
            "rw" => self.either(MountOption::RW, MountOption::RO),
            "exec" => self.either(MountOption::Exec, MountOption::NoExec),
            "noexec" => self.either(MountOption::NoExec, MountOption::Exec),
            "suid" => self.either(MountOption::Suid, MountOption::NoSuid),
            "nosuid" => self.either(MountOption::NoSuid, MountOption::Suid),
            "dev" => self.either(MountOption::Dev, MountOption::NoDev),
            "nodev" => self.either(MountOption::NoDev, MountOption::Dev),
            "sync" => self.either(MountOption::Sync, MountOption::Async),
            "async" => self.either(MountOption::Async, MountOption::Sync),
            "dirsync" => self.set(MountOption::DirSync),
            "atime" | "relatime" => {
                self.noatime = false;
                self.flags.retain(|flag| *flag != MountOption::NoAtime);
            }
            "noatime" => {
                self.noatime = true;
                self.set(MountOption::NoAtime);
            }
            "allow_other" => self.acl = SessionACL::All,
            "allow_root" => self.acl = SessionACL::RootAndOwner,
            // They are always on.
            "default_permissions" | "auto_unmount" | "defaults" => {}
            _ => return Err(OptionsError::Unknown(option.into())),
        }
        Ok(())
    }

    fn set(&mut self, flag: MountOption) {
        if !self.flags.contains(&flag) {
            self.flags.push(flag);
        }
    }

    fn either(&mut self, this: MountOption, that: MountOption) {
        self.flags.retain(|flag| *flag != that);
        self.set(this);
    }
}

const BYTES: &str =
    "a number of bytes with k, m, g or t behind it, or a part of the memory with %; 0 for no limit";
const COUNT: &str = "a number with k, m or g behind it; 0 for no limit";

fn limit(n: u64) -> Option<u64> {
    (n != 0).then_some(n)
}

fn mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777)
}

fn amount(text: &str) -> Option<u64> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: u64 = percent.parse().ok()?;
        return Some(
            u64::try_from(u128::from(memory()) * u128::from(percent) / 100).unwrap_or(u64::MAX),
        );
    }
    let (digits, shift) = match text.chars().last()?.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(list: &str) -> Options {
        let mut options = Options::default();
        options.add(list).unwrap();
        options
    }

    #[test]
    fn numbers_are_read_as_tmpfs_reads_them() {
        let options = with("size=2M,nr_inodes=3k,mode=1777,uid=7,gid=8,threads=3");
        assert_eq!((options.size, options.nr_inodes), (Some(2 << 20), Some(3 << 10)));
        assert_eq!((options.mode, options.uid, options.gid, options.threads), (0o1777, 7, 8, 3));
        assert_eq!(with("size=0,nr_inodes=0").size, None);
        assert_eq!(with("size=100%").size, Some(memory()));
    }

    #[test]
    fn the_last_word_counts() {
        let options = with("ro,rw,noexec,noatime,,atime");
        assert!(
            options.flags.contains(&MountOption::RW) && !options.flags.contains(&MountOption::RO)
        );
        assert!(options.flags.contains(&MountOption::NoExec) && !options.noatime);
        assert!(!options.flags.contains(&MountOption::NoAtime));
        assert_eq!(with("allow_root,allow_other").acl, SessionACL::All);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let mut options = Options::default();
        let before = options.clone();
        for list in [
            "size=",
            "size=x",
            "size=1kk",
            "mode=9",
            "mode=10000",
            "uid=-1",
            "threads=0",
            "nr_inodes=99999999999t",
        ] {
            assert!(matches!(options.add(list), Err(OptionsError::Value { .. })), "{list}");
        }
        for list in ["loop", "size", "foo=1"] {
            assert_eq!(options.add(list), Err(OptionsError::Unknown(list.into())));
        }
        assert_eq!(options, before);
    }
}
