//! The table, live in the terminal.

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use quietline::observe::Report;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::Text;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::table::{self, Sort};

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    End,
    Look,
    Sort(Sort),
}

/// Shows `report`, and what `look` finds after each delay, until the user ends it or the process is gone.
///
/// # Errors
/// What `look` returns, and what the terminal does, when it is as it was before.
pub(super) fn run(
    report: Report,
    look: impl Fn() -> anyhow::Result<Report>,
    sort: Sort,
    delay: Duration,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("cannot use the terminal; try --once")?;
    let result = show(&mut terminal, report, look, sort, delay);
    ratatui::restore();
    result
}

fn show(
    terminal: &mut DefaultTerminal,
    mut report: Report,
    look: impl Fn() -> anyhow::Result<Report>,
    mut sort: Sort,
    delay: Duration,
) -> anyhow::Result<()> {
    let mut next = Instant::now() + delay;
    loop {
        terminal
            .draw(|frame| draw(frame, &report, sort))
            .context("cannot write to the terminal")?;
        let wish = match event::poll(next.saturating_duration_since(Instant::now()))? {
            false => Some(Wish::Look),
            true => match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => wish(key),
                _ => None,
            },
        };
        match wish {
            Some(Wish::End) => return Ok(()),
            Some(Wish::Sort(other)) => sort = other,
            Some(Wish::Look) => {
                report = look()?;
                next = Instant::now() + delay;
            }
            None => {}
        }
    }
}

fn wish(key: KeyEvent) -> Option<Wish> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::End),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Wish::End),
        KeyCode::Char(' ') => Some(Wish::Look),
        KeyCode::Char(letter) => {
            Sort::from_str(letter.encode_utf8(&mut [0; 4]), true).ok().map(Wish::Sort)
        }
        _ => None,
    }
}

fn draw(frame: &mut Frame, report: &Report, sort: Sort) {
    let summary = table::summary(report);
    let lines = summary.lines().count() as u16;
    let [above, below] =
        Layout::vertical([Constraint::Length(lines + 1), Constraint::Min(0)]).areas(frame.area());
    frame.render_widget(Paragraph::new(summary), above);
    let last = table::COLUMNS.len() - 1;
    let cell = |(at, text): (usize, String)| {
        let text = Text::from(text);
        Cell::from(if at == last { text } else { text.right_aligned() })
    };
    let row =
        |cells: Vec<String>| Row::new(cells.into_iter().enumerate().map(cell).collect::<Vec<_>>());
    let header = row(table::COLUMNS.map(String::from).into()).style(Style::new().reversed());
    let rows = table::sorted(report, sort).into_iter().map(|cache| row(table::cells(cache).into()));
    let widths = [8, 8, 4, 8, 8, 9, 7, 8, 11].map(Constraint::Length).into_iter();
    let table = Table::new(rows, widths.chain([Constraint::Fill(1)])).header(header);
    frame.render_widget(table, below);
}

#[cfg(test)]
mod tests;
