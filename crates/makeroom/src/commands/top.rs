//! `makeroom top`: a live view of the processes on each GPU.
//!
//! ```text
//! top.rs            threads, signals, and the effect of keys and updates
//! top/keys.rs       parses keys from a terminal's bytes
//! top/terminal.rs   the terminal: raw mode, frames, and its restoration
//! ```
//!
//! One thread takes accounts, and another reads a recording when its lines are requested; the main thread waits for
//! keys and draws. On a terminal without cursor control (`TERM=dumb`), each account is printed below the previous
//! one.

mod keys;
mod terminal;

use std::io::{IsTerminal as _, Read as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use makeroom_core::Bytes;
use makeroom_explain::{Room, Site, TraceQuestion, explain_trace};
use makeroom_holders::{Account, Watcher, open_recording};
use makeroom_report::{Request, Screen};
use makeroom_trace::Input;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::Top;
use crate::commands::looking;
use crate::failure::Failure;
use crate::output;
use terminal::Terminal;

/// Minimum number of rows to print.
const LEAST_ROWS: u16 = 24;
/// Minimum number of columns to print.
const LEAST_COLUMNS: u16 = 60;

/// Maximum size of a recording to read: it may be another user's, and reading takes a multiple of its size in memory.
const LONGEST_RECORDING: u64 = 16 << 20;

/// A message from another thread.
enum News {
    Looked(Account),
    Sites(u32, Result<Vec<Site>, String>),
}

/// Runs `makeroom top`.
pub(crate) fn run(arguments: &Top) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let watcher = looking::often(&arguments.looking)?;
    let (sender, news) = channel();
    let interval = Duration::from_secs_f64(arguments.interval);
    let looks = sender.clone();
    std::thread::spawn(move || look(watcher, interval, &looks));
    let uses_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb") {
        print(Screen::new(false), &news)?;
        return Ok(ExitCode::SUCCESS);
    }
    // On these signals, restore the terminal before exiting.
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let mut terminal = Terminal::open()?;
    let ended = show(&mut terminal, Screen::new(uses_colour), &news, &sender, &is_over);
    terminal.restore()?;
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Prints each account until the process is ended.
fn print(mut screen: Screen, news: &Receiver<News>) -> Result<(), Failure> {
    for heard in news {
        if let News::Looked(account) = heard {
            screen.update(account);
            let size = |cells: usize, least| u16::try_from(cells).unwrap_or(u16::MAX).max(least);
            let rows = size(output::rows().unwrap_or_default(), LEAST_ROWS);
            let columns = size(output::columns(), LEAST_COLUMNS);
            output::result(&format!("{}\n", screen.plain(columns, rows)))?;
        }
    }
    Ok(())
}

fn show(
    terminal: &mut Terminal,
    mut screen: Screen,
    news: &Receiver<News>,
    sender: &Sender<News>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    let mut is_new = true;
    while !is_over.load(Ordering::Relaxed) {
        if is_new || terminal.is_stale() {
            terminal.show(|columns, rows| screen.draw(columns, rows))?;
        }
        let Some(keys) = terminal.keys()? else { return Ok(()) };
        is_new = !keys.is_empty();
        for key in keys {
            match screen.press(key) {
                Some(Request::Quit) => return Ok(()),
                Some(Request::Sites { pid, recording }) => {
                    let sender = sender.clone();
                    std::thread::spawn(move || {
                        // The main thread may have ended.
                        let _ = sender.send(News::Sites(pid, sites(&recording)));
                    });
                }
                None => {}
            }
        }
        for heard in news.try_iter() {
            is_new = true;
            match heard {
                News::Looked(account) => screen.update(account),
                News::Sites(pid, found) => screen.show_sites(pid, found),
            }
        }
    }
    Ok(())
}

fn look(mut watcher: Watcher, interval: Duration, news: &Sender<News>) {
    while news.send(News::Looked(watcher.look())).is_ok() {
        std::thread::sleep(interval);
    }
}

/// The lines of code that hold the memory at a recording's peak.
fn sites(recording: &Path) -> Result<Vec<Site>, String> {
    let file = open_recording(recording).ok_or("the recording cannot be opened")?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > LONGEST_RECORDING {
        let (length, path) = (Bytes::new(length), recording.display());
        return Err(format!(
            "the recording is {length}, too large to show here; to read it: makeroom why {path}"
        ));
    }
    match makeroom_trace::read(file.take(LONGEST_RECORDING)) {
        Ok(Input::Trace(trace)) => {
            let question = TraceQuestion { room: Room::Unknown, device: None };
            Ok(explain_trace(&trace, &question).sites)
        }
        Ok(Input::Text(_)) => Err("not a recording".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Another user may choose the file.
    #[test]
    fn a_recording_that_is_too_long_or_no_file_is_not_read() {
        let folder = std::env::temp_dir().join(format!("makeroom-top-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (long, pipe) = (folder.join("long.room"), folder.join("pipe.room"));
        File::create(&long).unwrap().set_len(1 << 40).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = |path: &Path| sites(path).unwrap_err();
        assert!(
            refused(&long)
                .starts_with("the recording is 1.00 TiB, too large to show here; to read it: makeroom why "),
            "{}",
            refused(&long)
        );
        assert_eq!(refused(&pipe), "the recording cannot be opened");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
