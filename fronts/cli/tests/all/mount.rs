//! `ql mount`: files through the host's system calls, and that nothing stays behind, however it ends.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Whether this machine can mount; says why not.
fn possible() -> bool {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: /dev/fuse cannot be opened: {error}");
        return false;
    }
    if !rustix::process::geteuid().is_root()
        && Command::new("fusermount3").arg("-V").output().is_err()
    {
        eprintln!("skipped: only root may mount without fusermount3");
        return false;
    }
    true
}

/// A directory to mount on, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ql-mount-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn is_mounted(&self) -> bool {
        let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
        info.lines().any(|line| line.split(' ').nth(4) == self.0.to_str())
    }

    fn wait_until(&self, mounted: bool) {
        until(&format!("mounted: {mounted}"), || self.is_mounted() == mounted);
    }

    fn serve(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
        let child = command.args(["mount", "-f", "-o", "size=64m"]).arg(&self.0).spawn().unwrap();
        self.wait_until(true);
        child
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            // A test has failed.
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn ends(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the server ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn ends_well(child: &mut Child) {
    let status = ends(child);
    assert!(status.success(), "the server ended with {status}");
}

fn names(of: &Path) -> BTreeSet<String> {
    fs::read_dir(of)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn files_are_what_they_are_elsewhere_and_a_signal_ends_it_all() {
    if !possible() {
        return;
    }
    let place = Place::new("work");
    let mut server = place.serve();
    let at = |name: &str| place.0.join(name);

    fs::write(at("a"), "one").unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("a"), at("d/b")).unwrap();
    let (a, b) = (fs::metadata(at("a")).unwrap(), fs::metadata(at("d/b")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2), "names of one node");
    OpenOptions::new().append(true).open(at("d/b")).unwrap().write_all(b", two").unwrap();
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "one, two");
    fs::rename(at("d/b"), at("c")).unwrap();
    fs::remove_file(at("a")).unwrap();
    assert_eq!(
        (names(&place.0), names(&at("d"))),
        (["c".into(), "d".into()].into(), BTreeSet::new())
    );
    assert_eq!(fs::metadata(at("c")).unwrap().nlink(), 1);
    symlink("c", at("l")).unwrap();
    assert_eq!(fs::read_to_string(at("l")).unwrap(), "one, two");
    fs::set_permissions(at("c"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(at("l")).unwrap().mode(), 0o100640);

    // A file without a name lives as long as it is open.
    let mut open = OpenOptions::new().read(true).write(true).open(at("c")).unwrap();
    fs::remove_file(at("c")).unwrap();
    open.set_len(1 << 20).unwrap();
    open.write_all_at(b"end", 1 << 20).unwrap();
    let mut end = String::new();
    open.seek(SeekFrom::End(-3)).unwrap();
    open.read_to_string(&mut end).unwrap();
    let told = open.metadata().unwrap();
    assert_eq!((end.as_str(), told.len(), told.nlink()), ("end", (1 << 20) + 3, 0));
    assert!(told.blocks() <= 16, "it has a hole");
    drop(open);

    // More names than fit into one answer, found again one by one, and removed while they are listed.
    let many: BTreeSet<_> = (0..3000).map(|n| format!("name-{n:04}")).collect();
    for name in &many {
        File::create_new(at("d").join(name)).unwrap();
    }
    assert_eq!(names(&at("d")), many);
    assert!(fs::remove_dir(at("d")).is_err(), "it is not empty");
    fs::remove_dir_all(at("d")).unwrap();

    let full = (0..).find_map(|n| fs::write(at(&format!("f{n}")), vec![0; 1 << 20]).err()).unwrap();
    assert_eq!(full.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));

    signal(&server, Signal::TERM);
    ends_well(&mut server);
    assert!(!place.is_mounted() && names(&place.0).is_empty());
}

#[test]
fn what_is_in_use_is_taken_away_and_ends_with_its_last_user() {
    if !possible() {
        return;
    }
    let place = Place::new("busy");
    let mut server = place.serve();
    let mut open =
        OpenOptions::new().read(true).write(true).create_new(true).open(place.0.join("a")).unwrap();
    signal(&server, Signal::INT);
    place.wait_until(false);
    open.write_all(b"still here").unwrap();
    let mut bytes = [0; 5];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still");
    assert!(server.try_wait().unwrap().is_none(), "somebody uses it");
    drop(open);
    ends_well(&mut server);
}

#[test]
fn a_server_that_is_killed_leaves_no_dead_mount() {
    if !possible() {
        return;
    }
    let place = Place::new("killed");
    let mut server = place.serve();
    fs::write(place.0.join("a"), "gone").unwrap();
    signal(&server, Signal::KILL);
    assert!(!ends(&mut server).success());
    place.wait_until(false);
    assert!(names(&place.0).is_empty());
}

#[test]
fn in_the_background_it_is_there_when_the_command_ends() {
    if !possible() {
        return;
    }
    let place = Place::new("background");
    let status = Command::new(env!("CARGO_BIN_EXE_ql"))
        .args(["mount", "-o", "ro,mode=711,fsname=elsewhere"])
        .arg(&place.0)
        .status()
        .unwrap();
    assert!(status.success() && place.is_mounted());
    assert_eq!(fs::metadata(&place.0).unwrap().mode() & 0o7777, 0o711);
    let refused = fs::write(place.0.join("a"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    let unmounted = if rustix::process::geteuid().is_root() {
        Command::new("umount").arg(&place.0).status().unwrap()
    } else {
        Command::new("fusermount3").arg("-u").arg(&place.0).status().unwrap()
    };
    assert!(unmounted.success());
    assert!(!place.is_mounted());
}
