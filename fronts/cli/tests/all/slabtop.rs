//! `ql slabtop` beside processes that publish their caches, and beside none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use quietline::observe::{Observer, Report};
use quietline_slab::Cache;

/// An empty runtime folder of this test's.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ql-slabtop-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).env_remove("QUIETLINE_OBSERVE");
        command
    }

    fn ql(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("ql was built for this test")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This process publishes, until the function's end.
fn publish(path: &Path) {
    let observer = Observer::bind_to(path).unwrap();
    std::thread::spawn(move || observer.run());
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_format() {
    quietline_testing::isolated!();
    let runtime = Runtime::new("formats");
    let path = runtime.0.join("test.sock");
    let cache = Cache::<[u64; 25]>::new("passengers").unwrap();
    let _slots: Vec<_> = (0..123).map(|i| cache.alloc([i; 25]).unwrap()).collect();
    publish(&path);
    let path = path.to_str().unwrap();
    let table = text(&runtime.ql(&["slabtop", path]));
    // By the name that the system cuts off.
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let process =
        format!(" Process                            : {} ({}", std::process::id(), name.trim());
    assert!(table.contains(&process), "{process} is not in {table}");
    let heading = table.lines().find(|line| line.contains("OBJ SIZE")).unwrap();
    let row = table.lines().find(|line| line.contains("passengers")).unwrap();
    assert!(heading.split_whitespace().take(3).eq(["OBJS", "ACTIVE", "USE"]), "{heading}");
    assert_eq!(row.split_whitespace().nth(1), Some("123"), "{table}");
    assert_eq!(row.split_whitespace().last(), Some("passengers"));
    let slabinfo = text(&runtime.ql(&["slabtop", path, "--format", "slabinfo"]));
    assert!(slabinfo.starts_with("slabinfo - version: 2.1\n# name "));
    assert!(slabinfo.contains("\npassengers           123 "), "{slabinfo}");
    let metrics = text(&runtime.ql(&["slabtop", path, "-f", "openmetrics"]));
    let active =
        r#"quietline_slab_objects{cache="passengers",object_bytes="200",state="active"} 123"#;
    assert!(
        metrics.lines().any(|line| line == active) && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    let json = text(&runtime.ql(&["slabtop", path, "--format", "json"]));
    let report: Report = serde_json::from_str(&json).unwrap();
    assert_eq!((report.pid, json.lines().count()), (std::process::id(), 1));
    assert!(report.caches.iter().any(|cache| cache.name == "passengers" && cache.active == 123));
}

/// The command publishes its own caches, is found without being named, and tidies up.
#[test]
fn beside_a_bench() {
    let runtime = Runtime::new("bench");
    let mut bench = runtime
        .command(&[
            "bench",
            "sockets",
            "--case",
            "unix-stream",
            "--columns",
            "quietline-anyfd",
            "-n1",
            "--sample-ms",
            "20",
        ])
        .env("QUIETLINE_OBSERVE", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut seen = None;
    while seen.is_none()
        && start.elapsed() < Duration::from_secs(60)
        && bench.try_wait().unwrap().is_none()
    {
        let output = runtime.ql(&["slabtop", "--once", "--sort", "n"]);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        seen = (output.status.success() && table.contains("sock")).then_some(table);
    }
    let by_number = runtime.ql(&["slabtop", &bench.id().to_string(), "--once"]);
    let ended = bench.try_wait().unwrap();
    let status = bench.wait().unwrap();
    let table = seen.expect("the bench was looked at");
    assert!(table.contains(&format!(": {} (ql)", bench.id())), "{table}");
    assert!(by_number.status.success() || ended.is_some(), "{by_number:?}");
    assert!(status.success());
    assert_eq!(
        std::fs::read_dir(runtime.0.join("quietline")).unwrap().count(),
        0,
        "the socket is gone"
    );
}

/// Whoever is not found is told how to be.
#[test]
fn nobody_there() {
    quietline_testing::isolated!();
    let runtime = Runtime::new("nobody");
    let failed = |arguments: &[&str]| {
        let output = runtime.ql(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = failed(&["slabtop"]);
    assert!(
        error.starts_with("error: no process of yours publishes its caches; a program does by"),
        "{error}"
    );
    assert!(error.contains("QUIETLINE_OBSERVE=1 ql bench pipes"), "{error}");
    let error = failed(&["slabtop", "1"]);
    assert!(
        error.contains("no process publishes its caches at") && error.contains("quietline/1.sock"),
        "{error}"
    );
    // One that died without tidying up is not there either.
    std::fs::create_dir(runtime.0.join("quietline")).unwrap();
    let stale = runtime.0.join("quietline/999.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(failed(&["slabtop"]).contains("no process of yours"));
    assert!(!stale.exists());
    // Of two, one must be named.
    publish(&runtime.0.join("quietline/11.sock"));
    publish(&runtime.0.join("quietline/12.sock"));
    let error = failed(&["slabtop"]);
    assert!(error.contains("give one of their numbers: 11, 12"), "{error}");
    let error = failed(&["slabtop", "13"]);
    assert!(error.contains("13.sock"), "{error}");
    assert!(runtime.ql(&["slabtop", "12"]).status.success());
}
