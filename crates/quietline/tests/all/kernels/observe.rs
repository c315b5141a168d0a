//! One process looks into another.

use quietline::observe::{self, Observer, Report};
use quietline_slab::{Cache, RawCache};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A folder of this test's, empty.
fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("quietline-observe-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}

/// Runs one of the `part_` tests below as a process of its own.
struct Part(Child);

impl Part {
    fn start(name: &str, runtime: &PathBuf, observe: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("kernels::observe::{name}"), "--ignored", "--nocapture"])
            .env("XDG_RUNTIME_DIR", runtime)
            .env(observe::VARIABLE, observe)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The rest of the line that begins with a word.
    fn line(&mut self, word: &str) -> String {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        let line = lines.find_map(|line| Some(line.unwrap().split_once(word)?.1.trim().to_owned()));
        line.expect("the other process says where it is")
    }

    /// Lets it end.
    fn end(mut self) {
        writeln!(self.0.stdin.take().unwrap(), "end").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other process of the tests below"]
fn part_that_publishes() {
    let cache = Cache::<[u64; 10]>::new("of another process").unwrap();
    let slots: Vec<_> = (0..77).map(|i| cache.alloc([i; 10]).unwrap()).collect();
    let observer = Arc::new(Observer::from_env().unwrap().expect("asked for"));
    let answering = observer.clone();
    std::thread::spawn(move || answering.run());
    println!("\nPATH {}", observer.path().display());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert_eq!(slots.len(), 77);
    std::fs::remove_file(observer.path()).unwrap();
}

fn check(report: &Report, pid: u32) {
    assert_eq!(report.pid, pid);
    let program = std::env::current_exe().unwrap();
    assert_eq!(Some(std::ffi::OsStr::new(&report.program)), program.file_name());
    let cache =
        report.caches.iter().find(|cache| cache.name == "of another process").expect("it is there");
    assert_eq!((cache.active, cache.size, cache.object_size, cache.aliases), (77, 80, 80, 0));
    assert_eq!(cache.places, cache.slabs * cache.objects_per_slab);
    assert!(report.memory >= cache.memory() && cache.memory() > 77 * 80);
    let mut text = String::new();
    report.slabinfo(&mut text).unwrap();
    assert!(
        text.starts_with("slabinfo - version: 2.1\n")
            && text.contains("\nof_another_process     77 "),
        "{text}"
    );
}

#[test]
fn another_process_is_found_and_asked() {
    quietline_testing::isolated!();
    let runtime = folder("default");
    let mut part = Part::start("part_that_publishes", &runtime, "1");
    let path = PathBuf::from(part.line("PATH"));
    assert_eq!(path, runtime.join(format!("quietline/{}.sock", part.0.id())));
    let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // Often, and by several at once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| check(&observe::ask(&path).unwrap(), part.0.id())));
        }
    });
    part.end();
    assert_eq!(observe::ask(&path).unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::remove_dir_all(runtime).unwrap();
}

#[test]
fn a_path_of_its_own() {
    quietline_testing::isolated!();
    let runtime = folder("path");
    let path = runtime.join("mine.sock");
    let mut part = Part::start("part_that_publishes", &runtime, path.to_str().unwrap());
    assert_eq!(PathBuf::from(part.line("PATH")), path);
    check(&observe::ask(&path).unwrap(), part.0.id());
    // One that asks and goes, or asks and does not read, does not keep others from it.
    drop(UnixStream::connect(&path).unwrap());
    let idle = UnixStream::connect(&path).unwrap();
    check(&observe::ask(&path).unwrap(), part.0.id());
    drop(idle);
    // Two cannot have one path; that of a process that was killed can be had.
    assert_eq!(Observer::bind_to(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(part);
    assert_eq!(observe::ask(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let mine = Observer::bind_to(&path).unwrap();
    assert_eq!(mine.path(), path);
    drop(mine);
    assert!(!path.exists());
    std::fs::remove_dir_all(runtime).unwrap();
}

/// What is no socket is not removed, nor is what says something else believed.
#[test]
fn what_is_not_ours() {
    quietline_testing::isolated!();
    let runtime = folder("foreign");
    let path = runtime.join("file.sock");
    std::fs::write(&path, "text").unwrap();
    assert_eq!(Observer::bind_to(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(&path).unwrap(), b"text");
    let path = runtime.join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    for said in ["", "{}", "{\"pid\": 1", "hello\n"] {
        std::thread::scope(|scope| {
            scope.spawn(|| listener.accept().unwrap().0.write_all(said.as_bytes()).unwrap());
            let error = observe::ask(&path).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof),
                "{said:?}: {error:?}"
            );
        });
    }
    std::fs::remove_dir_all(runtime).unwrap();
}

/// In an event loop: ready when somebody asks, and answers without waiting.
#[test]
fn in_an_event_loop() {
    quietline_testing::isolated!();
    let runtime = folder("loop");
    let observer = Observer::bind_to(runtime.join("loop.sock")).unwrap();
    let cache = RawCache::new(quietline_slab::Options::new("loop", 24, 8)).unwrap();
    let path = observer.path().to_owned();
    let asked = std::thread::spawn(move || observe::ask(path).unwrap());
    let start = Instant::now();
    observer.answer().unwrap();
    let report = asked.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(120));
    assert!(report.caches.iter().any(|seen| seen.name == "loop" && seen.size == 24));
    drop((cache, observer));
    std::fs::remove_dir_all(runtime).unwrap();
}

#[cfg(feature = "metrics")]
mod metrics {
    use quietline::observe::Report;
    use std::collections::HashSet;

    fn report(names: &[(&str, u64)]) -> Report {
        let caches: Vec<_> = names
            .iter()
            .map(|(name, refills)| {
                serde_json::json!({
                    "name": name, "object_size": 64, "slab_size": 8192, "slabs": 3, "places": 300,
                    "active": 10, "cached": 20, "waiting": 5, "refills": refills,
                })
            })
            .collect();
        let report =
            serde_json::json!({"pid": 1, "program": "x", "memory": 24576, "caches": caches});
        serde_json::from_value(report).unwrap()
    }

    fn text(report: &Report) -> String {
        let mut text = String::new();
        report.open_metrics(&mut text).unwrap();
        text
    }

    #[test]
    fn values_units_and_names() {
        quietline_testing::isolated!();
        let text = text(&report(&[("packets", 7)]));
        for line in [
            "# TYPE quietline_slab_objects gauge",
            r#"quietline_slab_objects{cache="packets",object_bytes="64",state="active"} 10"#,
            r#"quietline_slab_objects{cache="packets",object_bytes="64",state="cached"} 20"#,
            r#"quietline_slab_objects{cache="packets",object_bytes="64",state="waiting"} 5"#,
            r#"quietline_slab_objects{cache="packets",object_bytes="64",state="free"} 265"#,
            r#"quietline_slab_slabs{cache="packets",object_bytes="64"} 3"#,
            "# TYPE quietline_slab_memory_bytes gauge",
            "# UNIT quietline_slab_memory_bytes bytes",
            r#"quietline_slab_memory_bytes{cache="packets",object_bytes="64"} 24576"#,
            "# TYPE quietline_slab_refills counter",
            r#"quietline_slab_refills_total{cache="packets",object_bytes="64"} 7"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }

    /// The rules of the format that a scraper relies on.
    #[test]
    fn well_formed() {
        quietline_testing::isolated!();
        let text = text(&report(&[("a", 1), ("b", 2), ("a", 3)]));
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
        let mut types = Vec::new();
        let mut series = HashSet::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').unwrap();
                assert!(!types.iter().any(|(known, _)| *known == name), "declared twice: {line}");
                types.push((name, kind));
            } else if let Some(described) =
                line.strip_prefix("# HELP ").or(line.strip_prefix("# UNIT "))
            {
                assert!(
                    described.starts_with(types.last().map_or(described, |(name, _)| name))
                        || line.starts_with("# HELP")
                );
            } else {
                let (key, value) = line.rsplit_once(' ').unwrap();
                assert!(series.insert(key), "twice: {line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                // Samples follow their own declaration; those of counters, and only those, end in _total.
                let (name, kind) = types.last().unwrap();
                let suffix = key.split('{').next().unwrap().strip_prefix(name).unwrap();
                assert_eq!(suffix, if *kind == "counter" { "_total" } else { "" }, "{line}");
            }
        }
        // Caches that look the same from outside are one series.
        assert!(
            text.contains(r#"quietline_slab_refills_total{cache="a",object_bytes="64"} 4"#),
            "{text}"
        );
        assert_eq!(types.len(), 9);
    }

    #[test]
    fn names_are_escaped() {
        quietline_testing::isolated!();
        let text = text(&report(&[("a \"quoted\" \\ name\nof two lines", 1)]));
        let escaped = r#"cache="a \"quoted\" \\ name\nof two lines","#;
        assert!(text.contains(escaped), "{text}");
        assert!(
            text.lines().all(|line| line.starts_with("# ") || line.starts_with("quietline_slab_"))
        );
    }

    #[test]
    fn no_caches() {
        quietline_testing::isolated!();
        assert!(text(&report(&[])).ends_with("# EOF\n"));
    }
}
