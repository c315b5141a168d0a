//! What the screen shows, and what keys ask for.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn report() -> Report {
    serde_json::from_str(
        r#"{"pid": 42, "program": "server", "memory": 98304, "caches": [
            {"name": "small", "object_size": 64, "objects_per_slab": 60, "slab_size": 4096, "slabs": 2, "places": 120,
             "active": 30, "cached": 70, "waiting": 4},
            {"name": "large\u001b[2J", "object_size": 2048, "objects_per_slab": 31, "slab_size": 65536, "slabs": 1,
             "places": 31, "active": 31}]}"#,
    )
    .unwrap()
}

fn screen(report: &Report, sort: Sort) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(100, 12)).unwrap();
    terminal.draw(|frame| draw(frame, report, sort)).unwrap();
    let buffer = terminal.backend().buffer();
    let row =
        |y| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..12).map(row).collect()
}

#[test]
fn the_screen() {
    let lines = screen(&report(), Sort::Objects);
    assert_eq!(lines[0], " Process                            : 42 (server)");
    assert_eq!(lines[1], " Active / Total Objects (% used)    : 61 / 151 (40%)");
    assert_eq!(lines[4], " Active / Total Size (% used)       : 63.88K / 72.00K (88%)");
    assert_eq!(
        lines[6],
        "    OBJS   ACTIVE  USE   CACHED  WAITING  OBJ SIZE   SLABS OBJ/SLAB  CACHE SIZE NAME"
    );
    assert_eq!(
        lines[7],
        "     120       30  25%       70        4     0.06K       2       60       8.00K small"
    );
    assert_eq!(
        lines[8],
        "      31       31 100%        0        0     2.00K       1       31      64.00K large?[2J"
    );
}

#[test]
fn the_order() {
    for (sort, first) in [
        (Sort::Active, "large"),
        (Sort::ObjectsPerSlab, "small"),
        (Sort::CacheSize, "large"),
        (Sort::Slabs, "small"),
        (Sort::ActiveSlabs, "small"),
        (Sort::Name, "large"),
        (Sort::Objects, "small"),
        (Sort::PagesPerSlab, "large"),
        (Sort::ObjectSize, "large"),
        (Sort::Use, "large"),
    ] {
        assert!(screen(&report(), sort)[7].contains(first), "{sort:?}");
    }
}

#[test]
fn keys() {
    let key = |letter| wish(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
    assert_eq!([key('q'), key(' '), key('x')], [Some(Wish::End), Some(Wish::Look), None]);
    assert_eq!(
        [key('c'), key('U')],
        [Some(Wish::Sort(Sort::CacheSize)), Some(Wish::Sort(Sort::Use))]
    );
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(wish(interrupt), Some(Wish::End));
    assert_eq!(wish(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), Some(Wish::End));
}
