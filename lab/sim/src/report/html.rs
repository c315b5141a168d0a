//! The report as a page: the tables, and a picture of lines going from CPU to CPU.

use super::{Report, Transfer};
use core::fmt::Write;

/// Pixels of a row, and of the picture's width without the names.
const ROW: usize = 18;
const WIDTH: f64 = 900.0;
const NAMES: f64 = 320.0;

/// Colours that CPUs take in turn.
const COLOURS: [&str; 8] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#9c6b4e"];

/// The page.
pub fn page(report: &Report) -> String {
    let title = escape(&format!("{} on {} CPUs of {}", report.operation, report.cpus, report.machine));
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>{title}</title><style>body{{font:14px sans-serif;margin:2em}}\
         pre{{font:12px monospace}}text{{font:11px sans-serif}}</style><h1>{title}</h1>"
    );
    page += "<h2>Lines by CPU over time</h2>";
    if report.picture.is_empty() {
        page += "<p>No line went from one CPU to another.</p>";
    } else {
        page +=
            "<p>Each mark is a line that a CPU got from others; filled, to write it. A colour is a CPU.</p>";
        page += &picture(&report.picture);
    }
    let _ = write!(
        page,
        "<h2>Tables</h2><pre>{}</pre><h2>Latencies and their sources</h2><ul>",
        escape(&report.to_string())
    );
    for (what, source) in &report.sources {
        let _ = write!(page, "<li>{}: {}</li>", escape(what), escape(source));
    }
    page + "</ul>"
}

fn picture(transfers: &[Transfer]) -> String {
    let rows = transfers.iter().map(|t| t.line + 1).max().unwrap_or(0);
    let end = transfers.iter().map(|t| t.at_ns).fold(1.0, f64::max);
    let height = (rows + 2) * ROW;
    let mut svg =
        format!("<svg width={} height={height} xmlns='http://www.w3.org/2000/svg'>", WIDTH + NAMES + 20.0);
    for row in 0..rows {
        let y = row * ROW + ROW / 2;
        let name = transfers.iter().find(|t| t.line == row).map_or("", |t| t.name.as_str());
        let short: String = name.chars().take(52).collect();
        let _ = write!(
            svg,
            "<text x=0 y={}>{}</text><line x1={NAMES} x2={} y1={y} y2={y} stroke='#ddd'/>",
            y + 4,
            escape(&short),
            NAMES + WIDTH
        );
    }
    for t in transfers {
        let (x, y) = (NAMES + t.at_ns / end * WIDTH, t.line * ROW + ROW / 2);
        let colour = COLOURS[t.cpu % COLOURS.len()];
        let fill = if t.write { colour } else { "white" };
        let _ = write!(
            svg,
            "<circle cx={x:.1} cy={y} r=4 fill='{fill}' stroke='{colour}'><title>CPU {}, {:.0} ns</title></circle>",
            t.cpu, t.at_ns
        );
    }
    let _ = write!(
        svg,
        "<text x={NAMES} y={}>0</text><text x={} y={}>{end:.0} ns</text></svg>",
        height - 6,
        NAMES + WIDTH - 40.0,
        height - 6
    );
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
