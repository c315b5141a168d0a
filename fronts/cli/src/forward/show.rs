//! What is shown: rates while it runs, in a terminal, and counters at the end.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use quietline_net::device::Tally;

use super::path::Path;
use super::ports::Ports;

/// The line of rates, and the rates at the end.
pub(super) struct Show {
    line: ProgressBar,
    looked: Sent,
    /// What the rates at the end count from: when the neighbour of generated packets had answered, for which one of them waited.
    from: Sent,
}

/// Packets that had been sent by each device at a time.
struct Sent {
    at: Instant,
    packets: [u64; 2],
}

impl Sent {
    fn by(ports: &Ports<'_>, at: Instant) -> Self {
        Self { at, packets: [0, 1].map(|port| ports.stats(port).tx_packets) }
    }

    /// How many a second a device has sent since another time.
    fn rate_since(&self, before: &Self, port: usize) -> String {
        rate(self.packets[port] - before.packets[port], self.at - before.at)
    }
}

const BETWEEN: Duration = Duration::from_millis(500);

impl Show {
    pub(super) fn new(ports: &Ports<'_>) -> Self {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        line.set_style(
            ProgressStyle::with_template("{spinner} {msg}")
                .unwrap_or(ProgressStyle::default_spinner()),
        );
        let now = Instant::now();
        Self { line, looked: Sent::by(ports, now), from: Sent::by(ports, now) }
    }

    /// Generated packets need not wait any more.
    pub(super) fn all_go(&mut self, ports: &Ports<'_>, now: Instant) {
        self.from = Sent::by(ports, now);
    }

    /// Shows the rates, and what the devices and the router have dropped, if that is due.
    pub(super) fn look(&mut self, ports: &Ports<'_>, path: &Path<'_>, now: Instant) {
        if now - self.looked.at < BETWEEN {
            return;
        }
        let sent = Sent::by(ports, now);
        let [back, out] = [0, 1].map(|port| sent.rate_since(&self.looked, port));
        let by_devices = [0, 1].iter().flat_map(|port| ports.stats(*port).drops()).map(|(_, n)| n);
        let dropped = by_devices.sum::<u64>() + path.dropped();
        self.line.set_message(format!("out {out}, back {back}, dropped {dropped}"));
        self.line.tick();
        self.looked = sent;
    }

    /// Takes the line away, and prints all counters. It is no error if nobody reads them.
    pub(super) fn end(&self, ports: &Ports<'_>, counts: &[(&str, u64)]) -> io::Result<()> {
        self.line.finish_and_clear();
        let sent = Sent::by(ports, Instant::now());
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["device", "received", "bytes", "sent", "bytes", "sent/s", "dropped"]);
        for (port, number) in ports.each().zip(0..) {
            let stats = ports.stats(number);
            let drops: Vec<_> =
                stats.drops().map(|(reason, n)| format!("{n} {}", reason.name())).collect();
            let drops = if drops.is_empty() { "0".to_owned() } else { drops.join(", ") };
            table.add_row([
                port.device().name().to_owned(),
                stats.rx_packets.to_string(),
                stats.rx_bytes.to_string(),
                stats.tx_packets.to_string(),
                stats.tx_bytes.to_string(),
                sent.rate_since(&self.from, number),
                drops,
            ]);
        }
        for column in 1..6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = format!("{table}\n");
        for (name, n) in counts {
            text += &format!("{name}: {n}\n");
        }
        if let Some(tally) = ports.tally() {
            let Tally { received, lost, duplicated, reordered, foreign, late, .. } = tally;
            let late = if late > 0 { format!(", {late} late") } else { String::new() };
            text += &format!(
                "sink: {received} received, {lost} lost, {duplicated} duplicated, {reordered} reordered, {foreign} foreign{late}\n",
            );
        }
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

fn rate(packets: u64, time: Duration) -> String {
    let rate = packets as f64 / time.as_secs_f64().max(1e-9);
    match rate {
        1e6.. => format!("{:.2} M/s", rate / 1e6),
        1e3.. => format!("{:.1} k/s", rate / 1e3),
        _ => format!("{rate:.0} /s"),
    }
}
