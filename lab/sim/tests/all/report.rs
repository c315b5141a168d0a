//! The report as a page: a browser finds nothing wrong with it, and it says what the report says.

use core::panic::Location;
use quietline_sim::directory::{Directory, Kind};
use quietline_sim::jitter::Jitter;
use quietline_sim::ledger::Ledger;
use quietline_sim::report::html::page;
use quietline_sim::report::{Basis, Report};
use quietline_sim::topology::Topology;
use scraper::{Html, Selector};

/// A line that two CPUs add to in turn, and one that only the first touches.
fn report(turns: u64) -> Report {
    let topology = Topology::load("one-socket-2").expect("a machine of our own");
    let mut directory = Directory::new(&topology, 2, Jitter::new(1, 0.0));
    let mut ledger = Ledger::new(2);
    for _ in 0..2 {
        directory.new_line();
        ledger.new_line();
    }
    let mut now = 0;
    let mut access = |cpu: usize, line: u32, kind| {
        let word = ledger.word(line, line as usize * 64);
        let outcome = directory.access(cpu, line, kind, now);
        ledger.by(word, kind, Location::caller());
        ledger.count(cpu, word, kind, now, &outcome);
        ledger.op_done(cpu);
        now = outcome.done + 500_000;
    };
    for turn in 0..turns {
        access((turn % 2) as usize, 0, Kind::Locked);
        access(0, 1, Kind::Store);
    }
    let basis = Basis {
        topology: &topology,
        cpus: 2,
        seed: 7,
        ops: turns.max(1),
        ns_per_op: 600.0,
        ledger: &ledger,
    };
    Report::new("swap <a> & \"b\"", &basis)
}

fn texts(page: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).expect("a selector");
    page.select(&selector)
        .map(|element| element.text().collect::<String>().trim().to_owned())
        .collect()
}

/// The page, in which a browser's parser has found nothing wrong.
fn parsed(report: &Report) -> Html {
    let text = page(report);
    let page = Html::parse_document(&text);
    assert!(page.errors.is_empty(), "{:?}\n{text}", page.errors);
    page
}

#[test]
fn the_page_says_what_the_report_says() {
    let report = report(10);
    let page = parsed(&report);
    let title = "swap <a> & \"b\" on 2 CPUs of one-socket-2";
    assert_eq!(texts(&page, "head > title"), [title]);
    assert_eq!(texts(&page, "h1"), [title]);
    let summary = &texts(&page, "#summary")[0];
    assert!(
        summary.contains("10 operations, seed 7") && summary.contains("600.0 ns per operation"),
        "{summary}"
    );

    // One line is contended: all ten operations touch it, all but the first, which has it from memory, fetch it.
    let cells = texts(&page, "#conflicts tbody td");
    assert_eq!(
        cells[..6],
        ["word +0 written at lab/sim/tests/all/report.rs:25", "1", "0", "2", "1.00", "0.90"]
    );
    assert_eq!(texts(&page, "#fields tbody tr").len(), report.fields.len());
    assert_eq!(texts(&page, "#sources li").len(), report.sources.len());

    // A mark for each of the nine, in the row of their line, in the colours of two CPUs, all to write.
    let circles = Selector::parse("#picture circle").expect("a selector");
    let marks: Vec<_> = page.select(&circles).map(|mark| mark.value()).collect();
    assert_eq!(marks.len(), 9);
    assert!(
        marks
            .iter()
            .all(|mark| mark.attr("cy") == Some("9") && mark.attr("fill") == mark.attr("stroke"))
    );
    assert!(marks.windows(2).all(|pair| pair[0].attr("fill") != pair[1].attr("fill")));
    let x = |mark: &scraper::node::Element| {
        mark.attr("cx").and_then(|x| x.parse::<f64>().ok()).expect("a number")
    };
    assert!(marks.windows(2).all(|pair| x(pair[0]) < x(pair[1])));
    assert_eq!((x(marks[0]), x(marks[8])), (320.0, 1220.0));
    assert!(texts(&page, "#picture text")[0].starts_with("word +0 written at"));
}

#[test]
fn where_nothing_is_contended_the_page_says_so() {
    let page = parsed(&report(1));
    assert_eq!(texts(&page, "#no-picture"), ["No line went from one CPU to another."]);
    assert_eq!(texts(&page, "#no-conflicts"), ["No line was contended."]);
    assert!(texts(&page, "#conflicts").is_empty() && texts(&page, "#picture").is_empty());
}
