//! The screen: GPUs, processes with their history, and the lines of code of one program.
//!
//! The table adapts to the terminal: the narrower it is, the fewer and narrower its columns, so that the command stays
//! visible.

use std::collections::VecDeque;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use makeroom_core::Bytes;
use makeroom_explain::Site;
use makeroom_holders::{Account, Device};

use super::layout::divide;
use super::line::Line;
use super::rows::HolderRow;
use super::{Screen, Sites, usable};
use crate::bars::bar;
use crate::sanitize;
use crate::wrap::{clip, wrap};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
/// Width of a GPU's bar, on a wide and on a narrow terminal.
const BAR_COLUMNS: [usize; 2] = [20, 16];
/// Minimum width of the command.
const LEAST_COMMAND: usize = 16;
/// Maximum number of devices to show; the rest is counted.
const MOST_DEVICES: usize = 8;
/// Height of the lower part.
const SITES_LINES: usize = 10;

impl Screen {
    /// The screen as `rows` lines of at most `columns` columns, with the escape sequences of their styles.
    pub fn draw(&self, columns: u16, rows: u16) -> Vec<String> {
        self.lines(columns, rows).iter().map(Line::rendered).collect()
    }

    /// The screen as plain text with at most this many columns and rows, for a terminal without cursor control.
    pub fn plain(&self, columns: u16, rows: u16) -> String {
        let mut lines: Vec<String> =
            self.lines(columns, rows).iter().map(|line| line.text().trim_end().to_owned()).collect();
        // Without the last line, which lists keys.
        lines.pop();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n") + "\n"
    }

    pub(super) fn lines(&self, columns: u16, rows: u16) -> Vec<Line> {
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        let devices = self.device_lines(columns);
        let lower = if self.sites.is_some() { SITES_LINES.min(rows / 2) } else { 0 };
        let heights = divide(rows, devices.len() + 1, lower);
        let [_, _, table, _, _] = heights;
        let parts = [
            vec![self.title(columns)],
            devices,
            self.table_lines(columns, table),
            self.sites.as_ref().map(|shown| sites_lines(shown, columns)).unwrap_or_default(),
            vec![self.keys()],
        ];
        let parts = parts.into_iter().zip(heights).flat_map(|(mut lines, height)| {
            lines.resize(height, Line::default());
            lines
        });
        parts.map(|line| line.fit(columns)).collect()
    }

    fn title(&self, columns: usize) -> Line {
        let text = match &self.account {
            None => "makeroom top: reading GPUs".to_owned(),
            Some(Account { driver: Err(error), .. }) => format!("makeroom top: {error}"),
            Some(Account { driver: Ok(driver), host, .. }) => {
                let cuda = driver.cuda_text().map_or(String::new(), |cuda| format!(", CUDA {cuda}"));
                format!("makeroom top  {host}  driver {}{cuda}", driver.version)
            }
        };
        Line::styled(clip(&text, columns), BOLD)
    }

    fn device_lines(&self, columns: usize) -> Vec<Line> {
        let Some(account) = &self.account else { return Vec::new() };
        if let Err(error) = &account.driver {
            return wrap(error.hint(), columns.saturating_sub(2)).into_iter().map(Line::plain).collect();
        }
        let mut lines: Vec<Line> =
            usable(account).take(MOST_DEVICES).map(|device| self.device_line(device, columns)).collect();
        let rest = usable(account).skip(MOST_DEVICES).count();
        if rest > 0 {
            lines.push(Line::plain(format!("and {rest} more")));
        }
        lines
    }

    fn device_line(&self, device: &Device, columns: usize) -> Line {
        let Some(memory) = device.memory else {
            let why = device.problems.first().map_or("does not respond", |problem| problem.answer.as_str());
            let text = format!("GPU {:<3} {why}", device.label.to_string());
            return Line::styled(clip(&text, columns), BOLD);
        };
        let taken = memory.total - memory.free;
        let share = taken.share_of(memory.total);
        let unlisted = if device.unlisted.matters() {
            format!("  no owner: {}", Bytes::new(device.unlisted.bytes.unsigned_abs()))
        } else {
            String::new()
        };
        let text = format!(
            "{taken:>10} of {:>10} {:>3.0} %{unlisted}  {}",
            memory.total,
            share * 100.0,
            device.name
        );
        let [wide, narrow] = BAR_COLUMNS;
        let bar_columns = if columns >= 100 { wide } else { narrow };
        let room = columns.saturating_sub(bar_columns + 10);
        let colour = match share {
            share if share >= 0.95 => AnsiColor::Red,
            share if share >= 0.8 => AnsiColor::Yellow,
            _ => AnsiColor::Green,
        };
        Line::styled(format!("GPU {:<4}", device.label.to_string()), BOLD)
            .and(format!("{:<bar_columns$} ", bar(share, bar_columns)), self.coloured(colour))
            .and(clip(&text, room), Style::new())
    }

    fn coloured(&self, colour: AnsiColor) -> Style {
        if self.uses_colour { colour.on_default() } else { Style::new() }
    }

    fn table_lines(&self, columns: usize, height: usize) -> Vec<Line> {
        let rows = self.rows();
        let widths = Widths::for_columns(columns);
        let mut lines = vec![Line::styled(clip(&widths.heading(), columns), DIM)];
        // Scroll so that the selected row is visible.
        let room = height.saturating_sub(1);
        let first = (self.selected() + 1).saturating_sub(room);
        for (position, row) in rows.iter().enumerate().skip(first).take(room) {
            let mut style = if row.is_odd { self.coloured(AnsiColor::Yellow) } else { Style::new() };
            if position == self.selected() {
                style = style.invert();
            }
            lines.push(Line::styled(format!("{:<columns$}", widths.row(row, columns)), style));
        }
        // A driver that does not respond has no list of processes.
        if rows.is_empty() && self.account.as_ref().is_some_and(|account| account.driver.is_ok()) {
            let text = if self.filter.is_empty() { "no processes" } else { "no process matches the filter" };
            lines.push(Line::plain(format!("     {text}")));
        }
        lines
    }

    fn keys(&self) -> Line {
        if self.is_filtering {
            return Line::styled("filter: ", BOLD).and(format!("{}▏", self.filter), Style::new());
        }
        let filter = if self.filter.is_empty() { String::new() } else { format!(" ({})", self.filter) };
        let reversed = if self.is_reversed { ", reversed" } else { "" };
        let text = format!(
            "q quit  s sort: {}{reversed}  r reverse  / filter{filter}  ↑↓ select  enter lines of code",
            self.order.name()
        );
        Line::styled(text, DIM)
    }
}

/// Widths of the table's fields; 0 omits a field.
struct Widths {
    user: usize,
    history: usize,
    age: usize,
}

impl Widths {
    /// Widths that leave space for the command.
    fn for_columns(columns: usize) -> Self {
        match columns {
            100.. => Self { user: 12, history: 12, age: 6 },
            76.. => Self { user: 8, history: 8, age: 6 },
            60.. => Self { user: 8, history: 0, age: 6 },
            _ => Self { user: 0, history: 0, age: 0 },
        }
    }

    fn heading(&self) -> String {
        self.fields(["GPU", "PROCESS", "USER", "MEMORY", "HISTORY", "AGE"]) + " COMMAND"
    }

    fn row(&self, row: &HolderRow, columns: usize) -> String {
        let bytes = row.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        let (pid, history, age) =
            (row.pid.to_string(), history(&row.history, self.history), short_age(row.age));
        let fields = self.fields([&row.device, &pid, &row.user, &bytes, &history, &age]);
        let mark = if row.recording.is_some() { "●" } else { " " };
        let room = columns.saturating_sub(fields.chars().count() + 1);
        clip(&format!("{fields}{mark}{}", with_notes(&row.command, &row.notes, room)), columns)
    }

    fn fields(&self, [device, pid, user, memory, history, age]: [&str; 6]) -> String {
        let mut text = format!("{device:>4} {pid:>8}");
        if self.user > 0 {
            text += &format!(" {:<1$}", clip(user, self.user), self.user);
        }
        text += &format!(" {memory:>10}");
        if self.history > 0 {
            text += &format!(" {:<1$}", clip(history, self.history), self.history);
        }
        if self.age > 0 {
            text += &format!(" {age:>0$}", self.age);
        }
        text
    }
}

/// A command and the notes about its process. If both do not fit, the command is truncated first, but not below
/// [`LEAST_COMMAND`].
fn with_notes(command: &str, notes: &str, room: usize) -> String {
    if notes.is_empty() {
        return command.to_owned();
    }
    let notes = format!("  [{notes}]");
    let left = room.saturating_sub(notes.chars().count());
    clip(command, left.max(LEAST_COMMAND)) + &notes
}

/// A duration in at most six columns: `45 s`, `12 min`, `3h07`, `12d`.
fn short_age(age: Option<Duration>) -> String {
    let Some(seconds) = age.map(|age| age.as_secs()) else { return String::new() };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{}h{:02}", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86400),
    }
}

/// The last readings as a sparkline, scaled to the process's own peak.
fn history(values: &VecDeque<u64>, columns: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let recent = values.iter().skip(values.len().saturating_sub(columns));
    let highest = (HEIGHTS.len() - 1) as f64;
    recent.map(|&value| HEIGHTS[(value as f64 / most as f64 * highest) as usize % HEIGHTS.len()]).collect()
}

fn sites_lines(sites: &Sites, columns: usize) -> Vec<Line> {
    let mut lines = vec![Line::styled(
        clip(
            &format!("lines of code of {} at its peak, from its recording (esc closes)", sites.pid),
            columns,
        ),
        BOLD,
    )];
    match &sites.found {
        None => lines.push(Line::plain("  reading")),
        Some(Err(why)) => lines.extend(
            wrap(&sanitize(why), columns.saturating_sub(4))
                .into_iter()
                .map(|line| Line::plain(format!("  {line}"))),
        ),
        Some(Ok(found)) if found.is_empty() => lines.push(Line::plain("  no live memory")),
        Some(Ok(found)) => add_sites(&mut lines, found, 0, columns),
    }
    lines
}

fn add_sites(lines: &mut Vec<Line>, sites: &[Site], depth: usize, columns: usize) {
    for site in sites {
        let text = format!("{:>12}  {}{}", site.bytes.to_string(), "  ".repeat(depth), site.place);
        lines.push(Line::plain(clip(&text, columns)));
        add_sites(lines, &site.callees, depth + 1, columns);
    }
}
