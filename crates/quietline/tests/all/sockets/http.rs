//! The HTTP example, on quietline and on the host kernel: a load of which every byte is looked at, requests that are wrong, in
//! pieces, or many at once, and readers that are slow. What the one answers the other does.

#[path = "../../../examples/http/main.rs"]
#[allow(dead_code, reason = "its `main` and its table are not run here")]
mod example;

use example::client::{Failure, Load, Until, asks, drive};
use example::connection::Tally;
use example::host_os::Host;
use example::os::Os;
use example::quietline_os::Quietline;
use example::round::{Plan, run};
use example::server::{Accept, Server};
use example::site::{After, BODY, PAGE, Site};
use quietline::{Config, Errno, Kernel};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Calls something with the two systems, and looks that the one of ours has nothing left open.
macro_rules! on_both {
    ($f:expr) => {{
        let kernel = Kernel::boot(Config::default()).unwrap();
        let process = kernel.process().unwrap();
        let ours = $f(Quietline(&process));
        assert_eq!(kernel.nr_files(), 0, "files were left open");
        (ours, $f(Host))
    }};
}

const PLAN: Plan = Plan {
    workers: 2,
    clients: 2,
    connections: 16,
    pipeline: 1,
    until: Until::Requests(2000),
    accept: Accept::Reuseport,
};

fn load(body: usize, plan: Plan) {
    fn once<O: Os>(os: O, body: usize, plan: Plan) {
        let sample = run(os, &Site::new(body), plan).unwrap();
        if let Until::Requests(requests) = plan.until {
            // A client without a connection has none.
            assert_eq!(sample.answers, requests * plan.clients.min(plan.connections) as u64);
        }
        assert!(
            sample.rate > 0.0
                && sample.latencies.is_sorted()
                && sample.latencies[0] > Duration::ZERO
        );
        assert_eq!(sample.shares.len(), plan.workers);
    }
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    once(Quietline(&process), body, plan);
    assert_eq!(kernel.nr_files(), 0, "files were left open");
    once(Host, body, plan);
}

#[test]
fn every_byte_of_a_load_is_right() {
    quietline_testing::isolated!();
    for body in [0, 1, 1024] {
        load(body, PLAN);
    }
    load(1024, Plan { until: Until::Time(Duration::from_millis(100)), ..PLAN });
}

#[test]
fn requests_one_behind_the_other() {
    quietline_testing::isolated!();
    load(100, Plan { pipeline: 32, ..PLAN });
    // More than is answered before the rest waits, on both ways.
    load(20_000, Plan { pipeline: 64, connections: 5, until: Until::Requests(1000), ..PLAN });
}

#[test]
fn bodies_that_do_not_fit() {
    quietline_testing::isolated!();
    load(3 << 20, Plan { connections: 4, until: Until::Requests(20), ..PLAN });
    load(700_001, Plan { connections: 3, pipeline: 3, until: Until::Requests(50), ..PLAN });
}

#[test]
fn workers_at_one_listener() {
    quietline_testing::isolated!();
    load(1024, Plan { accept: Accept::Exclusive, workers: 3, connections: 40, ..PLAN });
}

#[test]
fn more_threads_than_connections() {
    quietline_testing::isolated!();
    load(10, Plan { workers: 4, clients: 3, connections: 2, until: Until::Requests(50), ..PLAN });
}

/// A client that does as it is told.
struct Raw<O: Os> {
    os: O,
    fd: O::Fd,
}

impl<O: Os> Raw<O> {
    fn connect(os: O, port: u16) -> Self {
        let fd = os.socket().unwrap();
        match os.connect(&fd, port) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => panic!("{error}"),
        }
        Self { os, fd }
    }

    /// Repeats a call until it need not wait.
    fn patiently<R>(mut call: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
        let begin = Instant::now();
        loop {
            match call() {
                Err(Errno::AGAIN) => {
                    assert!(begin.elapsed() < Duration::from_secs(120), "nothing happens");
                    std::thread::yield_now();
                }
                done => return done,
            }
        }
    }

    /// Sends; as much as the server wants.
    fn send(&self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match Self::patiently(|| self.os.write(&self.fd, &bytes[at..])) {
                Ok(n) => at += n,
                Err(Errno::PIPE | Errno::CONNRESET) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// All that comes until the server hangs up.
    fn rest(&self) -> String {
        let mut all = Vec::new();
        let mut room = vec![0; 1 << 16];
        loop {
            let n = Self::patiently(|| self.os.read(&self.fd, &mut room)).unwrap();
            if n == 0 {
                return String::from_utf8_lossy(&all).into_owned();
            }
            all.extend(&room[..n]);
        }
    }
}

/// Runs `f` while a server with two workers is there, and says what that did.
fn served<O: Os, R: Send>(os: O, site: &Site, f: impl FnOnce(u16) -> R + Send) -> (R, Tally) {
    let server = &Server::open(os, 2, Accept::Exclusive).unwrap();
    std::thread::scope(|scope| {
        let workers = [0, 1].map(|worker| scope.spawn(move || server.work(worker, site).unwrap()));
        // On a thread of its own, so that the workers end also if it panics.
        let done = scope.spawn(|| f(server.port)).join();
        server.stop().unwrap();
        let [one, two] = workers.map(|worker| worker.join().unwrap());
        let tally = Tally {
            connections: one.connections + two.connections,
            answers: one.answers + two.answers,
            refusals: one.refusals + two.refusals,
        };
        (done.unwrap(), tally)
    })
}

/// What the server says to these bytes, sent in pieces, until it hangs up.
fn conversation<O: Os>(os: O, bytes: &[u8], piece: usize) -> (String, Tally) {
    served(os, &Site::new(5), |port| {
        let client = Raw::connect(os, port);
        bytes.chunks(piece).for_each(|piece| client.send(piece));
        client.rest()
    })
}

/// The status codes of all answers, in order.
fn codes(answers: &str) -> Vec<u16> {
    let lines = answers.match_indices("HTTP/1.1 ").map(|(at, start)| &answers[at + start.len()..]);
    lines.map(|rest| rest[..3].parse().unwrap()).collect()
}

const END: &str = "GET /empty HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Bytes, with a last request behind them, and the codes of the answers.
fn cases() -> Vec<(String, Vec<u16>)> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let with = |fields: &str| format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let many = |n: usize| (0..n).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    vec![
        // What goes on: the last request is answered, too.
        (get("/"), vec![200, 200]),
        (get("/body"), vec![200, 200]),
        (get("/?a=b"), vec![200, 200]),
        (get("http://x/body?x"), vec![200, 200]),
        (get("HTTP://x"), vec![200, 200]),
        (get("/nowhere"), vec![404, 200]),
        (get("/body/"), vec![404, 200]),
        ("HEAD /body HTTP/1.1\r\nHost: x\r\n\r\n".into(), vec![200, 200]),
        ("HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n".into(), vec![404, 200]),
        ("DELETE /body HTTP/1.1\r\nHost: x\r\n\r\n".into(), vec![405, 200]),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n".into(), vec![405, 200]),
        (
            "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello there".into(),
            vec![405, 200],
        ),
        (with("Content-Length: 3\r\n") + "abc", vec![200, 200]),
        (with("Content-Length: 3\r\nContent-Length: 3\r\n") + "abc", vec![200, 200]),
        (with("Content-Length: 3, 3\r\n") + "abc", vec![200, 200]),
        (with("Content-Length: 20000\r\n") + &"z".repeat(20000), vec![200, 200]),
        (with(&many(63)), vec![200, 200]),
        ("\r\n".to_owned() + &get("/"), vec![200, 200]),
        (get("/").repeat(500), [vec![200; 500], vec![200]].concat()),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n".into(), vec![200, 200]),
        // What ends: nothing after it is answered.
        ("GET / HTTP/1.0\r\n\r\n".into(), vec![200]),
        (with("Connection: foo, Close\r\n"), vec![200]),
        ("GET / HTTP/1.1\r\n\r\n".into(), vec![400]),
        (with("Host: y\r\n"), vec![400]),
        ("\x16\x03\x01\x02 hello\r\n\r\n".into(), vec![400]),
        ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n".into(), vec![400]),
        (get("no/slash"), vec![400]),
        (get("/") + "nonsense\r\n\r\n", vec![200, 400]),
        (with("Content-Length: -1\r\n"), vec![400]),
        (with("Content-Length: +3\r\n") + "abc", vec![400]),
        (with("Content-Length: \r\n"), vec![400]),
        (with("Content-Length: 3,\r\n"), vec![400]),
        (with("Content-Length: 99999999999999999999\r\n"), vec![400]),
        (with("Content-Length: 3\r\nContent-Length: 4\r\n"), vec![400]),
        (with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), vec![400]),
        (with("Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n", vec![501]),
        (with("bad field: x\r\n"), vec![400]),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n".into(), vec![505]),
        (with(&many(64)), vec![431]),
        (with(&format!("X: {}\r\n", "y".repeat(9000))), vec![431]),
        (get(&"/long".repeat(2000)), vec![414]),
        (get("/") + &with(&format!("X: {}\r\n", "y".repeat(9000))), vec![200, 431]),
    ]
}

#[test]
fn what_is_wrong_is_told_and_what_is_right_goes_on() {
    quietline_testing::isolated!();
    for (bytes, expected) in cases() {
        let begin: String = bytes.chars().take(60).collect();
        let all = bytes + END;
        let (ours, host) = on_both!(|os| conversation(os, all.as_bytes(), all.len()));
        assert_eq!(codes(&ours.0), expected, "{begin:?}: {}", ours.0);
        assert_eq!(ours.0, host.0, "{begin:?}");
        assert_eq!(ours.1, host.1, "{begin:?}");
        let refused = expected.iter().filter(|code| **code != 200).count() as u64;
        assert_eq!(
            ours.1,
            Tally { connections: 1, answers: expected.len() as u64, refusals: refused }
        );
        assert_eq!(ours.0.matches("Connection: close").count(), 1, "{begin:?}");
    }
}

#[test]
fn requests_in_pieces() {
    quietline_testing::isolated!();
    let all: String =
        cases().into_iter().take(15).map(|(bytes, _)| bytes).collect::<String>() + END;
    let expected = on_both!(|os| conversation(os, all.as_bytes(), all.len()));
    assert_eq!(expected.0, expected.1);
    assert_eq!(codes(&expected.0.0).len(), 16);
    for piece in [1, 2, 7, 100] {
        let got = on_both!(|os| conversation(os, all.as_bytes(), piece));
        assert_eq!(got, expected, "pieces of {piece}");
    }
}

#[test]
fn an_answer_to_the_letter() {
    quietline_testing::isolated!();
    let ours = on_both!(|os| conversation(os, END.as_bytes(), 1)).0.0;
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\n\
                    Connection: close\r\n\r\n";
    assert_eq!(ours, expected);
    let all = "PUT /body HTTP/1.0\r\n\r\n";
    let ours = on_both!(|os| conversation(os, all.as_bytes(), 5)).0.0;
    let expected = "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Content-Length: 23\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n405 Method Not Allowed\n";
    assert_eq!(ours, expected);
}

#[test]
fn a_reader_that_is_slow_does_not_hold_up_others() {
    quietline_testing::isolated!();
    fn slow<O: Os>(os: O) -> Tally {
        let site = Site::new(1 << 20);
        let ask = format!("GET {BODY} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(20) + END;
        let served = served(os, &site, |port| {
            let sleeper = Raw::connect(os, port);
            sleeper.send(ask.as_bytes());
            // As many of them as there are workers, and one more.
            let others = [0, 1].map(|_| {
                let other = Raw::connect(os, port);
                other.send(ask.as_bytes());
                other
            });
            for _ in 0..20 {
                let quick = Raw::connect(os, port);
                quick.send(END.as_bytes());
                assert_eq!(codes(&quick.rest()), [200]);
            }
            for slow in [&sleeper].into_iter().chain(&others) {
                let all = slow.rest();
                assert_eq!(codes(&all).len(), 21);
                assert!(all.len() > 20 << 20);
            }
        });
        served.1
    }
    let (ours, host) = on_both!(slow);
    assert_eq!(ours, host);
    assert_eq!(ours, Tally { connections: 23, answers: 20 + 3 * 21, refusals: 0 });
}

#[test]
fn a_client_that_goes_in_the_middle_costs_nothing() {
    quietline_testing::isolated!();
    fn rude<O: Os>(os: O) -> Tally {
        let site = Site::new(1 << 20);
        let served = served(os, &site, |port| {
            for n in 0..50 {
                let client = Raw::connect(os, port);
                // A part of a request, or one whose answer does not fit, or nothing.
                let bytes = format!("GET {BODY} HTTP/1.1\r\nHost: x\r\n\r\n");
                client.send(&bytes.as_bytes()[..[0, 10, bytes.len()][n % 3]]);
            }
            let last = Raw::connect(os, port);
            last.send(END.as_bytes());
            assert_eq!(codes(&last.rest()), [200]);
        });
        served.1
    }
    let (ours, host) = on_both!(rude);
    assert_eq!(ours.refusals + host.refusals, 0);
}

/// What the client says of an answer: its first request is for the page.
fn judged<O: Os>(os: O, site: &Site, answer: &[u8]) -> Result<u64, String> {
    let listener = os.socket().unwrap();
    os.bind(&listener, 0).unwrap();
    os.listen(&listener, 1).unwrap();
    let port = os.port(&listener).unwrap();
    let (asks, line) = (asks(site, "lost"), Barrier::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let server = Raw { os, fd: Raw::<O>::patiently(|| os.accept(&listener)).unwrap() };
            let mut come = 0;
            while come < 20 {
                come += Raw::<O>::patiently(|| os.read(&server.fd, &mut [0; 1000])).unwrap();
            }
            server.send(answer);
        });
        let until = Until::Requests(1);
        let outcome =
            drive(os, Load { port, connections: 1, pipeline: 1, until, asks: &asks }, &line);
        outcome.map(|outcome| outcome.answers).map_err(|Failure(why)| why)
    })
}

#[test]
fn a_wrong_answer_is_noticed() {
    quietline_testing::isolated!();
    let site = Site::new(5);
    let mut right = Vec::new();
    site.find(PAGE).unwrap().answer(true, After::Stays, &mut right);
    let text = String::from_utf8(right.clone()).unwrap();
    let mut flipped = right.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let wrong = [
        (flipped, "of a body is wrong"),
        (text.replace("200 OK", "404 OK").into_bytes(), "an answer is wrong"),
        (text.replace("HTTP/1.1", "HTTP/1.0").into_bytes(), "an answer is wrong"),
        (text.replace("Content-Type", "Content-Kind").into_bytes(), "an answer is wrong"),
        (text.replace("Content-Length: ", "Content-Length: 1").into_bytes(), "an answer is wrong"),
        (
            text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").into_bytes(),
            "an answer is wrong",
        ),
        (text.replace("HTTP/", "FTP/").into_bytes(), "an answer cannot be read"),
        ([&right[..], b"x"].concat(), "nobody has asked for"),
        (right[..right.len() - 1].to_vec(), "hung up"),
        (Vec::new(), "hung up"),
    ];
    for (bytes, complaint) in wrong {
        let (ours, host) = on_both!(|os| judged(os, &site, &bytes));
        for error in [ours.unwrap_err(), host.unwrap_err()] {
            assert!(error.contains(complaint), "{error} instead of {complaint}");
        }
    }
}
