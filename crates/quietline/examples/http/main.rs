//! A small HTTP/1.1 server and its load, on quietline and on the host kernel: the same code, in one process, over TCP on the
//! loopback.
//!
//! `cargo run --release -p quietline --example http -- --help`
//!
//! The server has some workers, each with an epoll; connections stay open, requests may come one behind the other, and each
//! in as many pieces as it likes. `GET` and `HEAD` of three resources; 400, 404, 405, 414, 431, 501 and 505 for what it does
//! not like. Every answer is looked at, to the last byte, before its time counts. What it has not got: `Date`, chunked
//! bodies, timeouts of idle connections, TLS.
//!
//! ```text
//!   main ──> round ──> server ──> connection ──> request, site        \
//!              └─────> client                                          > Os: quietline_os, host_os
//! ```
//!
//! `tests/http.rs` runs all of it.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod host_os;
pub(crate) mod options;
pub(crate) mod os;
pub(crate) mod quietline_os;
mod report;
pub(crate) mod request;
pub(crate) mod round;
pub(crate) mod server;
pub(crate) mod site;

use clap::Parser;
use client::Failure;
use host_os::Host;
use options::{Options, System};
use quietline::{Config, Errno, Kernel};
use quietline_os::Quietline;
use report::Row;
use std::process::ExitCode;

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Rounds of both, turn by turn, every other one in reverse order; then the table.
fn compare(options: &Options) -> Result<(), Failure> {
    let site = site::Site::new(options.body);
    let booted = |errno: Errno| Failure::new("quietline cannot boot", errno);
    let kernel = Kernel::boot(Config::default()).map_err(booted)?;
    let process = kernel.process().map_err(booted)?;
    let mut rows: Vec<Row> = options.systems().into_iter().map(Row::new).collect();
    // One more in front, which warms up and does not count.
    for number in 0..=options.rounds {
        let mut sample = |row: &mut Row| {
            let plan = options.plan(number == 0);
            let sample = match row.system {
                System::Quietline => round::run(Quietline(&process), &site, plan),
                System::Host => round::run(Host, &site, plan),
            };
            let sample = sample.map_err(|Failure(why)| Failure::new(row.system.name(), why))?;
            if number > 0 {
                row.samples.push(sample);
            }
            Ok::<_, Failure>(())
        };
        if number % 2 == 0 {
            rows.iter_mut().try_for_each(&mut sample)?;
        } else {
            rows.iter_mut().rev().try_for_each(&mut sample)?;
        }
    }
    let left = kernel.nr_files();
    if left != 0 {
        return Err(Failure(format!("{left} files were left open")));
    }
    print!("{}", report::table(options, &rows));
    Ok(())
}
