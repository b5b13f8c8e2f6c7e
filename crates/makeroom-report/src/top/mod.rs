//! The live view of `makeroom top`: what is on the screen, and what keys do to it.
//!
//! ```text
//! mod.rs      the state: the last account, each holder's history, order, filter, selection
//! rows.rs     the table's rows out of all that
//! draw.rs     the screen out of the state, for any backend of ratatui
//! ```
//!
//! Nothing here waits, reads or knows a terminal. Colour only adds to what words and marks say.

mod draw;
mod rows;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_explain::Site;
use makeroom_holders::{Account, Device};

use rows::Row;

/// Looks that a holder's history keeps.
const HISTORY: usize = 60;

/// A key, as the view understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// To the line above.
    Up,
    /// To the line below.
    Down,
    /// A letter.
    Letter(char),
    /// Takes the last letter back.
    Backspace,
    /// Opens, or accepts.
    Enter,
    /// Closes, or gives up.
    Escape,
}

/// A request to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To end.
    Quit,
    /// The sites of a recorded program.
    Sites {
        /// The program.
        pid: u32,
        /// Its recording.
        recording: PathBuf,
    },
}

/// The order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Memory,
    Growth,
    Age,
    User,
    Process,
}

impl Order {
    const ALL: [Self; 5] = [Self::Memory, Self::Growth, Self::Age, Self::User, Self::Process];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Growth => "growth",
            Self::Age => "age",
            Self::User => "user",
            Self::Process => "process",
        }
    }

    fn next(self) -> Self {
        let position = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(position + 1) % Self::ALL.len()]
    }
}

/// What the lower half shows about one program.
#[derive(Debug)]
struct Sites {
    pid: u32,
    /// `None` while they are being read.
    found: Option<Result<Vec<Site>, String>>,
}

/// What is on the screen.
#[derive(Debug)]
pub struct Screen {
    account: Option<Account>,
    /// What each holder had at each look, the oldest first.
    history: HashMap<(String, u32), VecDeque<u64>>,
    order: Order,
    is_reversed: bool,
    filter: String,
    is_filtering: bool,
    /// The selected row; `None` selects the first.
    chosen: Option<usize>,
    sites: Option<Sites>,
    uses_colour: bool,
}

impl Screen {
    /// An empty screen.
    pub fn new(uses_colour: bool) -> Self {
        Self {
            account: None,
            history: HashMap::new(),
            order: Order::Memory,
            is_reversed: false,
            filter: String::new(),
            is_filtering: false,
            chosen: None,
            sites: None,
            uses_colour,
        }
    }

    /// Takes a new account.
    pub fn update(&mut self, account: Account) {
        let mut seen = HashSet::new();
        for device in usable(&account) {
            for holder in &device.holders {
                let key = (device.uuid.clone(), holder.pid);
                let history = self.history.entry(key.clone()).or_default();
                history.push_back(holder.bytes.map_or(0, Bytes::get));
                if history.len() > HISTORY {
                    history.pop_front();
                }
                seen.insert(key);
            }
        }
        // A number that comes again is another process.
        self.history.retain(|key, _| seen.contains(key));
        self.keeping_selection(|screen| screen.account = Some(account));
    }

    /// Takes the sites that were asked for.
    pub fn show_sites(&mut self, pid: u32, found: Result<Vec<Site>, String>) {
        if let Some(sites) = self.sites.as_mut().filter(|sites| sites.pid == pid) {
            sites.found = Some(found);
        }
    }

    /// What a key does.
    pub fn press(&mut self, key: Key) -> Option<Request> {
        if self.is_filtering {
            self.press_while_filtering(key);
            return None;
        }
        match key {
            Key::Letter('q') => return Some(Request::Quit),
            Key::Escape if self.sites.take().is_none() && self.filter.is_empty() => {
                return Some(Request::Quit);
            }
            Key::Escape => self.keeping_selection(|screen| screen.filter.clear()),
            Key::Letter('s') => self.keeping_selection(|screen| screen.order = screen.order.next()),
            Key::Letter('r') => self.keeping_selection(|screen| screen.is_reversed = !screen.is_reversed),
            Key::Letter('/') => self.is_filtering = true,
            Key::Up | Key::Letter('k') => self.select(self.selected().saturating_sub(1)),
            Key::Down | Key::Letter('j') => self.select(self.selected() + 1),
            Key::Enter => return self.open(),
            Key::Letter(_) | Key::Backspace => {}
        }
        None
    }

    fn press_while_filtering(&mut self, key: Key) {
        self.is_filtering = !matches!(key, Key::Enter | Key::Escape);
        self.keeping_selection(|screen| match key {
            Key::Letter(letter) => screen.filter.push(letter),
            Key::Backspace => {
                screen.filter.pop();
            }
            Key::Escape => screen.filter.clear(),
            Key::Enter | Key::Up | Key::Down => {}
        });
    }

    /// Opens the sites of the selected program, or says why there are none.
    fn open(&mut self) -> Option<Request> {
        let row = self.rows().into_iter().nth(self.selected())?;
        let Some(recording) = row.recording else {
            let why =
                "not recorded: start it with makeroom run -- PROGRAM to see its lines of code".to_owned();
            self.sites = Some(Sites { pid: row.pid, found: Some(Err(why)) });
            return None;
        };
        self.sites = Some(Sites { pid: row.pid, found: None });
        Some(Request::Sites { pid: row.pid, recording })
    }

    fn selected(&self) -> usize {
        self.chosen.unwrap_or(0)
    }

    fn select(&mut self, position: usize) {
        self.chosen = Some(position.min(self.rows().len().saturating_sub(1)));
    }

    /// Changes what is shown; the process that was chosen stays selected wherever its row goes.
    fn keeping_selection(&mut self, change: impl FnOnce(&mut Self)) {
        let key = |row: &Row| (row.device.clone(), row.pid);
        let before = self.chosen.and_then(|position| self.rows().get(position).map(key));
        change(self);
        let Some(position) = self.chosen else { return };
        let found = self.rows().iter().position(|row| Some(key(row)) == before);
        self.select(found.unwrap_or(position));
    }

    fn rows(&self) -> Vec<Row> {
        rows::of(self)
    }
}

/// The devices that programs can use: of divided cards their parts.
fn usable(account: &Account) -> impl Iterator<Item = &Device> {
    account.devices.iter().flat_map(Device::usable)
}

#[cfg(test)]
mod tests;
