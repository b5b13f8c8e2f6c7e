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
use makeroom_holders::Account;

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

/// What the view asks of whoever runs it.
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
    selected: usize,
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
            selected: 0,
            sites: None,
            uses_colour,
        }
    }

    /// Takes a new account.
    pub fn update(&mut self, account: Account) {
        let mut seen = HashSet::new();
        for device in &account.devices {
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
        self.account = Some(account);
        self.keep_selection();
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
            Key::Escape => self.filter.clear(),
            Key::Letter('s') => self.order = self.order.next(),
            Key::Letter('r') => self.is_reversed = !self.is_reversed,
            Key::Letter('/') => self.is_filtering = true,
            Key::Up | Key::Letter('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Letter('j') => self.selected += 1,
            Key::Enter => return self.open(),
            Key::Letter(_) | Key::Backspace => {}
        }
        self.keep_selection();
        None
    }

    fn press_while_filtering(&mut self, key: Key) {
        match key {
            Key::Letter(letter) => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.is_filtering = false,
            Key::Escape => {
                self.is_filtering = false;
                self.filter.clear();
            }
            Key::Up | Key::Down => {}
        }
        self.keep_selection();
    }

    /// Opens the sites of the selected program, or says why there are none.
    fn open(&mut self) -> Option<Request> {
        let row = self.rows().into_iter().nth(self.selected)?;
        let Some(recording) = row.recording else {
            let why = "not recorded: start it with makeroom run -- PROGRAM to see its sites".to_owned();
            self.sites = Some(Sites { pid: row.pid, found: Some(Err(why)) });
            return None;
        };
        self.sites = Some(Sites { pid: row.pid, found: None });
        Some(Request::Sites { pid: row.pid, recording })
    }

    fn keep_selection(&mut self) {
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
    }

    fn rows(&self) -> Vec<Row> {
        rows::of(self)
    }
}

#[cfg(test)]
mod tests;
