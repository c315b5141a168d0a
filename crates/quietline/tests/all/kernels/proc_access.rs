//! Access to a process through `/proc`, and the locks that such an access takes.

mod host;

use quietline::abi::*;
use quietline::{Capabilities, Config, Errno, Kernel, Process};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn root() -> Process {
    Kernel::boot(Config::default().owner(0, 0).proc(true)).expect("memory").process().unwrap()
}

/// Calls `f` in a thread of its own. Fails if it does not come to its end.
#[track_caller]
fn ends<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(f()));
    match told.recv_timeout(LONG) {
        Ok(result) => result,
        Err(error) => panic!("{what}: {error}"),
    }
}

fn read(p: &Process, fd: i32) -> String {
    let mut buffer = [0; 200];
    let n = p.read(fd, &mut buffer).unwrap();
    String::from_utf8(buffer[..n].to_vec()).unwrap()
}

/// The `fdinfo` of the descriptor that is read gives the offset before the read.
#[test]
fn fdinfo_of_the_descriptor_that_is_read() {
    quietline_testing::isolated!();
    let p = root();
    let text = ends("fdinfo of itself", move || {
        let a = p.open("/", O_RDONLY, 0).unwrap();
        let b = p.open(format!("/proc/self/fdinfo/{a}"), O_RDONLY, 0).unwrap();
        p.dup2(b, a).unwrap();
        let (text, again) = (read(&p, b), {
            p.lseek(b, 0, SEEK_SET).unwrap();
            let mut two = [[0; 5], [0; 5]];
            let [one, other] = &mut two;
            p.readv(a, &mut [&mut one[..], &mut other[..]]).unwrap();
            String::from_utf8(two.concat()).unwrap()
        });
        assert!(text.starts_with(&again), "{again}");
        text
    });
    assert!(text.starts_with("pos:\t0\nflags:\t0"), "{text}");
}

/// Two descriptors that are read at once, each with the other's text.
#[test]
fn fdinfo_of_each_other() {
    quietline_testing::isolated!();
    let p = root();
    ends("fdinfo of each other", move || {
        let [a, b] = [(); 2].map(|()| p.open("/", O_RDONLY, 0).unwrap());
        let of = |fd: i32| p.open(format!("/proc/self/fdinfo/{fd}"), O_RDONLY, 0).unwrap();
        let (of_b, of_a) = (of(b), of(a));
        p.dup2(of_b, a).unwrap();
        p.dup2(of_a, b).unwrap();
        thread::scope(|scope| {
            let p = &p;
            for fd in [a, b, of_a, of_b] {
                scope.spawn(move || {
                    for _ in 0..quietline_testing::scaled(2_000) {
                        assert_eq!(p.lseek(fd, 0, SEEK_SET), Ok(0));
                        let mut buffer = [0; 5];
                        // Another thread may have read on meanwhile.
                        p.read(fd, &mut buffer).unwrap();
                        p.getdents64(fd, &mut buffer).unwrap_err();
                    }
                });
            }
        });
    });
}

/// The `fdinfo` of a directory descriptor gives the place of the next entry.
#[test]
fn fdinfo_of_a_directory() {
    quietline_testing::isolated!();
    let p = root();
    ends("fdinfo of a directory that is listed", move || {
        let dir = p.open("/proc/self/fdinfo", O_RDONLY, 0).unwrap();
        let mut buffer = [0; 1000];
        assert!(p.getdents64(dir, &mut buffer).unwrap() > 0);
        let info = p.open(format!("/proc/self/fdinfo/{dir}"), O_RDONLY, 0).unwrap();
        let text = read(&p, info);
        let stands = p.lseek(dir, 0, SEEK_CUR).unwrap();
        assert!(text.starts_with(&format!("pos:\t{stands}\n")), "{text} {stands}");
        assert_eq!(p.open("/proc/self/fdinfo/77", O_RDONLY, 0), Err(Errno::NOENT));
    });
}

/// The descriptor that is asked for.
const FD: i32 = 50;

/// The ids, capabilities and dumpable flag of a process.
#[derive(Debug, Clone, Copy)]
struct Ids {
    uids: [u32; 3],
    gids: [u32; 3],
    /// The capabilities that it keeps of those that are left to it; none: all.
    capabilities: Option<u64>,
    /// Whether it sets the dumpable flag after its ids have changed.
    dumpable: bool,
}

impl Ids {
    const fn user(uid: u32) -> Self {
        Self { uids: [uid; 3], gids: [uid; 3], capabilities: None, dumpable: true }
    }
}

/// A question about a process.
#[derive(Debug, Clone, Copy)]
struct Question {
    call: &'static str,
    /// Below its directory.
    path: &'static str,
    /// For `access`.
    mode: i32,
    start: WalkStart,
}

/// The directory that a question's path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkStart {
    /// The path is absolute.
    Root,
    /// A descriptor of the last name's directory.
    Descriptor,
    /// The last name's directory, as the working directory.
    Cwd,
}

/// The mode in the answer if the directory of the question is refused.
const NO_DIRECTORY: i64 = -1;

/// An error, a mode, a user and a group.
type Answer = [i64; 4];

fn questions() -> Vec<Question> {
    let each = |call, paths: &[&'static str]| -> Vec<Question> {
        paths.iter().map(|&path| Question { call, path, mode: 0, start: WalkStart::Root }).collect()
    };
    let mut all = each("readlink", &["cwd", "root", "fd/50", "fd/99"]);
    all.extend(each("stat", &["cwd", "root/dev", "fd/50", "fd/99", "fdinfo/..", "fd/.."]));
    let described = [".", "cwd", "fd", "fdinfo", "status", "mounts", "fd/50", "fdinfo/50"];
    all.extend(each("lstat", &described));
    all.extend(each("open", &["cwd", "root", "fd", "fdinfo", "fd/50", "fdinfo/99", "fd/99"]));
    all.extend(each("open or create", &["fd/50", "fdinfo/50", "status"]));
    all.extend(each("open a path", &["fdinfo", "fdinfo/50", "cwd"]));
    all.extend(each("read", &["status", "mounts", "fdinfo/50"]));
    all.extend(each("chdir", &["cwd", "fd", "fdinfo"]));
    all.extend(each("open", &["fd/.", "fdinfo/."]));
    for call in ["access", "eaccess"] {
        for mode in [0, R_OK, X_OK, R_OK | X_OK] {
            for path in ["fd", "fdinfo", "cwd"] {
                all.push(Question { call, path, mode, start: WalkStart::Root });
            }
        }
    }
    let relative = [WalkStart::Descriptor, WalkStart::Cwd];
    let relative = relative.map(|start| all.iter().map(move |q| Question { start, ..*q }));
    let relative: Vec<_> = relative.into_iter().flatten().collect();
    // There is no `chdir` from a descriptor.
    let exists = |q: &Question| q.call != "chdir" || q.start == WalkStart::Cwd;
    all.extend(relative.into_iter().filter(exists));
    all
}

fn become_user(p: &Process, ids: &Ids) {
    p.setgroups(&[]).unwrap();
    let [real, effective, saved] = ids.gids;
    p.setresgid(real, effective, saved).unwrap();
    let [real, effective, saved] = ids.uids;
    p.setresuid(real, effective, saved).unwrap();
    if let Some(capabilities) = ids.capabilities {
        let capabilities = Capabilities::from_bits_truncate(capabilities);
        p.set_capabilities(capabilities, capabilities).unwrap();
    }
    if ids.dumpable {
        p.set_dumpable(true);
    }
}

fn ask(p: &Process, question: &Question, pid: i32) -> Answer {
    let path = format!("/proc/{pid}/{}", question.path);
    let (dir, name) = path.rsplit_once('/').expect("an absolute path");
    let refused = |errno: Errno| [errno.raw_os_error().into(), NO_DIRECTORY, 0, 0];
    match question.start {
        WalkStart::Root => ask_from(p, question.call, question.mode, AT_FDCWD, &path),
        WalkStart::Descriptor => match p.open(dir, O_PATH, 0) {
            Ok(fd) => {
                let answer = ask_from(p, question.call, question.mode, fd, name);
                p.close(fd).unwrap();
                answer
            }
            Err(errno) => refused(errno),
        },
        WalkStart::Cwd => match p.chdir(dir) {
            Ok(()) => {
                let answer = ask_from(p, question.call, question.mode, AT_FDCWD, name);
                p.chdir("/").unwrap();
                answer
            }
            Err(errno) => refused(errno),
        },
    }
}

fn ask_from(p: &Process, call: &str, mode: i32, at: i32, path: &str) -> Answer {
    let opened = |flags: i32, read: bool| {
        let fd = p.openat(at, path, flags, 0)?;
        let done = if read { p.read(fd, &mut [0; 1]).map(drop) } else { Ok(()) };
        p.close(fd)?;
        done
    };
    let mut described = [0; 3];
    let done = match call {
        "readlink" => p.readlinkat(at, path, &mut [0; 200]).map(drop),
        "lstat" => p.fstatat(at, path, AT_SYMLINK_NOFOLLOW).map(|stat| {
            described = [stat.st_mode.into(), stat.st_uid.into(), stat.st_gid.into()];
        }),
        "stat" => p.fstatat(at, path, 0).map(drop),
        "open" => opened(O_RDONLY, false),
        "open or create" => opened(O_RDONLY | O_CREAT, false),
        "open a path" => opened(O_PATH, false),
        "read" => opened(O_RDONLY, true),
        "chdir" => {
            let done = p.chdir(path);
            p.chdir("/").unwrap();
            done
        }
        "access" => p.faccessat2(at, path, mode, 0),
        "eaccess" => p.faccessat2(at, path, mode, AT_EACCESS),
        call => unreachable!("{call}"),
    };
    let [mode, uid, gid] = described;
    [done.err().map_or(0, |errno| errno.raw_os_error().into()), mode, uid, gid]
}

/// Asks the questions about the process `target` as the process `caller`, or as the target itself.
fn answers(target: &Ids, caller: Option<&Ids>, questions: &[Question]) -> Vec<Answer> {
    let first = root();
    first.umask(0);
    first.mkdir("/dev", 0o755).unwrap();
    let asked = first.fork().unwrap();
    let null = asked.open("/dev/null", O_CREAT | O_RDONLY, 0o666).unwrap();
    assert_eq!(asked.dup2(null, FD), Ok(FD));
    become_user(&asked, target);
    let all = |p: &Process| questions.iter().map(|q| ask(p, q, asked.getpid())).collect();
    match caller {
        None => all(&asked),
        Some(ids) => {
            let caller = first.fork().unwrap();
            become_user(&caller, ids);
            // The dentries that one caller has looked up do not decide for another.
            let _: Vec<Answer> = all(&first);
            all(&caller)
        }
    }
}

/// Access to a process's links and descriptors depends on ids, capabilities and the dumpable flag
/// as on the host.
#[test]
fn who_may_look_into_a_process() {
    quietline_testing::isolated!();
    if !host::is_usable() {
        return quietline_testing::skip_without_root("this program cannot act as other users");
    }
    const PTRACE: u64 = 1 << 19;
    const DAC: u64 = 0b110;
    let user = Ids::user(1000);
    let root = Ids::user(0);
    let targets = [
        user,
        Ids { dumpable: false, ..user },
        Ids { gids: [2000; 3], ..user },
        Ids { uids: [1000, 1000, 0], ..user },
        Ids { uids: [0, 1000, 1000], dumpable: false, ..user },
        root,
        Ids { capabilities: Some(0), ..root },
    ];
    let callers = [
        user,
        Ids { dumpable: false, ..user },
        Ids::user(2000),
        root,
        Ids { capabilities: Some(0), ..root },
        Ids { capabilities: Some(PTRACE), ..root },
        Ids { capabilities: Some(DAC), ..root },
        Ids { uids: [1000, 0, 0], ..root },
        Ids { uids: [0, 1000, 0], ..root },
    ];
    let questions = questions();
    let (mut allowed, mut refused) = (0, 0);
    for target in &targets {
        for caller in callers.iter().map(Some).chain([None]) {
            let theirs = host::answers(target, caller, &questions);
            let ours = answers(target, caller, &questions);
            for ((question, host), here) in questions.iter().zip(theirs).zip(ours) {
                assert_eq!(here, host, "{question:?} of {target:?} by {caller:?}");
                match here[0] {
                    0 => allowed += 1,
                    _ => refused += 1,
                }
            }
        }
    }
    assert!(allowed > 500 && refused > 500, "{allowed} {refused}");
}

/// The same without a host, for the links that lead out of a caller's root.
#[test]
fn a_link_of_another_user_leads_nowhere() {
    let p = root();
    p.mkdir("/secret", 0o700).unwrap();
    p.mkdir("/jail", 0o755).unwrap();
    p.mknod("/secret/file", S_IFREG | 0o666, 0).unwrap();
    let (inside, other) = (p.fork().unwrap(), p.fork().unwrap());
    inside.chdir("/secret").unwrap();
    become_user(&other, &Ids::user(1000));
    let pid = inside.getpid();
    for path in ["cwd/file", "root/jail", "cwd", "root"] {
        let path = format!("/proc/{pid}/{path}");
        assert_eq!(other.open(&path, O_RDONLY, 0), Err(Errno::ACCESS), "{path}");
        assert_eq!(other.stat(&path).map(drop), Err(Errno::ACCESS), "{path}");
        assert!(p.open(&path, O_RDONLY, 0).is_ok(), "{path}");
    }
    // The same process, when its user is the same: not before it says so.
    become_user(&inside, &Ids { dumpable: false, ..Ids::user(1000) });
    let cwd = format!("/proc/{pid}/cwd");
    assert_eq!(other.readlink(&cwd, &mut [0; 20]), Err(Errno::ACCESS));
    assert!(!inside.dumpable() && inside.fork().is_ok_and(|child| !child.dumpable()));
    inside.set_dumpable(true);
    assert_eq!(other.readlink(&cwd, &mut [0; 20]), Ok(7));
    assert_eq!(inside.readlink("/proc/self/cwd", &mut [0; 20]), Ok(7));
}
