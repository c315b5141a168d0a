//! Names and patterns on the command line.

use std::sync::Arc;

use crate::columns::{Flaw, Toy};
use quietline_bench::adapters;
use quietline_bench::harness::Column;
use quietline_bench::select::{self, Batch, matches};
use quietline_bench::workloads::{self, anonfds::ANONFDS, pipes::PIPES, sockets::SOCKETS};
use quietline_bench::{Error, MAX_THREADS, Options};

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn chosen(names: &[&str], cases: &[&str]) -> Result<Vec<String>, String> {
    let chosen =
        select::workloads(&strings(names), &strings(cases)).map_err(|error| error.to_string())?;
    let names = chosen.into_iter().map(|(workload, cases)| {
        let cases: Vec<_> = cases.iter().map(|case| case.name).collect();
        format!("{} {}", workload.name, cases.join(","))
    });
    Ok(names.collect())
}

const NAMES: [&str; 7] = [
    "host",
    "host-shared",
    "history-base",
    "history-norefcount",
    "quietline-lowestfd",
    "quietline-lowestfd-shared",
    "quietline-handle",
];

fn all() -> Vec<Arc<dyn Column>> {
    NAMES.map(|name| Toy::column(name, Flaw::None)).to_vec()
}

fn picked(patterns: &[&str], ladder: bool) -> Result<Vec<String>, String> {
    let pipes = vec![(&PIPES, vec![&PIPES.cases[0]])];
    let batches = select::columns(&all(), pipes, &strings(patterns), ladder);
    let mut batches = batches.map_err(|error| error.to_string())?;
    assert_eq!(batches.len(), 1);
    Ok(names(&batches.remove(0)))
}

fn names((_, columns): &Batch) -> Vec<String> {
    columns.iter().map(|column| column.name().to_owned()).collect()
}

/// The batches of these workloads, with the columns that there are: name of the workload, names of the columns.
fn batches(
    given: &[&str],
    patterns: &[&str],
    ladder: bool,
) -> Result<Vec<(&'static str, String)>, String> {
    let chosen = select::workloads(&strings(given), &[]).map_err(|error| error.to_string())?;
    let batches = select::columns(&adapters::all(), chosen, &strings(patterns), ladder);
    let batches = batches.map_err(|error| error.to_string())?;
    Ok(batches.iter().map(|batch| (batch.0.0.name, names(batch).join(" "))).collect())
}

#[test]
fn patterns() {
    assert!(
        matches("host", "host")
            && !matches("host", "host-shared")
            && !matches("host-shared", "host")
    );
    assert!(matches("*", "") && matches("*", "anything") && matches("history-*", "history-base"));
    assert!(matches("*fd", "quietline-anyfd") && !matches("*fd", "quietline-lowestfd-shared"));
    assert!(matches("quietline-*-shared", "quietline-lowestfd-shared"));
    assert!(matches("*-*-*", "a-b-c") && !matches("*-*-*", "a-b"));
    assert!(matches("a*a", "aa") && !matches("a*a", "a"));
    assert!(matches("q**e", "quietline") && !matches("", "x") && matches("", ""));
}

const DEFAULT_SLAB: &str =
    "slab pair,bulk-8,bulk-32,bulk-250,single-32,random-250,test02,test03,remote,churn";

const DEFAULT_DCACHE: &str = "dcache get-shared,get-own,get-parent-shared,get-parent-own,stat-shared-3,stat-own-1,\
    stat-own-3,stat-own-8,stat-missing,short-100";

const ALL_PRIMITIVES: &str = "primitives slab-pair,slab-bulk-8,slab-bulk-32,counter,ids,rcu-read,rcu-call,lockref,\
    file-ref,spinlock,dup,getfl,getfd";

#[test]
fn workloads_have_default_cases() {
    let everything = [
        "sockets inet-stream",
        "pipes pipe2",
        "anonfds eventfd,timerfd,signalfd",
        ALL_PRIMITIVES,
        DEFAULT_SLAB,
        DEFAULT_DCACHE,
        "open own-1,own-3,own-8,shared",
        "unlink own,shared,own-1000,shared-1000,own-watched",
        "forward direct-64,ring-64,ring-1514,pair-64,across-64,routed-64,routed-64-many,routed6-78",
        "bytes eventfd,pipe-1,pipe-4096,pipe-gift-4096,unix-1,unix-dgram-1,tcp-1,udp-1",
        "epoll-wait none,ready,ready-nested,message,message-nested,poll-ready,shared-wake,shared-message",
        "epoll-ctl mod,del-add,del-add-nested",
        "nested-epoll mesh",
        "connections socketpair,unix-connect,tcp-connect,pass-pipe,pass-socket",
        "ping-pong pipe,eventfd,unix,tcp,pipe-epoll,eventfd-epoll,unix-epoll,tcp-epoll",
        "throughput pipe,unix,tcp",
    ];
    assert_eq!(chosen(&[], &[]), Ok(strings(&everything)));
    assert_eq!(
        chosen(&["pipes", "sockets", "pipes"], &[]),
        Ok(strings(&["pipes pipe2", "sockets inet-stream"]))
    );
}

#[test]
fn cases_choose_their_workloads() {
    assert_eq!(chosen(&[], &["timerfd"]), Ok(strings(&["anonfds timerfd"])));
    let streams = ["sockets inet-stream,inet6-stream"];
    assert_eq!(chosen(&["sockets"], &["inet*"]), Ok(strings(&streams)));
    let error = chosen(&["pipes"], &["timerfd"]).expect_err("not a case of pipes");
    assert_eq!(error, "no chosen workload has a case `timerfd`; the cases are: pipe2");
}

#[test]
fn an_unknown_workload_names_the_known() {
    let error = chosen(&["socket"], &[]).expect_err("there is no such workload");
    assert_eq!(
        error,
        "there is no workload `socket`; the workloads are: sockets, pipes, anonfds, primitives, slab, dcache, \
         open, unlink, forward, bytes, epoll-wait, epoll-ctl, nested-epoll, connections, \
         ping-pong, throughput"
    );
}

#[test]
fn columns_by_default_by_ladder_and_by_pattern() {
    let summary = ["host", "quietline-lowestfd", "quietline-handle"];
    assert_eq!(picked(&[], false), Ok(strings(&summary)));
    let ladder =
        ["host", "history-base", "history-norefcount", "quietline-lowestfd", "quietline-handle"];
    assert_eq!(picked(&[], true), Ok(strings(&ladder)));
    let chosen = [&SOCKETS, &ANONFDS].map(|workload| (workload, vec![&workload.cases[0]])).to_vec();
    let by_default = select::columns(&all(), chosen, &[], false).expect("no pattern to be wrong");
    assert_eq!(names(&by_default[0]).len(), ladder.len(), "the ladder is the default for sockets");
    assert_eq!(names(&by_default[1]).len(), summary.len());
    // In the order given, each once.
    let given = [
        "quietline-handle",
        "host",
        "host-shared",
        "quietline-lowestfd",
        "quietline-lowestfd-shared",
    ];
    assert_eq!(picked(&["quietline-handle", "host*", "quiet*"], false), Ok(strings(&given)));
    assert_eq!(picked(&["host*"], true), Ok(strings(&["host"])));
}

#[test]
fn an_unknown_column_names_the_known() {
    let error = picked(&["host", "hist"], false).expect_err("there is no such column");
    let valid = NAMES.join(", ");
    assert_eq!(
        error,
        format!(
            "no column is called `hist`; name one or use a pattern with `*`; the columns are: {valid}"
        )
    );
}

#[test]
fn a_workload_without_any_of_the_columns_is_left_out() {
    let all = batches(&[], &[], false).expect("no pattern to be wrong");
    let ran: Vec<&str> = all.iter().map(|batch| batch.0).collect();
    assert_eq!(ran, workloads::ALL.iter().map(|workload| workload.name).collect::<Vec<_>>());
    let primitives = &all[3].1;
    assert!(
        primitives.starts_with("host peer-malloc ")
            && primitives.ends_with(" quietline quietline-lowestfd")
    );
    assert!(!all[0].1.contains("peer-"), "{all:?}");
    // A ladder is asked of those that have one.
    assert_eq!(batches(&["primitives"], &[], true), Ok(vec![all[3].clone()]));

    assert_eq!(batches(&[], &["peer-arc"], false), Ok(vec![("primitives", "peer-arc".to_owned())]));
    let hosts = batches(&["primitives", "pipes"], &["host"], false).expect("both have it");
    assert_eq!(hosts, [("primitives", "host".to_owned()), ("pipes", "host".to_owned())]);
    let error =
        batches(&["sockets"], &["peer-arc"], false).expect_err("sockets are no reference counts");
    assert!(
        error.starts_with("no column is called `peer-arc`") && !error.contains("peer-cas-loop"),
        "{error}"
    );
}

#[test]
fn thread_counts_are_sorted_and_refused() {
    let threads =
        |threads: &[usize]| Options { threads: threads.to_vec(), ..Options::default() }.plan();
    assert_eq!(threads(&[4, 1, 2, 1]).expect("all possible").threads, [1, 2, 4]);
    for wrong in [0, MAX_THREADS + 1] {
        let error = threads(&[1, wrong]).expect_err("cannot be run");
        assert!(
            matches!(error, Error::ThreadCount { given, .. } if given == wrong) && error.is_usage()
        );
    }
    let by_default = threads(&[]).expect("always possible");
    assert_eq!(by_default.threads[0], 1);
    assert!(by_default.threads.iter().all(|&count| count <= by_default.cpus.len()));
}

#[test]
fn more_threads_than_cpus_are_warned_of_and_compared_by_cpu_time() {
    let plan = Options { threads: vec![1, 1000], ..Options::default() }.plan().expect("possible");
    let cpus = plan.cpus.len();
    assert!(
        cpus < 1000 && plan.warnings().iter().any(|warning| warning.contains("threads share CPUs"))
    );
    assert!(!plan.compares_cpu_time(1) && plan.compares_cpu_time(1000));
    let plan = Options { threads: vec![1], cpu_time: true, ..Options::default() }
        .plan()
        .expect("possible");
    assert!(plan.compares_cpu_time(1));
}

#[test]
fn zero_rounds_and_empty_samples_are_refused() {
    let plan = Options { rounds: Some(0), ..Options::default() }.plan();
    assert!(plan.is_err_and(|error| error.to_string().starts_with("--rounds must be at least 1")));
    let plan = Options { sample: Some(std::time::Duration::ZERO), ..Options::default() }.plan();
    assert!(
        plan.is_err_and(|error| error.to_string().starts_with("--sample-ms must be at least 1"))
    );
}
