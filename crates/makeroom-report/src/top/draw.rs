//! The screen: devices, holders with their history, and the sites of one program.
//!
//! Everything fits 80 columns; a wider terminal gives the command more room.

use std::collections::VecDeque;

use makeroom_core::Bytes;
use makeroom_explain::Site;
use makeroom_holders::{Account, Device};
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal};

use super::rows::Row;
use super::{Screen, Sites, usable};
use crate::bars::bar;
use crate::ps::age;
use crate::sanitize;
use crate::wrap::{clip, wrap};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// Columns of a device's bar.
const BAR_COLUMNS: usize = 20;
/// Columns of a holder's history.
const HISTORY_COLUMNS: usize = 12;
/// Devices that are shown; more are counted.
const MOST_DEVICES: usize = 8;
/// Lines of the lower half.
const SITES_LINES: u16 = 10;

impl Screen {
    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let devices = self.device_lines(usize::from(frame.area().width));
        let lower = if self.sites.is_some() { SITES_LINES.min(frame.area().height / 2) } else { 0 };
        let parts = [
            Constraint::Length(1),
            Constraint::Length(devices.len() as u16 + 1),
            Constraint::Min(3),
            Constraint::Length(lower),
            Constraint::Length(1),
        ];
        let [title, upper, table, sites, keys] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(self.title(usize::from(title.width)), title);
        frame.render_widget(Paragraph::new(Text::from(devices)), upper);
        self.draw_table(frame, table);
        if let Some(shown) = &self.sites {
            frame.render_widget(sites_text(shown, sites), sites);
        }
        frame.render_widget(self.keys(), keys);
    }

    /// The screen as plain text of at most so many columns and rows, for a terminal that can only print.
    pub fn plain(&self, columns: u16, rows: u16) -> String {
        let mut terminal =
            Terminal::new(TestBackend::new(columns, rows)).unwrap_or_else(|never| match never {});
        let _ = terminal.draw(|frame| self.draw(frame)).unwrap_or_else(|never| match never {});
        let buffer = terminal.backend().buffer();
        // The last line tells keys, of which there are none.
        let row = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let mut lines: Vec<String> =
            (0..rows.saturating_sub(1)).map(|y| row(y).trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n") + "\n"
    }

    fn title(&self, columns: usize) -> Line<'static> {
        let text = match &self.account {
            None => "makeroom top: looking".to_owned(),
            Some(Account { driver: Err(error), .. }) => format!("makeroom top: {error}"),
            Some(Account { driver: Ok(driver), host, .. }) => {
                let cuda = driver.cuda_text().map_or(String::new(), |cuda| format!(", CUDA {cuda}"));
                format!("makeroom top  {host}  driver {}{cuda}", driver.version)
            }
        };
        Line::styled(clip(&text, columns), BOLD)
    }

    fn device_lines(&self, columns: usize) -> Vec<Line<'static>> {
        let Some(account) = &self.account else { return Vec::new() };
        if let Err(error) = &account.driver {
            return wrap(error.hint(), columns.saturating_sub(2)).into_iter().map(Line::raw).collect();
        }
        let mut lines: Vec<Line<'static>> =
            usable(account).take(MOST_DEVICES).map(|device| self.device_line(device, columns)).collect();
        let rest = usable(account).skip(MOST_DEVICES).count();
        if rest > 0 {
            lines.push(Line::raw(format!("and {rest} more")));
        }
        lines
    }

    fn device_line(&self, device: &Device, columns: usize) -> Line<'static> {
        let Some(memory) = device.memory else {
            let why = device.problems.first().map_or("does not answer", |problem| problem.answer.as_str());
            let text = format!("GPU {:<3} {why}", device.label.to_string());
            return Line::styled(clip(&text, columns), BOLD);
        };
        let taken = memory.total - memory.free;
        let share = taken.share_of(memory.total);
        let unlisted = if device.unlisted.matters() {
            format!("  nobody: {}", Bytes::new(device.unlisted.bytes.unsigned_abs()))
        } else {
            String::new()
        };
        let text = format!(
            "{taken:>10} of {:>10} {:>3.0} %{unlisted}  {}",
            memory.total,
            share * 100.0,
            device.name
        );
        let room = columns.saturating_sub(BAR_COLUMNS + 10);
        let colour = match share {
            share if share >= 0.95 => Color::Red,
            share if share >= 0.8 => Color::Yellow,
            _ => Color::Green,
        };
        Line::from(vec![
            Span::styled(format!("GPU {:<4}", device.label.to_string()), BOLD),
            Span::styled(format!("{:<BAR_COLUMNS$} ", bar(share, BAR_COLUMNS)), self.coloured(colour)),
            Span::raw(clip(&text, room)),
        ])
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.uses_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows();
        let columns = usize::from(area.width);
        let heading = format!(
            "{:>4} {:>8} {:<9} {:>10} {:<HISTORY_COLUMNS$} {:>10} COMMAND",
            "GPU", "PROCESS", "USER", "MEMORY", "HISTORY", "FOR"
        );
        let mut lines = vec![Line::styled(clip(&heading, columns), DIM)];
        // The selected row stays in sight.
        let room = usize::from(area.height).saturating_sub(1);
        let first = (self.selected() + 1).saturating_sub(room);
        for (position, row) in rows.iter().enumerate().skip(first).take(room) {
            let mut style = if row.is_odd { self.coloured(Color::Yellow) } else { Style::new() };
            if position == self.selected() {
                style = style.add_modifier(Modifier::REVERSED);
            }
            lines.push(Line::styled(format!("{:<columns$}", clip(&row_text(row), columns)), style));
        }
        // A driver that does not answer has said nothing about holders.
        if rows.is_empty() && self.account.as_ref().is_some_and(|account| account.driver.is_ok()) {
            let text =
                if self.filter.is_empty() { "nobody holds memory" } else { "nobody matches the filter" };
            lines.push(Line::raw(format!("     {text}")));
        }
        frame.render_widget(Paragraph::new(Text::from(lines)), area);
    }

    fn keys(&self) -> Line<'static> {
        if self.is_filtering {
            return Line::from(vec![Span::styled("filter: ", BOLD), Span::raw(format!("{}▏", self.filter))]);
        }
        let filter = if self.filter.is_empty() { String::new() } else { format!(" ({})", self.filter) };
        let reversed = if self.is_reversed { ", reversed" } else { "" };
        let text = format!(
            "q quit  s sort: {}{reversed}  r reverse  / filter{filter}  ↑↓ enter sites",
            self.order.name()
        );
        Line::styled(text, DIM)
    }
}

fn row_text(row: &Row) -> String {
    let bytes = row.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
    let mark = if row.recording.is_some() { "●" } else { " " };
    format!(
        "{:>4} {:>8} {:<9} {bytes:>10} {:<HISTORY_COLUMNS$} {:>10} {mark}{}",
        row.device,
        row.pid,
        clip(&row.user, 9),
        history(&row.history),
        age(row.age),
        row.what
    )
}

/// The last looks as a line of bars, the holder's own most being the highest.
fn history(values: &VecDeque<u64>) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let recent = values.iter().skip(values.len().saturating_sub(HISTORY_COLUMNS));
    let highest = (HEIGHTS.len() - 1) as f64;
    recent.map(|&value| HEIGHTS[(value as f64 / most as f64 * highest) as usize % HEIGHTS.len()]).collect()
}

fn sites_text(sites: &Sites, area: Rect) -> Paragraph<'static> {
    let columns = usize::from(area.width);
    let mut lines = vec![Line::styled(
        clip(&format!("sites of {}, at its peak, by its recording (esc closes)", sites.pid), columns),
        BOLD,
    )];
    match &sites.found {
        None => lines.push(Line::raw("  reading")),
        Some(Err(why)) => lines.extend(
            wrap(&sanitize(why), columns.saturating_sub(4))
                .into_iter()
                .map(|line| Line::raw(format!("  {line}"))),
        ),
        Some(Ok(found)) if found.is_empty() => lines.push(Line::raw("  nothing is live in it")),
        Some(Ok(found)) => add_sites(&mut lines, found, 0, columns),
    }
    lines.truncate(usize::from(area.height));
    Paragraph::new(Text::from(lines))
}

fn add_sites(lines: &mut Vec<Line<'static>>, sites: &[Site], depth: usize, columns: usize) {
    for site in sites {
        let text = format!("{:>12}  {}{}", site.bytes.to_string(), "  ".repeat(depth), site.place);
        lines.push(Line::raw(clip(&text, columns)));
        add_sites(lines, &site.callees, depth + 1, columns);
    }
}
